"""motley_metrics as a user starts it, on real small runs and on files made by hand."""

import json
import math
import resource
import subprocess
import sys

import numpy as np
import pytest

from launch.metrics import tables as metrics_tables
from motley_tff import metrics
from motley_tff.files import csv_files
from motley_tff.tables import columns as columns_lib
from tests.contracts import in_process
from tests.launch import commands
from tests.trainers import programs

RUN = {
    "dataset": "d", "algorithm": "a", "base_random_seed": 0, "round": 3, "split": "test",
    "num_personalization_examples": 4, "num_evaluation_examples": 5, "metric": "accuracy",
    "higher_is_better": True, "delta": 0, "is_hurt": 0, "candidate": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def motley_metrics():
    """Returns a function that runs the command and returns what it printed."""
    with commands.opened("launch.metrics.command", "PATH...") as command:

        def run(*arguments, fails=False):
            return command.refused(*arguments) if fails else command(*arguments)[1]

        yield run


def _printed(stdout):
    """Returns a printed table that stands on its side: {name: cells}."""
    lines = stdout.split("\n\n")[0].splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines}


def _run(folder, name, values, **more):
    """Writes a run's clients.csv from {client: (baseline, personalized)}."""
    (folder / name).mkdir(exist_ok=True)
    rows = [
        {**RUN, "run_id": name, "client_id": i, "baseline": b, "personalized": p, **more}
        for i, (b, p) in values.items()
    ]
    columns = columns_lib.names("clients")
    csv_files.write(folder / name / "clients.csv", columns, rows, optional=columns)
    return folder / name


# --- summary --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trainer", "flags"),
    [
        (
            "finetuning_trainer",
            ("--finetune_tuning=per_client", "--finetune_every=1", "--finetune_max_epochs=1"),
        ),
        ("mtl_trainer", ("--algorithm=ditto",)),
    ],
)
def test_a_run_gives_its_own_summary(motley_metrics, tmp_path, trainer, flags):
    with in_process.opened(trainer) as run:
        run(tmp_path, "run", "--total_rounds=2", "--backend=sequential", *flags)
    output = tmp_path / "again.csv"
    motley_metrics(tmp_path / "run", "--round=all", f"--output={output}")
    expected = commands.rows(tmp_path / "run" / "summary.csv")
    # What was communicated is no function of the clients.
    known = [c for c in expected[0] if not c.startswith("bytes_")]
    assert set(metrics.POPULATION) < set(known)
    again = commands.rows(output)
    # Columns of clusters and references, of which a run on schools knows nothing, may be left out.
    assert [{c: row.get(c, "") for c in known} for row in again] == [
        {c: row[c] for c in known} for row in expected
    ]
    assert set(again[0]) <= set(known) and "personalized_mean_per_client" in again[0]


def test_the_last_round_and_chosen_ones(motley_metrics, tmp_path):
    run = _run(tmp_path, "r", {"d:a": (0.5, 0.75), "d:b": (0.5, 0.25)})
    rows = commands.rows(run / "clients.csv")
    earlier = [{**row, "round": 1, "split": "valid", "personalized": 0.5} for row in rows]
    csv_files.append(run / "clients.csv", list(rows[0]), earlier)
    last = _printed(motley_metrics(run))
    assert (last["round"], last["split"], last["num_clients"]) == (["3"], ["test"], ["2"])
    assert (last["personalized_mean"], last["pct_clients_hurt"]) == (["0.5"], ["50"])
    assert _printed(motley_metrics(run, "--round=all"))["round"] == ["3", "1"]
    assert _printed(motley_metrics(run, "--round=1"))["split"] == ["valid"]
    said = motley_metrics(run, "--splits=valid", fails=True)
    assert "rounds 1, 3 and splits test, valid" in said
    assert "--round=last and --splits=valid" in said
    # Personalized values are as the baseline's in round 1.
    assert "no client's value changes" in motley_metrics(run, "--round=1")


def test_leaf_has_a_baseline_only(motley_metrics, tmp_path):
    path = tmp_path / "metrics_stat.csv"
    path.write_text(
        "client_id,round_number,hierarchy,num_samples,set,accuracy,loss\n"
        "a,0,,1,test,0.1,1\na,2,,1,test,0.25,1\nb,2,,3,test,0.75,1\n"
    )
    stdout = motley_metrics(path, f"--output={tmp_path / 'out.csv'}")
    assert "one model, called the baseline" in stdout
    (row,) = commands.rows(tmp_path / "out.csv")
    assert (row["round"], row["split"], row["num_clients"]) == ("2", "test", "2")
    assert (row["baseline_mean"], row["baseline_example_weighted_mean"]) == ("0.5", "0.625")
    assert not any(name.startswith(("personalized", "pct", "delta")) for name in row)


# --- foreign files --------------------------------------------------------------------------------


def test_a_foreign_file_in_every_form(motley_metrics, tmp_path):
    path = tmp_path / "=1+1.csv"
    path.write_text("user,G,P,L\n=cmd,0.5,0.75,0.25\n@b|*x*,0.5,0.25,0.5\n-3,0.5,0.5,0.25\n")
    columns = "--columns=client=user,baseline=G,personalized=P"
    flags = (path, columns, "--higher_is_better", f"--global={path}")
    motley_metrics(*flags, f"--output={tmp_path / 'clients.csv'}", "--per_client")
    rows = commands.rows(tmp_path / "clients.csv")
    assert [row["client_id"] for row in rows] == ["'=cmd", "'@b|*x*", "-3"]
    assert [row["quantum"] for row in rows] == ["0.25", "-0.25", "0"]
    assert {row["run_id"] for row in rows} == {"'=1+1"}
    for name in ("table.md", "table.tex"):
        motley_metrics(*flags, f"--output={tmp_path / name}")
    assert (tmp_path / "table.md").read_text().startswith("| ")
    assert r"average\_variance\_improved & 0 \\" in (tmp_path / "table.tex").read_text()


def test_a_foreign_file_with_a_row_a_seed(motley_metrics, tmp_path):
    """Each seed is an evaluation, compared with the other file's of the same seed."""
    rows = [(f"u{i}", seed, 50 + 10 * i, 60 + 10 * i + seed) for seed in (0, 1) for i in (0, 1)]
    for name, more in (("one", 0), ("two", 5)):
        lines = [f"{user},{seed},{before},{after + more}" for user, seed, before, after in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,seed,G,P", *lines]) + "\n")
    first, two = tmp_path / "one.csv", tmp_path / "two.csv"
    flags = ("--columns=client=user,seed=seed,baseline=G,personalized=P", "--metric=accuracy")
    printed = _printed(motley_metrics(first, *flags))
    assert printed["base_random_seed"] == ["0", "1"] and printed["personalized_mean"] == [
        "65",
        "66",
    ]
    printed = _printed(motley_metrics(first, two, *flags, "--compare"))
    assert printed["run_id"] == ["one", "two"] * 2 and printed["difference_mean"] == ["5", "5"]
    # F = P - max(50, 65 + seed) and P - max(60, 75 + seed): -5 of all.
    assert _printed(motley_metrics(first, *flags, f"--local={two}"))["mpd"] == ["5", "5"]
    shares = tmp_path / "shares.csv"
    shares.write_text("user,seed,G,P\nu0,0,0.5,0.6\n")
    message = motley_metrics(first, shares, *flags, "--compare", fails=True)
    assert "accuracy (percent) of one" in message and "accuracy of shares" in message


def test_a_foreign_file_with_empty_cells(motley_metrics, tmp_path):
    """One model's is of a model that diverged, all models' of a client without a score."""
    path, first, two = (tmp_path / f"{name}.csv" for name in ("both", "one", "two"))
    path.write_text("user,G,P\na,0.5,0.75\nb,0.5,\nc,,0.5\nd,,\n")
    first.write_text("user,G\na,0.5\nb,0.5\nc,\nd,\n")
    two.write_text("user,G\na,0.75\nb,\nc,0.5\nd,\n")
    columns, metric = "--columns=client=user,baseline=G", "--metric=accuracy"
    stdout = motley_metrics(path, f"{columns},personalized=P", metric)
    printed = _printed(stdout)
    assert (printed["num_unscored"], printed["num_diverged"]) == (["1"], ["1"])
    assert (printed["baseline_mean"], printed["pct_clients_hurt"]) == (["0.5"], ["33.333"])
    for model in ("baseline", "personalized"):
        assert f"both: the {model} model of 1 clients diverged; no mean is over them" in stdout
    assert "both: 1 clients have nothing to be scored on" in stdout
    stdout = motley_metrics(first, columns, metric)
    assert "one: 2 clients have nothing to be scored on" in stdout and "wilcoxon" not in stdout
    stdout = motley_metrics(first, two, columns, metric, "--compare")
    printed = _printed(stdout)
    assert (printed["num_diverged"], printed["mean"]) == (["1", "1"], ["0.5", "0.625"])
    assert "1 clients have nothing to be scored on" in stdout
    # F = 0.75 - 0.5, worst of b, best of c.
    stdout = motley_metrics(two, columns, metric, f"--global={first}")
    assert _printed(stdout)["api"] == ["0.25"] and _printed(stdout)["pui"] == ["66.667"]
    assert "personalized: the model of 1 clients diverged" in stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--round=first",), "--round=first: expected last, all or a whole number"),
        (("--round=" + "9" * 5000,), "expected last, all or a whole number"),
        (("--output=table.xls",), "ends in .csv, .md, .tex"),
        (("--per_client",), "--per_client: found no --output"),
        (("--per_client", "--output=x.csv"), "--per_client: expected --compare, --global"),
        (("--per_client", "--output=x.xlsx"), "--per_client: found --output=x.xlsx"),
        (("--compare", "--local=r"), "--compare: expected no --global"),
        (("--compare", "--round=all"), "--round=all: "),
        (("--local=nowhere",), "nowhere: found nothing"),
        (("--columns=client",), "expected our name=the file's"),
        (("--columns=client=a,baseline=b,client=c",), "separated by commas, each of ours once"),
        (("--comapre",), "did you mean --compare?"),
    ],
)
def test_bad_flags(motley_metrics, tmp_path, flags, words):
    run = _run(tmp_path, "r", {"d:a": (0.5, 0.75)})
    assert words in motley_metrics(run, *flags, fails=True)
    assert not list(tmp_path.glob("x.*"))


# --- runs side by side ----------------------------------------------------------------------------


def test_compare(motley_metrics, tmp_path):
    first = _run(tmp_path, "first", {"d:a": (0.1, 0.5), "d:b": (0.1, 0.5), "d:x": (0.1, 1)})
    other = _run(tmp_path, "other", {"d:y": (0, 0), "d:b": (0, 0.25), "d:a": (0, 0.875)})
    stdout = motley_metrics(first, other, "--compare")
    printed = _printed(stdout)
    assert printed["num_clients"] == ["2", "2"] and printed["num_left_out"] == ["1", "1"]
    assert printed["mean"] == ["0.5", "0.5625"]
    # Differences 0.375 and -0.25 from the first; by Student's t 0.0625 and 12.706 * 0.3125.
    assert printed["difference_mean"] == ["0.0625"] and printed["pct_clients_worse"] == ["50"]
    assert (printed["difference_low"], printed["difference_high"]) == (["-3.9082"], ["4.0332"])
    assert printed["wilcoxon_p"] == ["1"]
    assert "first test: 1 clients are not in all runs and left out: d:x" in stdout
    same = _run(tmp_path, "same", {"d:a": (0, 0.5), "d:b": (0, 0.5)})
    stdout = motley_metrics(first, same, "--compare")
    assert "same 3 test: no client differs from first" in stdout
    output = tmp_path / "out.csv"
    motley_metrics(first, other, "--compare", "--per_client", f"--output={output}")
    assert commands.rows(output) == [
        {"split": "test", "client_id": "d:a", "first": "0.5", "other": "0.875"},
        {"split": "test", "client_id": "d:b", "first": "0.5", "other": "0.25"},
    ]


def _scores(folder, right):
    """Writes the scores of a run: which of a client's examples of two classes it has right."""
    rows = [
        {**{n: RUN[n] for n in ("dataset", "algorithm", "base_random_seed", "round", "split")},
         "run_id": folder.name, "client_id": client, "class": name,
         "label": int((name == "x") == bool(i % 2)), "baseline_score": 0,
         "personalized_score": 1 if ((name == "x") == bool(i % 2)) == bool(is_right) else -1}
        for client, of_client in right.items()
        for name in ("x", "y")
        for i, is_right in enumerate(of_client)
    ]  # fmt: skip
    csv_files.write(folder / "scores.csv", columns_lib.names("scores"), rows)
    return folder


def test_compare_on_the_same_examples(motley_metrics, tmp_path):
    """The second run loses 90 of 300 examples of b and none of a."""
    one, other = [1] * 300, [0] * 90 + [1] * 210
    values = {"d:a": (0, 1), "d:b": (0, 1)}
    first = _scores(_run(tmp_path, "first", values), {"d:a": one, "d:b": one})
    two = _run(tmp_path, "two", values | {"d:b": (0, 0.7)})
    assert "pct_truly_worse" not in motley_metrics(first, two, "--compare")
    printed = _printed(motley_metrics(first, _scores(two, {"d:a": one, "d:b": other}), "--compare"))
    # By chance none of a, who has no change, and half of b, as 90 is even but for a tie.
    tie = math.comb(90, 45) / 2**90
    assert float(printed["pct_worse_by_chance"][-1]) == pytest.approx(25 * (1 - tie), rel=1e-3)
    assert float(printed["pct_truly_worse"][-1]) == pytest.approx(50, abs=5)
    assert printed["num_surely_worse"][-1] == "1"


def test_runs_that_cannot_be_compared(motley_metrics, tmp_path):
    run = _run(tmp_path, "r", {"d:a": (0.5, 0.75)})
    errors = _run(tmp_path, "e", {"d:a": (2, 1)}, metric="error", higher_is_better=False)
    message = motley_metrics(run, errors, "--compare", fails=True)
    assert "accuracy of r (higher is better), error of e (lower is better)" in message
    assert "--compare: found r, expected two" in motley_metrics(run, "--compare", fails=True)
    strangers = _run(tmp_path, "s", {"d:b": (0.5, 0.75)})
    assert "r, s: found no client" in motley_metrics(run, strangers, "--compare", fails=True)
    assert "found no client" in motley_metrics(run, f"--local={strangers}", fails=True)
    valid = _run(tmp_path, "v", {"d:a": (0.5, 0.75)}, split="valid")
    message = motley_metrics(run, valid, "--compare", fails=True)
    assert "--compare: found test of r, valid of v, " in message
    message = motley_metrics(run, f"--local={valid}", fails=True)
    assert "--local: found " in message and "a split 'test'" in message


def test_runs_that_are_not_scored_on_the_same(motley_metrics, tmp_path):
    values = {"d:a": (0.5, 0.75), "d:b": (0.5, 0.25)}
    first, two = _run(tmp_path, "one", values), _run(tmp_path, "two", values)
    for run, limit in ((first, 4), (two, 5)):
        (run / "run.json").write_text(json.dumps({"flags": {"max_examples_per_client": limit}}))
    words = "max_examples_per_client of one and two (4 and 5)"
    assert words in motley_metrics(first, two, "--compare", fails=True)
    assert "max_examples_per_client of personalized and local (4 and 5)" in motley_metrics(
        first, f"--local={two}", fails=True
    )
    stdout = motley_metrics(first, two, "--compare", "--anyway")
    assert f"warning: the runs are not scored on the same: {words}" in stdout
    assert _printed(stdout)["mean"] == ["0.5", "0.5"]
    three = _run(tmp_path, "three", values, num_evaluation_examples=9)
    message = motley_metrics(first, three, "--compare", fails=True)
    assert "num_evaluation_examples of one and three, of 2 of 2 clients: d:a (5 and 9)" in message
    assert "--anyway: expected --compare" in motley_metrics(first, "--anyway", fails=True)


def test_seeds_are_compared_each_with_itself(motley_metrics, tmp_path):
    runs = [
        _run(tmp_path, f"{name}{seed}", {"d:a": (0, value)}, base_random_seed=seed)
        for name, value in (("x", 0.25), ("y", 0.75))
        for seed in (0, 1)
    ]
    printed = _printed(motley_metrics(*runs, "--compare"))
    assert printed["run_id"] == ["x0", "y0", "x1", "y1"]
    assert printed["base_random_seed"] == ["0", "0", "1", "1"]
    assert printed["difference_mean"] == ["0.5", "0.5"]
    message = motley_metrics(runs[0], runs[3], "--compare", fails=True)
    assert "test of seed 0 of x0, test of seed 1 of y1, " in message and "--anyway" in message
    stdout = motley_metrics(runs[0], runs[3], "--compare", "--anyway")
    assert _printed(stdout)["difference_mean"] == ["0.5"]
    assert "not scored on the same: base_random_seed of x0 and y1 (0 and 1)" in stdout
    for model in ("global", "local"):
        reference = f"--{model}={runs[3]}"
        words = f"base_random_seed of personalized and {model} (0 and 1)"
        assert words in motley_metrics(runs[0], reference, fails=True)
        assert words in motley_metrics(runs[0], reference, "--anyway")
        assert _printed(motley_metrics(runs[0], f"--{model}={runs[2]}"))["num_clients"] == ["1"]
    for run in runs:  # As of devices' own data, of which the seed draws nothing.
        (run / "run.json").write_text(json.dumps({"data": {"base_random_seed": None}}))
    assert "warning" not in motley_metrics(runs[0], f"--local={runs[3]}")


def test_splits_that_not_all_runs_have(motley_metrics, tmp_path):
    first = _run(tmp_path, "one", {"d:a": (0.5, 0.75)})
    two = _run(tmp_path, "two", {"d:a": (0.5, 0.25)})
    rows = commands.rows(two / "clients.csv")
    csv_files.append(two / "clients.csv", list(rows[0]), [{**rows[0], "split": "valid"}])
    stdout = motley_metrics(first, two, "--compare")
    assert _printed(stdout)["split"] == ["test", "test"] and "split valid: not in one" in stdout


def test_runs_of_one_name_go_by_their_paths(motley_metrics, tmp_path):
    for folder, value in (("one", 0.5), ("two", 0.25)):
        (tmp_path / folder).mkdir()
        _run(tmp_path / folder, "r", {"d:a": (0, value), "d:b": (0, value)})
    printed = _printed(motley_metrics(f"{tmp_path}/*", "--compare"))
    assert printed["run_id"] == [str(tmp_path / "one/r"), str(tmp_path / "two/r")]
    assert printed["difference_mean"] == ["-0.25"]
    # A table that is not in a directory of its own goes by its file.
    file = (tmp_path / "two/r/clients.csv").rename(tmp_path / "two.csv")
    printed = _printed(motley_metrics(tmp_path / "one", file, "--compare"))
    assert printed["run_id"] == [str(tmp_path / "one/r"), str(file)]


def test_quantum_of_improvement(motley_metrics, tmp_path):
    mine = {"d:a": (0.5, 0.75), "d:b": (0.5, 0.25), "d:c": (0.5, 1), "d:d": (0.5, 0.5)}
    run = _run(tmp_path, "mine", mine)
    whole = _run(tmp_path, "g", dict.fromkeys(mine, (0.5, 0)))
    local = _run(tmp_path, "l", {"d:a": (0, 0.25), "d:b": (0, 0.75), "d:c": (0, 0.75)})
    output = tmp_path / "out.csv"
    flags = (run, f"--global={whole}", f"--local={local}", f"--output={output}")
    stdout = motley_metrics(*flags)
    (row,) = commands.rows(output)
    # F = 0.75 - 0.5, 0.25 - 0.75, 1 - 0.75.
    names = ("num_clients", "num_left_out", "pui", "mpi", "mpd", "jain_index_improved")
    assert [row[name] for name in names] == ["3", "1", "66.6666667", "0.25", "0.5", "1"]
    assert "mine test: 1 clients are not in all runs" not in stdout  # Columns go by their part.
    assert "personalized test: 1 clients are not in all runs and left out: d:d" in stdout
    motley_metrics(*flags, "--per_client")
    assert [(r["client_id"], r["local"], r["quantum"]) for r in commands.rows(output)] == [
        ("d:a", "0.25", "0.25"), ("d:b", "0.75", "-0.5"), ("d:c", "0.75", "0.25")
    ]  # fmt: skip
    # Without --local: F = P - G, and nobody is worse when b and d are left out.
    better = _run(tmp_path, "better", {i: mine[i] for i in ("d:a", "d:c")})
    stdout = motley_metrics(better, f"--global={whole}")
    assert _printed(stdout)["api"] == ["0.375"] and "mpd" not in _printed(stdout)
    assert "nobody decreases, so what is over those that do is empty" in stdout


# --- ROC-AUC --------------------------------------------------------------------------------------


def test_roc_auc(motley_metrics, tmp_path):
    examples = [  # (client, label, baseline score, personalized score)
        ("d:a", 1, 0.5, 0.9), ("d:a", 0, 0.4, 0.4), ("d:a", 0, 0.6, 0.6),
        ("d:b", 1, 0.9, 0.9), ("d:b", 1, 0.8, 0.8), ("d:b", 0, 0.1, 0.1), ("d:c", 1, 0.3, 0.7),
    ]  # fmt: skip
    columns = ("client_id", "label", "baseline_score", "personalized_score")
    keys = {name: {**RUN, "run_id": "r"}[name] for name in columns_lib.RUN}
    rows = [{**keys, **dict(zip(columns, e, strict=True))} for e in examples]
    names = [name for name in columns_lib.names("scores") if name != "class"]  # Of two classes.
    path, output = tmp_path / "scores.csv", tmp_path / "out.csv"
    csv_files.write(path, names, rows)
    stdout = motley_metrics(path, f"--output={output}")
    baseline, personalized = commands.rows(output)
    # Pairs of all: 0.5 beats 2 negatives, 0.9 and 0.8 beat 3, 0.3 beats 1.
    assert baseline["pooled"] == "0.75" and personalized["pooled"] == "1"
    assert baseline["mean_over_clients"] == "0.75" and baseline["weighted_by_pairs"] == "0.75"
    assert baseline["weighted_by_negatives"] == "0.666666667"
    assert baseline["num_one_class_clients"] == "1" and "1 clients have one class only" in stdout
    motley_metrics(path, "--per_client", f"--output={output}")
    cells = [
        (r["client_id"], r["model"], r["roc_auc"], r["num_positives"])
        for r in commands.rows(output)
    ]
    assert cells[:3] == [
        ("d:a", "baseline", "0.5", "1"), ("d:b", "baseline", "1", "2"), ("d:c", "baseline", "", "1")
    ]  # fmt: skip
    assert "scores.csv: found scores, " in motley_metrics(path, "--compare", fails=True)
    rows[-1]["baseline_score"] = None
    csv_files.write(path, names, rows)
    stdout = motley_metrics(path)
    assert "r test baseline: 1 clients have scores that are not finite" in stdout
    assert _printed(stdout)["num_diverged"] == ["1", "0"]
    run = _run(tmp_path, "r", {"d:a": (0.5, 0.75)})
    assert "give one kind" in motley_metrics(path, run, fails=True)


@pytest.mark.slow
def test_secure_averages_are_the_averages(motley_metrics, tmp_path):
    rng = np.random.default_rng(0)
    keys = {name: {**RUN, "run_id": "r"}[name] for name in columns_lib.RUN}
    scores = ("baseline_score", "personalized_score")
    rows = [
        {**keys, "client_id": f"d:{i % 7}", "class": name, "label": int(rng.random() < 0.3 * share),
         **dict(zip(scores, rng.normal(size=2), strict=True))}
        for name, share in (("a", 1), ("b", 2), ("of nobody", 0))
        for i in range(60)
    ]  # fmt: skip
    # A client whose scores are not finite is in neither.
    rows = [{**row, "baseline_score": None} if row["client_id"] == "d:1" else row for row in rows]
    path, output = tmp_path / "scores.csv", tmp_path / "out.csv"
    csv_files.write(path, columns_lib.names("scores"), rows)
    motley_metrics(path, "--secure_average", f"--output={output}")
    averages = commands.rows(output)
    for name in metrics_tables.SECURE:
        plain = name.removeprefix("secure_")
        assert [row[name] for row in averages[4:]] == ["", ""]
        pairs = [(float(row[name]), float(row[plain])) for row in averages[:4]]
        assert all(secure == pytest.approx(exact, abs=1e-6) for secure, exact in pairs)
    clients = _run(tmp_path, "c", {"d:a": (0.5, 0.75)})
    assert "expected a scores.csv" in motley_metrics(clients, "--secure_average", fails=True)


# --- the program ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_100_000_clients(tmp_path):
    pairs = np.random.default_rng(0).random((100_000, 2))
    run = _run(tmp_path, "big", {f"d:{i}": pair for i, pair in enumerate(pairs)})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import sys; from absl import flags; from launch.metrics import command as metrics\n"
        "assert 'pandas' not in sys.modules and 'scipy' not in sys.modules\n"
        "flags.FLAGS(sys.argv); metrics.main(*sys.argv[1:])\n"
        "assert 'tensorflow' not in sys.modules\n"
        # Not ru_maxrss, which a process has from the one that started it.
        "peak = next(x for x in open('/proc/self/status') if x.startswith('VmHWM')).split()[1]\n"
        "assert int(peak) < 2**18, peak\n"  # In kibibytes.
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(run)],
        env=programs.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0, result.stderr
    assert _printed(result.stdout)["num_clients"] == ["100000"]
    # Of the processor, whatever else the machine does: three seconds of an idle one. Work that
    # grows with the square of the clients takes hours.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
