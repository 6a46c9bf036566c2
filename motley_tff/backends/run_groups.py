"""Which runs of a grid train in one compiled call: a function of the grid alone.

Not of what is finished, how many jobs run, or in which order the points are listed: a sweep that
was cut and resumed, or scheduled differently, makes the same calls and gives the same bytes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# More runs in a call save nothing: by then arithmetic outweighs what a call costs.
MAX_SETTINGS = 64


class RunGroup(NamedTuple):
    """Runs of one compiled call: every setting under every seed, both in ascending order.

    Attributes:
      settings: The traced values of each setting.
    """

    fixed: dict[str, Any]
    settings: tuple[dict[str, float], ...]
    seeds: tuple[int, ...]


def group(
    points: Sequence[Mapping[str, Any]],
    seeds: Sequence[int],
    traced: Sequence[str],
    max_settings: int = MAX_SETTINGS,
) -> list[RunGroup]:
    """Returns a grid's runs in groups, in a fixed order.

    Args:
      points: The settings of the grid, all with the same names; doubles count once.
      seeds: Every point runs under each.
      traced: Names of hyperparameters that may differ inside a call, because nothing but
        arithmetic depends on them (rates, lambda); all others (batch sizes, optimizers' names)
        are compiled in.
      max_settings: Largest number of settings in a call.
    """
    by_fixed: dict[str, dict[str, dict[str, float]]] = {}
    for point in points:
        fixed = {name: value for name, value in point.items() if name not in traced}
        setting = {name: float(point[name]) for name in sorted(point) if name in traced}
        by_fixed.setdefault(_text(fixed), {})[_text(setting)] = setting
    groups = []
    for fixed_text in sorted(by_fixed):
        settings = sorted(by_fixed[fixed_text].values(), key=lambda s: tuple(s.values()))
        for start in range(0, len(settings), max_settings):
            chunk = tuple(settings[start : start + max_settings])
            groups.append(RunGroup(json.loads(fixed_text), chunk, tuple(sorted(set(seeds)))))
    return groups


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)
