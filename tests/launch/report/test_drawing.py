"""Every figure, drawn from many long names: nothing cut off, nothing on top of another text."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from launch.report import candidate_curves, communication, deltas, figures, heterogeneity, style
from launch.report.comparisons import Comparison

NAMES = (
    "Local training", "Far away", "FedAvg + FT", "HypCluster, from updates, warm start 10",
    "HypCluster, balance 0.003, warm start 10", "kNN-Per, cost $5 and $6", "Ditto",
)  # fmt: skip
_X = np.array([0.001, 0.01, 0.1, 1.0])
_RNG = np.random.default_rng(7)


def _table(names, number, **columns):
    """Returns so many rows a name; columns are values, or functions of the name's place."""
    parts = [
        pd.DataFrame(
            {n: values(i) if callable(values) else values for n, values in columns.items()},
            index=range(number),
        ).assign(algorithm=name)
        for i, name in enumerate(names)
    ]
    return pd.concat(parts)[["algorithm", *columns]]


def _curves(x, **more):
    measures = {"mean": lambda i: 0.7 + _X / 9 + i / 50, "mean_std": 0.01}
    measures |= {"hurt (%)": lambda i: 5 * _X + i, "hurt (%)_std": np.nan}
    return _table(NAMES, 4, **{x: _X}, **measures, **more)


def _gains(x, names=NAMES):
    gains = _table(names, 80, **{x: np.arange(1, 81)}, gain=lambda i: _RNG.normal(1e-4, 3e-4, 80))
    return gains.assign(is_hurt=gains["gain"] < 0)


def _boxes():
    models = {"global": lambda i: _RNG.normal(0.6, 0.1, 50) if i != 1 else np.full(50, 40.0),
              "personalized": lambda i: _RNG.normal(0.7, 0.1, 50)}  # fmt: skip
    return _table(NAMES, 50, **models)


def _rows(number, **columns):
    return _table(NAMES[:3], number, **columns)


_RULES = ["always", "min_examples:40", "validated:0.3", "validated_loss:0.3"]
_ERROR = Comparison("toy", "half_squared_error", False, False, ())
_ACCURACY = Comparison("toy", "accuracy", True, False, ())
# The others' axes have the longer name of the error.
_OF_ACCURACY = (
    "box_plots", "rate_deltas", "distribution_shift", "collapse", "communication",
)  # fmt: skip
DATA = {
    "box_plots": _boxes(),
    "delta_by_rank": _gains(deltas.RANKS, NAMES[:1]),
    "delta_by_examples": _gains(deltas.SIZES),
    "causes": _table(
        NAMES, 3, **{"clients with": "most personalization examples", "evidence": "no evidence",
                     "more probably hurt (points)": 3.0, "from": -20.0, "to": 26.0},
    ),
    "rate_curves": _curves(candidate_curves.AXES["rate"]),
    "rate_deltas": _gains(deltas.RANKS, NAMES[:2]),
    "epoch_curves": _curves(candidate_curves.AXES["epoch"]),
    "sweep_curves": pd.concat([_curves("x", hyperparameter=f"{name}_rate") for name in "ab"]),
    "distribution_shift": _table(
        NAMES, 3, model=["global model", "1", "lr0.05_epoch15"],
        **{"own examples": 0.6 + _X[:3], "others' examples": -_X[:3], "others' examples_std": 0.0},
    ),
    "collapse": _table(NAMES, 1500, round=np.arange(1, 1501),
                       share=lambda i: 50 + 50 * _RNG.random(1500), below=5.0, above=9.0),
    "communication": _table(NAMES, 4, round=[1, 2, 3, 4], bytes=1e9 * _X, mean=_X / 2),
    "composition": _rows(15, cluster=[1, 2, 3] * 5, clients=_RNG.integers(1, 30, 15), learned=4,
                         group=np.repeat(["English", "Spanish", "print", "it", "cost $5, $6"], 3)),
    "coefficient_curves": _curves(candidate_curves.AXES["coefficient"]),
    "size_curves": _curves(candidate_curves.SIZE),
    "tuning": _rows(
        1, gains=lambda i: [_RNG.normal(0.001, 0.003, (2, 139))], before=0.013, per_client=0.0117,
        **{"global": 0.0116, "before_std": 0.001, "global_std": 0.001, "per_client_std": 0.001,
           "hurt, global (%)": 33.0, "hurt, per_client (%)": 26.1},
    ),
    "acceptance": _rows(
        4, rule=_RULES, mean=0.0123, mean_std=0.0001,
        **{"hurt (%)": 20.0, "hurt (%)_std": 1.0, "truly hurt (%)": 5.0, "truly hurt (%)_std": 2.0,
           "accepting (%)": 100.0, "accepting (%)_std": 0.0},
    ),
    "improvement": _table(NAMES, 99, F=lambda i: _RNG.normal(-0.001, 0.003, 99)),
}  # fmt: skip


@pytest.mark.parametrize("kind", figures.KINDS, ids=lambda kind: kind.name)
def test_series_are_named_and_nothing_is_cut_off_or_covered(kind):
    data, comparison = DATA[kind.name], _ACCURACY if kind.name in _OF_ACCURACY else _ERROR
    with style.settings():
        figure = kind.function("draw")(data, comparison, style.styles(NAMES))
        assert any("Local training" in text.get_text() for text in figure.findobj(Text))
        assert _faults(figure) == []


def test_figures_have_words_of_their_own():
    for kind in figures.KINDS:
        assert kind.needs and kind.tables and kind.caption.format(better="x")
    titles = [kind.title for kind in figures.ALL.values()]
    assert len({*titles}) == len(titles)


def test_many_labels_are_thinned_out():
    shares = _RNG.dirichlet(np.ones(62), 24)
    with style.settings():
        figure, [[ax]] = style.panels(1, height=4.6)
        clients = [f"emnist:writer_{i:04}_of_a_long_name" for i in range(24)]
        heterogeneity.draw(ax, clients, [f"label {i}" for i in range(62)], shares)
        assert _faults(figure) == []


def _faults(figure):
    """Returns what texts of a figure of a column's width are too small, cut off or covered."""
    assert figure.get_figwidth() == style.COLUMN_WIDTH
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, page = canvas.get_renderer(), figure.bbox
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    every, shown = _ticks(figure)
    boxes = {t: t.get_window_extent(renderer) for t in texts if t not in every or t in shown}
    notes = {text for ax in figure.axes for text in ax.texts}
    faults = []
    for text, box in boxes.items():
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        if not inside or text.get_fontsize() < 6:
            faults.append((text.get_text(), text.get_fontsize(), box))
    for (first, a), (other, b) in itertools.combinations(boxes.items(), 2):
        # Notes at points of a curve may touch each other.
        if not {first, other} & notes and _overlap(a, b) >= 4.0:
            faults.append((first.get_text(), other.get_text()))
    assert boxes
    return faults


def _ticks(figure):
    """Returns (labels of all ticks, labels of those that are within their axis' limits)."""
    every, shown = set(), set()
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        for tick in axis._update_ticks():
            shown |= {tick.label1, tick.label2}
        for tick in axis.get_major_ticks() + axis.get_minor_ticks():
            every |= {tick.label1, tick.label2}
    return every, shown


def _overlap(a, b):
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(width, 0.0) * max(height, 0.0)


# --- style ----------------------------------------------------------------------------------------


def test_colour_is_never_the_only_cue():
    styles = list(style.styles([str(i) for i in range(40)]).values())
    assert len({(s.colour, s.marker) for s in styles}) == 40
    assert len({s.marker for s in styles[:8]}) == len({s.colour for s in styles[:8]}) == 8


def test_names_are_broken_after_commas():
    assert style.wrapped("HypCluster, warm start 10", 16) == "HypCluster,\nwarm start 10"
    long = "something for $5 longer than a line"
    assert style.wrapped(long, 16) == "something for \\$5\nlonger than a\nline"


@pytest.mark.parametrize("number, num_bars, num_bands", [(4, 1, 0), (40, 0, 1)])
def test_bars_that_would_touch_are_a_band(number, num_bars, num_bands):
    _, [[ax]] = style.panels(1)
    x = np.arange(number)
    (look,) = style.styles("a").values()
    style.line(ax, "a", x, x, look, np.where(x % 2, 0.5, np.nan))
    assert (len(ax.containers), len(ax.collections)) == (num_bars, num_bars + num_bands)
    style.line(ax, "b", x, x, look, np.full(number, np.nan))
    assert (len(ax.containers), len(ax.collections)) == (num_bars, num_bars + num_bands)


def test_files_of_the_same_data_are_the_same_bytes(tmp_path):
    written = []
    for name in ("a", "b"):
        with style.settings():
            figure = communication.draw(DATA["communication"], _ACCURACY, style.styles(NAMES))
            paths, svg = style.save(figure, tmp_path, name, "pdf")
        written.append([path.read_bytes() for path in paths] + [svg])
    assert [path.suffix for path in paths] == [".pdf", ".png"]
    assert written[0] == written[1] and written[0][0].startswith(b"%PDF")


@pytest.mark.parametrize("number", [100, style.MAX_VECTOR_POINTS + 1])
def test_thousands_of_points_are_pixels_in_the_vector_file(number):
    clients = pd.DataFrame({"algorithm": "many", "x": np.arange(number), "gain": 1.0})
    with style.settings():
        figure = deltas.draw(clients.assign(is_hurt=False), _ACCURACY, {})
        assert (b"<image" in style.rendered(figure, "svg")) == (number > 100)
