"""Model weights on disk: an `.npz` that trainers export, and that and SavedModels to start from."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from motley_tff.core.errors import UserError
from motley_tff.files import array_files

FILE_NAME = "global_model.npz"
PERSONAL_FILE_NAME = "personal_models.npz"
# Of the clusters 1 to k, each as `FILE_NAME`.
CLUSTER_FILE_NAME = "cluster_{}_model.npz"


def save(
    path: pathlib.Path, names: Sequence[str], weights: Sequence[np.ndarray], **more: np.ndarray
) -> None:
    """Writes weights in creation order: arrays `w000`, `w001`, ..., their `names`, and `more`."""
    arrays = {f"w{i:03d}": np.asarray(w) for i, w in enumerate(weights)}
    array_files.save(path, {"names": np.asarray(names), **more, **arrays})


def save_personal(
    path: pathlib.Path, names: Sequence[str], models: Mapping[str, Sequence[np.ndarray]]
) -> None:
    """Writes every client's model: as `save`, with a leading axis of clients, and `client_ids`."""
    stacked = [np.stack(leaf) for leaf in zip(*models.values(), strict=True)]
    save(path, names, stacked, client_ids=np.asarray(list(models)))


def model_paths(named: Sequence[str]) -> list[str]:
    """Returns the given paths; of one run of HypCluster, given alone, those of all its models."""
    if len(named) > 1:
        return list(named)
    names = (CLUSTER_FILE_NAME.format(j) for j in itertools.count(1))
    paths = (pathlib.Path(named[0]).expanduser() / name for name in names)
    return list(map(str, itertools.takewhile(pathlib.Path.exists, paths))) or list(named)


def load(
    path: str, shapes: Sequence[tuple[int, ...]], names: Sequence[str] = ()
) -> tuple[np.ndarray, ...]:
    """Reads weights of given shapes, in creation order; a UserError if they are of another model.

    The path is a run's directory, an `.npz` of this format, or a Keras SavedModel's directory,
    which alone needs the weights' names.
    """
    file = pathlib.Path(path).expanduser()
    if (file / "saved_model.pb").is_file():
        from motley_tff.files import saved_models  # TensorFlow takes 3 s.

        weights = saved_models.load(file, names, shapes)
    else:
        file = file / FILE_NAME if file.is_dir() else file
        try:
            arrays = array_files.read(file, lambda name: name.startswith("w"))
        except (OSError, ValueError) as error:
            expected = f"a run's directory, its {FILE_NAME}, or a Keras SavedModel's directory"
            raise UserError(str(file), f"no initial weights ({error})", expected) from error
        weights = tuple(arrays[name] for name in sorted(arrays))
    loaded = [w.shape for w in weights]
    if loaded != [tuple(s) for s in shapes] or any(w.dtype != np.float32 for w in weights):
        raise UserError(str(file), f"weights of shapes {loaded}", f"{list(shapes)} in float32")
    if not all(np.isfinite(w).all() for w in weights):
        raise UserError(str(file), "weights that are not finite", "a trained model")
    return weights
