"""Axis 1, data sets: one file each, found by name. Importing this package loads no TensorFlow.

A data set's module opens with a card (source, licence, clients, fields, split, citation) and has
`create_task(options)`, `create_task_from_data(...)` for data already in memory, and
`synthesize(seed, ...)`. A new one is its file and a line in `REGISTRY`.
"""

import dataclasses
import difflib
import importlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datasets.options import DataOptions
from motley_tff.core.errors import UserError

if TYPE_CHECKING:
    from motley_tff.core.task import Task

REGISTRY: Mapping[str, str] = {
    "adni": "datasets.adni",
    "emnist": "datasets.emnist",
    "landmark": "datasets.landmark",
    "school": "datasets.school",
    "stackoverflow": "datasets.stackoverflow",
    "ted_multi": "datasets.ted_multi",
    "vehicle": "datasets.vehicle",
}
# Those whose clients are silos, the same ones in training and evaluation.
CROSS_SILO = ("adni", "school", "vehicle")
# Options that mean something to some data sets alone.
OWN_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "adni_split": ("adni",),
    "gld23k": ("landmark",),
    "group_key": ("emnist",),
    "l2_reg": CROSS_SILO,
    "lam_svm": ("vehicle",),
    "mask_padding": ("ted_multi",),
    "only_digits": ("emnist",),
    "test_split": ("school", "vehicle"),
    "val_split": ("school", "vehicle"),
}


def names() -> tuple[str, ...]:
    """Returns the registered names, sorted."""
    return tuple(sorted(REGISTRY))


def check_name(name: str) -> None:
    """Checks that a data set is registered, without importing it; UserError names a near one."""
    if name in REGISTRY:
        return
    near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UserError(f"unknown dataset {name!r}: expected one of {', '.join(names())}{hint}")


def check_options(options: DataOptions) -> None:
    """Checks, without importing it, that a data set is registered and has the options given.

    UserError if it is unknown, has no such option, or shares or regularizers make no sense.
    """
    check_name(options.dataset_name)
    for option, owners in OWN_OPTIONS.items():
        value = getattr(options, option)
        if value is not None and value is not False and options.dataset_name not in owners:
            raise UserError(
                f"--{option}: expected --dataset_name={' or '.join(owners)}, found "
                f"{options.dataset_name}; leave --{option} out"
            )
    for option in ("lam_svm", "l2_reg"):
        if not 0 <= ((value := getattr(options, option)) or 0) < math.inf:
            raise UserError(f"--{option}={value:g}: expected a finite number of 0 or more")
    _ = options.silo_shares  # Refuses shares that leave a part nothing.


def create(name: str, **options: Any) -> "Task":
    """Loads a data set from fields of `DataOptions`; UserError if there is no such field, too."""
    fields = {field.name for field in dataclasses.fields(DataOptions)} - {"dataset_name"}
    unknown = sorted(set(options) - fields)
    if unknown:
        raise UserError(
            f"task {name!r} has no option {', '.join(unknown)}; expected some of "
            f"{', '.join(sorted(fields))}"
        )
    return create_task(DataOptions(name, **options))


def create_task(options: DataOptions) -> "Task":
    """Loads a data set's task; UserError if there is none, or its data are missing or broken."""
    check_options(options)
    task = importlib.import_module(REGISTRY[options.dataset_name]).create_task(options)
    if options.l2_reg:
        from datasets import silos

        return silos.with_l2(task, options.l2_reg)
    return task
