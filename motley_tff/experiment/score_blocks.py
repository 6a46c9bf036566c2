"""Blocks of an evaluation that is not whole yet, for a run that is cut in the middle of one.

`evaluation/round_<number>.<block>.npz` beside the tables, gone once the tables have it all.
"""

import contextlib
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence

from motley_tff.experiment import client_scores
from motley_tff.files import array_files

_FOLDER = "evaluation"
_NAME = re.compile(r"round_(\d{8})\..*\.npz")


class ScoreBlocks:
    """The blocks of the evaluation after one round of a run."""

    def __init__(self, directory: pathlib.Path, round_number: int):
        self._folder, self._number = directory / _FOLDER, round_number

    def load(self, name: str, client_ids: Sequence[str]) -> dict[str, client_scores.Scores] | None:
        """Returns a block's scores by split, of these clients or the first of them; None if it is
        missing, damaged or of others.
        """
        try:
            arrays = array_files.read(self._path(name))
            splits = dict.fromkeys(array.split("/")[0] for array in arrays)
            scores = {s: client_scores.from_arrays(client_scores.below(arrays, s)) for s in splits}
        except (OSError, ValueError, KeyError):  # What cannot be read is scored again.
            return None
        of = {s.client_ids for s in scores.values()}
        same = len(of) == 1 and all(ids and ids == tuple(client_ids[: len(ids)]) for ids in of)
        return scores if same else None

    def save(self, name: str, scores: Mapping[str, client_scores.Scores]) -> None:
        """Saves a block's scores by split."""
        self._folder.mkdir(exist_ok=True)
        arrays = {
            f"{split}/{array}": values
            for split, of_split in scores.items()
            for array, values in client_scores.to_arrays(of_split).items()
        }
        array_files.save(self._path(name), arrays)

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / f"round_{self._number:08d}.{name}.npz"


def forget(directory: pathlib.Path, rounds: Collection[int]) -> None:
    """Removes the blocks of rounds whose tables are whole, and what a killed process left."""
    folder = directory / _FOLDER
    for path in folder.glob("*"):
        match = _NAME.fullmatch(path.name)
        if path.suffix == ".tmp" or (match and int(match.group(1)) in rounds):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()  # Where blocks of another round are left, it stays.
