"""A sweep's group is what trainers do alone: all columns, under the second seed.

Silos' sizes, groups and reference values differ from seed to seed: what is taken from the first
seed's task, where each has its own, shows.
"""

import contextlib
import dataclasses
import functools
from unittest import mock

import pandas as pd
import pytest
import tensorflow as tf
from absl.testing import flagsaver

from launch.sweeps import grids, plans, results, train_group
from motley_tff import algorithms, commandline
from motley_tff.backends import stacked_loop
from motley_tff.core import candidates
from motley_tff.tables import columns
from tests import eager, toy
from tests.contracts import in_process
from trainers import config

SIZES = {100: (4, 3), 1100: (3, 6)}
COMMON = {"total_rounds": "1", "train_batch_size": "3", "client_learning_rate": "0.25"}
TUNING = {
    "finetune_max_epochs": "1", "finetune_learning_rate": "0.25",
    "metrics": "balanced_accuracy", "tuning_metric": "macro_f1",
}  # fmt: skip
# Few steps; and relations that the first round has learned.
OF_ALGORITHM = {
    "hypcluster": {"num_clusters": "2", "num_warmstart_fedavg_rounds": "1"},
    "fedrep": {"head_epochs": "1"},
    "pfedme": {"inner_steps": "2"},
    "mocha": {"total_rounds": "2"},
    "ditto": {
        "total_rounds": "2",
        "personal_optimizer": "momentum",
        "keep_optimizer_state": "true",
    },
}
KINDS = {n: kind for n, kind in algorithms.TRAINING.items() if kind.card.can_be_grouped}


@functools.cache
def silos(options):
    """Returns the silos of a seed, whose groups and reference values are its own."""
    seed = options.base_random_seed
    task = toy.without_keras(toy.classifier_silos(SIZES[seed], seed))
    sizes = dict(zip(task.train.ids, SIZES[seed], strict=True))
    groups = {silo: f"of {size}" for silo, size in sizes.items()}
    reference = {silo: size / 10 for silo, size in sizes.items()}
    return dataclasses.replace(task, facts={"client_groups": groups}, reference=reference)


def map_rows(function, elements):
    """Returns what `stacked_loop.map_rows` does, row by row: tracing would take longer."""
    leaves = zip(*map(tf.unstack, tf.nest.flatten(elements)), strict=True)
    mapped = [function(tf.nest.pack_sequence_as(elements, row)) for row in leaves]
    return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *mapped)


@contextlib.contextmanager
def row_by_row():
    with (
        flagsaver.flagsaver(),
        in_process.small(),
        eager.running(),
        mock.patch.object(stacked_loop, "map_rows", map_rows),
    ):
        yield


@pytest.mark.parametrize("name", KINDS)
def test_a_group_is_its_trainers(name, tmp_path):
    trainer = KINDS[name].card.trainers[0]
    tuning = TUNING if trainer == "finetuning_trainer" else {}
    fixed = {**COMMON, **tuning, **OF_ALGORITHM.get(name, {})}
    if len(algorithms.offered_by(trainer)) > 1:
        fixed["algorithm"] = name
    plan = plans.Plan(grids.Grid(name, "school", trainer, fixed, {}, {}), 2)
    (task,) = plan.tasks
    first, second = task.runs
    for path in (results.path_of(tmp_path, task), results.begun_path(tmp_path, task)):
        path.parent.mkdir()
    with in_process.opened(trainer) as train, mock.patch.object(in_process, "load", silos):
        with row_by_row():
            commandline.parse([trainer, *plan.arguments(first, tmp_path)])
            flags = config.read(trainer)
            create = functools.partial(train_group._create, flags.data)
            train_group.GroupTraining(tmp_path, plan, task, flags.run, create).run()
        arguments = plan.arguments(second, tmp_path)
        alone = train(tmp_path, second.run_id, *arguments[2:], "--backend=sequential")
    _, row = results.load(results.path_of(tmp_path, task))["runs"]
    of_group = pd.read_csv(results.clients_path(tmp_path, task, second))
    clients, summary = (pd.read_csv(alone / f"{table}.csv") for table in ("clients", "summary"))
    found = of_group[of_group["run_id"] == second.run_id]
    expected = clients[clients["round"] == int(fixed["total_rounds"])]
    found, expected = (table.reset_index(drop=True) for table in (found, expected))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-5, atol=1e-6)
    for _, of_split in summary[-2:].iterrows():
        numbers = [float(row[f"{of_split['split']}_{n}"] or "nan") for n in columns.STATISTICS]
        alone_numbers = of_split[list(columns.STATISTICS)].astype(float).tolist()
        assert numbers == pytest.approx(alone_numbers, rel=1e-5, abs=1e-6, nan_ok=True)
        assert row["candidate"] == str(of_split["candidate"])
        if tuning:
            tuned = float(row[f"{of_split['split']}_personalized_tuning_mean"])
            assert tuned == pytest.approx(of_split["personalized_macro_f1_mean"], rel=1e-5)


# The first of the group has no rate to speak of, and so ends after its second evaluation.
EARLY = {
    "total_rounds": "4", "rounds_per_evaluation": "1", "stop_after": "1",
    "min_improvement": "0.00001", "train_batch_size": "3", "algorithm": "local",
    "tuning_metric": "loss",
    "client_schedule": "exponential", "decay_rounds": "1", "warmup_rounds": "2",
}  # fmt: skip
RATES = {"client_learning_rate": ("0.25", "0.00000001")}


def test_runs_of_a_group_follow_a_schedule_and_end_each_by_itself(tmp_path):
    plan = plans.Plan(grids.Grid("local", "school", "mtl_trainer", EARLY, {}, RATES), 1)
    (task,) = plan.tasks
    for path in (results.path_of(tmp_path, task), results.begun_path(tmp_path, task)):
        path.parent.mkdir()
    ended = []
    with in_process.opened("mtl_trainer") as train, mock.patch.object(in_process, "load", silos):
        with row_by_row():
            commandline.parse(["mtl_trainer", *plan.arguments(task.runs[0], tmp_path)])
            flags = config.read("mtl_trainer")
            create = functools.partial(train_group._create, flags.data)
            selects = flags.selects_round
            train_group.GroupTraining(tmp_path, plan, task, flags.run, create, selects).run()
        rows = {row["run_id"]: row for row in results.load(results.path_of(tmp_path, task))["runs"]}
        for run in task.runs:
            flags = plan.arguments(run, tmp_path)[2:]
            alone = train(tmp_path, run.run_id, *flags, "--backend=sequential")
            summary = pd.read_csv(alone / "summary.csv", dtype=str)
            ended.append(summary["round"].iloc[-1])
            best = candidates.best_round(summary.to_dict("records"), False, "loss")
            row = rows[run.run_id]
            assert row["round"] == best
            for _, of_split in summary[summary["round"] == best].iterrows():
                found = float(row[f"{of_split['split']}_personalized_tuning_mean"])
                expected = float(of_split["personalized_loss_mean"])
                assert found == pytest.approx(expected, rel=1e-5)
    assert ended == ["2", "4"]
