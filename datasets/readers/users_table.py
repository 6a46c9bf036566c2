"""A user's table: CSV or Parquet (`rows.py`), or LEAF's JSON, whose examples become rows.

Of the latter a row has the columns `user`, `y` and `x`, or `x0`, `x1`, ... where each x is a list,
as LEAF's Synthetic has it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from datasets.readers import files, leaf_files, rows
from motley_tff.core import errors
from motley_tff.core.errors import UserError


def find(data_file: str | None) -> Path:
    """Returns the file, or LEAF's folder, of `data_file`; UserError if there is none."""
    path = Path(data_file or "").expanduser()
    is_leafs = path.is_dir() and leaf_files.find(path)
    return path if is_leafs else files.existing("data_file", path)


def facts(path: Path) -> dict[str, Any]:
    """Returns what a task says of where it is from."""
    if leaf_files.is_leaf(path):
        return leaf_files.facts(path)
    return {"source": "table", "files": [str(path)]}


def read(path: Path, delimiter: str | None = None) -> pd.DataFrame:
    """Returns cells as text, `""` where one is missing; UserError as `rows.read` or
    `leaf_files.read`, and if x are no numbers or texts, or not as many in each.
    """
    if not leaf_files.is_leaf(path):
        return rows.read(path, delimiter)
    rows.check_has_no_delimiter("JSON", delimiter)
    parts = leaf_files.paths(path)
    with errors.at(path):
        if path.is_file():
            rows.check_kind(path)
        rows.check_file_size(parts, "give fewer users")
    users = leaf_files.read(path, _convert)
    widths = {user: arrays["x"].shape[1:] for user, arrays in users.items()}
    (first, width), *_ = widths.items()
    if odd := next((user for user in widths if widths[user] != width), None):
        widest = [f"{_as_words(widths[user])} (user {user!r})" for user in (first, odd)]
        raise UserError(str(path), f"x of {' and of '.join(widest)}", "as many in each")
    names = [f"x{i}" for i in range(width[0])] if width else ["x"]
    ids = np.repeat(np.array(list(users), object), [len(arrays["y"]) for arrays in users.values()])
    x, y = (np.concatenate([arrays[field] for arrays in users.values()]) for field in ("x", "y"))
    frame = pd.DataFrame(x.reshape(len(x), -1), columns=names)
    return frame.assign(user=ids, y=y)


def _as_words(width: tuple[int, ...]) -> str:
    return f"{width[0]} numbers or texts in a list" if width else "one number or text"


def _convert(x: list[Any], y: list[Any]) -> dict[str, np.ndarray]:
    """Returns cells, object [n] or [n, columns], of a user's x, and [n] of its y."""
    lists = [row for row in x if isinstance(row, list)]
    if lists and (len(lists) < len(x) or len({*map(len, lists)}) > 1 or not lists[0]):
        problem = ", ".join(sorted({f"a list of {len(row)}" for row in lists})[:3])
        raise UserError("", f"{problem} among x", "lists of as many, one or more, each")
    cells = [_cell(value, "x") for row in x for value in (row if lists else [row])]
    labels = [_cell(label, "y") for label in y]
    shape = (len(x), len(lists[0])) if lists else (len(x),)
    return {"x": np.array(cells, object).reshape(shape), "y": np.array(labels, object)}


def _cell(value: Any, name: str) -> str:
    """Returns a value of JSON as a CSV would have it: 3, not 3.0."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < rows.LARGEST_WHOLE:
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value)
    raise UserError(name, str(value)[:40], "numbers or texts")
