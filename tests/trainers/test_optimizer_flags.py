"""Which optimizer flags count: published names, flagfiles, and flags that would change nothing."""

import json
import subprocess
import sys

import pytest
from absl import flags

from tests.contracts import in_process
from tests.trainers import programs
from trainers import algorithm_flags, optimizer_flags, published_flags

# Parses each command line of stdin, and says what a run would record, or why there is none.
_PROGRAM = """
import json, sys
from motley_tff import commandline
from motley_tff.core.errors import UserError
from trainers import {trainer}, config, optimizer_flags, published_flags
from absl.flags import FLAGS
for line in sys.stdin:
    for name in FLAGS:
        FLAGS[name].unparse()
    try:
        commandline.parse(["trainer", "--experiment_name=x", "--dataset_name=emnist",
                           *json.loads(line)], advice=published_flags.advice)
        optimizer_flags.check_given(commandline.given())
        print(json.dumps(config.deciding_flags("{trainer}")))
    except UserError as error:
        print(json.dumps(error.line(with_flags=True)))
assert "tensorflow" not in sys.modules
"""


def parsed(*command_lines, trainer="finetuning_trainer"):
    """Returns for each command line the deciding flags, or the error's text."""
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(trainer=trainer)],
        input="\n".join(json.dumps(list(words)) for words in command_lines),
        capture_output=True, text=True, env=programs.environment(), check=True,
    )  # fmt: skip
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture()
def preset(tmp_path):
    def write(*lines, name="some.flags"):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
        return f"--flagfile={tmp_path / name}"

    return write


def test_published_names_reach_their_optimizer():
    for prefix in ("client", "server", "finetune"):
        sgd, rmsprop, yogi, adagrad = parsed(
            [f"--{prefix}_sgd_momentum=0.5", f"--{prefix}_sgd_nesterov"],
            [f"--{prefix}_optimizer=rmsprop", f"--{prefix}_rmsprop_decay=0.8",
             f"--{prefix}_rmsprop_epsilon=0.1"],
            [f"--{prefix}_optimizer=yogi", f"--{prefix}_yogi_beta1=0.8",
             f"--{prefix}_yogi_beta2=0.7", f"--{prefix}_yogi_initial_accumulator_value=2"],
            [f"--{prefix}_optimizer=adagrad", f"--{prefix}_adagrad_initial_accumulator_value=3"],
        )  # fmt: skip
        assert (sgd[f"{prefix}_sgd_momentum"], sgd[f"{prefix}_sgd_nesterov"]) == (0.5, True)
        assert rmsprop[f"{prefix}_rmsprop_decay"] == 0.8
        assert rmsprop[f"{prefix}_rmsprop_epsilon"] == 0.1
        names = ("beta_1", "beta_2", "initial_preconditioner_value")
        assert [yogi[f"{prefix}_yogi_{name}"] for name in names] == [0.8, 0.7, 2]
        assert adagrad[f"{prefix}_adagrad_initial_preconditioner_value"] == 3


def test_two_spellings_are_one_setting():
    yogi = "--server_optimizer=yogi"
    first, other, both = parsed(
        [yogi, "--server_yogi_beta1=0.8"],
        [yogi, "--server_yogi_beta_1=0.8"],
        [yogi, "--server_yogi_beta_1=0.8", "--server_yogi_beta1=0.8"],
    )
    assert first == other  # So either goes on with what the other began.
    assert not [name for name in first if "beta1" in name or "accumulator" in name]
    assert both.startswith("--server_yogi_beta_1: ") and "--server_yogi_beta1 " in both


def test_optimizers_that_there_are_not():
    *values, flag, amsgrad = parsed(
        ["--server_optimizer=lars"], ["--client_optimizer=shampoo"],
        ["--server_lars_momentum=0.9"], ["--server_adam_amsgrad"],
    )  # fmt: skip
    for message in values:
        assert "expected one of sgd, momentum, fedavgm, adam, yogi, adagrad, rmsprop" in message
    assert flag == (
        "unknown flag --server_lars_momentum; there is no lars here; --help lists the optimizers"
    )
    assert amsgrad.endswith("TFF's optimizers have no adam_amsgrad; leave it out")


def test_a_flag_of_another_optimizer_is_refused():
    *refused, expected = parsed(
        ["--server_adam_epsilon=0.001", "--server_learning_rate=0.001"],
        ["--server_adam_epsilon=0.001", "--server_optimizer=sgd"],
        ["--client_optimizer", "adam", "--client_fedavgm_momentum", "0.9"],
        ["--client_optimizer=adam", "--noclient_sgd_nesterov"],
        ["--server_yogi_beta1=0.8"],
        ["--server_adam_epsilon=0.001", "--server_optimizer=adam"],
    )
    names = ("server_adam_epsilon", "server_adam_epsilon", "client_fedavgm_momentum",
             "client_sgd_nesterov", "server_yogi_beta1")  # fmt: skip
    assert [line.partition(": expected --")[0] for line in refused] == [f"--{n}" for n in names]
    assert refused[0].endswith("--server_optimizer=adam, not sgd; leave one of them out")
    assert expected["server_adam_epsilon"] == 0.001


def test_a_presets_optimizer_can_be_exchanged(preset):
    adam = preset("--server_optimizer=adam", "--server_adam_epsilon=0.5", "--train_epochs=3")
    stray = preset("--server_adam_epsilon=0.5", name="stray.flags")
    inner = preset(adam, name="outer.flags")
    plain, exchanged, apart, nested, own_flag, from_stray, over_stray = parsed(
        ["--train_epochs=3"],
        [adam, "--server_optimizer=sgd"],
        [*adam.split("="), "--server_optimizer", "sgd"],
        [inner, "--server_optimizer=sgd"],
        [adam, "--server_optimizer=sgd", "--server_adam_epsilon=0.1"],
        [stray],
        [stray, "--server_optimizer=sgd"],
    )
    assert plain == exchanged == apart == nested  # Nothing of the preset's Adam is left.
    assert own_flag.startswith("--server_adam_epsilon: expected --")
    path = stray.partition("=")[2]
    assert from_stray == over_stray
    assert from_stray.startswith(f"{path} --server_adam_epsilon: expected --")


def test_flags_of_the_silo_code_are_answered_with_ours():
    names = [name for name in published_flags.SILO if name != "lambda"]
    messages = parsed(*([f"--{name}=1"] for name in names))
    assert messages == [f"unknown flag --{n}; {published_flags.SILO[n]}" for n in names]
    for trainer in ("hypcluster_trainer", "knn_per_trainer"):
        (message,) = parsed(["--lambda", "0.5"], trainer=trainer)
        assert message == f"unknown flag --lambda; {published_flags.SILO['lambda']}"
    # A flag that was only misspelt still finds its neighbour.
    (near,) = parsed(["--client_learning_rat=1"])
    assert near == "unknown flag --client_learning_rat; did you mean --client_learning_rate?"


def test_a_flag_of_another_trainer_is_named_with_it():
    names = (
        "num_clusters",
        "include_baseline_candidate",
        "nofinetune_last_layer",
        "nototal_rounds",
    )
    *theirs, mine = parsed(*([f"--{name}"] for name in names), trainer="mtl_trainer")
    whose = ("hypcluster_trainer's", "finetuning_trainer's and knn_per_trainer's",
             "finetuning_trainer's")  # fmt: skip
    for message, name, owners in zip(theirs, names[:-1], whose, strict=True):
        advice = f"--{name} is {owners}; leave it out, or run that trainer"
        assert message == f"unknown flag --{name}; {advice}"
    assert mine.endswith("did you mean --total_rounds?")


def test_flags_that_are_not_declared_are_a_trainers():
    with in_process.opened("mtl_trainer"):
        its_own = {name: flags.FLAGS[name].default for name in in_process.declared()}
    defaults = {
        name: flag.flag.default for name, flag in algorithm_flags.make("mtl_trainer").items()
    }
    assert {name: its_own.pop(name) for name in defaults} == defaults and defaults[
        "total_rounds"
    ] == 100
    assert {*map(optimizer_flags.first_name, its_own)} <= defaults.keys()  # Other names of these.


def test_a_warm_starts_epsilon_goes_with_clusterings_optimizer(preset):
    adam = preset(
        "--server_optimizer=adam", "--server_adam_epsilon=0.1", "--warmstart_server_adam_epsilon=1"
    )
    kept, aside, refused = parsed(
        [adam],
        [adam, "--server_optimizer=sgd"],
        ["--warmstart_server_adam_epsilon=1"],
        trainer="hypcluster_trainer",
    )
    assert (kept["server_adam_epsilon"], kept["warmstart_server_adam_epsilon"]) == (0.1, 1)
    assert aside["server_adam_epsilon"] == 1e-7 and aside["warmstart_server_adam_epsilon"] is None
    assert refused.startswith("--warmstart_server_adam_epsilon: expected --")
