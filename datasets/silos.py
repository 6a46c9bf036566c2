"""What cross-silo tables share: MATLAB cell arrays, splits inside silos, scaling."""

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import tensorflow as tf

from datasets import files, matlab_files, splits
from datasets.options import PUBLISHED_SHARES, SiloShares
from motley_tff.core import clients as clients_lib
from motley_tff.core import task as task_lib
from motley_tff.core.errors import UserError

PARTS = ("train", "valid", "test")

_ARRAYS = ("X", "Y")


class Silos(NamedTuple):
    """The clients of a cross-silo task.

    Attributes:
      train: Every silo.
      evaluated: Those with examples to validate and test on.
      facts: For the task: which silos cannot be evaluated, and why.
    """

    train: clients_lib.Clients
    evaluated: clients_lib.Clients
    facts: dict[str, Any]


def split_and_scale(
    features: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    name_of: Callable[[int], str],
    seed: int,
    shares: SiloShares = PUBLISHED_SHARES,
) -> Silos:
    """Returns silos split by a seed, features scaled by each silo's training part.

    Args:
      features: One float64 array [n, dim] a silo.
      targets: One float64 array [n] a silo.
      name_of: Silo ids by position.
      seed: Decides the split inside each silo.
      shares: How much of each validates and tests.

    Raises:
      UserError: If no silo is large enough to be split, or the shares leave one nothing to train
        on.
    """
    silos = {
        name_of(i): _parts(x, y, seed, shares)
        for i, (x, y) in enumerate(zip(features, targets, strict=True))
    }
    whole = {i: parts for i, parts in silos.items() if len(parts["test"]["target"])}
    if not whole:
        raise UserError("found no silo of 3 examples or more, expected some: none can be split")
    if not all(np.isfinite(a).all() for parts in silos.values() for a in _arrays(parts)):
        raise UserError("found values too large to be scaled as float32 numbers")
    evaluated = clients_lib.InMemoryClients(whole)
    train = clients_lib.InMemoryClients(silos) if len(whole) < len(silos) else evaluated
    small = [i for i in silos if i not in whole]
    reason = "fewer than 3 examples: trains, but cannot be split"
    return Silos(train, evaluated, {"clients_not_evaluable": {reason: small} if small else {}})


def _parts(
    x: np.ndarray, y: np.ndarray, seed: int, shares: SiloShares
) -> dict[str, dict[str, np.ndarray]]:
    """Splits and scales one silo; one too small to be split trains on all it has."""
    nothing = np.arange(0)
    rows = splits.split_silo(len(y), seed, shares) or {
        "train": np.arange(len(y)), "valid": nothing, "test": nothing
    }  # fmt: skip
    scaled = splits.scale_by_train({part: x[rows[part]] for part in PARTS})
    return {
        part: {
            "features": scaled[part].astype(np.float32),
            "target": y[rows[part]].astype(np.float32),
        }
        for part in PARTS
    }


def _arrays(parts: Mapping[str, Mapping[str, np.ndarray]]) -> list[np.ndarray]:
    return [array for examples in parts.values() for array in examples.values()]


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (features float32 [batch, dim], targets float32 [batch])."""
    del training, key
    return examples["features"], examples["target"]


def half_squared_norm(weights: tuple[tf.Tensor, ...], strength: float) -> tf.Tensor:
    """Returns 0.5 * strength * the squared norm of all weights, biases included."""
    return 0.5 * strength * tf.add_n([tf.reduce_sum(tf.square(w)) for w in weights])


def with_l2(task: task_lib.Task, strength: float) -> task_lib.Task:
    """Returns a task whose training loss also has 0.5 * strength * the squared norm of all weights.

    In every training step, global or personal, fine-tuning too: `--l2_reg` of Motley's silo code.
    Like any regularizer it also counts where HypCluster chooses a model; in that code it does not.
    """

    def regularizer(weights):
        added = half_squared_norm(weights, strength)
        return added if task.regularizer is None else added + task.regularizer(weights)

    return dataclasses.replace(task, regularizer=regularizer)


class Cells(NamedTuple):
    """What a file of silos looks like.

    Attributes:
      silo: What a silo is called in messages, such as `school`.
      example: What an example is called, such as `students`.
      is_row: Whether the cell arrays are (1, silos); else (silos, 1).
      width: Usual number of features, for messages.
    """

    silo: str
    example: str
    is_row: bool
    width: int

    @property
    def shape(self) -> str:
        """The cell arrays' shape in words."""
        return f"[1, {self.silo}s]" if self.is_row else f"[{self.silo}s, 1]"


def read_cells(path: Path, expected: Cells) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns (X, Y) of every silo as float64 [n, dim] and [n], after checking what they are.

    Args:
      path: A MATLAB 5 file with cell arrays `X` and `Y`.
      expected: What it should look like.

    Raises:
      UserError: If it is something else.
    """
    try:
        data = path.read_bytes()
        matlab_files.check(data, _ARRAYS)
        listed = scipy.io.whosmat(io.BytesIO(data))
        arrays = scipy.io.loadmat(io.BytesIO(data), variable_names=_ARRAYS)
    except Exception as error:  # SciPy raises whatever its parser trips over in a broken file
        raise UserError(
            f"{path}: cannot be read as a MATLAB 5 file, truncated or of another kind "
            f"({files.one_line(error)})"
        ) from error
    found = {name: f"{kind} {list(shape)}" for name, shape, kind in listed}
    x, y = arrays.get("X"), arrays.get("Y")
    axis = 0 if expected.is_row else 1
    if x is None or y is None or not (_is_line(x, axis) and _is_line(y, axis)):
        raise UserError(
            f"{path}: found {found}, expected cell arrays X and Y of shape {expected.shape}"
        )
    x, y = x.ravel(), y.ravel()
    if len(x) != len(y):
        raise UserError(
            f"{path}: found {found}, expected as many cells in X as in Y, {expected.shape}"
        )
    width = np.shape(x[0])[-1] if np.ndim(x[0]) == 2 else None
    for i, (features, targets) in enumerate(zip(x, y, strict=True)):
        _check_silo(path, expected, i, features, targets, width)
    return [a.astype(np.float64) for a in x], [a.astype(np.float64).ravel() for a in y]


def _is_line(array: np.ndarray, axis: int) -> bool:
    is_cells = array.dtype == object and array.ndim == 2
    return is_cells and array.shape[axis] == 1 and array.size > 0


def _check_silo(path: Path, expected: Cells, index: int, x: Any, y: Any, width: int | None) -> None:
    shapes = f"X {list(np.shape(x))}, Y {list(np.shape(y))}"
    numeric = all(isinstance(a, np.ndarray) and a.dtype.kind in "biuf" for a in (x, y))
    if not numeric or x.ndim != 2 or x.shape[1] != width or y.shape != (len(x), 1) or not len(x):
        raise UserError(
            f"{path}: {expected.silo} {index} has {shapes}, expected numbers X "
            f"[{expected.example}, {width or expected.width}] and Y [{expected.example}, 1], at "
            "least one"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UserError(f"{path}: {expected.silo} {index} has values that are not finite numbers")
