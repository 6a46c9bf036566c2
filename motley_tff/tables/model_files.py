"""Model weights on disk: an `.npz` that trainers export and start from."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from motley_tff.core.errors import UserError
from motley_tff.tables import array_files

FILE_NAME = "global_model.npz"
PERSONAL_FILE_NAME = "personal_models.npz"


def save(path: pathlib.Path, names: Sequence[str], weights: Sequence[np.ndarray]) -> None:
    """Writes weights in creation order: arrays `w000`, `w001`, ... and their `names`."""
    arrays = {f"w{i:03d}": np.asarray(w) for i, w in enumerate(weights)}
    array_files.save(path, {"names": np.asarray(names), **arrays})


def save_personal(
    path: pathlib.Path, names: Sequence[str], models: Mapping[str, Sequence[np.ndarray]]
) -> None:
    """Writes every client's model: as `save`, with a leading axis of clients, and `client_ids`."""
    stacked = [
        np.stack([np.asarray(w) for w in leaf]) for leaf in zip(*models.values(), strict=True)
    ]
    arrays = {f"w{i:03d}": w for i, w in enumerate(stacked)}
    ids = np.asarray(list(models))
    array_files.save(path, {"names": np.asarray(names), "client_ids": ids, **arrays})


def load(path: str, shapes: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
    """Reads weights that a trainer exported.

    Args:
      path: A run's directory, or an `.npz` of this format.
      shapes: The model's weight shapes, in creation order.

    Raises:
      UserError: If it is neither, damaged, or of another model.
    """
    file = pathlib.Path(path)
    file = file / FILE_NAME if file.is_dir() else file
    try:
        arrays = array_files.read(file, lambda name: name.startswith("w"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read initial model weights from {file}: {error}; expected a run directory of "
            f"this program or its {FILE_NAME} (a Keras SavedModel does not load here)"
        ) from error
    weights = tuple(arrays[name] for name in sorted(arrays))
    found = [w.shape for w in weights]
    if found != [tuple(s) for s in shapes] or any(w.dtype != np.float32 for w in weights):
        raise UserError(
            f"{file} holds weights of shapes {found}; this model expects {list(shapes)} in float32"
        )
    if not all(np.isfinite(w).all() for w in weights):
        raise UserError(f"{file} holds weights that are not finite; expected a trained model")
    return weights
