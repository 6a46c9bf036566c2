"""How many small wrong changes of the metrics and of the selection the tests notice.

    python -m tests.reliability.mutants [--mutants=N] [--seed=S] [FILE ...]

Every change (`mutator`) is tried in a forked process that has NumPy and the like already, and runs
the tests of the changed file until one fails; nothing is written. Prints a Markdown table, then the
changes that no test noticed and that `equivalent.csv` does not list as none that could be noticed.
"""

import argparse
import ast
import csv
import fnmatch
import gc
import importlib
import importlib.abc
import importlib.util
import os
import pathlib
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import machinery
from typing import NamedTuple

import pytest

from motley_tff.tables import text_tables
from tests.reliability import mutator

_ROOT = pathlib.Path(__file__).parents[2]
_EQUIVALENT = pathlib.Path(__file__).with_name("equivalent.csv")
# Imported once; none of them is the project's.
_LIGHT = ("numpy", "pandas", "scipy.linalg", "scipy.special", "scipy.stats", "sklearn.metrics",
          "absl.flags", "absl.logging", "hypothesis", "yaml")  # fmt: skip
_OURS = ("datasets", "launch", "motley_tff", "tests", "trainers")
_HEAVY = ("tensorflow", "tensorflow_federated")
# A change that makes a loop endless may fill the memory.
_MEMORY = 16 * 2**30
_KILLED, _SURVIVED, _TIMEOUT = "killed", "survived", "timeout"


class Target(NamedTuple):
    """Files and the tests that belong to them.

    Attributes:
      pattern: Of paths.
      tests: Folders, files and patterns; those of the file's name come first.
      needs: Modules that are imported before forking.
      definitions: Of these functions and classes only, if there are any.
    """

    pattern: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = _LIGHT
    definitions: tuple[str, ...] = ()


_REPORT = ("choose", "summarize", "report", "client_values_of", "client_cell", "_score_rows",
           "_cluster_rows", "_add_tuning", "_label", "_groups", "_client_rows", "_ood_values",
           "_candidate_rows")  # fmt: skip
TARGETS = (
    Target("motley_tff/metrics/generative/*.py", ("tests/metrics/generative",)),
    Target(
        "motley_tff/metrics/*.py", ("tests/metrics/test_*.py", "tests/contracts/test_metrics.py")
    ),
    Target("motley_tff/core/candidates.py", ("tests/core/test_candidates.py",)),
    Target("motley_tff/core/acceptance.py", ("tests/core/test_acceptance.py",)),
    Target("motley_tff/tables/client_tables.py", ("tests/tables/test_client_tables.py",)),
    Target("launch/sweeps/results.py", ("tests/launch/sweeps/test_results.py",)),
    Target(
        "motley_tff/core/evaluation.py",
        ("tests/core/test_evaluation.py", "tests/core/test_studies.py"),
        (*_LIGHT, *_HEAVY),
        _REPORT,
    ),
    Target("motley_tff/core/held_out.py", ("tests/core/test_held_out.py",), (*_LIGHT, *_HEAVY)),
)


class Outcome(NamedTuple):
    """What became of a change."""

    path: str
    mutant: mutator.Mutant
    fate: str


class _Loader(machinery.SourceFileLoader):
    """Loads a module from changed code."""

    def __init__(self, name: str, path: str, tree: ast.Module):
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname):
        return compile(self._tree, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, in changed code."""

    def __init__(self, path: str, tree: ast.Module):
        self._name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._path, self._tree = str(_ROOT / path), tree

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self._name:
            return None
        loader = _Loader(fullname, self._path, self._tree)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def changes(path: str, definitions: Sequence[str] = ()) -> tuple[ast.Module, list[mutator.Mutant]]:
    """Returns a file's tree and all changes of it (of some of its definitions)."""
    tree = ast.parse((_ROOT / path).read_text(encoding="utf-8"))
    if not definitions:
        return tree, mutator.mutants(tree)
    some = [node for node in tree.body if getattr(node, "name", None) in definitions]
    return tree, mutator.mutants(ast.Module(some, []))


def run(
    path: str, tree: ast.Module, tests: Sequence[str], mutant: mutator.Mutant | None, seconds: float
) -> str:
    """Runs tests on a change of a file, or on the file as it is, in a process that is forked.

    Args:
      path: The file.
      tree: Its tree.
      tests: What to run.
      mutant: The change.
      seconds: After which it counts as endless.
    """
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if not child:
            _test(path, tree, tests, mutant, folder)
        return _fate(child, seconds)


def _test(path, tree, tests, mutant, folder) -> None:
    """Runs tests and ends this process."""
    status = 1
    try:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silent, stream)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        if mutant is not None:
            mutant.apply()
        _forget_ours()
        sys.meta_path.insert(0, _Finder(path, tree))
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={folder}/t"]
        # One after the other: most changes are noticed by the first.
        status = any(pytest.main([*options, str(_ROOT / test)]) for test in _own_first(path, tests))
    finally:
        os._exit(status)


def _forget_ours() -> None:
    """Has the project's modules imported anew, should the parent have them already."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
        del sys.modules[name]


def _own_first(path: str, tests: Sequence[str]) -> list[str]:
    """Returns the files of tests, those of the file's name first."""
    found = [file for test in tests for file in _files_of(test)]
    return sorted(found, key=lambda test: not test.endswith(f"/test_{pathlib.Path(path).stem}.py"))


def _files_of(test: str) -> list[str]:
    pattern = f"{test}/test_*.py" if (_ROOT / test).is_dir() else test
    return [str(path.relative_to(_ROOT)) for path in sorted(_ROOT.glob(pattern))]


def _fate(child: int, seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return _KILLED if status else _SURVIVED
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return _TIMEOUT


def try_file(path: str, target: Target, number: int | None, seed: int) -> list[Outcome]:
    """Tries a file's changes, or a sample of so many.

    Raises:
      RuntimeError: If the tests fail on the file as it is.
    """
    for module in target.needs:
        importlib.import_module(module)
    gc.freeze()  # A third of the time: what was imported is not looked through in every child.
    tree, found = changes(path, target.definitions)
    if number is not None and number < len(found):
        found = sorted(random.Random(f"{seed} {path}").sample(found, number), key=lambda m: m.line)
    start = time.monotonic()
    if run(path, tree, target.tests, None, 600.0) != _SURVIVED:
        raise RuntimeError(f"{path}: {', '.join(target.tests)} fail without a change")
    seconds = 10.0 + 3.0 * (time.monotonic() - start)
    outcomes = []
    for one in found:
        outcomes.append(Outcome(path, one, run(path, tree, target.tests, one, seconds)))
        if outcomes[-1].fate == _SURVIVED:
            print(_line(outcomes[-1]), file=sys.stderr, flush=True)
    return outcomes


# A change: the file, the line as it stands there, and what of it becomes what.
Key = tuple[str, str, str, str]


def equivalents() -> set[Key]:
    """Returns the changes that change nothing that could be noticed."""
    with _EQUIVALENT.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return {(row["file"], row["code"], row["before"], row["after"]) for row in rows}


def key_of(path: str, mutant: mutator.Mutant) -> Key:
    """Returns what tells a change from others, wherever its line is."""
    lines = (_ROOT / path).read_text(encoding="utf-8").splitlines()
    return path, lines[mutant.line - 1].strip(), mutant.before, mutant.after


def report(outcomes: Sequence[Outcome]) -> str:
    """Returns the table of files and the list of changes that nobody noticed."""
    known = equivalents()
    rows = [["file", "changes", "killed", "equivalent", "survived", "% killed"]]
    left: list[Outcome] = []
    for path in dict.fromkeys(outcome.path for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.path == path]
        alive = [one for one in mine if one.fate == _SURVIVED]
        survived = [one for one in alive if key_of(path, one.mutant) not in known]
        rows.append(_row(path, len(mine), len(alive), len(survived)))
        left.extend(survived)
    sums = [sum(int(row[i]) for row in rows[1:]) for i in range(1, 5)]
    rows.append(_row("all", sums[0], sums[2] + sums[3], sums[3]))
    return "\n".join([*text_tables.markdown(rows), "", *map(_line, left)])


def _line(outcome: Outcome) -> str:
    mutant = outcome.mutant
    return f"{outcome.path}:{mutant.line}: {mutant.before} -> {mutant.after}"


def _row(path: str, changed: int, alive: int, survived: int) -> list[str]:
    killed, noticeable = changed - alive, changed - alive + survived
    share = f"{100 * killed / noticeable:.1f}" if noticeable else ""
    return [path, *map(str, (changed, killed, alive - survived, survived)), share]


def _files(wanted: Sequence[str]) -> list[tuple[str, Target]]:
    """Returns the files to change, those first whose tests need the least."""
    paths = [str(path.relative_to(_ROOT)) for path in sorted(_ROOT.glob("*/**/*.py"))]
    found: dict[str, Target] = {}
    for target in TARGETS:
        for path in fnmatch.filter(paths, target.pattern):
            found.setdefault(path, target)
    return [(path, target) for path, target in found.items() if not wanted or path in wanted]


def main() -> None:
    """Tries changes and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="by default all that have tests")
    parser.add_argument("--mutants", type=int, help="so many of each file, by default all")
    parser.add_argument("--seed", type=int, default=0, help="decides which")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    for path, target in _files(arguments.files):
        outcomes += try_file(path, target, arguments.mutants, arguments.seed)
        print(f"{path}: {sum(o.path == path for o in outcomes)} tried", file=sys.stderr)
    print(report(outcomes))


if __name__ == "__main__":
    main()
