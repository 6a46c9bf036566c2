"""Tests of motley_benchmark, at sizes that say nothing about speed."""

import dataclasses
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.io

from launch.benchmarks import measuring, report
from tests import toy
from tests.errors import refused
from tests.trainers import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
_TINY = (
    "--emnist_clients=2", "--emnist_images=3", "--emnist_batch_size=2",
    "--population_clients=50", "--population_cohort=5", "--population_rounds=4",
    "--population_settled_round=2",
)  # fmt: skip
_CONTENDERS = [
    ("sequential, one client at a time", 0),
    ("matrix product", 0),
    ("tff", 0),
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
    names = [(row["name"], row["threads"]) for row in emnist["rows"]]
    for (name, threads), (expected, expected_threads) in zip(names, _CONTENDERS, strict=True):
        assert name.startswith(expected)
        assert threads == expected_threads
        assert name in result.stdout
    for row in emnist["rows"]:
        assert len(row["all_seconds"]) == 2
        assert row["peak_bytes"] > 1e8
        if not row["name"].startswith("matrix"):
            assert 1 < row["facts"]["loss"] < 20
        if row["name"].startswith("sequential"):
            assert row["gflop_per_second"] > 0 and row["share_of_peak"] < 1.5
    assert "x one client" in result.stdout


_SMALL = measuring.Sizes(
    lstm_clients=2, lstm_sentences=4, lstm_tokens=5, lstm_batch_size=2, lstm_vocabulary=50,
    lstm_units=6, landmark_clients=2, landmark_images=2, landmark_batch_size=2, landmark_classes=5,
    ted_clients=2, ted_sentences=4, ted_batch_size=2, ted_vocabulary=50,
    school_rounds=4, school_measured_rounds=2, school_batch_size=16,
)  # fmt: skip
_LOOPS = [measuring.ONE_CLIENT, measuring.SGEMM]


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("workload", "work"),
    [
        ("stackoverflow_lstm", "2 clients x 4 sentences of 5 tokens, batch 2"),
        ("ted_transformer", "2 clients x 4 sentences of 20 tokens, batch 2"),
        ("landmark_mobilenet", "2 clients x 2 images of 128 pixels, batch 2"),
    ],
)
def test_models_are_trained_at_the_sizes_that_are_given(workload, work):
    from launch.benchmarks import models

    with getattr(models, workload)(_SMALL, 1) as (_, contenders):
        names = [contender.name for contender in contenders]
        assert names[0].startswith("sequential") and names[1:3] == _LOOPS
    with getattr(models, workload)(_SMALL, 0) as (title, contenders):
        assert [contender.name for contender in contenders][:2] == _LOOPS
        assert title.startswith("one FedAvg round of ") and title.endswith(work)
        if workload != "landmark_mobilenet":  # Which takes long.
            # Untrained, classes are about as likely as each other.
            loss = contenders[0].run(1)["loss"]
            assert loss == pytest.approx(math.log(50), rel=0.5)


@pytest.mark.slow
def test_the_rounds_of_school_are_extrapolated(tmp_path):
    from launch.benchmarks import models, rounds

    cells = [np.empty((1, 4), object) for _ in range(2)]
    rng = np.random.default_rng(0)
    for school in range(4):
        cells[0][0, school] = rng.normal(size=(30, 28))
        cells[1][0, school] = rng.integers(1, 71, (30, 1)).astype(float)
    scipy.io.savemat(tmp_path / "school.mat", dict(zip("XY", cells, strict=True)))
    sizes = dataclasses.replace(_SMALL, data_dir=str(tmp_path))
    with models.school_fedavg(sizes, 1) as (title, contenders):
        assert title == "4 rounds of FedAvg on School (mat data), 4 silos, batch 16"
        # All four rounds, two of four.
        found = [(contender.name, contender.amount, contender.scale) for contender in contenders]
        assert found == [("vectorized", 4, 1), (rounds.sequential_backend(1)[0], 2, 2)]
        losses = [[c.run(number)["loss"] for number in (1, 2)] for c in contenders]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][0] != losses[0][1]


@pytest.mark.slow
def test_json_on_stdout_is_nothing_but_json():
    result = _benchmark("--workloads=population", "--json=-", *_TINY)
    assert result.returncode == 0
    (population,) = json.loads(result.stdout)["workloads"]
    (row,) = population["rows"]
    assert row["times_one_client"] is None
    assert row["facts"]["resident after round 2, MB"] > 100
    assert "growth, MB" in row["facts"]
    assert result.stderr.startswith("population: 4 rounds of 5 clients out of 50")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--workloads=emnist_cnm", "expected some of emnist_cnn, stackoverflow_lstm"),
        ("--repeats=0", "repeats"),
        ("--json=/nowhere/times.json", "--json=/nowhere/times.json: "),
        ("--torch_python=/nowhere/python", "--torch_python=/nowhere/python: "),
    ],
)
def test_bad_flags_fail_at_once(argument, message, tmp_path):
    """Before TensorFlow is there, so before anything is measured."""
    environment = programs.environment_without_tensorflow(tmp_path)
    result = _benchmark(argument, environment=environment)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def _contender(name, threads, seconds, scale=1.0, gflop=0.0):
    runs = [measuring.Measured(s, 2 * s, 10_000_000, {"loss": 1.5}) for s in seconds]
    return measuring.Contender(
        name, None, scale=scale, gflop=gflop, threads=threads, first_call_seconds=9.0, runs=runs
    )


def test_ratios_are_medians_over_neighbours():
    """The machine was ten times slower in the second turn: ratios do not notice."""
    results = [
        _contender("sequential, one client at a time", 0, [1.0, 10.0, 1.0]),
        _contender("tff", 0, [1.5, 15.0, 1.4]),
        _contender("sequential, one client at a time", 1, [2.0, 20.0, 2.0]),
        _contender("sequential, 2 clients", 1, [1.0, 10.0, 1.0], scale=4.0),
    ]
    table = report.tabulate("work", "what is done", results)
    _, tff, _, two = table["rows"]
    assert (tff["seconds"], tff["times_one_client"], two["times_one_client"]) == (1.5, 1.5, 0.5)
    text = report.to_text(table)
    assert text.splitlines()[0] == "work: what is done"
    (line,) = [x for x in text.splitlines() if x.startswith("  sequential, 2")]
    cells = ["sequential,", "2", "clients", "1", "1*", "0.50", "2", "9", "10", "1.5"]
    assert line.split() == cells
    assert "* 1/4 of the work was run, the rest extrapolated: sequential, 2" in text


def test_the_better_pytorch_one_client_and_the_peak_are_compared_with():
    results = [
        _contender("matrix product (SGEMM)", 0, [0.1], gflop=50.0),
        _contender("PyTorch, plain, threads: 2", 0, [3.0]),
        _contender("PyTorch, plain, threads: 1", 0, [2.0]),
        _contender("sequential, one client at a time", 1, [1.8], gflop=180.0),
        _contender("sequential, 2 clients at once", 1, [1.0], gflop=180.0),
        _contender("matrix product (SGEMM)", 1, [0.2], gflop=50.0),
    ]
    sgemm, slower, _, alone, two, _ = report.tabulate("work", "what is done", results)["rows"]
    assert (two["times_torch"], two["times_one_client"]) == (0.5, pytest.approx(1 / 1.8))
    assert (slower["times_torch"], alone["times_one_client"]) == (1.5, 1.0)
    assert (two["gflop_per_second"], two["share_of_peak"]) == (180.0, pytest.approx(0.36))
    assert (sgemm["gflop_per_second"], sgemm["times_torch"]) == (500.0, None)
    assert (slower["gflop_per_second"], slower["share_of_peak"]) == (None, None)


def test_a_loss_that_diverged_is_null_in_json():
    run = measuring.Measured(1.0, 1.0, 1, {"loss": float("nan")})
    table = report.tabulate("w", "t", [measuring.Contender("tff", None, runs=[run])])
    assert table["rows"][0]["facts"] == {"loss": None}
    assert "tff: loss: diverged" in report.to_text(table)


# A Python "with PyTorch": the loss of `toy.TwoLayers` by NumPy, and rounds that do nothing.
_FAKE_PYTORCH = """#!{python}
import sys
import numpy as np

_, _, model, path, threads, layout = sys.argv
a = np.load(path)
assert (model, layout) == ("TwoLayers", "plain") and threads in "{cores},1".split(",")
assert a["client"].tolist() == [0, 0, 0, 1] and len(a["x3"]) == 3 and a["learning_rate"] == 0.3
logits = np.tanh(a["x0"] @ a["w0"] + a["w1"]) @ a["w2"] + a["w3"]
logits -= np.log(np.exp(logits).sum(1, keepdims=True))
print({factor} * -logits[np.arange(len(logits)), a["y0"]].mean(), flush=True)
for _ in sys.stdin:
    print("done", flush=True)
"""


@pytest.mark.parametrize("factor", [1, 1.01])
def test_pytorch_has_our_weights_and_batches_or_the_benchmark_fails(factor, tmp_path):
    from launch.benchmarks import rounds
    from motley_tff.core import cores

    script = tmp_path / "python"
    script.write_text(
        _FAKE_PYTORCH.format(python=sys.executable, cores=cores.num_available(), factor=factor)
    )
    script.chmod(0o755)
    setup = rounds.Setup(toy.classifier_task(num_clients=2, sizes=(10, 3)), 0.3, 4)
    sizes = measuring.Sizes(torch_python=str(script))
    if factor != 1:
        with (
            refused("PyTorch's first loss", kind=measuring.BenchmarkError),
            rounds.torch_contenders(setup, "TwoLayers", sizes, 0),
        ):
            pass
        return
    with rounds.torch_contenders(setup, "TwoLayers", sizes, 0) as contenders:
        settings = dict.fromkeys((cores.num_available(), 1))
        assert [c.name for c in contenders] == [f"PyTorch, plain, threads: {n}" for n in settings]
        for contender in contenders:
            contender.run(2)
    with rounds.torch_contenders(setup, "TwoLayers", sizes, 1) as contenders:
        assert contenders == []


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


def test_a_population_without_a_round_to_grow_in_is_refused():
    from launch.benchmarks import population

    sizes = measuring.Sizes(population_rounds=2, population_settled_round=2)
    least = "population_settled_round=2"
    with refused("population_rounds", 2, least), population.population(sizes, 1):
        pass
