"""motley_report as a user runs it: files, messages and start-up."""

import html
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from launch.report import building
from tests.launch import commands, generated_runs
from tests.launch.report import test_page, written

ROOT = pathlib.Path(__file__).parents[3]
NASTY = "=x<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report():
    with commands.opened("launch.report.command", "PATH...") as run:
        yield run


def test_files_messages_and_the_page_of_names_that_would_be_dangerous(tmp_path):
    """If they were taken for HTML, or for formulas."""
    root = tmp_path
    clients = {f"c{i}": (0.5, 0.4 + i / 10) for i in range(5)}
    for seed in (0, 1):
        written.run(root, f"run{seed}", NASTY, clients, seed=seed, dataset="toy <b>")
    target = root / "out" / "report"
    command = [sys.executable, "-m", "launch.report.command", root, f"--output_dir={target}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "drawing toy <b>\n"
    first, second = result.stdout.splitlines()
    assert first == f"{target}/report.html; beside it, as .svg and .png, figures: 3"
    assert second.startswith("left out, no data: ") and "Mode collapse (Figure 5(a))" in second
    names = sorted(path.name for path in target.iterdir())
    stems = ("box_plots", "delta_by_examples", "delta_by_rank")
    figures = [f"toy_b_accuracy_{stem}.{suffix}" for stem in stems for suffix in ("png", "svg")]
    assert names == sorted([*figures, "report.html", "tables.csv"])
    rows = commands.rows(target / "tables.csv")
    assert [(row["statistic"], row["num_seeds"]) for row in rows] == [
        ("Per-client metric", "2"), ('% clients "hurt"', "2"),
    ]  # fmt: skip
    assert {row["algorithm"] for row in rows} == {f"'{NASTY}"}, "no formula"
    assert float(rows[0]["mean"]) == pytest.approx(0.6) and rows[1]["mean"] == "20"
    text = (target / "report.html").read_text(encoding="utf-8")
    assert len(test_page.check(text).sources) == 3 and "<img src=x" not in text
    left_out = text[text.index("Left out</h2>") :]
    assert "Communication (Figures 5(b), 5(c)): needs a run that was evaluated in two" in left_out
    assert "0.600 ± .14" in text and "From clients.csv of run0, run1. Files: toy_b_" in text


def test_a_path_that_is_missing_ends_no_report(tmp_path, report, capsys):
    written.run(tmp_path / "runs", "one", "ditto", {"a": (0.5, 0.6)})
    (tmp_path / "empty").mkdir()
    paths = [tmp_path / name for name in ("nowhere", "runs", "empty")]
    status, _ = report(*paths, f"--output_dir={tmp_path / 'out'}")
    words = [
        f"{paths[0]}: found nothing, expected",
        f"{paths[2]}: found no clients.csv or sweep.csv",
    ]
    lines = capsys.readouterr().err.splitlines()
    assert status == 0 and [line.startswith("warning: ") for line in lines] == [False, True, True]
    text = (tmp_path / "out" / "report.html").read_text()
    assert all(word in line and word in text for word, line in zip(words, lines[1:], strict=True))
    assert words[0] in report.refused(paths[0], paths[2], f"--output_dir={tmp_path / 'none'}")


def test_runs_on_other_data_are_refused(tmp_path, report, capsys):
    for name, limit in (("one", 4), ("two", 5)):
        clients = {"a": (0.5, 0.6)}
        written.run(tmp_path / "runs", name, "ditto", clients, flags={"max_clients": limit})
    arguments = (tmp_path / "runs", f"--output_dir={tmp_path / 'out'}")
    words = "max_clients of one and two (4 and 5)"
    assert words in report.refused(*arguments) and not (tmp_path / "out").exists()
    report(*arguments, "--anyway")
    assert f"warning: the runs are not scored on the same: {words}" in capsys.readouterr().err
    assert words in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing PATH...; usage: "),
        (("nowhere",), "nowhere: found nothing, expected the directory of a run, a sweep"),
        (("{root}/good", "--vector=gif"), "--vector=gif: expected one of svg, pdf"),
        (("{root}/good", "--output_dir={root}/good/r/clients.csv/x"), "another --output_dir"),
        (("{root}/good", "--outptu_dir=x"), "--outptu_dir; did you mean --output_dir?"),
    ],
)
def test_bad_input_is_one_line(report, tmp_path, arguments, message):
    written.run(tmp_path / "good", "r", "ditto", {"a": (0.5, 0.6)})
    target = [] if "--output_dir" in str(arguments) else [f"--output_dir={tmp_path / 'out'}"]
    assert message in report.refused(*(a.format(root=tmp_path) for a in arguments), *target)
    assert not (tmp_path / "out").exists()


def test_a_sweep_label_shares_and_a_scorecard_alone(report, tmp_path):
    rows = [
        {"lambda": x, "base_random_seed": 0, "status": "finished"}
        | {"valid_personalized_mean": x, "test_personalized_mean": x}
        for x in (0.1, 0.5)
    ]
    written.sweep(tmp_path / "in" / "grid", rows)
    (tmp_path / "in" / "heterogeneity_toy.csv").write_text(
        "client_id,label,share\na,x,0.5\na,y,0.5\n"
    )
    scores = "method,efficiency,robustness,effectiveness,privacy,security\nfedavg,1.5,,5,2,3\n"
    (tmp_path / "in" / "scorecard.csv").write_text(scores)
    np.savez(tmp_path / "clients.npz", a=np.eye(9), b=np.eye(9) + 1)
    flags = [f"--clients={tmp_path}/clients.npz", f"--output={tmp_path}/in/generative_toy.csv"]
    for name in ("one", "two"):
        np.save(tmp_path / name, 2 * np.eye(9))
        flags.append(f"--generated={tmp_path}/{name}.npy")
    generated_runs.score(*flags)
    _, printed = report(tmp_path / "in", f"--output_dir={tmp_path / 'out'}", "--vector=pdf")
    names = sorted(path.name for path in (tmp_path / "out").glob("*.pdf"))
    assert names == [
        "generative_toy_forms.pdf", "heterogeneity_toy.pdf", "scorecard.pdf",
        "toy_accuracy_sweep_curves.pdf",
    ]  # fmt: skip
    assert "Figure 10" not in printed and "scorecard" not in printed
    text = (tmp_path / "out" / "report.html").read_text()
    test_page.check(text)
    grid = html.escape(f"{tmp_path}/in/grid")
    assert f"From sweep.csv of {grid}. Files: toy_accuracy_sweep_curves" in text
    assert "Files: scorecard" in text and "Files: heterogeneity_toy" in text
    assert "figures: 4" in printed


def test_names_that_would_be_the_same_file_are_told_apart():
    names = building.stems(["a b", "a (b)", "../a b", "… c", "…"])
    assert names == ["a_b", "a_b.2", "a_b.3", "c", "data"]


def test_nothing_waits_for_tensorflow():
    code = (
        "import sys, launch.report.command; from launch.report import building;"
        "print(*{'tensorflow', 'jax', 'keras'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout == "\n"
