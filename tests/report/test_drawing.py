"""Every figure, drawn from many long names: nothing cut off, nothing on top of another text."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from motley_tff.report import (
    acceptance,
    box_plots,
    candidate_curves,
    collapse,
    communication,
    composition,
    deltas,
    distribution_shift,
    figures,
    heterogeneity,
    improvement,
    style,
    sweep_curves,
    tuning,
)
from motley_tff.report.comparisons import Comparison, Value

NAMES = (
    "Local training", "Far away", "FedAvg + FT", "HypCluster, from updates, warm start 10",
    "HypCluster, balance 0.003, warm start 10", "kNN-Per, cost $5 and $6", "Ditto",
)  # fmt: skip
_X = np.array([0.001, 0.01, 0.1, 1.0])
_RNG = np.random.default_rng(7)


def _curves():
    return [
        candidate_curves.Curve(
            name, list(_X), [Value(0.7 + x / 9 + i / 50, 0.01) for x in _X],
            [Value(5 * x + i, float("nan")) for x in _X],
        )
        for i, name in enumerate(NAMES)
    ]  # fmt: skip


def _boxes():
    boxes = [
        box_plots.Boxes(n, _RNG.normal(0.6, 0.1, 50), _RNG.normal(0.7, 0.1, 50)) for n in NAMES
    ]
    return [*boxes, box_plots.Boxes("Far away", np.full(9, 40.0), _RNG.normal(0.7, 0.1, 9))]


def _panels():
    gains = _RNG.normal(0.0001, 0.0003, (len(NAMES), 80))
    return [deltas.Deltas(n, np.arange(1, 81), g, g < 0) for n, g in zip(NAMES, gains, strict=True)]


def _composition():
    groups = ("English", "Spanish", "italic", "print", "cost $5 and $6")
    counts = {group: np.array([30.0, 20.0, i]) for i, group in enumerate(groups)}
    return [composition.Panel(n, 4, np.array([1, 2, 3]), counts) for n in NAMES[:3]]


def _acceptance():
    rules = ("always", "min_examples:40", "validated:0.3", "validated_loss:0.3")
    return [
        acceptance.Row(
            n, rule, Value(0.0123 + i / 999, 0.0001), Value(20.0, 1.0), Value(100.0, 0.0)
        )
        for n in NAMES[:3]
        for i, rule in enumerate(rules)
    ]


def _tuning():
    gain = _RNG.normal(0.001, 0.003, (2, 139))
    means = [Value(0.013, 0.001), Value(0.0116, 0.001), Value(0.0117, 0.001)]
    return [tuning.Panel(n, means, gain[0], gain[1], (33.0, 26.1)) for n in NAMES[:2]]


_ERROR = Comparison("toy", "half_squared_error", False, False, ())
_ACCURACY = Comparison("toy", "accuracy", True, False, ())
# The others' axes have the longer name of the error.
_OF_ACCURACY = (
    "box_plots", "rate_deltas", "distribution_shift", "collapse", "communication",
)  # fmt: skip
DATA = {
    "box_plots": _boxes(),
    "delta_by_rank": deltas.Data(_panels()[:1], "test clients, worst first (%)", False),
    "delta_by_examples": deltas.Data(_panels(), "personalization examples", True),
    "rate_curves": candidate_curves.Data("rate", _curves()),
    "rate_deltas": deltas.Data(_panels()[:2], "test clients, worst first (%)", False),
    "epoch_curves": candidate_curves.Data("epoch", _curves()),
    "sweep_curves": [sweep_curves.Panel(f"{of}_rate", _curves(), True) for of in ("a", "b")],
    "distribution_shift": [
        distribution_shift.Curve(n, ["global model", "1", "lr0.05_epoch15"], 0.6 + _X[:3], -_X[:3])
        for n in NAMES
    ],
    "collapse": [
        collapse.Curve(n, np.arange(1, 1501), *50 + 50 * _RNG.random((3, 1500)), 3) for n in NAMES
    ],
    "communication": [communication.Curve(n, 1e9 * _X, _X / 2) for n in NAMES],
    "composition": _composition(),
    "coefficient_curves": candidate_curves.Data("coefficient", _curves()),
    "size_curves": candidate_curves.Data("size", _curves()),
    "tuning": _tuning(),
    "acceptance": _acceptance(),
    "improvement": [improvement.Curve(n, _RNG.normal(-0.001, 0.003, 99)) for n in NAMES],
}


def test_titles_tell_figures_apart():
    assert len({kind.title for kind in figures.KINDS}) == len(figures.KINDS)


@pytest.mark.parametrize("kind", figures.KINDS, ids=lambda kind: kind.name)
def test_series_are_named_and_nothing_is_cut_off_or_covered(kind):
    with style.settings():
        comparison = _ACCURACY if kind.name in _OF_ACCURACY else _ERROR
        figure = kind.draw(DATA[kind.name], comparison, style.styles(NAMES))
        assert any("Local training" in text.get_text() for text in figure.findobj(Text))
        assert _faults(figure) == []


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
    for (one, a), (other, b) in itertools.combinations(boxes.items(), 2):
        # Notes at points of a curve may touch each other.
        if not {one, other} & notes and _overlap(a, b) >= 4.0:
            faults.append((one.get_text(), other.get_text()))
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
    gain = _RNG.normal(size=number)
    panel = deltas.Deltas("many", np.arange(number), gain, gain < 0)
    with style.settings():
        figure = deltas.draw(deltas.Data([panel], "x", False), _ACCURACY, {})
        assert (b"<image" in style.rendered(figure, "svg")) == (number > 100)
