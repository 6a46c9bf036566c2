"""Whether runs are scored on the same: else what differs between them is no merit of a method.

Of each run `run.json` says its data flags, the digests of its files and the range that labels are
scaled by, and its rows their seed and how many examples each client is scored on. What one does not
say, as a table without `run.json` or of an earlier version, tells nothing.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

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
# The seed of the data: of silos' splits, of examples that are dealt, of what is made up.
SEED = "base_random_seed"
# Facts that are no flags, of those runs that know them; `options` are those of a package.
_NO_FLAGS = ("data_files", LABEL_RANGE, "options")
_FACTS = ("setting", SEED, *_NO_FLAGS)
_LISTED = 3


def of_table(path: pathlib.Path, run_id: str = "", seed: str | None = None) -> dict[str, Any]:
    """Returns what is known of the data of a table's run: what `run.json` beside it says, of a
    sweep its parts, too, and the seed of its rows where nothing says which one the data have.
    """
    record = path.with_name("run.json")
    own = path.parent / "runs" / run_id / "run.json"
    known: dict[str, Any] = {SEED: seed}
    if path.name == "clients.csv" and record.exists():
        known |= _read(own if run_id and own.exists() else record, run_id)
    return {name: value for name, value in known.items() if name != SEED or value not in (None, "")}


def _read(record: pathlib.Path, run_id: str) -> dict[str, Any]:
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        if "plan" in content:
            content = {**content, **_of_sweep(content, record.parent, run_id)}
        return _of_record(content)
    except (OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{record} is not as a run wrote it: {error}; move it away") from error


def flags_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags of a run's `run.json`; of a run from Python, which has its data's options
    apart, these are among them, as of a trainer's run.
    """
    flags, facts = content.get("flags", {}), content.get("data", {})
    if "data" not in flags:
        return dict(flags)
    # A task that nobody's `create_task` made says nothing of its data.
    is_known = bool(flags["data"]) or "options" in content.get("data", {"options": {}})
    # The run's seed is another one.
    options = {name: value for name, value in flags["data"].items() if name != SEED}
    merged = {**(DATA_FLAGS if is_known else {}), **flags, **options}
    del merged["data"]
    setting = options.get("setting") or facts.get("setting")
    return merged | ({"setting": setting} if setting else {})


def _of_record(content: Mapping[str, Any]) -> dict[str, Any]:
    flags, facts = flags_of(content), content.get("data", {})
    given = {name: flags[name] for name in DATA_FLAGS if name in flags}
    data = {n: DATA_FLAGS[n] if value is None else value for n, value in given.items()}
    options = content.get("flags", {}).get("data")
    # From Python the data have a seed of their own.
    seed = {} if options is None else {SEED: options.get(SEED)}
    seed |= {SEED: facts[SEED]} if SEED in facts else {}
    known = {
        "setting": flags.get("setting"),
        # A file may be called otherwise.
        "data_files": sorted(content.get("data_files", {}).values()),
        LABEL_RANGE: facts.get(LABEL_RANGE),
        "options": _options_of_package(options or {}) if "package" in facts else None,
    }
    return data | seed | {name: value for name, value in known.items() if value}


def _options_of_package(options: Mapping[str, Any]) -> str:
    own = sorted(options.keys() - DATA_FLAGS.keys() - {"setting", SEED})
    return ", ".join(f"{name}={_text(options[name])}" for name in own) or "none"


def _of_sweep(
    content: Mapping[str, Any], directory: pathlib.Path, run_id: str
) -> dict[str, Mapping[str, Any]]:
    """Returns `flags` and `data_files` of a sweep's run, whose setting `sweep.csv` has; without it
    the flags that all runs share.
    """
    plan, grid = content["plan"], content["plan"]["grid"]
    tried = {flag for flag, _ in grid.get("grid", ())}
    tried |= {flag for setting in grid.get("settings", ()) for flag, _ in setting}
    shared = {"use_synthetic_data": plan["use_synthetic_data"], "setting": content.get("setting")}
    flags = {**DATA_FLAGS, **dict(grid["fixed"]), **shared}
    runs = directory / "sweep.csv"
    rows = csv_files.read(runs) if runs.exists() else ()
    row = next((row for row in rows if row.get("run_id") == run_id), {})
    own = {name: row[name] or None for name in tried if name in row}
    tasks = sorted(directory.glob("tasks/*.json"))
    files = (json.loads(path.read_text(encoding="utf-8")).get("data_files") for path in tasks)
    return {
        "flags": {name: value for name, value in flags.items() if name not in tried} | own,
        # They are all of the same files, or the sweep would not have ended.
        "data_files": next(filter(None, files), {}),
    }


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
                    label = fact if fact in _NO_FLAGS else f"--{fact}"
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
