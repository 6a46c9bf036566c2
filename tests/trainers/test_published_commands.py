"""Motley's own command lines run here as they are.

The template and its values are those of the published cross-device README ("Here is an example
command", and the values in bold), without the part that is Bazel's. Its misspellings of flags
(`valid_clients_per_round`, `finetune_optimzier`) are in its lists, not in the command.
"""

import dataclasses

import pytest

from motley_tff.experiment import runner
from motley_tff.experiment.config import LoopConfig
from tests import toy
from tests.errors import refused
from tests.trainers import programs, test_optimizer_flags

# {data set: rates of clients and server, Adam's epsilon, cohort, batch, validation and test clients
# an evaluation, rounds an evaluation and a checkpoint, fine-tuning rate, last layer only, epochs}
FINETUNING = {
    "emnist": (0.1, 0.001, 0.001, 50, 20, 100, 100, 100, 100, 10**-0.6, True, 20),
    "stackoverflow": (1.0, 0.1, 0.001, 200, 16, 200, 200, 100, 100, 10**-1.0, False, 20),
    "landmark": (0.01, 10**-2.5, 1e-5, 64, 16, 32, 96, 1000, 1000, 0.1, True, 10),
    "ted_multi": (10**-1, 10**-2, 0.001, 32, 16, 98, 117, 30, 50, 0.0005, False, 20),
}
# {data set: rates of clients and server, epsilon}; two clusters, the rest as above
HYPCLUSTER = {
    "emnist": (0.1, 0.001, 0.0001),
    "stackoverflow": (0.5, 0.01, 10**-4),
    "landmark": (10**-2.5, 10**-3, 10**-4),
    "ted_multi": (10**-1, 10**-2, 0.001),
}
# {data set: last layer only, rate, epochs} of no rounds
LOCAL = {
    "emnist": (False, 0.1, 200),
    "stackoverflow": (False, 0.5, 200),
    "landmark": (False, 1.0, 50),
    "ted_multi": (True, 1.0, 50),
}
_SMALLEST = ("finetuning", "emnist")
COMMANDS = [(kind, name) for kind in ("finetuning", "hypcluster", "local") for name in FINETUNING]
# Of 200 epochs each of 200 clients takes hours; the last value of a flag counts.
FEWER_EPOCHS = "--finetune_max_epochs=2"


def command(kind, name):
    """Returns (trainer, flags) of a published run."""
    client, server, epsilon, *rest = FINETUNING[name]
    if kind == "hypcluster":
        client, server, epsilon = HYPCLUSTER[name]
    cohort, batch, valid, test, evaluation, checkpoint, rate, last_layer, epochs = rest
    if kind == "local":
        last_layer, rate, epochs = LOCAL[name]
    flags = {
        "dataset_name": name,
        "experiment_name": f"{kind}_{name}",
        "total_rounds": 0 if kind == "local" else 2,
        "clients_per_train_round": cohort,
        "train_batch_size": batch,
        "train_epochs": 1,
        "server_optimizer": "adam",
        "server_learning_rate": server,
        "server_adam_beta_1": 0.9,
        "server_adam_beta_2": 0.99,
        "server_adam_epsilon": epsilon,
        "client_optimizer": "sgd",
        "client_learning_rate": client,
        "valid_clients_per_evaluation": valid,
        "test_clients_per_evaluation": test,
        "rounds_per_evaluation": evaluation,
        "rounds_per_checkpoint": checkpoint,
        "base_random_seed": 0,
    }
    if kind == "hypcluster":
        flags["num_clusters"] = 2
    else:
        flags |= {
            "finetune_optimizer": "sgd",
            "finetune_learning_rate": rate,
            "finetune_max_epochs": epochs,
            "finetune_last_layer": last_layer,
        }
    trainer = "hypcluster_trainer" if kind == "hypcluster" else "finetuning_trainer"
    return trainer, [f"--{flag}={value}" for flag, value in flags.items()]


@pytest.mark.parametrize("kind", ["finetuning", "hypcluster", "local"])
def test_each_is_understood(kind):
    lines = [command(kind, name)[1] for name in FINETUNING]
    trainer, _ = command(kind, "emnist")
    parsed = test_optimizer_flags.parsed(*lines, trainer=trainer)
    for flags, read in zip(lines, parsed, strict=True):
        assert isinstance(read, dict), read
        for flag in flags:
            name, _, value = flag.removeprefix("--").partition("=")
            if name != "experiment_name":
                mine = read[name][0] if isinstance(read[name], list) else read[name]
                assert str(mine) == value or float(mine) == float(value), flag


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(*c, marks=pytest.mark.slow if c == _SMALLEST else pytest.mark.study)
     for c in COMMANDS if c == _SMALLEST or "emnist" not in c],
)  # fmt: skip
def test_each_runs(tmp_path, kind, name):
    trainer, flags = command(kind, name)
    fewer = [FEWER_EPOCHS] if kind != "hypcluster" else []
    stdout, _ = programs.run(trainer, tmp_path, *flags, "--use_synthetic_data", *fewer)
    table = programs.table(tmp_path, f"{kind}_{name}", "summary")
    assert set(table["split"]) >= {"valid", "test"} and table["personalized_mean"].notna().all()
    assert "backend: " in stdout


@pytest.mark.parametrize(
    ("is_made_up", "asked", "size"), [(True, 4, None), (True, 3, 3), (False, 4, 4)]
)
def test_a_cohort_above_a_made_up_population_is_all_of_it(is_made_up, asked, size):
    task = toy.scalar_task({"a": [1.0], "b": [2.0], "c": [3.0]})
    if is_made_up:
        task = dataclasses.replace(task, facts={"source": "synthetic"})
    said = []
    loop = runner._fit_cohort(task, LoopConfig(clients_per_train_round=asked), said.append)
    assert loop.clients_per_train_round == size
    warning = "--clients_per_train_round=4, but synthetic toy has 3 training clients"
    assert [line.startswith(warning) for line in said] == [True] * (size is None)
    if not is_made_up:  # Of real data it is still refused.
        with refused("clients_per_round", 4, "at most 3"):
            runner.check_config(loop, task)
