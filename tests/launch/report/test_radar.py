"""The radar chart: what is drawn, and what is not."""

import numpy as np
import pytest

from launch.report import radar

AXES = ("a", "b", "c", "d")


def _drawn(scores):
    (ax,) = radar.chart(AXES, scores, 5.0).axes
    return ax


def test_a_closed_line_a_method():
    ax = _drawn({"one": [1, 2, 3, 4], "two": [5, 5, 0, 5]})
    first, two = ax.get_lines()
    np.testing.assert_allclose(first.get_xdata(), np.pi / 2 * np.array([0, 1, 2, 3, 0]))
    assert list(first.get_ydata()) == [1, 2, 3, 4, 1]
    assert list(two.get_ydata()) == [5, 5, 0, 5, 5]
    assert [line.get_label() for line in (first, two)] == ["one", "two"]
    # Told apart without colour, too.
    assert first.get_marker() != two.get_marker() and first.get_linestyle() != two.get_linestyle()
    assert not ax.patches and "not measured" not in _texts(ax)
    assert set(AXES) <= set(_texts(ax))


def _texts(ax):
    return [text.get_text() for text in ax.texts]


def test_an_axis_that_nobody_measured_is_hatched():
    ax = _drawn({"one": [1, None, 3, 4], "two": [5, None, None, 5]})
    (patch,) = ax.patches
    assert patch.get_hatch() and patch.get_height() == 5.0
    assert patch.get_x() + patch.get_width() / 2 == pytest.approx(np.pi / 2)
    assert _texts(ax).count("not measured") == 1
    for line, missing in zip(ax.get_lines(), ([1], [1, 2]), strict=True):
        assert np.flatnonzero(np.isnan(line.get_ydata())).tolist() == missing
