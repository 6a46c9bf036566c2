"""launch/experiments/fedeval/radar.py on small run directories, as trainers write them."""

import functools
import math
import re

import pytest

from motley_tff.tables import columns
from tests.errors import refused
from tests.launch import commands
from tests.launch.report import written

FLAGS = {
    "algorithm": "fedavg", "total_rounds": 4, "client_learning_rate": 0.1, "aggregator": "mean",
    "partition": "natural", "dropout_rate": 0.0, "straggler_rate": 0.0, "backend": "auto",
    "attack": "none", "dataset_name": "toy",
}  # fmt: skip


@pytest.fixture(scope="module")
def radar():
    with commands.opened("launch.experiments.fedeval.radar", "RUN...") as run:
        yield run


@pytest.fixture
def scores(radar, tmp_path):
    """Returns what returns the rows of scorecard.csv."""
    return functools.partial(score, radar, tmp_path)


def score(radar, tmp_path, *paths, **flags):
    """Returns the rows of scorecard.csv, with numbers where cells are some."""
    card, texts = tmp_path / "card", {"method", "run_id", "exchange"}
    radar(*paths, f"--output_dir={card}", *(f"--{k}={v}" for k, v in flags.items()))
    rows = commands.rows(card / "scorecard.csv")
    return [{k: v if {k, v} & {*texts, ""} else float(v) for k, v in row.items()} for row in rows]


def _write(
    root, run_id, before, after, *, sent=400, seconds=1.0, done=4, table="fedavg", warm=(), **flags
):
    """Writes a run of two test clients with these values; validation's are half after round 2."""
    metric = flags.pop("metric", "accuracy")
    flags = FLAGS | flags
    half = [
        {"round": n, "split": "valid", "baseline_mean": before * n / 4}
        | {"personalized_mean": after * n / 4} for n in (2, 4)
    ]  # fmt: skip
    each = {"seconds": seconds, "bytes_down": 3 * sent / 4, "bytes_up": sent / 4}
    tables = {"summary": half, "rounds": [{"round": n + 1} | each for n in range(done)]}
    if warm:
        tables["warm_start"] = [{"model": m, "round": n} | each for m, n in warm]
    return written.run(
        root, run_id, table, {"toy:0": (before, after), "toy:1": (before, after)}, flags=flags,
        number=flags["total_rounds"], tables=tables if flags["total_rounds"] else {}, metric=metric,
    )  # fmt: skip


def _methods(root):
    """FedAvg: 0.85, 1,600 bytes and 4 seconds; FedSGD: twice the bytes, half of the seconds."""
    _write(root, "avg", 0.6, 0.85)
    _write(root, "sgd", 0.45, 0.8, sent=800, seconds=0.5, table="fedsgd", algorithm="fedsgd")


def test_all_axes_by_hand(radar, scores, tmp_path):
    root = tmp_path / "runs"
    _methods(root)
    _write(root, "iid", 0.7, 0.87, partition="iid", backend="sequential")
    _write(root, "dropout", 0.6, 0.81, dropout_rate=0.3)
    _write(root, "straggler", 0.6, 0.8, straggler_rate=0.5)
    _write(root, "attacked", 0.6, 0.1, attack="sign_flip:0.1:10")
    _write(root, "central", 0.89, 0.99, algorithm="centralized", table="centralized+finetuning")
    _write(root, "alone", 0.1, 0.81, total_rounds=0, table="local")
    avg, sgd = scores(root)
    assert (avg["method"], sgd["method"]) == ("fedavg", "fedsgd")
    assert tuple(avg) == (*columns.names("scorecard"), "attacked_sign_flip:0.1:10")
    expected = {
        # As many rounds, half of the bytes, twice the seconds.
        "value": 0.85, "rounds": 4, "bytes": 1600, "seconds": 4,
        "efficiency": (1 + 3 + math.exp(-1)) / 3,
        # 0.85 of 0.87 among alike clients; 0.81 and 0.80 of 0.85 with faults.
        "iid_disparity": 2 / 87, "dropout_disparity": 4 / 85, "straggler_disparity": 5 / 85,
        "iid_points": 2, "dropout_points": 1, "straggler_points": 0, "robustness": 3,
        # Better than 0.81 of local models, 4.5% below the 0.89 of the central one.
        "local_value": 0.81, "central_disparity": 4 / 89, "effectiveness": 3,
        "privacy": 2, "security": 3, "attacked_sign_flip:0.1:10": 0.1,
    }  # fmt: skip
    assert {name: avg[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    # FedSGD is 10.1% below the central one, but below local models, too.
    assert [sgd[n] for n in ("efficiency", "robustness", "effectiveness")] == [1, "", 0]
    assert {p.name for p in (tmp_path / "card").glob("radar.*")} == {"radar.svg", "radar.png"}
    printed = radar(root, "--model=global")[1]
    assert "robustness of fedsgd is not measured" in printed
    assert re.search(r"^fedavg .* 0\.6 ", printed, re.MULTILINE)
    assert scores(root, model="global")[0]["value"] == pytest.approx(0.6)


def test_a_warm_start_counts_in_rounds_bytes_and_seconds(radar, scores, tmp_path):
    """Two models side by side for 3 rounds, split by updates, then 4 rounds of 400 bytes each."""
    _methods(tmp_path / "runs")
    warm = {"num_warmstart_fedavg_rounds": 3, "cluster_initialization": "updates"}
    rounds = [(0, 1), *((m, n) for m in (1, 2) for n in (1, 2, 3))]
    _write(tmp_path / "runs", "warm", 0.6, 0.9, warm=rounds, algorithm="hypcluster", **warm)
    _write(tmp_path / "runs", "cold", 0.6, 0.9, algorithm="hypcluster", **warm)
    rows = {row["run_id"]: row for row in scores(tmp_path / "runs")}
    warm, cold = rows["warm"], rows["cold"]
    assert [warm[name] for name in ("rounds", "bytes", "seconds")] == [8, 4400, 11]
    assert warm["efficiency"] == pytest.approx(
        sum(math.exp(1 - ratio) for ratio in (8 / 4, 4400 / 3200, 11 / 2)) / 3
    )
    assert [cold[name] for name in ("rounds", "efficiency")] == ["", ""]
    assert "of a warm start its table" in radar(tmp_path / "runs")[1]


@pytest.mark.parametrize(
    ("changes", "content", "expected"),
    [
        ({"partition": "iid", "client_learning_rate": 1.0}, "the iid run of no method",
         "avg differs in --client_learning_rate (1.0, there 0.1)"),
        ({"partition": "iid", "dropout_rate": 0.1}, "--partition and --dropout_rate", "one"),
        ({"dataset_name": "school"}, "accuracy of school", "accuracy of toy"),
        ({"dropout_rate": 0.1, "done": 3}, "3 of 4 rounds", ""),
        ({"straggler_rate": 0.2}, "first (straggler)", "one straggler run"),
        ({"dropout_rate": 0.1, "after": math.nan}, "2 of 2 test clients", ""),
    ],
)  # fmt: skip
def test_runs_that_do_not_fit_are_refused(radar, tmp_path, changes, content, expected):
    _methods(tmp_path / "runs")
    _write(tmp_path / "runs", "first", 0.5, 0.6, straggler_rate=0.1)
    _write(tmp_path / "runs", "other", 0.5, changes.pop("after", 0.6), **changes)
    with refused("" if "straggler" in expected else "runs/other", content, expected):
        radar(tmp_path / "runs")
