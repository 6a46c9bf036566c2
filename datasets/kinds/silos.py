"""What cross-silo data sets share: MATLAB cell arrays, splits inside silos, scaling, tasks."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets.kinds import classification
from datasets.models import linear
from datasets.options import DataOptions, SiloShares
from datasets.partition import splits
from datasets.readers import files, native_files
from motley_tff.core import errors, functional_model, rows, task as task_lib
from motley_tff.core.errors import UserError


class SiloFile(NamedTuple):
    """A file of silos: MATLAB cell arrays `X` and `Y`, a cell a silo."""

    paths: tuple[str, ...]  # Where it may lie under a data folder; the first is its name.
    size: str  # In words, of the whole file.
    silo: str  # What a silo is called in messages, such as `school`.
    example: str  # What an example is called, such as `students`.
    is_row: bool  # Whether the cell arrays are (1, silos); else (silos, 1).
    width: int  # Usual number of features, for messages.

    @property
    def shape(self) -> str:
        """The cell arrays' shape in words."""
        return f"[1, {self.silo}s]" if self.is_row else f"[{self.silo}s, 1]"


# A silo's examples are numbers already.
preprocess = classification.hand_on("features", "target")


class Arrays(NamedTuple):
    """Silos in the form of a file's, an array each a silo."""

    features: list[np.ndarray]  # float64 [n, dim].
    targets: list[np.ndarray]  # float64 [n].
    groups: dict[str, str]  # {silo id: planted group} of synthetic ones.


def create_task(
    options: DataOptions,
    source: SiloFile,
    synthesize: Callable[[int], Arrays],
    create_task_from_data: Callable[..., task_lib.Task],
) -> task_lib.Task:
    """Returns a task on a file's or synthetic silos; UserError if file or shares are wrong."""
    seed, shares = options.seed, options.silo_shares
    if options.use_synthetic_data:
        arrays = synthesize(seed)
        facts = {"source": "synthetic", "client_groups": arrays.groups}
        return create_task_from_data(arrays.features, arrays.targets, seed, facts, shares)
    advice = f"put it there or in its folder {options.dataset_name}"
    path = files.require(options, source.paths, f"{source.paths[0]} ({source.size})", advice)
    with errors.at(path):
        arrays = read_cells(path, source)
        facts = {"source": "mat", "files": [str(path)]}
        return create_task_from_data(arrays.features, arrays.targets, seed, facts, shares)


def linear_task(
    features: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    name_of: Callable[[int], str],
    seed: int,
    shares: SiloShares,
    facts: Mapping[str, Any],
    **fields: Any,
) -> task_lib.Task:
    """Returns the task of a linear model on silos, an array each of features float64 [n, dim] and
    of targets float64 [n], that are split by a seed. Features are scaled by the silo's training
    part; an epoch's short last batch is left out. UserError if no silo is large enough to be split,
    or the shares leave one nothing to train on.
    """
    data = {
        name_of(i): _parts(x, y, seed, shares)
        for i, (x, y) in enumerate(zip(features, targets, strict=True))
    }
    reason = "fewer than 3 examples: trains, but cannot be split"
    silos = splits.with_evaluated(data, reason, splits.SPLITTABLE)
    arrays = (a for parts in data.values() for part in parts.values() for a in part.values())
    if not all(np.isfinite(array).all() for array in arrays):
        raise UserError("", "values too large to be scaled as float32 numbers")
    width = features[0].shape[1]
    return task_lib.Task(
        setting="cross_silo",
        model=functional_model.from_keras(linear.Linear, np.zeros((1, width), np.float32)),
        preprocess=preprocess,
        train=silos.train,
        valid=silos.evaluated,
        test=silos.evaluated,
        drop_remainder=True,
        facts={**facts, **silos.facts},
        **fields,
    )


def _parts(x: np.ndarray, y: np.ndarray, seed: int, shares: SiloShares) -> splits.Parts:
    """Splits and scales one silo, by the mean and deviation of what trains; one too small to be
    split trains on all it has.
    """
    places = splits.split_silo(len(y), seed, shares) or splits.train_only(np.arange(len(y)))
    with np.errstate(over="ignore", invalid="ignore"):  # The task refuses what is not finite.
        mean, deviation = moments(x[places["train"]])
        arrays = {"features": (x - mean) / deviation, "target": y}
        return {
            part: {field: a[places[part]].astype(np.float32) for field, a in arrays.items()}
            for part in splits.SPLITS
        }


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the columns' (mean, standard deviation) of float64 [n, dim], [dim] each; a deviation
    of nothing but rounding is 1.

    The numbers are those of scikit-learn's `StandardScaler`, which takes 0.4 s to import: variances
    are Chan, Golub and LeVeque's (1983), in two passes and corrected.
    """
    n, eps = len(x), np.finfo(np.float64).eps
    mean = x.sum(axis=0) / n
    centred = x - mean
    variance = ((centred**2).sum(axis=0) - centred.sum(axis=0) ** 2 / n) / n
    is_constant = variance <= n * eps * variance + (n * mean * eps) ** 2
    return mean, np.where(is_constant, 1.0, np.sqrt(variance))


def predicted_number(outputs: tf.Tensor) -> tf.Tensor:
    """Returns what a model of numbers predicts, [batch]: its outputs."""
    return outputs


def squared_error(targets: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns ((output - target)^2 [batch], ones [batch])."""
    squares = tf.square(outputs - targets)
    return squares, tf.ones_like(squares)


def half_squared_error(targets: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (0.5 * (output - target)^2 [batch], ones [batch])."""
    halves = 0.5 * tf.square(outputs - targets)
    return halves, tf.ones_like(halves)


def half_squared_norm(weights: tuple[tf.Tensor, ...], strength: float) -> tf.Tensor:
    """Returns 0.5 * strength * the squared norm of all weights, biases included; takes rows."""
    return 0.5 * strength * tf.add_n([rows.total(tf.square(w)) for w in weights])


def with_l2(task: task_lib.Task, strength: float) -> task_lib.Task:
    """Returns a task whose training loss also has 0.5 * strength * the squared norm of all weights:
    in every step, global or personal, fine-tuning too, as `--l2_reg` of Motley's silo code. Like
    any regularizer it also counts where HypCluster chooses a model; in that code it does not.
    """

    @rows.taken
    def regularizer(weights: functional_model.Weights) -> tf.Tensor:
        added = half_squared_norm(weights, strength)
        return added if task.regularizer is None else added + rows.each(task.regularizer, weights)

    return dataclasses.replace(task, regularizer=regularizer)


def read_cells(path: Path, expected: SiloFile) -> Arrays:
    """Returns a file's silos, after checking what they are; UserError if it holds no such silos."""
    with path.open("rb") as file:
        if file.read(11).startswith((b"MATLAB 7.3 ", b"\x89HDF\r\n\x1a\n")):
            advice = f"load it in MATLAB, and save -v7 {path.name} X Y"
            raise UserError("", "a MATLAB v7.3 file, which is HDF5", "one of v5 to v7", advice)
    arrays = native_files.read("MATLAB 5", path)
    contents = json.loads(str(arrays.pop("contents")))
    number = len(arrays) // 2
    shape = f"cell {[1, number] if expected.is_row else [number, 1]}"
    if not number or [contents.get("X"), contents.get("Y")] != [shape, shape]:
        cells = f"cell arrays X and Y of shape {expected.shape}, with as many cells in X as in Y"
        raise UserError("", contents, cells)
    x, y = ([arrays[f"{name} {i}"] for i in range(number)] for name in "XY")
    width = np.shape(x[0])[-1] if np.ndim(x[0]) == 2 else None
    for i, (features, targets) in enumerate(zip(x, y, strict=True)):
        _check_silo(expected, i, features, targets, width)
    targets_of_silos = [column.astype(np.float64).ravel() for column in y]
    return Arrays([array.astype(np.float64) for array in x], targets_of_silos, {})


def _check_silo(
    expected: SiloFile, index: int, x: np.ndarray, y: np.ndarray, width: int | None
) -> None:
    place = f"{expected.silo} {index}"
    shapes = f"X {list(np.shape(x))}, Y {list(np.shape(y))}"
    numeric = all(a.dtype.kind in "biuf" for a in (x, y))
    if not numeric or x.ndim != 2 or x.shape[1] != width or y.shape != (len(x), 1) or not len(x):
        x_shape = f"[{expected.example}, {width or expected.width}]"
        numbers = f"numbers X {x_shape} and Y [{expected.example}, 1], at least one"
        raise UserError(place, shapes, numbers)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UserError(place, "values that are not finite", "finite numbers")
