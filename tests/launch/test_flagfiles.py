"""The presets: each is a point of the shipped grid of its name, of which `test_grids` is."""

import functools
import json
import subprocess
import sys

import pytest

from launch.sweeps import grids
from tests.trainers import programs

FOLDER = programs.ROOT / "launch" / "flagfiles"
# The paper's, and of Divi et al.'s ten silos.
GRIDS = {
    path.stem: path
    for folder in ("grids", "experiments/divi")
    for path in (programs.ROOT / "launch" / folder).glob("*.yaml")
}
# Prints what a trainer's flags are with each of the presets.
_CODE = """import importlib, json, sys
from absl.testing import flagsaver
from motley_tff import commandline
importlib.import_module(f"trainers.{sys.argv[1]}")
from trainers import optimizer_flags
found = {}
for path in sys.argv[2:]:
    with flagsaver.flagsaver():
        commandline.parse(["x", f"--flagfile={path}", "--experiment_name=x"])
        optimizer_flags.check_given(commandline.given())
        found[path] = {n: flagsaver.flags.FLAGS[n].value for n in flagsaver.flags.FLAGS}
print(json.dumps(found, default=str))
"""


@functools.cache
def _all_of(trainer):
    """Returns {preset: flags as the trainer reads them}, in a process of its own."""
    paths = [str(p) for p in FOLDER.iterdir() if grids.parse(GRIDS[p.stem])[0].trainer == trainer]
    result = subprocess.run(
        [sys.executable, "-c", _CODE, trainer, *paths],
        capture_output=True, text=True, env=programs.environment(), check=True,
    )  # fmt: skip
    return json.loads(result.stdout)


def _value(value):
    found = grids.number(str(value).lower() if isinstance(value, bool) else str(value))
    return float(f"{found:.8g}") if isinstance(found, float) else found


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_a_preset_is_a_point_of_its_grid_the_papers_best_where_it_marks_one(path):
    grid, _ = grids.parse(GRIDS[path.stem])
    found, best = _all_of(grid.trainer)[str(path)], grid.paper.get("best", {})
    assert found["dataset_name"] == grid.dataset

    def has(flags):
        values = {f: found[f][0] if isinstance(found[f], list) else found[f] for f in flags}
        return {f: _value(v) for f, v in values.items()} == {f: _value(v) for f, v in flags.items()}

    assert has(grid.fixed)
    assert any(map(has, grid.points)) and has({f: v for f, v in best.items() if f in grid.grid})
    for flag, values in grid.inside.items():  # All of them, or the best one.
        assert list(map(_value, found[flag])) in (
            list(map(_value, values)), [_value(best.get(flag))]
        )  # fmt: skip


def test_every_grid_that_needs_one_has_a_preset():
    presets = {path.stem for path in FOLDER.iterdir()}
    assert GRIDS.keys() - presets == {
        "ensemble.school", "fedavg.adni", "fedavg.school", "fedavg.ted_multi", "fedavg.vehicle",
        "mr_mtl.school", "mr_mtl.vehicle",
    }  # fmt: skip
