"""motley_table5 on synthetic schools: chooses on validation, gives what single runs give."""

import csv
import subprocess
import sys

import numpy as np
import pytest

import datasets
from launch import table5_search
from motley_tff.algorithms import ditto, fedavg, optimizers, personal
from motley_tff.backends import base, sequential
from motley_tff.core import evaluation, random_streams
from tests.trainers import programs

ROUNDS, SEEDS = 3, (100, 1100)


@pytest.fixture(scope="module")
def tasks():
    return {
        seed: datasets.create_task(
            datasets.DataOptions("school", use_synthetic_data=True, base_random_seed=seed)
        )
        for seed in SEEDS
    }


def test_the_best_setting_and_its_numbers(tasks):
    points = [
        {"client": 0.03, "server": 1.0, "lambda": 0.5, "personal": rate} for rate in (1e-4, 0.03)
    ]
    search = table5_search.Search(tasks, 32, ROUNDS, 2, 2, lambda text: None)
    name, setting, mean, std, over_seeds, hurt, runs = search.best("ditto", (), points)
    assert (name, hurt, runs) == ("ditto", None, 4)
    alone = [_ditto_alone(task, seed, setting) for seed, task in tasks.items()]
    assert mean == pytest.approx(np.mean([v.mean() for _, v in alone]), rel=1e-5)
    assert std == pytest.approx(np.mean([v.std() for _, v in alone]), rel=1e-5)
    assert over_seeds == pytest.approx(np.std([v.mean() for _, v in alone]), rel=1e-3)
    # No other setting is better on validation data.
    best = np.mean([v.mean() for v, _ in alone])
    for point in points:
        others = [_ditto_alone(task, seed, point)[0].mean() for seed, task in tasks.items()]
        assert np.mean(others) >= best * (1 - 1e-6)


def _ditto_alone(task, seed, setting):
    """Returns the silos' (validation, test) values of one run on the sequential backend."""
    sgd = optimizers.OptimizerConfig
    server = sgd("fedavgm", setting["server"], {"momentum": 0.9})
    params = fedavg.Params(sgd("sgd", setting["client"]), server, train_batch_size=32)
    own = ditto.Params(params, sgd("sgd", setting["personal"]), setting["lambda"])
    algorithm = ditto.build(task, own, task.model.initial_weights(seed))
    backend = sequential.SequentialBackend()
    process = backend.training(task, algorithm)
    plan = [
        base.Round(n, task.train.ids, random_streams.key(seed, "local_training", n))
        for n in range(1, ROUNDS + 1)
    ]
    state = process.run(process.initialize(), plan, lambda *_: None)
    evaluator = evaluation.Evaluator(backend, task, personal.build(task, algorithm))
    ids = {split: task.splits[split].ids for split in evaluation.SPLITS}
    key = random_streams.key(seed, "personalization", ROUNDS)
    scores = evaluator.score(process.weights(state), process.client_states(state), ids, key)
    return tuple(scores[split].values["half_squared_error"][:, 1] for split in evaluation.SPLITS)


def test_fine_tuning_searches_rounds_rates_and_epochs(tasks):
    points = [{"client": 0.03, "server": 1.0}]
    search = table5_search.Search(tasks, 32, ROUNDS, 2, 2, lambda text: None)
    _, _, before, *_ = search.best("fedavg", (), points)
    name, setting, mean, std, _, hurt, runs = search.best("finetuning", (0.01, 0.1), points)
    assert (name, setting, runs) == ("finetuning", points[0], 2)
    assert mean < before and std > 0 and 0 <= hurt <= 100


def test_command(tmp_path):
    command = [sys.executable, "-m", "launch.table5", "--use_synthetic_data", "--seeds=1"]
    flags = ["--total_rounds=2", "--algorithms=local", f"--csv={tmp_path / 'table.csv'}"]
    result = subprocess.run(
        [*command, *flags], env=programs.environment(), capture_output=True, text=True, check=True
    )
    assert "local" in result.stdout and "the whole search took" in result.stdout
    with open(tmp_path / "table.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["algorithm"] == "local" and row["num_runs"] == "5" and row["paper_mean"] == ""
    missing = subprocess.run(
        [*command[:-2], "--csv=/no/such/folder/table.csv"],
        env=programs.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1
