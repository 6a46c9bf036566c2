"""motley_scorecard on small run directories, as trainers write them."""

import csv
import math
import subprocess
import sys

import pytest

from launch.scorecard import rows as scorecard_rows, runs as scorecard_runs
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.metrics import scorecard
from motley_tff.report import runs
from motley_tff.tables import columns
from tests.report import written
from tests.trainers import programs

FLAGS = {
    "algorithm": "fedavg", "total_rounds": 4, "client_learning_rate": 0.1, "aggregator": "mean",
    "partition": "natural", "dropout_rate": 0.0, "straggler_rate": 0.0, "backend": "auto",
}  # fmt: skip


def _write(
    root, run_id, values, *, algorithm="fedavg+finetuning", sent=400, seconds=1.0, done=4,
    flags=None, **options,
):  # fmt: skip
    """Writes a run of two test clients, their global and own models' values given.

    Validation clients have the same on average, half of it after round 2 of 4.
    """
    flags = FLAGS | (flags or {})
    total = flags["total_rounds"]
    before, after = (sum(column) / 2 for column in zip(*values, strict=True))
    summary = [
        {"round": number, "split": "valid", "bytes_down_total": 3 * sent * number / 4}
        | {"bytes_up_total": sent * number / 4}
        | {"baseline_mean": before * number / 4, "personalized_mean": after * number / 4}
        | {"candidate_per_client": "per_client" if number == 4 else "3"}
        for number in (2, 4)
    ]
    rounds = [
        {"round": n, "seconds": seconds, "bytes_down": 3 * sent / 4, "bytes_up": sent / 4}
        for n in range(1, done + 1)
    ]
    clients = {f"emnist:{i}": pair for i, pair in enumerate(values)}
    tables = {"summary": summary, "rounds": rounds} if total else {}
    return written.run(
        root, run_id, algorithm, clients, number=total, flags=flags, tables=tables, **options
    )


def _fedavg(root):
    """0.85 on average, 1,600 bytes and 4 seconds."""
    return _write(root, "avg", [(0.5, 0.8), (0.7, 0.9)])


def _variants(root):
    _write(root, "avg_iid", [(0.7, 0.86), (0.7, 0.88)], flags={"partition": "iid"})
    _write(root, "avg_dropout", [(0.5, 0.8), (0.7, 0.82)], flags={"dropout_rate": 0.3})
    _write(root, "avg_straggler", [(0.5, 0.8), (0.7, 0.8)], flags={"straggler_rate": 0.5})


def _fedsgd(root):
    """Twice the bytes of FedAvg, half of its seconds."""
    flags = {"algorithm": "fedsgd", "partition": "natural"}
    options = {"algorithm": "fedsgd+finetuning", "sent": 800, "seconds": 0.5}
    return _write(root, "sgd", [(0.4, 0.6), (0.5, 0.6)], flags=flags, **options)


def _references(root):
    flags = {"algorithm": "centralized"}
    options = {"algorithm": "centralized+finetuning", "sent": 0}
    _write(root, "central", [(0.9, 0.99), (0.88, 0.99)], flags=flags, **options)
    _write(root, "alone", [(0.1, 0.6), (0.1, 0.7)], algorithm="local", flags={"total_rounds": 0})


def _run(*arguments, status=0):
    command = [sys.executable, "-m", "launch.scorecard.command", *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, env=programs.environment(), timeout=60, check=False
    )
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


def _rows(*paths, baseline=None, column=scorecard_rows.PERSONALIZED, **counting):
    """Returns what is written, by method, what is not measured left out."""
    roles = scorecard_runs.assign(runs.find([str(path) for path in paths]).runs, baseline)
    return {
        row["method"]: {name: value for name, value in row.items() if value is not None}
        for row in scorecard_rows.build(roles, column, scorecard_rows.Counting(**counting))
    }


def _numbers(row, *names):
    return [row[name] for name in names]


def test_all_axes_by_hand(tmp_path):
    for write in (_fedavg, _variants, _fedsgd, _references):
        write(tmp_path / "runs")
    found = _run(tmp_path / "runs", f"--output_dir={tmp_path / 'card'}").stdout
    rows = _rows(tmp_path / "runs")
    assert set(rows) == {"fedavg+finetuning", "fedsgd+finetuning"}
    row = rows["fedavg+finetuning"]
    assert _numbers(row, "value", "rounds", "bytes", "seconds") == pytest.approx([0.85, 4, 1600, 4])
    # As many rounds, half of the bytes, twice the seconds.
    scores = [1, 3, math.exp(-1)]
    assert _numbers(row, "rounds_score", "bytes_score", "seconds_score") == pytest.approx(scores)
    assert float(row["efficiency"]) == pytest.approx(sum(scores) / 3)
    # 0.85 of 0.87 among alike clients; 0.81 and 0.80 of 0.85 with faults.
    names = ("iid_disparity", "dropout_disparity", "straggler_disparity")
    assert _numbers(row, *names) == pytest.approx([2 / 87, 4 / 85, 5 / 85], abs=1e-6)
    names = ("iid_points", "dropout_points", "straggler_points", "robustness")
    assert _numbers(row, *names) == [2, 1, 0, 3]
    # Better than 0.65 of local models, 4.5% below the 0.89 of the central one.
    names = ("local_value", "central_value", "central_disparity", "effectiveness")
    assert _numbers(row, *names) == pytest.approx([0.65, 0.89, 4 / 89, 3], abs=1e-6)
    assert row["exchange"] == "plain, many steps of training"
    assert _numbers(row, "privacy", "security") == [2, 3]
    baseline = rows["fedsgd+finetuning"]
    assert _numbers(baseline, "efficiency", "effectiveness", "privacy") == [1, 0, 1]
    assert "robustness" not in baseline
    line = next(line for line in found.splitlines() if line.startswith("fedavg"))
    assert line.split() == ["fedavg+finetuning", "1.46", "3.00", "3.00", "2.00", "3.00", "0.85"]
    assert "robustness of fedsgd+finetuning is not measured" in found
    with open(tmp_path / "card" / "scorecard.csv", newline="") as file:
        written_rows = {cells["method"]: cells for cells in csv.DictReader(file)}
    for name, cells in written_rows.items():
        known = {column for column, cell in cells.items() if cell}
        assert known == set(rows[name]) and set(cells) == set(scorecard_rows.COLUMNS)
        assert float(cells["efficiency"]) == pytest.approx(rows[name]["efficiency"])
    for suffix in ("svg", "png"):
        assert (tmp_path / "card" / f"radar.{suffix}").stat().st_size > 1000


def test_what_nobody_measured_is_neither_drawn_nor_written_as_zero(tmp_path):
    run = _fedavg(tmp_path)
    row = _rows(run)["fedavg+finetuning"]
    assert not {"efficiency", "robustness", "effectiveness"} & set(row)
    assert _numbers(row, "privacy", "security") == [2, 3]
    text = _run(run).stdout
    assert text.splitlines()[1].count("not measured") == 3
    for axis in ("efficiency", "robustness", "effectiveness"):
        assert f"{axis} of fedavg+finetuning is not measured: it takes" in text


def test_a_part_of_robustness_is_no_score(tmp_path):
    run = _fedavg(tmp_path)
    _variants(tmp_path)
    row = _rows(run, tmp_path / "avg_iid", tmp_path / "avg_dropout")
    row = row["fedavg+finetuning"]
    assert _numbers(row, "iid_points", "dropout_points") == [2, 1]
    assert "straggler_points" not in row and "robustness" not in row


def test_errors_are_better_the_lower(tmp_path):
    error = {"metric": "half_squared_error", "higher_is_better": False}
    _write(tmp_path / "r", "avg", [(0.5, 0.2), (0.7, 0.2)], **error)
    central = {"algorithm": "centralized"}
    _write(tmp_path / "r", "c", [(0.19, 0.1)] * 2, flags=central, algorithm="c", **error)
    local = {"total_rounds": 0}
    _write(tmp_path / "r", "l", [(0.9, 0.3)] * 2, flags=local, algorithm="local", **error)
    _write(tmp_path / "r", "d", [(0.5, 0.22)] * 2, flags={"dropout_rate": 0.1}, **error)
    row = _rows(tmp_path / "r")["fedavg+finetuning"]
    # 0.2 for 0.19 is 5.3% worse: 2 points of 5.
    assert _numbers(row, "central_disparity", "effectiveness") == pytest.approx(
        [1 / 19, 2], abs=1e-6
    )
    assert _numbers(row, "dropout_disparity", "dropout_points") == pytest.approx([0.1, 0], abs=1e-6)


def test_rounds_of_a_warm_start_are_not_missing(tmp_path):
    _fedavg(tmp_path / "runs")
    flags = {"total_rounds": 5, "warmstart_fraction": 0.2}
    _write(tmp_path / "runs", "h", [(0.5, 0.6)] * 2, flags=flags, algorithm="hypcluster", done=4)
    assert "hypcluster" in _rows(tmp_path / "runs")


def test_the_global_model(tmp_path):
    for write in (_fedavg, _references):
        write(tmp_path / "runs")
    rows = _rows(tmp_path / "runs", column=scorecard_rows.GLOBAL)
    # 0.6 is less than local models' 0.65.
    names = ("value", "local_value", "effectiveness")
    assert _numbers(rows["fedavg+finetuning"], *names) == pytest.approx([0.6, 0.65, 0])
    found = _run(tmp_path / "runs", "--model=global").stdout
    line = next(line for line in found.splitlines() if line.startswith("fedavg"))
    # Effectiveness, and the mean of all clients: 3 and 0.85 of the personalized models.
    assert (line.split()[-4], line.split()[-1]) == ("0.00", "0.6")


def test_costs_until_a_target(tmp_path):
    for write in (_fedavg, _fedsgd):
        write(tmp_path / "runs")
    rows = _rows(tmp_path / "runs", target=0.4)
    # FedAvg has 0.425 after 2 rounds, FedSGD 0.3 then and 0.6 after 4.
    names = ("rounds", "bytes", "seconds", "rounds_score", "bytes_score", "seconds_score")
    expected = [2, 800, 2, 1 + 4 * 2 / 3, 1 + 4 * 0.75, 1]
    assert _numbers(rows["fedavg+finetuning"], *names) == pytest.approx(expected)
    text = _run(tmp_path / "runs", "--target=0.7").stdout
    assert "efficiency of fedavg+finetuning, fedsgd+finetuning is not measured" in text
    named = _rows(tmp_path / "runs", baseline=tmp_path / "runs" / "avg")
    assert _numbers(named["fedsgd+finetuning"], "bytes_score") == pytest.approx([math.exp(-1)])


def test_costs_until_the_best_round(tmp_path):
    """Rounds 2 and 4 are evaluated; the second is better by half. What is scored is the model of
    the round at which counting stops, here worse by .3 after round 2.
    """
    for write in (_fedavg, _fedsgd):
        path = write(tmp_path / "runs") / "clients.csv"
        _evaluated_before(path, 2, -0.3)
    for patience, rounds, value in ((1, 2, 0.55), (2, 4, 0.85), (100, 4, 0.85)):
        row = _rows(tmp_path / "runs", patience=patience)["fedavg+finetuning"]
        assert _numbers(row, "rounds", "bytes") == [rounds, 400 * rounds]
        assert row["value"] == pytest.approx(value)


def test_an_evaluation_without_a_mean_is_not_the_best(tmp_path):
    """However few rounds of patience there are: nothing is greater than NaN."""
    path = _fedavg(tmp_path / "runs") / "summary.csv"
    (first, last) = csv.DictReader(path.open())
    csv_files.write(path, list(first), [first | {"personalized_mean": ""}, last], list(first))
    for patience in (1, 2):
        row = _rows(tmp_path / "runs", patience=patience)["fedavg+finetuning"]
        assert _numbers(row, "rounds", "value") == pytest.approx([4, 0.85])


def test_a_run_that_was_not_evaluated_there(tmp_path):
    _fedavg(tmp_path / "runs")
    with pytest.raises(UserError, match="has no test clients of round 2; train again"):
        _rows(tmp_path / "runs", patience=1)


def test_a_best_round_of_other_test_clients(tmp_path):
    """As of runs that scored fewer than all in between; the last round scores all."""
    path = _fedavg(tmp_path / "runs")
    _evaluated_before(path / "clients.csv", 2, -0.3, without="emnist:1")
    with pytest.raises(UserError, match="found 1 test clients in round 2, .* --test_clients_per"):
        _rows(tmp_path / "runs", patience=1)
    assert _rows(tmp_path / "runs", patience=2)


def _evaluated_before(path, number, shift, without=None):
    """Adds an earlier evaluation to a run's clients.csv, in which own models were worse."""
    rows = list(csv.DictReader(path.open()))
    earlier = [
        row | {"round": number, "personalized": float(row["personalized"]) + shift}
        for row in rows
        if row["client_id"] != without
    ]
    csv_files.write(path, list(rows[0]), [*earlier, *rows], optional=list(rows[0]))


def test_federated_seconds_by_hand(tmp_path):
    """1 MB down and 2 MB up at 8 and 4 Mbit/s take 1 and 4 s; .1 s twice, 3 and .5 s of work."""
    network = scorecard.Network(8.0, 4.0, 100.0)
    assert scorecard.federated_seconds(1e6, 2e6, 3.0, 0.5, network) == pytest.approx(8.7)
    with pytest.raises(UserError, match="train with --backend=sequential"):
        _rows(_fedavg(tmp_path / "without"), network=network)
    path = _fedavg(tmp_path / "runs")
    table = path / "rounds.csv"
    header, *lines = table.read_text().splitlines()
    # The client that is sent most gets 200 of a round's 300 bytes, and sends back 50 of 100.
    more = [f"{line},200,50,3,0.5" for line in lines]
    names = "largest_bytes_down,largest_bytes_up,slowest_client_seconds,server_seconds"
    table.write_text("\n".join([f"{header},{names}", *more]) + "\n")
    (row,) = _rows(path, network=network).values()
    assert row["seconds"] == pytest.approx(4 * (200 * 8e-6 / 8 + 50 * 8e-6 / 4 + 3.7))


@pytest.mark.parametrize(
    "given", [["--bandwidth_mbit_up=0"], ["--patience=0"], ["--target=0.5", "--patience=3"]]
)
def test_countings_that_make_no_sense(tmp_path, given):
    result = _run(_fedavg(tmp_path), *given, status=2)
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "privacy"),
    [
        ({"aggregator": "compressed"}, 3),
        ({"aggregator": "differentially_private"}, 3),
        ({"aggregator": "secure"}, 4),
        ({"aggregator": "robust"}, 2),
        ({"algorithm": "fedsgd"}, 1),
        ({"algorithm": "fedsgd", "aggregator": "secure"}, 4),
    ],
)
def test_privacy_follows_from_flags(tmp_path, flags, privacy):
    path = _write(tmp_path, "run", [(0.5, 0.5)] * 2, flags=flags)
    exchange = scorecard_runs.exchange(runs.find([str(path)]).runs[0])
    assert scorecard.privacy(exchange) == privacy


def test_several_runs_of_an_algorithm_go_by_their_names(tmp_path):
    _fedavg(tmp_path / "runs")
    _variants(tmp_path / "runs")
    rate = {"client_learning_rate": 0.5}
    _write(tmp_path / "runs", "fast", [(0.5, 0.9), (0.7, 0.9)], flags=rate)
    rows = _rows(tmp_path / "runs")
    assert set(rows) == {"avg", "fast"}
    # Variants are those of the run with their other flags.
    assert "robustness" in rows["avg"] and "iid_points" not in rows["fast"]


def test_runs_of_one_name_go_by_their_sweeps_as_well(tmp_path):
    """Sweeps number their settings alike; a line of the radar would hide another."""
    for sweep, rate in (("first", 0.1), ("second", 0.5)):
        flags = {"client_learning_rate": rate}
        _write(tmp_path / sweep / "runs", "p0000_s100", [(0.5, rate)] * 2, flags=flags)
    rows = _rows(tmp_path)
    values = {name: row["value"] for name, row in rows.items()}
    assert values == pytest.approx({"first/p0000_s100": 0.1, "second/p0000_s100": 0.5})


def test_what_else_a_run_has_looked_at_sets_it_apart_from_nothing(tmp_path):
    plain = {"acceptance": ["always"], "personalization_fraction": ["1"], "evaluate_ood": False}
    more = {"acceptance": ["always", "validated"], "personalization_fraction": ["1", "0.5"]}
    _write(tmp_path / "runs", "avg", [(0.5, 0.6)] * 2, flags={**more, "evaluate_ood": True})
    _write(tmp_path / "runs", "iid", [(0.5, 0.6)] * 2, flags={**plain, "partition": "iid"})
    assert _rows(tmp_path / "runs")["fedavg+finetuning"]["iid_points"] == 3
    flags = {**plain, "acceptance": ["validated", "always"], "partition": "iid"}
    _write(tmp_path / "runs", "other", [(0.5, 0.6)] * 2, flags=flags)
    with pytest.raises(UserError, match="avg differs in --acceptance"):
        _rows(tmp_path / "runs")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flags": {"partition": "iid", "dropout_rate": 0.1}}, "--partition and --dropout_rate"),
        ({"flags": {"partition": "iid", "client_learning_rate": 1.0}},
         "run of no method given; avg differs in --client_learning_rate (1.0, there 0.1)"),
        ({"dataset": "school"}, "has dataset school and"),
        ({"metric": "loss"}, "has metric loss and"),
        ({"done": 3}, "has 3 of 4 rounds; run it to its end"),
        ({"values": [(0.5, float("nan")), (0.5, 0.5)]}, "1 of 2 test clients have no personalized"),
    ],
)  # fmt: skip
def test_runs_that_do_not_fit_are_one_line(tmp_path, changes, words):
    _fedavg(tmp_path / "runs")
    values = changes.pop("values", [(0.5, 0.6)] * 2)
    _write(tmp_path / "runs", "other", values, **changes)
    with pytest.raises(UserError) as caught:
        _rows(tmp_path / "runs")
    assert words in str(caught.value)


def _assert_one_line(tmp_path, words, *arguments):
    result = _run(*arguments, f"--output_dir={tmp_path / 'card'}", status=2)
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (tmp_path / "card").exists() and result.stdout == ""


def test_arguments_that_do_not_fit_are_one_line(tmp_path):
    path = _fedavg(tmp_path / "runs")
    _assert_one_line(tmp_path, "is none of the runs given", path, "--baseline=elsewhere")
    result = _run(path, f"--output_dir={tmp_path / 'no' / 'card'}", status=2)
    assert "expected a directory, or the name of one to make" in result.stderr


def test_methods_of_one_class_a_client_are_compared_with_alike_ones(tmp_path):
    """FedEval's runs on MNIST: the partition by labels is the method's own."""
    flags = {"partition": "classes:1", "evaluation_partition": "iid", "dataset_name": "mnist"}
    one = _write(tmp_path, "avg", [(0.5, 0.8), (0.7, 0.9)], flags=flags)
    alike = {**flags, "partition": "iid"}
    iid = _write(tmp_path, "avg_iid", [(0.7, 0.86), (0.7, 0.88)], flags=alike)
    rows = _rows(one, iid)
    assert list(rows) == ["fedavg+finetuning"]
    assert rows["fedavg+finetuning"]["iid_points"] == 2
    assert rows["fedavg+finetuning"]["iid_value"] == pytest.approx(0.87)
    assert "dropout_value" not in rows["fedavg+finetuning"]


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": "iid"},
        {"dropout_rate": 0.3},
        {"algorithm": "centralized"},
        {"algorithm": "local"},
    ],
)
def test_a_cut_run_that_methods_are_compared_with_is_refused(tmp_path, changes):
    whole = _write(tmp_path, "avg", [(0.5, 0.8)] * 2)
    algorithm = changes.get("algorithm", "fedavg")
    name = algorithm if algorithm == "local" else f"{algorithm}+finetuning"
    cut = _write(tmp_path, "cut", [(0.5, 0.8)] * 2, flags=changes, algorithm=name, done=2)
    with pytest.raises(UserError, match="cut has 2 of 4 rounds; run it to its end"):
        _rows(whole, cut)


def test_every_column_is_documented():
    assert columns.names("scorecard") == scorecard_rows.COLUMNS


def test_attacks_are_columns_beside_the_scores(tmp_path):
    """On no axis; of a defence that is a method itself they are its own."""
    root, flip = tmp_path / "runs", {"attack": "sign_flip:0.1:10"}
    _fedavg(root)
    for run_id, value, flags in (
        ("flipped", 0.1, flip),
        ("defended", 0.7, {**flip, "aggregator": "trimmed_mean", "trim_share": 0.2}),
        ("alike", 0.3, {**flip, "partition": "iid"}),
        ("one", 0.2, {**flip, "partition": "classes:1", "dataset_name": "toy"}),
        ("none", 0.84, {"attack": "none", "aggregator": "median"}),
        ("median", 0.8, {**flip, "aggregator": "median"}),
    ):
        _write(root, run_id, [(0.5, value)] * 2, flags=flags)
    rows = _rows(root)
    assert list(rows) == ["fedavg+finetuning", "fedavg+finetuning+median"]
    mean, median = (
        {name: value for name, value in row.items() if name.startswith("attacked_")}
        for row in rows.values()
    )
    how = "attacked_sign_flip:0.1:10"
    defended = {f"{how}+trimmed_mean:0.2": 0.7}
    dealt = {f"{how}+partition=iid": 0.3, f"{how}+partition=classes:1": 0.2}
    assert mean == pytest.approx({how: 0.1, **dealt, **defended})
    assert median == pytest.approx({how: 0.8, **defended})
    found = _run(root, f"--output_dir={tmp_path / 'card'}").stdout.splitlines()
    assert found[0].split()[-4:] == sorted([how, *dealt, *defended])
    assert "0.85" in found[1] and found[1].split()[-4:] == ["0.1", "0.2", "0.3", "0.7"]
    with open(tmp_path / "card" / "scorecard.csv", newline="") as file:
        cells = [row[f"{how}+partition=iid"] for row in csv.DictReader(file)]
    assert float(cells[0]) == pytest.approx(0.3) and cells[1:] == [""]
    _write(root, "slow", [(0.5, 0.1)] * 2, flags={**flip, "client_learning_rate": 0.01})
    with pytest.raises(UserError, match="slow is the attacked run of no method given; "):
        _rows(root)


def test_two_attacked_runs_of_one_name(tmp_path):
    _fedavg(tmp_path)
    for name in ("a", "b"):
        _write(tmp_path, name, [(0.5, 0.1)] * 2, flags={"attack": "label_flip:0.1"})
    with pytest.raises(UserError, match=r"several label_flip:0.1 \(avg\) runs: .*give one of them"):
        _rows(tmp_path)


def test_runs_without_a_place(tmp_path):
    _variants(tmp_path)
    with pytest.raises(UserError, match=r"no run of a method among avg_dropout \(dropout\)"):
        _rows(tmp_path)
    path = _fedavg(tmp_path)
    for name in ("a", "b"):
        flags = {"algorithm": "fedsgd", "total_rounds": 4 + (name == "b")}
        _write(tmp_path, name, [(0.5, 0.5)] * 2, flags=flags, done=5)
    with pytest.raises(UserError, match="several fedsgd runs.*--baseline=RUN"):
        _rows(tmp_path)
    (path / "run.json").unlink()
    with pytest.raises(UserError, match="has no run.json"):
        _rows(path)
