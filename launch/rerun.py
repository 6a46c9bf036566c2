"""motley_rerun: the same run again, from its run.json, and whether its tables are the same.

    motley_rerun results/quickstart
    motley_rerun results/ditto --data_dir=/elsewhere --root_output_dir=reruns

Trains with the flags that run.json has, into another directory, and compares every CSV cell by
cell; columns of seconds aside. Ends with status 0 if all are equal, with 1 if not; where the first
run had other data, first weights or plug-ins, another commit, CPU or package version, that is
named, and a difference is no failure. A commit that nobody knows is named as a possible cause.
"""

import csv
import functools
import io
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

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
# What may explain a difference, as run.json has it.
_SURROUNDINGS = (
    "continued_with", "cpu", "cores", "backend", "results_version", "plugins",
)  # fmt: skip
# Weights that are given; those that a seed draws are the run's own, and no surroundings.
_FIRST_WEIGHTS = ("path_to_initial_model_weights", "path_to_initial_model_weights_list")

flags.DEFINE_string("root_output_dir", "reruns", "Where the new run's directory goes.")
flags.DEFINE_string("data_dir", None, "Where the data are now; where they were, without it.")
flags.DEFINE_string("data_file", None, "The same of a data file.")


class _Difference(NamedTuple):
    """The first cell that differs, or a line or table that only one side has."""

    place: str
    before: str
    now: str


def main(run: str) -> int:
    """Runs, compares and says what differs."""
    first = pathlib.Path(os.path.expanduser(run))
    record = _record(first)
    root = pathlib.Path(os.path.expanduser(FLAGS.root_output_dir))
    second = root / str(record["run_id"])
    if second.resolve() == first.resolve():
        raise UserError(_ROOT, root, f"another directory than that of {run}")
    if _is_finished(second):
        found, advice = "the run of an earlier motley_rerun", f"remove it, or give another {_ROOT}"
        raise UserError(str(second), found, "none", advice)
    _check_tables(first)
    moved = {name: FLAGS[name].value for name in _PLACES if FLAGS[name].value}
    status = _train(_command(first, record, root, moved))
    if status:
        raise UserError(f"the trainer ended with status {status}", advice="see its message above")
    again = _record(second)
    differences = list(itertools.islice(_differences(first, second), 1))
    explanations = list(_surroundings(record, again))
    if not differences:
        print(f"\nequal: every table of {first} but for times")
    for place, before, now in differences:
        print(f"\ndiffers: {place}: {before} before, {now} now")
    for line in explanations:
        print(line)
    if not differences or explanations:
        return 0
    causes = [*_unknown(record, again), *_lost(first, differences[0])]
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
        advice = "give its trainer's command once more"
        raise UserError(str(run), "an unfinished run", advice=advice)
    missing = [name for name in ("flags", "run_id", "command") if name not in record]
    if missing or not isinstance(record["flags"], dict):
        found = f"no {(missing or ['flags'])[0]}"
        raise UserError(str(run / "run.json"), found, advice="give a trainer's run")
    command = record["command"]
    if not isinstance(command, list) or not (command or record.get("trainer")):
        where, found = f"{run / 'run.json'}, command", json.dumps(command)
        raise UserError(where, found, "a trainer and its flags", "give a trainer's run")
    return record


def _check_tables(run: pathlib.Path) -> None:
    """Reads a run's tables, before anything is trained; UserError if there are none or one is no
    CSV.
    """
    paths = sorted(run.glob("*.csv"))
    if not paths:
        raise UserError(str(run), "no CSV to compare with", "a run's tables", "put them back")
    for path in paths:
        try:
            with open(path, newline="", encoding="utf-8") as file:
                for _ in csv.reader(file):
                    pass
        except (OSError, ValueError, csv.Error) as error:
            found, expected = f"what cannot be read ({error})", "a CSV in UTF-8"
            advice = "put back what the trainer wrote"
            raise UserError(str(path), found, expected, advice) from error


def _command(
    run: pathlib.Path, record: Mapping[str, Any], root: pathlib.Path, moved: Mapping[str, str]
) -> list[str]:
    """Returns the trainer's command line: the flags that decided the numbers, data that `moved`."""
    given = [str(argument) for argument in record["command"]]
    trainer = str(record.get("trainer") or pathlib.Path(given[0]).stem)
    if trainer not in TRAINERS:
        raise UserError(str(run), f"a run of {trainer}", f"one of {', '.join(TRAINERS)}")
    # A flag that is given may be refused where its default is not: one of another optimizer's.
    defaults = config.default_flags(trainer)
    decided = {
        name: value
        for name, value in record["flags"].items()
        if name not in defaults or value != defaults[name]
    }
    places = {name: moved.get(name) or _place(record, given, name) for name in _PLACES}
    # Silos' cohort, also where it is as large as the flag's default, which is that of devices.
    decided |= {k: v for k, v in record.get("silos_a_round", {}).items() if v is not None}
    wanted = {
        **decided,
        **places,
        "root_output_dir": str(root),
        "experiment_name": record["run_id"],
    }
    arguments = [_argument(name, value) for name, value in wanted.items() if value is not None]
    return [sys.executable, "-m", f"trainers.{trainer}", *arguments]


def _place(record: Mapping[str, Any], given: list[str], name: str) -> str | None:
    """Returns where the data were: run.json's own word, or of older ones the command's."""
    if name in record:
        return record[name]
    for argument, following in itertools.zip_longest(given, given[1:], fillvalue=""):
        flag, equals, value = argument.lstrip("-").partition("=")
        if flag == name and argument.startswith("-"):
            return value if equals else following
    return None


def _argument(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{'' if value else 'no'}{name}"
    if isinstance(value, list):
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(value)
        value = text.getvalue()
    return f"--{name}={value}"


def _differences(first: pathlib.Path, second: pathlib.Path) -> Iterator[_Difference]:
    """Yields what differs: cells, then columns and tables that one side alone has."""
    names = [{path.name for path in run.glob("*.csv")} for run in (first, second)]
    both = sorted(names[0] & names[1])
    for name in both:
        yield from _differing_cells(first / name, second / name)
    for name in both:
        a, b = (_columns(run / name) for run in (first, second))
        if a != b:
            told = (f"with {', '.join(sorted(here - there)) or 'no more'}"
                    for here, there in ((a, b), (b, a)))  # fmt: skip
            yield _Difference(f"{name}, columns", *told)
    for name in sorted(names[0] ^ names[1]):
        is_old = name in names[0]
        yield _Difference(name, *(("there", "not there") if is_old else ("not there", "there")))


def _columns(path: pathlib.Path) -> set[str]:
    with open(path, newline="", encoding="utf-8") as file:
        return set(next(csv.reader(file), []))


def _differing_cells(first: pathlib.Path, second: pathlib.Path) -> Iterator[_Difference]:
    """Yields what differs in the columns that both tables have."""
    with (
        open(first, newline="", encoding="utf-8") as before,
        open(second, newline="", encoding="utf-8") as now,
    ):
        readers = csv.DictReader(before), csv.DictReader(now)
        header, others = (reader.fieldnames or [] for reader in readers)
        shared = [name for name in header if name in others and not name.endswith(_TIMES)]
        for line, (a, b) in enumerate(itertools.zip_longest(*readers), 2):
            if a is None or b is None:
                ends = ("no line" if row is None else "a line" for row in (a, b))
                yield _Difference(f"{first.name} line {line}", *ends)
                return
            for column in shared:
                if a[column] != b[column]:
                    of = ", ".join(f"{key} {a[key]}" for key in _KEYS if key in a)
                    place = f"{first.name} line {line}{f' ({of})' if of else ''}, column {column}"
                    yield _Difference(place, a[column] or "empty", b[column] or "empty")


def _surroundings(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each thing around the run that is another one."""
    commits = [record.get("git_commit") for record in (before, now)]
    pairs: list[tuple[str, Any, Any]] = (
        [("git_commit", commits[0], commits[1])] if all(commits) else []
    )
    pairs += [(name, before.get(name), now.get(name)) for name in _SURROUNDINGS]
    weights = [record.get("initial_weights") for record in (before, now)]
    if all(weights) and any(before["flags"].get(name) for name in _FIRST_WEIGHTS):
        pairs.append(("initial_weights", weights[0], weights[1]))
    # Of data what is in them, whatever they are called.
    digests = [sorted((of.get("data_files") or {}).values()) for of in (before, now)]
    pairs.append(("data", digests[0], digests[1]))
    versions = [record.get("versions") or {} for record in (before, now)]
    pairs += [
        (package, versions[0].get(package, "none"), versions[1].get(package, "none"))
        for package in sorted(set(versions[0]) | set(versions[1]))
    ]
    for name, a, b in pairs:
        if a != b:
            yield f"another {name}: {_shown(a)} before, {_shown(b)} now"


def _unknown(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line if the code may be another one, though both commits have the same name."""
    commits = [record.get("git_commit") for record in (before, now)]
    if not all(commits):
        yield f"unknown git_commit: {_shown(commits[0])} before, {_shown(commits[1])} now"
    elif str(commits[0]).endswith("-dirty"):
        yield f"git_commit {commits[0]}: files were changed, maybe others or otherwise than now"


def _lost(run: pathlib.Path, difference: _Difference) -> Iterator[str]:
    """Yields a line if all that the first run's tables lack is one of them."""
    if difference == _Difference(difference.place, "not there", "there"):
        yield f"{run}/{difference.place} is gone; put it back to compare it"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


run = functools.partial(commandline.run_main, main, ("RUN",))

if __name__ == "__main__":
    run()
