"""Figures of motley_generative's scores, from the tables that it writes."""

import csv
import weakref

import numpy as np
import pytest

from motley_tff.files import array_files
from motley_tff.report import generated_sets, runs as runs_lib, style
from tests.launch import generated_runs


def _table(folder, *flags):
    path = folder / "generative.csv"
    generated_runs.score(*flags, f"--output={path}")
    return path


@pytest.fixture
def runs(tmp_path):
    return generated_runs.write(tmp_path)


@pytest.fixture
def draw():
    def drawn(path):
        with style.settings():
            return {figure.name: figure for figure in generated_sets.draw(path)}

    return drawn


def _line(ax, label):
    return next(line for line in ax.get_lines() if line.get_label() == label)


def test_what_each_form_prefers_is_marked(tmp_path, draw):
    figure, samples = draw(_table(tmp_path, "--experiment=gaussian")).values()
    fid, kid = figure.figure.axes
    for ax, form, best in ((fid, "all", 2), (fid, "avg", 1), (kid, "all", 2), (kid, "avg", 2)):
        line = _line(ax, form)
        assert line.get_xdata()[np.argmin(line.get_ydata())] == best
        colour = line.get_color()
        marks = [m for m in ax.get_lines() if m.get_color() == colour and m is not line]
        assert [m.get_xdata()[0] for m in marks] == [best]
    assert "fid 2 and 1; kid 2 and 2." in figure.caption
    for ax, variance in zip(samples.figure.axes, (1, 2), strict=True):
        x, y = _line(ax, "generator").get_data()
        assert np.var(x) == pytest.approx(variance, rel=0.2)
        assert np.var(y) == pytest.approx(1, rel=0.2)
        means = [np.mean(_line(ax, f"client {i}").get_xdata()) for i in (1, 2)]
        assert means == pytest.approx([1, -1], abs=0.2)


def test_the_neighbours_that_clients_keep_are_in_the_caption(tmp_path, draw):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "clients.npz", a=rng.normal(size=(20, 2)), b=rng.normal(size=(20, 2)) + 3)
    given = [f"--clients={tmp_path / 'clients.npz'}", "--num_neighbors=1"]
    for experiment in ("nearest", "scaled"):
        path = _table(tmp_path, *given, f"--experiment={experiment}", "--num_kept=7")
        caption = draw(path)[experiment].caption
        assert caption.endswith(" Clients of an example and its K = 7 neighbours.")
    caption = draw(_table(tmp_path, *given, "--experiment=classes"))["forms"].caption
    assert caption.endswith(" 2 of them.")


def test_checkpoints_stand_beside_what_has_no_rounds(tmp_path, draw, runs):
    given = [f"--run={runs / 'one'}", f"--run={runs / 'two'}", "--features=pca:2"]
    path = _table(tmp_path, *given, "--experiment=extremes", "--only_client=b", "--resamples=2")
    drawn = draw(path)
    assert set(drawn) == {"checkpoint", "forms", "pictures"}
    axes = drawn["checkpoint"].figure.axes
    assert len(axes) == 2 * 6
    lines = {line.get_label(): line for line in axes[0].get_lines()}
    assert {"b", "mixture"} < set(lines)
    (of_run,) = (c for c in axes[0].containers if c.get_label() == "two")
    assert list(of_run[0].get_xdata()) == [0, 2, 10] and of_run.has_yerr
    assert "Pairs of 36 that the two forms order differently: fid " in drawn["checkpoint"].caption
    pictures = drawn["pictures"].figure.axes
    titles = [ax.get_title().partition(": fid ")[0] for ax in pictures]
    rounds = [f"{run} round {n}" for run in ("one", "two") for n in (0, 2, 10)]
    assert titles == [*rounds, "b", "mixture"]  # Half the covariance is of no pictures.
    real = np.load(runs / "one" / "generated" / "clients.npz")
    for ax, images in ((pictures[6], real["images"][30:]), (pictures[7], real["images"])):
        ends = images[[0, -1], ..., 0]
        strip = ax.get_images()[0].get_array()
        np.testing.assert_array_equal(strip[:, :4], ends[0])
        np.testing.assert_array_equal(strip[:, -4:], ends[1])


@pytest.mark.parametrize("by_client", [True, False])
def test_pictures_of_two_clients(tmp_path, by_client):
    whole = np.arange(6, dtype=np.uint8)[:, None, None] * np.ones((4, 4), np.uint8)
    parts = {name: whole[2 * i : 2 * i + 2] for i, name in enumerate("abc")}
    arrays = {"images": whole, "client_id": ["a", "a", "b", "b", "c", "c"]}
    np.savez(tmp_path / "clients.npz", **(parts if by_client else arrays))
    for name, expected in (("a + c", [0, 1, 4, 5]), ("b", [2, 3]), ("mixture", list(range(6)))):
        row = {"source": "classes", "generated": name, "file": str(tmp_path / "clients.npz")}
        assert generated_sets._some_pictures(row)[:, 0, 0].tolist() == expected
    for gone in ("d", "a + d"):
        assert generated_sets._some_pictures({**row, "generated": gone}) is None


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"a": np.zeros((3, 8, 8)), "b": np.zeros((2, 4, 4))},
        {"a": np.zeros((3, 8, 8)), "b": np.zeros((2, 4))},
        {"images": np.zeros((3, 4, 4)), "client_id": np.array(["a", "b"])},
        {"client_id": np.array(["a", "b"])},
    ],
)
def test_a_clients_file_that_is_another_by_now_has_no_pictures(tmp_path, arrays):
    np.savez(tmp_path / "clients.npz", **arrays)
    row = {"source": "extremes", "generated": "mixture", "file": str(tmp_path / "clients.npz")}
    assert generated_sets._some_pictures(row) is None


def test_pictures_that_are_gone_are_left_out(tmp_path, draw, runs):
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


def test_what_rounding_tells_apart_is_in_no_order(tmp_path, draw):
    path = _written(
        tmp_path / "generative.csv",
        ("a", "classes", "", "", "", 0.1, 0.2 + 1e-13),
        ("b", "classes", "", "", "", 0.1 + 1e-13, 0.2),
    )
    caption = draw(path)["forms"].caption
    assert caption.startswith("Pairs of 1 that the two forms order differently: fid 0. Features:")


def test_pairs_of_several_anchors_are_each_ones_own(tmp_path, draw):
    # Between groups the forms disagree on all pairs, within on the checkpoints' alone.
    anchors = [
        (f"nearest {n}", "nearest", f"anchor {a}", n, "", 2 * a + n / 10, 9 - 2 * a + n / 10)
        for a in (3, 4)
        for n in (2, 5)
    ]
    of_run = [("r 0", "checkpoint", "r", 0, "", 1, 12), ("r 1", "checkpoint", "r", 1, "", 2, 11)]
    path = tmp_path / "generative.csv"
    several = draw(_written(path, *of_run, *anchors))["checkpoint"].caption
    assert several.startswith("Pairs of 3 that the two forms order differently: fid 1. ")
    one = draw(_written(path, *of_run, *anchors[:2]))["checkpoint"].caption
    assert one.startswith("Pairs of 6 that the two forms order differently: fid 5. ")


def test_critics_of_some_sets_are_drawn(tmp_path, draw):
    table = ["generated,source,series,parameter,file,fid_all,fid_avg,num_examples,features,"
             "num_features,w1_all,w1_avg"]  # fmt: skip
    table += [f"r {n},checkpoint,r,{n},,{5 - n},{9 - n},9,as given,2,{w1}"
              for n, w1 in enumerate([",", "3,4", ",", "2,5"])]  # fmt: skip
    table += ["a,extremes,,,,1,2,9,as given,2,1,2", "b,extremes,,,,1,2,9,as given,2,,"]
    table += [f"nearest {n},nearest,,{n},,{n},{n},9,as given,2,{w1}"
              for n, w1 in ((2, "6,7"), (4, ","), (8, "8,6"))]  # fmt: skip
    path = tmp_path / "generative.csv"
    path.write_text("\n".join(table) + "\n")
    drawn = draw(path)
    assert set(drawn) == {"nearest", "checkpoint", "forms"}
    fid, w1 = drawn["nearest"].figure.axes
    assert list(_line(fid, "avg").get_xdata()) == [2, 4, 8]
    line = _line(w1, "avg")
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([2, 8], [7, 6])
    assert "w1 2 and 8." in drawn["nearest"].caption
    ax = drawn["checkpoint"].figure.axes[2]
    (of_run,) = ax.containers
    assert ax.get_ylabel() == "w1_all" and list(of_run[0].get_xdata()) == [1, 3]
    caption = drawn["checkpoint"].caption
    assert "Pairs of 36" in caption and "w1 2 of 10. " in caption
    assert len(drawn["forms"].figure.axes[1].get_lines()) == 1


def test_tables_of_another_kind_are_passed_over(tmp_path, draw):
    row = ("r 0", "checkpoint", "r", 0, "", 1, 2)
    kept = _written(tmp_path / "generative.csv", row)
    for name in ("generative_older", "generative_theorem"):
        (tmp_path / f"{name}.csv").write_text("generated,num_examples,fid_all,fid_avg\na,9,1,2\n")
    assert runs_lib.find([str(tmp_path)]).generated == [kept]
    separated = tmp_path / "generative_separated.csv"
    separated.write_text(kept.read_text().replace(",", ";"))
    assert runs_lib.find([str(tmp_path)]).generated == [kept, separated]
    with pytest.raises(runs_lib.UserError, match=r"found cells separated by ';', expected commas"):
        draw(separated)


@pytest.mark.parametrize("name", ["generative2", "generative-x"])
def test_tables_are_read_alike_whatever_follows_their_name(tmp_path, draw, name):
    path = _written(
        tmp_path / f"{name}.csv",
        ("r 0", "checkpoint", "r", 0, "", 1, 2),
        ("b", "extremes", "", "", "", 3, 4),
    )
    assert runs_lib.find([str(tmp_path)]).generated == [path]
    lines = draw(path)["checkpoint"].figure.axes[0].get_lines()
    assert {"b"} < {line.get_label() for line in lines}


def test_figures_of_no_score_are_left_out(tmp_path, draw, runs):
    """As of a client of one example: fid_avg and kid_avg are undefined."""
    file = runs / "one" / "generated" / "round_00000.npz"
    undefined = _written(
        tmp_path / "undefined.csv",
        ("var_x=1", "gaussian", "", 1, "", 1, ""),
        ("r 0", "checkpoint", "r", 0, file, 1, ""),
        ("a", "classes", "", "", "", 1, ""),
        ("b", "classes", "", "", "", 2, ""),
    )
    assert set(draw(undefined)) == {"pictures"}


def test_eight_sets_are_read_and_ten_pictures_kept(tmp_path, draw, runs, monkeypatch):
    file = runs / "one" / "generated" / "round_00000.npz"
    rows = [(f"r {n}", "checkpoint", "r", n, file, 1, 2) for n in range(15)]
    path = _written(tmp_path / "generative.csv", *rows)
    read, num_alive, arrays_of = [], [], array_files.read

    def remembered(*arguments):
        num_alive.append(sum(of() is not None for of in read))
        arrays = arrays_of(*arguments)
        read.append(weakref.ref(arrays["images"]))
        return arrays

    monkeypatch.setattr(array_files, "read", remembered)
    axes = draw(path)["pictures"].figure.axes
    titles = [ax.get_title().partition(":")[0] for ax in axes]
    assert titles == [f"r {n}" for n in range(0, 15, 2)]
    assert num_alive == [0] * 8
