"""Tests of motley_benchmark, at sizes that say nothing about speed."""

import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.io
import tensorflow as tf

from launch.benchmarks import measuring, report
from motley_tff.core.errors import UserError
from tests import toy
from tests.trainers import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
_TINY = (
    "--emnist_clients=2", "--emnist_images=3", "--emnist_batch_size=2",
    "--population_clients=50", "--population_cohort=5", "--population_rounds=4",
    "--population_settled_round=2",
)  # fmt: skip
_CONTENDERS = [
    ("bare loop", 0),
    ("sequential, one client at a time", 0),
    ("matrix product", 0),
    ("tff", 0),
    ("stock TFF, defaults", 0),
    ("stock TFF, dataset iterator", 0),
    ("bare loop", 1),
    ("sequential", 1),
    ("sequential, one client at a time", 1),
    ("matrix product", 1),
    ("tff", 1),
]


def _benchmark(*arguments, timeout=120, environment=None):
    return subprocess.run(
        [sys.executable, "-m", "launch.benchmarks.command", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.slow
def test_runs_every_contender_and_reports(tmp_path):
    path = tmp_path / "times.json"
    result = _benchmark("--workloads=emnist_cnn", "--repeats=2", f"--json={path}", *_TINY)
    assert (result.returncode, result.stderr) == (0, "")
    (emnist,) = json.loads(path.read_text())["workloads"]
    found = [(row["name"], row["threads"]) for row in emnist["rows"]]
    for (name, threads), (expected, expected_threads) in zip(found, _CONTENDERS, strict=True):
        assert name.startswith(expected)
        assert threads == expected_threads
        assert name in result.stdout
    _check_ratios(emnist["rows"])
    for row in emnist["rows"]:
        assert len(row["all_seconds"]) == 2
        assert row["peak_bytes"] > 1e8
        if not row["name"].startswith("matrix"):
            assert 1 < row["facts"]["loss"] < 20
        if row["name"].startswith(("bare", "sequential")):
            assert row["gflop_per_second"] > 0 and row["share_of_peak"] < 1.5
    assert "x bare loop" in result.stdout


_SMALL = {
    "emnist_batch_size": 2, "flute_clients": 2, "flute_rounds": 6, "flute_measured_rounds": 2,
    "lstm_clients": 2, "lstm_sentences": 4, "lstm_tokens": 5, "lstm_batch_size": 2,
    "lstm_vocabulary": 50, "lstm_units": 6,
    "landmark_clients": 2, "landmark_images": 2, "landmark_batch_size": 2, "landmark_classes": 5,
    "ted_clients": 2, "ted_sentences": 4, "ted_batch_size": 2, "ted_vocabulary": 50,
    "school_rounds": 4, "school_measured_rounds": 2, "school_batch_size": 16, "grid_seeds": 2,
    "finetuning_clients": 4, "finetuning_measured_clients": 2, "finetuning_epochs": 2,
    "finetuning_images": 3, "generator_clients": 2, "generator_steps": 5, "worker_clients": 3,
    "worker_images": 2,
}  # fmt: skip
_WITHOUT_STOCK = ["bare loop", "sequential"]
_LOOPS = [*_WITHOUT_STOCK, "matrix product"]
_ONE_THREAD = [*_WITHOUT_STOCK, "sequential, one client", "matrix product"]
# {workload: names of its contenders begin so}
_OTHERS = {
    "flute_emnist": ["sequential"],
    "stackoverflow_lstm": [*_LOOPS, *_ONE_THREAD],
    "landmark_mobilenet": [*_LOOPS, "sequential", *_ONE_THREAD, "sequential"],
    "ted_transformer": [*_LOOPS, *_ONE_THREAD],
    "school_fedavg": ["bare loop", "vectorized", "sequential", "stock TFF, defaults"],
    "school_grid": ["vectorized, 50 runs a call"],
    "finetuning_evaluation": [
        *_WITHOUT_STOCK, "tff", "stock TFF, personalization eval", *_WITHOUT_STOCK, "tff",
    ],
    "digits_wgan_gp": [*_WITHOUT_STOCK, *_WITHOUT_STOCK],
    "digits_ddpm": [*_WITHOUT_STOCK, *_WITHOUT_STOCK],
    "tff_workers": ["tff, 1 worker", "tff, 2 workers"],
}  # fmt: skip


@pytest.mark.slow
def test_every_other_workload_runs_at_the_sizes_that_are_given(tmp_path):
    cells = [np.empty((1, 4), object) for _ in range(2)]
    rng = np.random.default_rng(0)
    for school in range(4):
        cells[0][0, school] = rng.normal(size=(30, 28))
        cells[1][0, school] = rng.integers(1, 71, (30, 1)).astype(float)
    scipy.io.savemat(tmp_path / "school.mat", dict(zip("XY", cells, strict=True)))
    (tmp_path / "client_sizes").mkdir()
    sizes = tmp_path / "client_sizes" / "emnist_client_sizes_train.csv"
    sizes.write_text(",0\na,3\nb,5\nc,2\n")
    path = tmp_path / "times.json"
    given = [f"--{name}={value}" for name, value in _SMALL.items()]
    result = _benchmark(
        f"--workloads={','.join(_OTHERS)}", "--repeats=1", f"--json={path}",
        f"--data_dir={tmp_path}", *given, timeout=900,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(path.read_text())
    assert found["repeats"] == 1 and found["sizes"].items() >= _SMALL.items()
    rows = {each["workload"]: each["rows"] for each in found["workloads"]}
    titles = {each["workload"]: each["title"] for each in found["workloads"]}
    assert list(rows) == list(_OTHERS)
    for workload, names in _OTHERS.items():
        for row, name in zip(rows[workload], names, strict=True):
            assert row["name"].startswith(name) and len(row["all_seconds"]) == 1
            assert all(math.isfinite(value) for value in row["facts"].values())
    assert "6 FedAvg rounds of the EMNIST CNN, 2 of 3 clients each" in titles["flute_emnist"]
    assert rows["flute_emnist"][0]["scale"] == 3
    assert "2 clients x 4 sentences of 5 tokens, batch 2" in titles["stackoverflow_lstm"]
    # Untrained, words are as likely as each other: 50 of them.
    for row in rows["stackoverflow_lstm"]:
        if row["name"].startswith("matrix"):
            continue
        assert row["facts"]["loss"] == pytest.approx(math.log(50), abs=0.1)
    assert titles["school_fedavg"] == "4 rounds of FedAvg on School (mat data), 4 silos, batch 16"
    # A round of four, all four, two of four.
    assert [row["scale"] for row in rows["school_fedavg"]] == [4, 1, 2, 2]
    assert "25 pairs of rates x 2 seeds" in titles["school_grid"]
    assert rows["school_grid"][0]["facts"]["runs"] == 50
    assert {row["scale"] for row in rows["finetuning_evaluation"]} == {2}
    # Of two clients with three images each.
    for row in rows["finetuning_evaluation"]:
        assert row["facts"]["accuracy"] * 6 == pytest.approx(round(row["facts"]["accuracy"] * 6))


def _check_ratios(rows):
    """Every ratio is to the bare loop, that of the same process or that with all threads."""
    bare = {row["threads"]: row["all_seconds"] for row in rows if row["name"] == "bare loop"}
    stock = next(row["all_seconds"] for row in rows if row["name"] == "stock TFF, defaults")
    for row in rows:
        if row["name"].startswith("matrix"):
            continue
        mine = np.array(row["all_seconds"])
        here, everywhere = np.array(bare[row["threads"]]), np.array(bare[0])
        assert row["times_bare_loop"] == pytest.approx(np.median(mine / here))
        assert row["times_bare_loop_on_all_threads"] == pytest.approx(np.median(mine / everywhere))
        assert row["faster_than_stock"] == pytest.approx(np.median(np.array(stock) / mine))


@pytest.mark.slow
def test_json_on_stdout_is_nothing_but_json():
    result = _benchmark("--workloads=population", "--json=-", *_TINY)
    assert result.returncode == 0
    (population,) = json.loads(result.stdout)["workloads"]
    (row,) = population["rows"]
    assert row["times_bare_loop"] is None
    assert row["facts"]["resident after round 2, MB"] > 100
    assert "growth, MB" in row["facts"]
    assert result.stderr.startswith("population: 4 rounds of 5 clients out of 50")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--workloads=emnist_cnm", "expected some of emnist_cnn, flute_emnist"),
        ("--repeats=0", "repeats"),
        ("--json=/nowhere/times.json", "No such file or directory; name another file"),
        ("--torch_python=/nowhere/python", "found no program; give the path of a Python that has"),
    ],
)
def test_bad_flags_fail_at_once(argument, message, tmp_path):
    """Before TensorFlow is there, so before anything is measured."""
    environment = programs.environment_without_tensorflow(tmp_path)
    result = _benchmark(argument, environment=environment)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def _result(name, threads, seconds, scale=1.0, gflop=0.0):
    runs = [measuring.Measured(s, 2 * s, 10_000_000, {"loss": 1.5}) for s in seconds]
    return measuring.Result(name, threads, scale, gflop, 9.0, runs)


def test_ratios_are_medians_over_neighbours():
    """The machine was ten times slower in the second turn: ratios do not notice."""
    results = [
        _result("bare loop", 0, [1.0, 10.0, 1.0]),
        _result("tff", 0, [1.5, 15.0, 1.4]),
        _result("stock TFF, defaults", 0, [3.0, 30.0, 3.0]),
        _result("bare loop", 1, [2.0, 20.0, 2.0]),
        _result("sequential", 1, [1.0, 10.0, 1.0], scale=4.0),
    ]
    table = report.tabulate("work", "what is done", results)
    _, tff, _, _, sequential = table.rows
    assert (tff.seconds, tff.times_bare_loop, tff.faster_than_stock) == (1.5, 1.5, 2.0)
    assert (sequential.times_bare_loop, sequential.times_bare_loop_on_all_threads) == (0.5, 1.0)
    assert report.to_text(table).splitlines()[0] == "work: what is done"
    (line,) = [x for x in report.to_text(table).splitlines() if x.startswith("  sequential")]
    assert line.split() == ["sequential", "1", "1*", "0.50", "1.00", "3.00", "2", "9", "10", "1.5"]
    assert "* 1/4 of the work was run, the rest extrapolated: sequential" in report.to_text(table)


def test_the_better_pytorch_one_client_and_the_peak_are_compared_with():
    results = [
        _result("matrix product (SGEMM)", 0, [0.1], gflop=50.0),
        _result("PyTorch, plain, threads: 2", 0, [3.0]),
        _result("PyTorch, plain, threads: 1", 0, [2.0]),
        _result("sequential, one client at a time", 1, [1.8], gflop=180.0),
        _result("sequential, 2 clients at once", 1, [1.0], gflop=180.0),
        _result("matrix product (SGEMM)", 1, [0.2], gflop=50.0),
    ]
    sgemm, slower, _, one, two, _ = report.tabulate("work", "what is done", results).rows
    assert (two.times_torch, two.times_one_client) == (0.5, pytest.approx(1 / 1.8))
    assert (slower.times_torch, one.times_one_client) == (1.5, 1.0)
    assert (two.gflop_per_second, two.share_of_peak) == (180.0, pytest.approx(0.36))
    assert (sgemm.gflop_per_second, sgemm.times_torch) == (500.0, None)


def test_a_loss_that_diverged_is_null_in_json():
    run = measuring.Measured(1.0, 1.0, 1, {"loss": float("nan")})
    table = report.tabulate("w", "t", [measuring.Result("bare loop", 0, 1.0, 0.0, None, [run])])
    (workload,) = json.loads(report.to_json([table], {"repeats": 1}))["workloads"]
    assert workload["rows"][0]["facts"] == {"loss": None}


def test_the_bare_loop_takes_the_steps_of_a_client():
    """Same batches, same dropout: with one client a round of FedAvg is the bare loop."""
    from launch.benchmarks import bare_loop, rounds
    from motley_tff.backends import sequential

    task = toy.classifier_task(num_clients=1, sizes=(10,))
    training = rounds.Training(task, 0.3, batch_size=4)
    (one,), algorithm = training.plan(1), training.algorithm
    (walk,) = algorithm.work.passes
    batches = bare_loop.batches(task.train, one.client_ids, walk, one.key)
    assert batches.bounds.numpy().tolist() == [0, 4, 8, 10]
    found, loss = bare_loop.build(task, 0.3)(algorithm.initial_weights, batches)
    process = sequential.SequentialBackend().training(task, algorithm)
    state = process.run(process.initialize(), [one], lambda *_: None)
    for a, b in zip(process.weights(state), found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert np.isfinite(loss)


def test_every_size_is_a_positive_default():
    for field in measuring.size_fields():
        assert field.default >= 1
        assert field.metadata["help"].endswith(".")


def test_client_sizes_are_read_or_drawn(tmp_path):
    from launch.benchmarks import population

    drawn, source = population.draw_client_sizes(None, 20_000)
    assert source == "log-normal"
    assert drawn.min() >= 1
    assert drawn.mean() == pytest.approx(137, rel=0.2)
    folder = tmp_path / "client_sizes"
    folder.mkdir()
    (folder / "a.csv").write_text("id,size\nx,3\ny,5\n")
    read, source = population.draw_client_sizes(str(tmp_path), 100)
    assert set(read) == {3, 5}
    assert source == "resampled from 2 real ones"


def test_stock_tff_trains_school_with_our_loss():
    from datasets import silos
    from launch.benchmarks import stock

    rng = np.random.default_rng(0)
    x, y = np.float32(rng.normal(size=(5, 3))), np.float32(rng.normal(size=(5, 1)))
    model = stock.linear(3)
    with tf.GradientTape() as tape:
        loss = model.forward_pass((x, y)).loss
    expected = silos.half_squared_error(y[:, 0], np.zeros(5, np.float32))[0]
    assert float(loss) == pytest.approx(float(tf.reduce_mean(expected)))
    # Of (output - target)^2 / 2 on average, at weights of 0.
    kernel, bias = tape.gradient(loss, model.trainable_variables)
    np.testing.assert_allclose(kernel, -x.T @ y / 5, rtol=1e-5)
    np.testing.assert_allclose(bias, -y.mean(0), rtol=1e-5)
    total, count = model.report_local_unfinalized_metrics()["loss"]
    assert float(total / count) == pytest.approx(float(loss))


def test_a_population_without_a_round_to_grow_in_is_refused():
    from launch.benchmarks import population

    sizes = measuring.Sizes(population_rounds=2, population_settled_round=2)
    words = "--population_rounds=2: expected more than --population_settled_round=2"
    with pytest.raises(UserError, match=words), population.contenders(sizes, 1):
        pass
