"""The presets: each is a point of the shipped grid of its name, of which `test_grids` is."""

import functools

import pytest
from absl import flags
from absl.testing import flagsaver

from launch.sweeps import grids
from motley_tff import commandline
from tests.contracts import in_process
from tests.trainers import programs
from trainers import optimizer_flags

FOLDER = programs.ROOT / "launch" / "flagfiles"
# The paper's, and of Divi et al.'s ten silos.
GRIDS = {
    path.stem: path
    for folder in ("grids", "experiments/divi")
    for path in (programs.ROOT / "launch" / folder).glob("*.yaml")
}


@functools.cache
def _all_of(trainer):
    """Returns {preset: flags as the trainer reads them}."""
    presets = {}
    with in_process.opened(trainer):
        for path in FOLDER.iterdir():
            if grids.parse(GRIDS[path.stem]).trainer == trainer:
                with flagsaver.flagsaver():
                    commandline.parse(["x", f"--flagfile={path}", "--experiment_name=x"])
                    optimizer_flags.check_given(commandline.given())
                    presets[path] = {name: flags.FLAGS[name].value for name in flags.FLAGS}
    return presets


def _value(value):
    number = grids.number(str(value).lower() if isinstance(value, bool) else str(value))
    return float(f"{number:.8g}") if isinstance(number, float) else number


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_a_preset_is_a_point_of_its_grid_the_papers_best_where_it_marks_one(path):
    grid = grids.parse(GRIDS[path.stem])
    preset, best = _all_of(grid.trainer)[path], grid.paper.get("best", {})
    assert preset["dataset_name"] == grid.dataset

    def has(other):
        values = {f: preset[f][0] if isinstance(preset[f], list) else preset[f] for f in other}
        return {f: _value(v) for f, v in values.items()} == {f: _value(v) for f, v in other.items()}

    assert has(grid.fixed)
    assert any(map(has, grid.points)) and has({f: v for f, v in best.items() if f in grid.grid})
    for flag, values in grid.inside.items():  # All of them, or the best one.
        assert list(map(_value, preset[flag])) in (
            list(map(_value, values)), [_value(best.get(flag))]
        )  # fmt: skip


def test_every_grid_that_needs_one_has_a_preset():
    presets = {path.stem for path in FOLDER.iterdir()}
    assert GRIDS.keys() - presets == {
        "ensemble.school", "fedavg.adni", "fedavg.school", "fedavg.ted_multi", "fedavg.vehicle",
        "mr_mtl.school", "mr_mtl.vehicle",
    }  # fmt: skip
