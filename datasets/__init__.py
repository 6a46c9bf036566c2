"""Axis 1, data sets: one file each, found by name. Importing this package loads no TensorFlow.

A data set's module opens with a card (source, licence, clients, fields, split, citation) and has
`create_task(options)`, `create_task_from_data(...)` for data already in memory, and
`synthesize(seed, ...)`. A new one is its file and a line in `REGISTRY`.
"""

import difflib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from datasets.options import DataOptions
from motley_tff.core.errors import UserError

if TYPE_CHECKING:
    from motley_tff.core.task import Task

REGISTRY: Mapping[str, str] = {
    "emnist": "datasets.emnist",
    "landmark": "datasets.landmark",
    "school": "datasets.school",
    "stackoverflow": "datasets.stackoverflow",
    "ted_multi": "datasets.ted_multi",
    "vehicle": "datasets.vehicle",
}


def names() -> tuple[str, ...]:
    """Returns the registered names, sorted."""
    return tuple(sorted(REGISTRY))


def check_name(name: str) -> None:
    """Checks that a data set is registered, without importing it.

    Raises:
      UserError: If it is not; names the nearest one.
    """
    if name in REGISTRY:
        return
    near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UserError(f"unknown dataset {name!r}: expected one of {', '.join(names())}{hint}")


def create_task(options: DataOptions) -> "Task":
    """Loads a data set.

    Args:
      options: Which one and from where.

    Returns:
      Its task.

    Raises:
      UserError: If the name is unknown, or its data are missing, broken or of other shapes.
    """
    check_name(options.dataset_name)
    return importlib.import_module(REGISTRY[options.dataset_name]).create_task(options)
