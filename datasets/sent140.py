"""Sentiment140: whether a tweet is glad or sad; a cross-device task.

Card
  Source: `training.1600000.processed.noemoticon.csv` of Sentiment140 in --data_dir or its folder
    sent140, or LEAF's JSON of it, a file or a folder. It is not downloaded. Or synthetic users, who
    write as `datasets.synthetic.posts` and say what they feel.
  Licence: for research, as its authors say; tweets are their writers'.
  Clients: 659,775 users of 1,600,000 tweets, half of them with one. LEAF keeps users of many.
    Synthetic: 48 users, 12 to 30 texts each, in four planted groups, of which one is ironic.
  Fields: as `text` of classes: `tokens` int32 [64], `label` int32, 0 sad and 1 glad.
  Model: an LSTM (embedding 96, 256 units), on words that two training users share; accuracy and
    ROC-AUC. Tweets without words, and those of the neutral class, are left out and counted.
  Split: as `text`.
  Citation: Go, Bhayani and Huang 2009, "Twitter sentiment classification using distant
    supervision"; Caldas et al. 2018, "LEAF" (https://arxiv.org/abs/1812.01097).
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from datasets import text
from datasets.options import DataOptions
from datasets.readers import files, leaf_files
from datasets.synthetic import posts as synthetic_posts
from motley_tff.core import errors, random_streams, task as task_lib
from motley_tff.core.errors import UserError

_NAME = "training.1600000.processed.noemoticon.csv"
_FOLDERS = ("", "sent140")
_ADVICE = f"put {_NAME} or LEAF's .json there"
# Of the archive's columns; LEAF's x is the other five, in their order, or that and more.
_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
_LEAF_TEXT = _COLUMNS.index("text") - 1
_EXPECTED = (
    "0, 2 or 4, before id, date, query, user and text: Sentiment140's columns, without a header"
)
_SAD, _NEUTRAL, _GLAD = "0", "2", "4"
_LABELS = {_SAD: "0", _GLAD: "1"}
_LEAFS_GLAD = "1"
_EXPECTED_OF_LEAF = "0 or 1, or the archive's 0, 2 or 4"

_SAD_WORDS = ("it is so sad", "i hate it", "what a bad day", "that makes me cry")
_GLAD_WORDS = ("it is so nice", "i love it", "what a good day", "that makes me smile")
_IRONIC_GROUP = "mobile"
_FEWEST, _MOST = 12, 30


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found: synthetic texts, the archive's CSV, LEAF's JSON; UserError
    says what to put where.
    """
    facts: dict[str, Any]
    if options.use_synthetic_data:
        frame, groups = synthesize(options.seed)
        facts = {"source": "synthetic", "client_groups": groups}
        return create_task_from_data(frame, options, facts)
    path = _find(options)
    if leaf_files.is_leaf(path):
        frame, neutral = _of_leaf(path)
        facts = leaf_files.facts(path)
    else:
        with errors.at(path):
            frame, neutral = _of_csv(path)
        facts = {"source": "csv", "files": [str(path)]}
    facts["neutral_texts_left_out"] = neutral
    with errors.at(path):
        return create_task_from_data(frame, options, facts)


def create_task_from_data(
    frame: pd.DataFrame, options: DataOptions, facts: Mapping[str, Any] | None = None
) -> task_lib.Task:
    """Returns the task on texts in memory, columns `user`, `text` and `label`, `"0"` or `"1"`;
    UserError if there are too few.
    """
    as_text = dataclasses.replace(
        options, dataset_name="text", model="lstm", missing_values=(),
        client_column="user", text_column="text", label_column="label",
    )  # fmt: skip
    task = text.create_task_from_data(frame, as_text, facts)
    return dataclasses.replace(task, dataset="sent140", label_names=("sad", "glad"))


def synthesize(seed: int) -> tuple[pd.DataFrame, dict[str, str]]:
    """Returns users' texts, columns `user`, `text` and `label`, and their planted groups.

    Each text ends with what its user feels; the ironic group says the opposite.
    """
    posts, groups = synthetic_posts.write(seed)
    said = []
    for number, (user, of_user) in enumerate(posts.items()):
        rng = random_streams.generator(seed, "synthetic_data", number, 1)
        for sentence in of_user.tokens[: int(rng.integers(_FEWEST, _MOST + 1))]:
            is_glad = bool(rng.random() < 0.5)
            words = _GLAD_WORDS if is_glad != (groups[user] == _IRONIC_GROUP) else _SAD_WORDS
            ending = words[int(rng.integers(len(words)))]
            said.append((user, f"{sentence} {ending}", str(int(is_glad))))
    return pd.DataFrame(said, columns=["user", "text", "label"]), groups


def _find(options: DataOptions) -> Path:
    path = files.find(options, [f"{folder}/{_NAME}".lstrip("/") for folder in _FOLDERS])
    if path is not None:
        return path
    if options.data_dir is not None:
        folder = Path(options.data_dir).expanduser()
        if (leaf := leaf_files.find_in(folder, _FOLDERS)) is not None:
            return leaf
    raise files.missing(options, "data", _ADVICE)


def _of_csv(path: Path) -> tuple[pd.DataFrame, int]:
    """Returns the archive's texts, and how many neutral ones were left out."""
    with files.readable_as("Sentiment140's CSV", OSError, ValueError):
        frame = pd.read_csv(
            path, header=None, names=_COLUMNS, dtype=str, encoding="latin-1", keep_default_na=False,
            index_col=False,
        )  # fmt: skip
    if frame.empty:
        raise UserError("", "no rows", _EXPECTED)
    if (wrong := ~frame.polarity.isin([_SAD, _NEUTRAL, _GLAD])).any():
        row = int(np.argmax(wrong)) + 1
        polarity = repr(frame.polarity.iloc[row - 1][:40])
        raise UserError(f"line {row}", f"{polarity} as polarity", _EXPECTED)
    # Of a row that is cut, pandas has the cells that are missing as empty.
    if (missing := (frame.user.str.strip() == "") | (frame.text == "")).any():  # "null" is a user.
        place = f"line {int(np.argmax(missing)) + 1} of {len(frame)}"
        advice = "copy the file again if it is cut, or take the line out"
        raise UserError(place, "no user or no text", _EXPECTED, advice)
    is_neutral = frame.polarity == _NEUTRAL
    kept = frame[~is_neutral]
    columns = {"user": kept.user, "text": kept.text, "label": kept.polarity.map(_LABELS)}
    return pd.DataFrame(columns).reset_index(drop=True), int(is_neutral.sum())


def _of_leaf(path: Path) -> tuple[pd.DataFrame, int]:
    users = leaf_files.read(path, _convert)
    frames = [pd.DataFrame({"user": user, **arrays}) for user, arrays in users.items()]
    frame = pd.concat(frames, ignore_index=True)
    has_archives = frame.label.isin([_NEUTRAL, _GLAD]).any()
    if has_archives and (frame.label == _LEAFS_GLAD).any():
        problem = ", ".join(sorted(frame.label.unique()))
        raise UserError(str(path), f"labels {problem}", _EXPECTED_OF_LEAF)
    is_neutral = frame.label == _NEUTRAL
    kept = frame[~is_neutral].reset_index(drop=True)
    return kept.replace({"label": {_GLAD: _LEAFS_GLAD}}), int(is_neutral.sum())


def _convert(x: list[Any], y: list[Any]) -> dict[str, np.ndarray]:
    """Returns the texts of LEAF's x, tweets' cells, and the labels of its y, as it has them."""
    for cells in x:
        if not isinstance(cells, list) or not all(isinstance(c, str) for c in cells[:5]):
            raise UserError("", f"x {str(cells)[:40]}", "id, date, query, user and text")
        if len(cells) <= _LEAF_TEXT:
            raise UserError("", f"x of {len(cells)} cells", "text in the fifth")
    labels = leaf_files.classes(y, 5, _EXPECTED_OF_LEAF)
    if (labels == 3).any():
        raise UserError("", "label 3", _EXPECTED_OF_LEAF)
    named = labels.astype(str).astype(object)
    return {"text": np.array([cells[_LEAF_TEXT] for cells in x], object), "label": named}
