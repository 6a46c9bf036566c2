"""Checkpoints: a process's state as plain arrays.

An `.npz` of a state's leaves and nothing else. TFF's own program state manager writes SavedModels;
those are programs, which loading would run, so a checkpoint from elsewhere could not be trusted.
"""

import pathlib
import re
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import array_files

_NAME = re.compile(r"round_(\d{8})\.npz")
_KEEP = 2


class Trained(NamedTuple):
    """A training process's state, and the number of rounds that led to it."""

    state: Any
    num_rounds: int


def save(directory: pathlib.Path, round_number: int, state: Any) -> None:
    """Writes the state after a round and forgets all but the newest few."""
    directory.mkdir(parents=True, exist_ok=True)
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(state)]
    path = directory / f"round_{round_number:08d}.npz"
    array_files.save(path, {f"{i:05d}": leaf for i, leaf in enumerate(leaves)})
    forget_old(directory)


def forget_old(directory: pathlib.Path) -> None:
    """Removes all checkpoints but the newest few; a `save` that was killed may have left more."""
    for old in rounds(directory)[:-_KEEP]:
        (directory / f"round_{old:08d}.npz").unlink()


def rounds(directory: pathlib.Path) -> list[int]:
    """Returns the rounds that have a checkpoint."""
    if not directory.is_dir():
        return []
    # Not `glob`, which takes a folder that cannot be read for an empty one.
    matches = (_NAME.fullmatch(path.name) for path in directory.iterdir())
    return sorted(int(match.group(1)) for match in matches if match)


def load(directory: pathlib.Path, round_number: int, structure: Any) -> Any:
    """Returns the state saved after a round.

    Args:
      structure: A state of the same structure, types and shapes (the process's initial one).

    Raises:
      UserError: If the file is damaged or holds another state.
    """
    path = directory / f"round_{round_number:08d}.npz"
    expected = [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]
    try:
        arrays = array_files.read(path)
    except (OSError, ValueError) as error:
        advice = "move it away to go on from the checkpoint before"
        raise UserError(
            f"checkpoint {path}", str(error), "a whole file of arrays", advice
        ) from error
    leaves = [arrays[name] for name in sorted(arrays)]
    same = sorted(arrays) == [f"{i:05d}" for i in range(len(expected))] and all(
        f.shape == e.shape and f.dtype == e.dtype for f, e in zip(leaves, expected, strict=True)
    )
    if not same:
        finding = "arrays of another model or algorithm"
        advice = f"choose another {errors.name('experiment_name')}"
        raise UserError(f"checkpoint {path}", finding, "those of this run", advice)
    return tf.nest.pack_sequence_as(structure, leaves)
