"""Points, runs and tasks: a function of the grid alone, and the same after JSON."""

import dataclasses
import pathlib
import sys

import pytest

from launch.sweeps import grids, plans
from motley_tff import algorithms
from motley_tff.core import options
from motley_tff.core.options import option
from tests.errors import refused

DITTO = grids.Grid(
    "ditto", "school", "mtl_trainer", {"algorithm": "ditto", "train_batch_size": "32"}, {},
    {"mocha_outer": ("2", "1"), "lambda": ("1", "0.1"), "personal_learning_rate": ("0.01",)},
)  # fmt: skip
EMNIST = grids.Grid(
    "finetuning", "emnist", "finetuning_trainer", {"total_rounds": "7"},
    {"finetune_learning_rate": ("0.1", "0.2")}, {"finetune_last_layer": ("true", "false")},
)  # fmt: skip


def test_points_and_seeds():
    plan = plans.Plan(DITTO, 3)
    assert plan.seeds == (100, 1100, 2100) and plan.num_runs == 12
    first, second, *_ = plan.grid.points
    assert first == {"mocha_outer": "2", "lambda": "1", "personal_learning_rate": "0.01"}
    assert second == {**first, "lambda": "0.1"}
    assert plans.SweepRun(7, 1100).run_id == "p0007_s1100"


def test_seeds_are_added_to_runs_of_their_own_alone():
    few, many = plans.Plan(EMNIST, 2), plans.Plan(EMNIST, 3)
    assert many.tasks[: len(few.tasks)] == few.tasks
    assert not plans.is_grouped(many.grid) and plans.is_grouped(DITTO)


def test_groups_hold_every_run_once_and_know_their_points():
    plan = plans.Plan(DITTO, 2)
    assert [task.group.fixed for task in plan.tasks] == [{"mocha_outer": "1"}, {"mocha_outer": "2"}]
    for task in plan.tasks:
        runs = iter(task.runs)
        for setting in task.group.settings:
            for seed in task.group.seeds:
                run = next(runs)
                point = plan.grid.points[run.point]
                assert run.seed == seed and point["mocha_outer"] == task.group.fixed["mocha_outer"]
                assert {flag: float(point[flag]) for flag in setting} == setting
    assert sorted(run for task in plan.tasks for run in task.runs) == [
        plans.SweepRun(point, seed) for point in range(4) for seed in (100, 1100)
    ]


def test_a_table_has_a_group_for_each_seed_and_more_seeds_may_follow():
    grid = dataclasses.replace(DITTO, **TABLE, inside={})
    grid = dataclasses.replace(grid, grid={"client_learning_rate": ("1", "0.1")})
    few, many = plans.Plan(grid, 1), plans.Plan(grid, 2)
    assert [task.runs for task in many.tasks] == [
        tuple(plans.SweepRun(point, seed) for point in (1, 0)) for seed in (100, 1100)
    ]
    assert many.tasks[:1] == few.tasks
    assert not plans.joins_seeds(grid) and plans.joins_seeds(DITTO)


def test_one_trainer_a_run():
    plan = plans.Plan(EMNIST, 2, "/data", use_synthetic_data=True)
    assert [task.runs for task in plan.tasks] == [
        (plans.SweepRun(point, seed),) for seed in (100, 1100) for point in range(2)
    ]
    command = plan.command(plan.tasks[3], pathlib.Path("out/mine"))
    assert command == [
        sys.executable, "-m", "trainers.finetuning_trainer", "--experiment_name=p0001_s1100",
        "--root_output_dir=out/mine/runs", "--dataset_name=emnist", "--base_random_seed=1100",
        "--data_dir=/data", "--use_synthetic_data=true", "--total_rounds=7",
        "--finetune_learning_rate=0.1,0.2", "--finetune_last_layer=false",
    ]  # fmt: skip


_WARM = "num_warmstart_fedavg_rounds"
TUNED = {"trainer": "finetuning_trainer", "grid": {"client_learning_rate": ("1",)}}
CLUSTERS = {"trainer": "hypcluster_trainer", "grid": {"warmstart_fraction": ("0", "1")}}

TABLE = {**TUNED, "dataset": "table", "fixed": {"model": "mlp", "label_column": "y"}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"dataset": "adni"}, False),
        ({"algorithm": "mr_mtl", "fixed": {"algorithm": "mr_mtl"}}, True),
        ({**CLUSTERS, "fixed": {"num_clusters": "2"}}, True),
        ({**CLUSTERS, "fixed": {"cluster_initialization": "updates"}}, False),
        ({**CLUSTERS, "fixed": {"total_rounds": "0"}}, False),
        ({**CLUSTERS, "fixed": {"total_rounds": "0", _WARM: "5"}}, True),
        ({"fixed": {**DITTO.fixed, "aggregator": "secure"}}, False),
        ({"fixed": {**DITTO.fixed, "clients_per_train_round": "5"}}, False),
        ({"fixed": {**DITTO.fixed, "server_adam_epsilon": "1"}}, True),
        ({"fixed": {**DITTO.fixed, "server_optimizer": "yogi", "server_yogi_beta1": "0.5"}}, True),
        ({"fixed": {**DITTO.fixed, "server_optimizer": "rmsprop"}}, False),
        ({"fixed": {"algorithm": "per_fedavg"}}, False),
        ({"fixed": {"algorithm": "local", "total_rounds": "0"}}, False),
        ({"fixed": {**DITTO.fixed, "partition": "iid"}}, False),
        ({"fixed": {**DITTO.fixed, "test_split": "0.2"}}, True),
        ({"fixed": {**DITTO.fixed, "data_seed": "7"}}, True),
        ({**TUNED, "fixed": {"finetune_batch_size": "3", "finetune_every": "5"}}, True),
        ({**TUNED, "fixed": {"personalization": "finetuning"}}, False),
        ({**TUNED, "trainer": "generative_trainer"}, False),
        ({**TABLE}, True),
        ({**TABLE, "fixed": {"model": "linear", "clients_per_train_round": "5"}}, True),
        # Rates that are tried out by each run.
        ({**TABLE, "grid": {"train_batch_size": ("1",)}}, False),
        ({**TABLE, "fixed": {"server_optimizer": "adam"}}, False),
        ({**TABLE, "fixed": {"server_optimizer": "adam", "server_learning_rate": "0.1"}}, True),
        ({**TABLE, "fixed": {"server_optimizer": "momentum"}}, True),
        ({**TABLE, "fixed": {"algorithm": "fedsgd"}}, False),
        ({**TABLE, "fixed": {"algorithm": "fedsgd", "server_learning_rate": "0.1"}}, True),
        ({**TABLE, "fixed": {"model": "mine.py:net"}}, False),
        ({**TABLE, "fixed": {"model": "mlp", "model_sizes": "300,500,8"}}, False),
        ({**TABLE, "fixed": {"model": "mlp", "model_sizes": "300,400,8"}}, True),
        ({**TABLE, "fixed": {"dropout_rate": "0.5"}}, False),
        ({**TABLE, **CLUSTERS, "fixed": {"num_clusters": "2"}}, False),
    ],
)
def test_what_is_grouped(changes, expected):
    assert plans.is_grouped(dataclasses.replace(DITTO, **changes)) is expected


def test_what_groups_have_beside_algorithms_and_optimizers():
    """A new flag is one of these, if `train_group` reads it, or one of those that are run alone."""
    known = set().union(*map(plans.of_groups, algorithms.DEFAULTS))
    kinds = [*algorithms.TRAINING.values(), algorithms.FineTuning, algorithms.KnnPer]
    known -= {o.name.flag for kind in kinds for o in options.options(kind)}
    assert known - grids._SWEEP_FLAGS == {
        "algorithm", "total_rounds", "rounds_per_evaluation", "rounds_per_checkpoint",
        "reported_round", "finetune_every", "finetune_tuning", "knn_tuning",
        "include_baseline_candidate", "num_warmstart_fedavg_rounds", "warmstart_fraction",
        "val_split", "test_split", "lam_svm", "l2_reg", "hurt_margin", "metrics",
        "tuning_metric", "stop_after", "min_improvement",
        "categorical_columns", "client_column", "decimal", "delimiter", "feature_columns",
        "ignore_columns", "date_format",
        "label_column", "label_kind", "missing_values", "model", "model_sizes", "setting",
        "time_column", "group_column", "stratify", "valid_clients", "test_clients", "data_seed",
    }  # fmt: skip


def test_a_new_option_of_an_algorithm_is_grouped(monkeypatch):
    grid = dataclasses.replace(DITTO, fixed={**DITTO.fixed, "haste": "3"})
    assert not plans.is_grouped(grid)
    fields = [("haste", float, option(1.0, "How fast it goes"))]
    hasty = dataclasses.make_dataclass("Hasty", fields, bases=(algorithms.Ditto,), frozen=True)
    monkeypatch.setitem(algorithms.TRAINING, "ditto", hasty)
    assert plans.is_grouped(grid)


def test_calls_with_many_candidates_have_fewer_settings():
    many = dataclasses.replace(
        EMNIST, dataset="school", fixed={"finetune_max_epochs": "100"},
        inside={"finetune_learning_rate": ("1", "2", "3", "4", "5")},
    )  # fmt: skip
    assert plans.max_settings(many) == 2560 // 501
    assert plans.max_settings(DITTO) == 64


def test_a_job_queued_before_an_update_is_refused():
    identity = plans.Plan(DITTO, 2).identity()
    record = {"plan": {**identity, "form": identity["form"] - 1}, "data_dir": None}
    with refused("", "another version of motley_sweep"):
        plans.from_record(record)


def test_another_order_of_flags_is_another_sweep():
    turned = dataclasses.replace(DITTO, grid=dict(reversed(DITTO.grid.items())))
    assert plans.Plan(turned, 2).identity() != plans.Plan(DITTO, 2).identity()


def test_own_tables_have_the_setting_that_their_trainer_wants_unless_the_grid_says_another():
    for trainer, setting in (("mtl_trainer", "cross_silo"), ("knn_per_trainer", "cross_device")):
        grid = dataclasses.replace(EMNIST, dataset="table", trainer=trainer)
        assert plans.Plan(grid, 1).setting == setting
    grid = dataclasses.replace(grid, fixed={"setting": "cross_silo"})
    assert plans.Plan(grid, 1).setting == "cross_silo"
    assert plans.Plan(DITTO, 1).setting is None
