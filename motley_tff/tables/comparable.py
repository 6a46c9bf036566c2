"""Whether runs are scored on the same data: if not, their difference is no merit of a method.

A run's `run.json` has its data flags, the digests of its files and the range that labels are scaled
by. Its rows have their seed, and how many examples each client is scored on. What one of two runs
does not say, such as one of an earlier version or without `run.json`, is not compared.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

if TYPE_CHECKING:
    import pandas as pd  # Takes 0.3 s.

# Flags of earlier versions that say which data; what was not given is None or absent, and unknown.
_FLAGS_BEFORE = (
    "use_synthetic_data", "partition", "evaluation_partition", "num_clients", "min_examples",
    "max_clients", "max_examples_per_client", "only_digits", "gld23k", "adni_split",
    "shakespeare_split", "min_characters", "client_column", "label_column", "feature_columns",
    "categorical_columns", "text_column", "time_column", "image_size", "missing_values",
    "val_split", "test_split",
)  # fmt: skip
LABEL_RANGE = "label_range"
# The seed of the data: of silos' splits, of examples that are dealt, of what is made up.
SEED = "base_random_seed"
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
        raise UserError(str(record), error, "what a run wrote", "move it away") from error


def flags_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags of a run's `run.json`; of a run from Python, which has its data's options
    apart, these are among them, as of a trainer's run.
    """
    flags, facts = dict(content.get("flags", {})), content.get("data", {})
    if "data" not in flags:
        return flags
    own = flags.pop("data")
    # The run's seed is another one.
    merged = _options(content) | flags | {k: v for k, v in own.items() if k != SEED}
    setting = own.get("setting") or facts.get("setting")
    return merged | ({"setting": setting} if setting else {})


def _options(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options of a run's data; of earlier versions, which have those at most that were
    given in Python, none.
    """
    facts = content.get("data", {})
    is_earlier = "data" in content.get("flags", {}) and "arguments" not in facts
    return {} if is_earlier else facts.get("options", {})


def _of_record(content: Mapping[str, Any]) -> dict[str, Any]:
    flags, facts = flags_of(content), content.get("data", {})
    before = {name: flags[name] for name in _FLAGS_BEFORE if flags.get(name) is not None}
    own = content.get("flags", {}).get("data")
    # From Python the data have a seed of their own.
    seed = {} if own is None else {SEED: own.get(SEED)}
    if flags.get("data_seed") is not None:  # Of a sweep, which does not say what is drawn.
        seed = {SEED: flags["data_seed"]}
    seed |= {SEED: facts[SEED]} if SEED in facts else {}
    of_package = sorted((own or {}).keys() - {*_FLAGS_BEFORE, "setting", SEED})
    options = [f"{name}={_text((own or {})[name])}" for name in of_package]
    known = {
        "setting": flags.get("setting"),
        # A file may be called otherwise.
        "data_files": sorted(content.get("data_files", {}).values()),
        LABEL_RANGE: facts.get(LABEL_RANGE),
        "options": (", ".join(options) or "none") if "package" in facts else None,
    }
    return {**before, **_options(content), **seed, **{k: v for k, v in known.items() if v}}


def _of_sweep(
    content: Mapping[str, Any], directory: pathlib.Path, run_id: str
) -> dict[str, Mapping[str, Any]]:
    """Returns `flags`, `data` and `data_files` of a sweep's run, whose setting `sweep.csv` has;
    without it the flags that all runs share.
    """
    plan, grid = content["plan"], content["plan"]["grid"]
    tried = {flag for flag, _ in grid.get("grid", ())}
    tried |= {flag for setting in grid.get("settings", ()) for flag, _ in setting}
    shared = {"use_synthetic_data": plan["use_synthetic_data"], "setting": content.get("setting")}
    flags = {**dict(grid["fixed"]), **shared}
    runs = directory / "sweep.csv"
    rows = csv_files.read(runs) if runs.exists() else ()
    row = next((row for row in rows if row.get("run_id") == run_id), {})
    own = {name: row[name] or None for name in tried if name in row}
    paths = sorted(directory.glob("tasks/*.json"))
    tasks = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    options = (
        task["options"]
        for task in tasks
        if "options" in task and run_id in (run["run_id"] for run in task["runs"])
    )
    return {
        "flags": {name: value for name, value in flags.items() if name not in tried} | own,
        "data": {"options": next(options, {})},
        # They are all of the same files, or the sweep would not have ended.
        "data_files": next(filter(None, (task.get("data_files") for task in tasks)), {}),
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
        for fact in (fact for fact in of_first if fact in of_other):
            before, after = _text(of_first[fact]), _text(of_other[fact])
            if before != after:
                values = "" if fact == "data_files" else f" ({before} and {after})"
                lines.append(f"{fact} of {first} and {name}{values}")
        lines += _of_rows(first, rows[first], name, rows[name]) if rows else []
    return lines


def _of_rows(first: str, of_first: "pd.DataFrame", name: str, rows: "pd.DataFrame") -> list[str]:
    column = "num_evaluation_examples"
    if column not in of_first or column not in rows:
        return []
    sizes, other = (table.set_index("client_id")[column] for table in (of_first, rows))
    sizes, other = sizes.align(other, join="inner")
    unlike = sizes[(sizes != other) & sizes.notna() & other.notna()].index
    if unlike.empty:
        return []
    listed = ", ".join(f"{i} ({sizes[i]:g} and {other[i]:g})" for i in unlike[:_LISTED])
    more = ", ..." if len(unlike) > _LISTED else ""
    return [
        f"{column} of {first} and {name}, of {len(unlike)} of {len(sizes)} clients: {listed}{more}"
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
        advice = f"compare runs on the same data, or give {errors.name('anyway')}"
        raise UserError("the runs' data", "; ".join(lines), "the same", advice)
    return [f"warning: the runs are not scored on the same: {line}" for line in lines]
