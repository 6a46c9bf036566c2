"""Whether runs are scored on the same: else what differs between them is no merit of a method.

Of each run `run.json` says its data flags, the digests of its files and the range that labels are
scaled by, and its rows how many examples each client is scored on. What one does not say, as a
table without `run.json` or of an earlier version, tells nothing.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from motley_tff.core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd  # Takes 0.3 s.

# {flag that says which data: what it stands for where it is not given}.
DATA_FLAGS: Mapping[str, Any] = {
    "use_synthetic_data": False, "partition": "natural", "evaluation_partition": "same",
    "num_clients": None, "min_examples": None, "max_clients": None,
    "max_examples_per_client": None, "only_digits": False, "gld23k": False,
    "adni_split": "subject", "shakespeare_split": "roles", "min_characters": 200,
    "client_column": None, "label_column": None, "feature_columns": None,
    "categorical_columns": (), "text_column": None, "time_column": None, "image_size": None,
    "missing_values": None, "val_split": 0.15, "test_split": 0.15,
}  # fmt: skip
LABEL_RANGE = "label_range"
# Other facts, of those runs that know them.
_FACTS = ("setting", "data_files", LABEL_RANGE)
_LISTED = 3


def of_table(path: pathlib.Path) -> dict[str, Any]:
    """Returns what `run.json` beside a run's table says of the data, nothing without one."""
    record = path.with_name("run.json")
    if path.name != "clients.csv" or not record.exists():
        return {}
    try:
        return _of_record(json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{record} is not as a run wrote it: {error}; move it away") from error


def _of_record(content: Mapping[str, Any]) -> dict[str, Any]:
    flags = _of_sweep(content) if "plan" in content else content.get("flags", {})
    given = {name: flags[name] for name in DATA_FLAGS if name in flags}
    data = {n: DATA_FLAGS[n] if value is None else value for n, value in given.items()}
    facts = {
        "setting": flags.get("setting"),
        # A file may be called otherwise.
        "data_files": sorted(content.get("data_files", {}).values()),
        LABEL_RANGE: content.get("data", {}).get(LABEL_RANGE),
    }
    return data | {name: value for name, value in facts.items() if value}


def _of_sweep(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the data flags that all runs of a sweep share."""
    plan, grid = content["plan"], content["plan"]["grid"]
    tried = {flag for flag, _ in grid.get("grid", ())}
    tried |= {flag for setting in grid.get("settings", ()) for flag, _ in setting}
    shared = {"use_synthetic_data": plan["use_synthetic_data"], "setting": content.get("setting")}
    flags = {**DATA_FLAGS, **dict(grid["fixed"]), **shared}
    return {name: value for name, value in flags.items() if name not in tried}


def differences(
    data: Mapping[str, Mapping[str, Any]], rows: Mapping[str, "pd.DataFrame"]
) -> list[str]:
    """Returns what runs differ in, each from the first, in words.

    Args:
      data: `{run: what of_table says}`.
      rows: `{run: its clients' rows of one split}`, empty if they may differ.
    """
    first, of_first = next(iter(data.items()), ("", {}))
    lines = []
    for name, of_other in list(data.items())[1:]:
        for fact in (*DATA_FLAGS, *_FACTS):
            if fact in of_first and fact in of_other:
                before, after = _text(of_first[fact]), _text(of_other[fact])
                if before != after:
                    label = fact if fact in ("data_files", LABEL_RANGE) else f"--{fact}"
                    values = "" if fact == "data_files" else f" ({before} and {after})"
                    lines.append(f"{label} of {first} and {name}{values}")
        lines += _of_rows(first, rows[first], name, rows[name]) if rows else []
    return lines


def _of_rows(first: str, of_first: "pd.DataFrame", name: str, rows: "pd.DataFrame") -> list[str]:
    column = "num_evaluation_examples"
    if column not in of_first or column not in rows:
        return []
    one, other = (table.set_index("client_id")[column] for table in (of_first, rows))
    one, other = one.align(other, join="inner")
    unlike = one[(one != other) & one.notna() & other.notna()].index
    if unlike.empty:
        return []
    listed = ", ".join(f"{i} ({one[i]:g} and {other[i]:g})" for i in unlike[:_LISTED])
    more = ", ..." if len(unlike) > _LISTED else ""
    return [
        f"{column} of {first} and {name}, of {len(unlike)} of {len(one)} clients: {listed}{more}"
    ]


def _text(value: Any) -> str:
    """Returns a value as text: 3, 3.0 and "3" are the same, lists are as flags have them."""
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    try:
        return f"{float(str(value)):.6g}"
    except ValueError:
        return {"true": "True", "false": "False"}.get(str(value), str(value))


def check(
    data: Mapping[str, Mapping[str, Any]], rows: Mapping[str, "pd.DataFrame"], anyway: bool
) -> list[str]:
    """Returns warnings of what runs differ in, a UserError unless they are compared `anyway`."""
    lines = differences(data, rows)
    if lines and not anyway:
        raise UserError(
            f"the runs are not scored on the same: {'; '.join(lines)}; compare runs on the same "
            "data, or give --anyway"
        )
    return [f"warning: the runs are not scored on the same: {line}" for line in lines]
