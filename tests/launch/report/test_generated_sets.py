"""Figures of motley_generative's scores, from the tables that it writes."""

import csv

import numpy as np
import pytest

from launch.report import generated_sets, runs as runs_lib, style
from tests.errors import refused
from tests.launch import generated_runs


def _table(folder, *flags):
    path = folder / "generative.csv"
    generated_runs.score(*flags, f"--output={path}")
    return path


@pytest.fixture
def runs(tmp_path):
    return generated_runs.write(tmp_path)


def draw(path):
    with style.settings():
        return {figure.name: figure for figure in generated_sets.draw(path)}


def _line(ax, label):
    return next(line for line in ax.get_lines() if line.get_label() == label)


def test_checkpoints_stand_beside_what_has_no_rounds(tmp_path, runs):
    np.savez(tmp_path / "level.npz", images=np.full((40, 4, 4, 1), 128, np.uint8))
    np.savez(tmp_path / "black.npz", images=np.zeros((40, 4, 4, 1), np.uint8))
    flags = [f"--run={runs / 'one'}", f"--run={runs / 'two'}", "--features=pca:2"]
    flags += [f"--generated={tmp_path / name}.npz" for name in ("level", "black")]
    drawn = draw(_table(tmp_path, *flags, "--resamples=2"))
    assert set(drawn) == {"checkpoint", "forms", "pictures"}
    axes = drawn["checkpoint"].figure.axes
    assert len(axes) == 2 * 6
    lines = {line.get_label(): line for line in axes[0].get_lines()}
    assert {"level", "black"} < set(lines)
    assert list(_line(axes[0], "two").get_xdata()) == [0, 2, 10]
    assert [container.has_yerr for container in axes[0].containers] == [True, True]
    row = drawn["checkpoint"].numbers[0]
    assert (row["score"], row["pairs"], row["features"]) == ("fid", 28, "2, pca:2")
    pictures = drawn["pictures"].figure.axes
    titles = [ax.get_title().partition(": fid ")[0] for ax in pictures]
    rounds = [f"{run} round {n}" for run in ("one", "two") for n in (0, 2, 10)]
    assert titles == [*rounds, "level", "black"]
    assert pictures[7].get_images()[0].get_array().max() == 0


def test_pictures_that_are_gone_are_left_out(tmp_path, runs):
    path = _table(tmp_path, f"--run={runs / 'one'}", "--features=pca:2", "--num_neighbors=0")
    path.write_text(path.read_text().replace("round_000", "gone_"))
    assert set(draw(path)) == {"checkpoint"}


_SOURCES = ("generated", "source", "series", "parameter", "file")


def _written(path, *rows):
    """Writes rows of a name, a source, a series, a parameter, a file, fid_all and fid_avg."""
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*_SOURCES, "fid_all", "fid_avg", "kid_all", "kid_avg",
                        "num_examples", "features", "num_features"])  # fmt: skip
        table.writerows([*row, "", "", 9, "as given", 2] for row in rows)
    return path


def test_what_rounding_tells_apart_is_in_no_order(tmp_path):
    path = _written(
        tmp_path / "generative.csv",
        ("a", "file", "", "", "", 0.1, 0.2 + 1e-13),
        ("b", "file", "", "", "", 0.1 + 1e-13, 0.2),
    )
    (row,) = draw(path)["forms"].numbers
    assert (row["score"], row["pairs"], row["ordered differently"]) == ("fid", 1, 0)


@pytest.mark.parametrize("name", ["generative", "generative2", "generative-x"])
def test_tables_of_another_kind_are_passed_over(tmp_path, name):
    rows = [("r 0", "checkpoint", "r", 0, "", 1, 2), ("b", "file", "", "", "", 3, 4)]
    kept = _written(tmp_path / f"{name}.csv", *rows)
    for other in ("generative_older", "generative_theorem"):
        (tmp_path / f"{other}.csv").write_text("generated,num_examples,fid_all,fid_avg\na,9,1,2\n")
    assert runs_lib.find([str(tmp_path)]).tables["generated"] == [kept]
    assert _line(draw(kept)["checkpoint"].figure.axes[0], "b")
    separated = tmp_path / "generative_separated.csv"
    separated.write_text(kept.read_text().replace(",", ";"))
    assert set(runs_lib.find([str(tmp_path)]).tables["generated"]) == {kept, separated}
    with refused("generative_separated.csv", "';'", "commas"):
        draw(separated)


def test_figures_of_no_score_are_left_out(tmp_path, runs):
    """As of a client of one example: fid_avg and kid_avg are undefined."""
    file = runs / "one" / "generated" / "round_00000.npz"
    undefined = _written(
        tmp_path / "undefined.csv",
        ("r 0", "checkpoint", "r", 0, file, 1, ""),
        ("a", "file", "", "", "", 1, ""),
        ("b", "file", "", "", "", 2, ""),
    )
    assert set(draw(undefined)) == {"pictures"}


def test_eight_sets_of_ten_pictures_are_drawn(tmp_path, runs):
    file = runs / "one" / "generated" / "round_00000.npz"
    rows = [(f"r {n}", "checkpoint", "r", n, file, 1, 2) for n in range(15)]
    axes = draw(_written(tmp_path / "generative.csv", *rows))["pictures"].figure.axes
    titles = [ax.get_title().partition(":")[0] for ax in axes]
    assert titles == [f"r {n}" for n in range(0, 15, 2)]
    assert axes[0].get_images()[0].get_array().shape == (4, 40)
