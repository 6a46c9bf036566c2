"""Every flag reaches its effect: a table of flags and of the cells that must change.

A new flag that decides numbers adds a line to `REACHES` (or, if it is a hyperparameter, nothing:
`test_python_and_trainers` and `test_hyperparameters` read them off the dataclasses); one that
decides none, or whose run would take long, a line to `SHOWN_ELSEWHERE`.
"""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from datasets.options import DataOptions
from motley_tff.algorithms import optimizers
from motley_tff.core import options
from motley_tff.experiment.config import RunConfig
from tests.contracts import configurations, in_process
from trainers import algorithm_flags, optimizer_flags

_FINETUNING, _HYPCLUSTER, _KNN_PER, _ = in_process.TRAINERS
_SHORT = (
    "--total_rounds=1", "--rounds_per_evaluation=1", "--backend=sequential", "--max_clients=2",
)  # fmt: skip
_TWO_ROUNDS = ("--total_rounds=2", "--rounds_per_evaluation=2")
# Smallest form of each trainer's own work; what a line gives comes after and so wins.
_OWN = {
    _FINETUNING: ("--finetune_max_epochs=1", "--finetune_learning_rate=0.2"),
    _HYPCLUSTER: ("--num_clusters=2",),
    _KNN_PER: ("--num_neighbors=3", "--coefficients=0.5"),
}
_ALL = "--max_clients=9"
# Of which no evaluation is better than the first.
_NO_RATE = ("--total_rounds=3", "--client_learning_rate=0.0000000001")


class Reaches(NamedTuple):
    """A flag and its effect.

    Attributes:
      flag: With a value other than its default.
      table: Which table must change.
      column: Which column of it; None if a table must be there that is not without the flag.
      trainer: Of which trainer.
      beside: Further flags, of the run without it, too.
    """

    flag: str
    table: str
    column: str | None
    trainer: str = _FINETUNING
    beside: tuple[str, ...] = ()


REACHES = (
    # Data and rounds.
    Reaches("--base_random_seed=5", "rounds", "train_loss"),
    Reaches("--data_seed=5", "rounds", "train_loss", beside=("--partition=iid",)),
    Reaches("--dataset_name=emnist", "clients", "client_id", beside=(
        "--clients_per_train_round=2", _ALL)),
    Reaches("--total_rounds=2", "rounds", "round"),
    Reaches("--rounds_per_evaluation=1", "summary", "round", beside=_TWO_ROUNDS),
    Reaches("--stop_after=1", "rounds", "round", beside=_NO_RATE),
    Reaches("--min_improvement=9", "rounds", "round", beside=(
        "--total_rounds=3", "--stop_after=1", "--tuning_metric=loss")),
    Reaches("--clients_per_train_round=1", "rounds", "num_clients"),
    Reaches("--clients_fraction=0.1", "rounds", "num_clients"),
    # Who trains, and on what.
    Reaches("--partition=iid", "rounds", "train_loss"),
    Reaches("--evaluation_partition=iid", "clients", "baseline"),
    Reaches("--num_clients=2", "clients", "client_id", beside=("--partition=iid", _ALL)),
    Reaches("--min_examples=20", "clients", "num_evaluation_examples", beside=(
        "--partition=dirichlet:1",)),
    Reaches("--max_clients=3", "clients", "client_id"),
    Reaches("--max_examples_per_client=4", "clients", "num_personalization_examples"),
    Reaches("--dropout_rate=0.6", "rounds", "num_clients", beside=(_ALL,)),
    Reaches("--attack=sign_flip:0.1:2", "clients", "baseline_loss"),
    Reaches("--trim_share=0.4", "clients", "baseline_loss", beside=(
        "--aggregator=trimmed_mean", _ALL)),
    Reaches("--straggler_rate=0.9", "clients", "baseline_loss", beside=("--train_epochs=3",)),
    # Evaluation.
    Reaches("--export_scores", "scores", None, _KNN_PER, (
        "--dataset_name=vehicle", "--train_batch_size=256")),
    Reaches("--hurt_margin=0.5", "summary", "hurt_margin"),
    Reaches("--metrics=macro_f1", "summary", "personalized_macro_f1_mean"),
    Reaches("--tuning_metric=loss", "summary", "personalized_loss_mean"),
    # finetuning_trainer, and what knn_per_trainer shares with it.
    Reaches("--finetune_tuning=per_client", "clients", "candidate", beside=(
        "--finetune_learning_rate=0.05,0.5,2",)),
    Reaches("--finetune_every=1", "summary", "round", beside=_TWO_ROUNDS),
    Reaches("--noinclude_baseline_candidate", "clients", "candidate", beside=(
        "--finetune_learning_rate=0.000000001",)),
    # knn_per_trainer.
    Reaches("--knn_tuning=per_client", "clients", "candidate", _KNN_PER, (
        "--coefficients=0.2,0.6,1",)),
    Reaches("--noinclude_baseline_candidate", "clients", "candidate", _KNN_PER, (
        "--coefficients=0.000001",)),
    # hypcluster_trainer.
    Reaches("--num_warmstart_fedavg_rounds=1", "summary", "bytes_down_total", _HYPCLUSTER),
    Reaches("--warmstart_fraction=0.5", "rounds", "round", _HYPCLUSTER, _TWO_ROUNDS),
    Reaches("--warmstart_client_learning_rate=0.7", "rounds", "train_loss", _HYPCLUSTER, (
        "--num_warmstart_fedavg_rounds=1",)),
    Reaches("--warmstart_server_learning_rate=0.7", "rounds", "train_loss", _HYPCLUSTER, (
        "--num_warmstart_fedavg_rounds=1",)),
    Reaches("--warmstart_server_adam_epsilon=0.7", "rounds", "train_loss", _HYPCLUSTER, (
        "--num_warmstart_fedavg_rounds=1", "--server_optimizer=adam")),
    Reaches("--cluster_initialization=updates", "rounds", "train_loss", _HYPCLUSTER),
)  # fmt: skip

# {flag: the test that shows its effect, or why it decides no number}; that a flag is its field's is
# `test_python_and_trainers`.
SHOWN_ELSEWHERE = {
    **dict.fromkeys(("data_dir", "data_file", "use_synthetic_data"), "where data are"),
    **dict.fromkeys(("experiment_name", "root_output_dir"), "where results go"),
    **dict.fromkeys(("rounds_per_checkpoint", "tensorboard"), "test_looking"),
    **dict.fromkeys(
        ("acceptance", "evaluate_ood", "ood_examples", "personalization_fraction"),
        "evaluation/test_evaluator",
    ),
    **dict.fromkeys(
        ("final_evaluation_clients", "test_clients_per_evaluation", "valid_clients_per_evaluation"),
        "experiment/test_schedule",
    ),
    **dict.fromkeys(
        ("path_to_initial_model_weights", "path_to_initial_model_weights_list"),
        "test_a_given_model_is_where_a_run_starts",
    ),
    **{o.name.flag: "trainers/test_flags" for o in options.options(DataOptions) if o.owners},
    **dict.fromkeys(("aggregator", "dp_noise_multiplier"), "test_aggregators"),
    **dict.fromkeys(("dp_delta", "dp_epsilon"), "trainers/test_privacy"),
    "backend": "test_agreement",
    "memory_limit_gb": "which backend",
    "reported_round": "test_finetuning_trainer, test_runs, test_grids",
    "tff_workers": "test_worker",
    "threads_per_client": "speed; last bits",
}


@pytest.fixture(scope="module", params=in_process.TRAINERS)
def opened(request, tmp_path_factory):
    """Runs one trainer; returns (its name, flags -> directory), each set of flags once."""
    root, known = tmp_path_factory.mktemp("runs"), {}
    with in_process.opened(request.param) as run:

        def finished(*given):
            key = (*_SHORT, *_OWN.get(request.param, ()), *given)
            if key not in known:
                known[key] = run(root, f"r{len(known)}", *key)
            return known[key]

        yield request.param, finished


def _name(flag):
    name = flag[2:].partition("=")[0]
    return name[2:] if name.startswith("no") and name[2:] in flags.FLAGS else name


def test_every_flag_is_known_to_this_table(opened):
    trainer, _ = opened
    shown = {_name(one.flag) for one in REACHES}
    ours = set(in_process.declared())
    classes = ("algorithm", "personalization")
    choices = [flags.FLAGS[f].value for f in classes if f in flags.FLAGS]
    of_packages = algorithm_flags.of_unused_packages(trainer, choices)
    known = {*classes, *shown, *of_packages, *SHOWN_ELSEWHERE}
    left = {f for f in ours - known if optimizer_flags.parameter_of(f) is None}
    assert left == _hyperparameters(trainer)
    for one in REACHES:
        assert one.trainer != trainer or _name(one.flag) in ours, one
        value = one.flag.partition("=")[2]
        is_default = one.trainer == trainer and value == str(flags.FLAGS[_name(one.flag)].default)
        assert not is_default or not value, one


def _hyperparameters(trainer):
    """Returns the flags of algorithms' and personalizations' fields."""
    names = set()
    for kind, personalization in configurations.kinds(trainer):
        run = RunConfig(kind(), personalization and personalization())
        for change in configurations.changes(run):
            if change.field.startswith(("algorithm.", "personalization.")):
                names.update(map(_name, change.flags(trainer, run) or ()))
    return names


def test_the_cells_change(opened):
    trainer, finished = opened
    unmoved = []
    for one in (line for line in REACHES if line.trainer == trainer):
        without, given = (
            in_process.table(finished(*one.beside, *more), one.table) for more in ((), (one.flag,))
        )
        if one.column is None:
            reached = without is None and given is not None
        else:
            reached = list(without.get(one.column, [])) != list(given[one.column])
        if not reached:
            unmoved.append(f"{one.flag} {' '.join(one.beside)}")
    assert not unmoved, unmoved


@pytest.mark.parametrize(
    ("name", "parameter"),
    [(o, p) for o, parameters in optimizers.PARAMETERS.items() for p in parameters],
)
def test_parameters_move_what_an_optimizer_does(name, parameter):
    defaults = optimizers.PARAMETERS[name]

    def weights_after(parameters):
        one = optimizers.build_optimizer(optimizers.OptimizerConfig(name, 0.5, parameters))
        weights = (tf.constant([1.0, -2.0]),)
        state = one.initialize((tf.TensorSpec([2]),))
        for step in (1.0, -0.5, 0.25):
            state, weights = one.next(state, weights, (tf.constant([0.3 * step, 0.1]),))
        return weights[0].numpy()

    changed = {**defaults, parameter: 0.5 + defaults[parameter] / 3}
    if parameter == "nesterov":
        defaults, changed = ({"momentum": 0.5, parameter: value} for value in (False, True))
    assert not np.allclose(weights_after(defaults), weights_after(changed), atol=1e-6)


def test_a_given_model_is_where_a_run_starts(opened):
    """The baseline of a run without rounds is the given model."""
    trainer, finished = opened
    flag = "path_to_initial_model_weights" + ("_list" if trainer == _HYPCLUSTER else "")
    trained = finished()
    again = finished("--total_rounds=0", f"--{flag}={trained}")
    before, after = (in_process.table(path, "clients") for path in (trained, again))
    assert list(before["baseline_loss"]) == list(after["baseline_loss"])
