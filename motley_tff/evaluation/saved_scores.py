"""Scores of an evaluation that is not whole yet, for a run that is cut in the middle of one.

`evaluation/round_<number>/<batch>.npz` beside the tables, gone once the tables have it all.
"""

import contextlib
import pathlib
import shutil
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from motley_tff.files import array_files


class SavedScores:
    """The saved batches of the evaluation after one round of a run."""

    def __init__(self, directory: pathlib.Path, round_number: int):
        self._folder = _folder(directory, round_number)

    def load(self, batch: str, client_ids: Sequence[str]) -> tuple[int, dict[str, np.ndarray]]:
        """Returns how many of a batch's clients are saved, the first ones, and their arrays; 0 of a
        file that is missing, damaged or of others.
        """
        try:
            arrays = array_files.read(self._folder / f"{batch}.npz")
            saved_ids = arrays.pop("client_ids").tolist()
        except (OSError, ValueError, KeyError):  # What cannot be read is scored again.
            return 0, {}
        is_start = saved_ids == list(client_ids[: len(saved_ids)])
        return (len(saved_ids), arrays) if is_start else (0, {})

    def save(self, batch: str, client_ids: Sequence[str], arrays: Mapping[str, np.ndarray]) -> None:
        """Saves the arrays of a batch's first clients."""
        self._folder.mkdir(parents=True, exist_ok=True)
        array_files.save(
            self._folder / f"{batch}.npz", {"client_ids": np.array(client_ids), **arrays}
        )


def forget(directory: pathlib.Path, rounds: Collection[int]) -> None:
    """Removes the scores of rounds whose tables are whole."""
    for number in rounds:
        shutil.rmtree(_folder(directory, number), ignore_errors=True)
    with contextlib.suppress(OSError):
        _folder(directory, 0).parent.rmdir()  # Where scores of another round are left, it stays.


def _folder(directory: pathlib.Path, round_number: int) -> pathlib.Path:
    return directory / "evaluation" / f"round_{round_number:08d}"
