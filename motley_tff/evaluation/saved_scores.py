"""Scores of an evaluation that is not whole yet, for a run that is cut in the middle of one.

`evaluation/round_<number>.<batch>.npz` beside the tables, gone once the tables have it all.
"""

import contextlib
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from motley_tff.evaluation import client_scores
from motley_tff.evaluation.client_scores import ClientScores
from motley_tff.files import array_files

_FOLDER = "evaluation"
_NAME = re.compile(r"round_(\d{8})\..*\.npz")


class SavedScores:
    """The saved batches of the evaluation after one round of a run."""

    def __init__(self, directory: pathlib.Path, round_number: int):
        self._folder, self._number = directory / _FOLDER, round_number

    def load(self, batch: str, client_ids: Sequence[str]) -> dict[str, ClientScores] | None:
        """Returns a batch's scores by split, of these clients or the first of them; None if it is
        missing, damaged or of others.
        """
        try:
            arrays = array_files.read(self._path(batch))
            splits = dict.fromkeys(name.split("/")[0] for name in arrays)
            scores = {s: client_scores.from_arrays(client_scores.below(s, arrays)) for s in splits}
        except (OSError, ValueError, KeyError):  # What cannot be read is scored again.
            return None
        saved_ids = {split_scores.client_ids for split_scores in scores.values()}
        is_start = [len(ids) > 0 and ids == tuple(client_ids[: len(ids)]) for ids in saved_ids]
        return scores if is_start == [True] else None

    def save(self, batch: str, scores: Mapping[str, ClientScores]) -> None:
        """Saves a batch's scores by split."""
        self._folder.mkdir(exist_ok=True)
        arrays: dict[str, np.ndarray] = {}
        for split, split_scores in scores.items():
            arrays |= client_scores.under(split, client_scores.to_arrays(split_scores))
        array_files.save(self._path(batch), arrays)

    def _path(self, batch: str) -> pathlib.Path:
        return self._folder / f"round_{self._number:08d}.{batch}.npz"


def forget(directory: pathlib.Path, rounds: Collection[int]) -> None:
    """Removes the scores of rounds whose tables are whole, and what a killed process left."""
    folder = directory / _FOLDER
    for path in folder.glob("*"):
        match = _NAME.fullmatch(path.name)
        if path.suffix == ".tmp" or (match and int(match.group(1)) in rounds):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()  # Where scores of another round are left, it stays.
