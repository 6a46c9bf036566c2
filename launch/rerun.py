"""motley_rerun: the same run again, from its run.json, and whether its tables are the same.

    motley_rerun results/quickstart
    motley_rerun results/ditto --data_dir=/elsewhere --root_output_dir=reruns

Trains with the flags that run.json has, into another directory, and compares every CSV cell by
cell; columns of seconds aside. Ends with status 0 if all are equal, with 1 if not; where the first
run had other data, first weights or plug-ins, another commit, CPU or package version, that is
named, and a difference is no failure. A commit that nobody knows is named as a possible cause.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from absl import flags

from motley_tff import commandline
from motley_tff.commandline import children
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from trainers import TRAINERS, config

FLAGS = flags.FLAGS
_TIMES = "seconds"
_PLACES = ("data_dir", "data_file")
_KEYS = ("round", "split", "client_id", "candidate")
_ROOT = errors.name("root_output_dir")
_ONLY_NOW = ("not there", "there")
# What may explain a difference, as run.json has it; those of `_IF_KNOWN` if both runs know it.
_IF_KNOWN = ("git_commit", "initial_weights")
_SURROUNDINGS = (
    "git_commit", "continued_with", "cpu", "cores", "backend", "results_version", "plugins",
    "initial_weights",
)  # fmt: skip
# First weights explain a difference only where a user gave them: a seed draws the same again.
_FIRST_WEIGHTS = ("path_to_initial_model_weights", "path_to_initial_model_weights_list")

flags.DEFINE_string("root_output_dir", "reruns", "Where the new run's directory goes.")
flags.DEFINE_string("data_dir", None, "Where the data are now; where they were, without it.")
flags.DEFINE_string("data_file", None, "The same of a data file.")


# (where two tables differ, what was there before, what is there now)
_Difference = tuple[str, str, str]


def main(run: str) -> int:
    """Runs, compares and says what differs."""
    first = pathlib.Path(os.path.expanduser(run))
    record = _record(first)
    root = pathlib.Path(os.path.expanduser(FLAGS.root_output_dir))
    second = root / str(record["run_id"])
    if second.resolve() == first.resolve():
        raise UserError(_ROOT, root, f"another directory than that of {run}")
    if _is_finished(second):
        advice = f"remove it, or give another {_ROOT}"
        raise UserError(str(second), "the run of an earlier motley_rerun", "none", advice)
    _tables(first)  # What cannot be compared is not trained.
    moved = {name: path for name in _PLACES if (path := FLAGS[name].value)}
    status = _train(_command(first, record, root, moved))
    if status:
        raise UserError(f"the trainer ended with status {status}", advice="see its message above")
    again = _record(second)
    place, before, now = next(_differences(_tables(first), _tables(second)), ("", "", ""))
    explanations = list(_explanations(record, again))
    if place:
        print(f"\ndiffers: {place}: {before} before, {now} now")
    else:
        print(f"\nequal: every table of {first} but for times")
    for line in explanations:
        print(line)
    if explanations or not place:
        return 0
    causes = list(_possible_causes(record, again))
    if (before, now) == _ONLY_NOW:
        causes.append(f"{first}/{place} is gone; put it back to compare it")
    for line in causes:
        print(f"possible cause: {line}")
    if not causes:
        print("The same commit, packages and CPU: expected the same bytes; please report it.")
    return 1


def _train(command: list[str]) -> int:
    """Returns the status of a trainer's end; a signal that ends this program ends it, too, after
    its checkpoint.
    """
    process = subprocess.Popen(children.bound_to_parent(command, ()))
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _is_finished(run: pathlib.Path) -> bool:
    try:
        _record(run)
    except UserError:  # None is there, or the trainer goes on with it or says what is wrong.
        return False
    return True


def _record(run: pathlib.Path) -> dict[str, Any]:
    """Returns a finished run's run.json."""
    try:
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(str(run), "no run.json that can be read", "a run's directory") from error
    if not isinstance(record, dict) or record.get("status") != "finished":
        advice = "give its trainer's command again to finish it"
        raise UserError(str(run), "an unfinished run", advice=advice)
    kinds = {"flags": dict, "run_id": str, "command": list}
    lacking = [name for name, kind in kinds.items() if not isinstance(record.get(name), kind)]
    if lacking or not (record["command"] or record.get("trainer")):
        name = (lacking or ["command"])[0]
        raise UserError(str(run / "run.json"), f"no {name}", advice="give a trainer's run")
    return record


def _tables(run: pathlib.Path) -> dict[str, pd.DataFrame]:
    """Returns a run's tables as text, by name; UserError if there are none or one is no CSV."""
    tables: dict[str, pd.DataFrame] = {}
    for path in sorted(run.glob("*.csv")):
        try:
            tables[path.name] = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as error:
            content, advice = f"a file that cannot be read ({error})", "restore the trainer's file"
            raise UserError(str(path), content, "a CSV in UTF-8", advice) from error
    if not tables:
        raise UserError(str(run), "no CSV to compare with", "a run's tables", "restore them")
    return tables


def _command(
    run: pathlib.Path, record: Mapping[str, Any], root: pathlib.Path, moved: Mapping[str, str]
) -> list[str]:
    """Returns the trainer's command line: the flags that decided the numbers, and the data, which
    may have `moved`.
    """
    trainer = str(record.get("trainer") or pathlib.Path(str(record["command"][0])).stem)
    if trainer not in TRAINERS:
        raise UserError(str(run), f"a run of {trainer}", f"one of {', '.join(TRAINERS)}")
    # A flag that is given may be refused where its default is not: one of another optimizer's.
    defaults = config.default_flags(trainer, str(record["flags"].get("dataset_name")))
    arguments = {
        **{k: v for k, v in record["flags"].items() if k not in defaults or v != defaults[k]},
        **_places(record),
        **moved,
        # Silos' cohort, also where it is as large as the flag's default, which is that of devices.
        **{k: v for k, v in record.get("silos_a_round", {}).items() if v is not None},
        "root_output_dir": str(root),
        "experiment_name": record["run_id"],
    }
    texts = [_argument(name, value) for name, value in arguments.items() if value is not None]
    return [sys.executable, "-m", f"trainers.{trainer}", *texts]


def _places(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns where the data were: as run.json says, or, in an older one, the run's command."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in _PLACES:
        parser.add_argument(f"--{name}", f"-{name}", nargs="?")
    older = vars(parser.parse_known_args([str(word) for word in record["command"]])[0])
    return {name: record.get(name, older[name]) for name in _PLACES}


def _argument(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{'' if value else 'no'}{name}"
    if isinstance(value, list):
        value = flags.CsvListSerializer(",").serialize(value)
    return f"--{name}={value}"


def _differences(
    first: Mapping[str, pd.DataFrame], second: Mapping[str, pd.DataFrame]
) -> Iterator[_Difference]:
    """Yields each table's first cell that differs, then columns and tables of one side alone."""
    both = [(name, table, second[name]) for name, table in first.items() if name in second]
    for tables in both:
        yield from _differing_cell(*tables)
    for name, before_table, now_table in both:
        a, b = {*before_table.columns}, {*now_table.columns}
        if a != b:
            before, now = (f"with {', '.join(sorted(c)) or 'no more'}" for c in (a - b, b - a))
            yield f"{name}, columns", before, now
    for name in sorted({*first} ^ {*second}):
        before, now = _ONLY_NOW if name in second else _ONLY_NOW[::-1]
        yield name, before, now


def _differing_cell(name: str, before: pd.DataFrame, now: pd.DataFrame) -> Iterator[_Difference]:
    """Yields the first cell that differs in the columns that both tables have, or line."""
    shared = [c for c in before.columns if c in now.columns and not c.endswith(_TIMES)]
    length = min(len(before), len(now))
    a, b = (table[shared].to_numpy()[:length] for table in (before, now))
    for row, column in np.argwhere(a != b)[:1]:
        keys = ", ".join(f"{key} {before[key][row]}" for key in _KEYS if key in before)
        place = f"{name} line {row + 2}{f' ({keys})' if keys else ''}, column {shared[column]}"
        yield place, a[row, column] or "empty", b[row, column] or "empty"
        return
    if len(before) != len(now):
        ends = ["a line" if len(table) > length else "no line" for table in (before, now)]
        yield f"{name} line {length + 2}", ends[0], ends[1]


def _explanations(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each thing around the run that is another one."""
    ours, theirs = _facts(before), _facts(now)
    has_weights = any(before["flags"].get(name) for name in _FIRST_WEIGHTS)
    for name in ours | theirs:
        a, b = ours.get(name), theirs.get(name)
        is_unknown = name in _IF_KNOWN and not (a and b)
        if a != b and not is_unknown and (has_weights or name != "initial_weights"):
            yield f"another {name}: {_shown(a)} before, {_shown(b)} now"


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what was around a run: of data what is in the files, whatever they are called."""
    data = sorted((record.get("data_files") or {}).values())
    versions = sorted((record.get("versions") or {}).items())
    return {**{name: record.get(name) for name in _SURROUNDINGS}, "data": data, **dict(versions)}


def _possible_causes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line if the code may be another one, though both commits have the same name."""
    commits = [record.get("git_commit") for record in (before, now)]
    if not all(commits):
        yield f"unknown git_commit: {_shown(commits[0])} before, {_shown(commits[1])} now"
    elif str(commits[0]).endswith("-dirty"):
        yield f"git_commit {commits[0]}: files were changed, maybe others or otherwise than now"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


run = functools.partial(commandline.run_main, main, ("RUN",))

if __name__ == "__main__":
    run()
