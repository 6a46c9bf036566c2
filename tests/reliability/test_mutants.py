"""The mutation check itself: what it changes, and that it tells noticed from unnoticed."""

import ast
import subprocess
import sys

import pytest

from tests.reliability import mutants, mutator
from tests.trainers import programs


def _changed(source):
    """Returns the texts that a module's changes make of it."""
    found = []
    for place in range(len(mutator.mutants(ast.parse(source)))):
        tree = ast.parse(source)
        mutator.mutants(tree)[place].apply()
        found.append(ast.unparse(tree))
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a + 1", ["x = a - 1", "x = a + 2", "x = a + 0"]),
        ("x = 0.5", ["x = 1.5", "x = 0.25"]),
        ("x = not a", ["x = a"]),
        ("x = a and b", ["x = a or b"]),
        ("x = min(a)", ["x = max(a)"]),
        ("x += a", ["x -= a", "pass"]),
        ("x = [a for a in b if a]", ["x = [a for a in b if not a]"]),
        ("f(a)", ["pass"]),
        ("x = zip(a, strict=True)", []),
        ("'What it says.'\nx: int | None = None", []),
    ],
)
def test_changes(source, expected):
    assert _changed(source) == expected


def test_statements_and_results():
    source = "def f(a):\n    '''Says.'''\n    if a:\n        raise ValueError('1')\n    return a\n"
    changed = [text.splitlines()[-3:] for text in _changed(source)]
    assert changed == [
        ["    if not a:", "        raise ValueError('1')", "    return a"],
        ["    if a:", "        pass", "    return a"],
        ["    if a:", "        raise ValueError('1')", "    return None"],
    ]


def test_every_pattern_has_files_and_tests():
    files = mutants._files(())
    assert {target for _, target in files} == set(mutants.TARGETS)
    assert all(mutants._files_of(test) for target in mutants.TARGETS for test in target.tests)
    unchanged = [p for p, target in files if not mutants.changes(p, target.definitions)[1]]
    assert unchanged == ["motley_tff/metrics/generative/__init__.py"]


def test_equivalents_are_changes_that_there_are():
    known = {
        mutants.key_of(path, one)
        for path, target in mutants._files(())
        for one in mutants.changes(path, target.definitions)[1]
    }
    assert mutants.equivalents() <= known


_NOTICED = """
import sys
from tests.reliability import mutants
path, target = mutants._files(["motley_tff/core/candidates.py"])[0]
tree, found = mutants.changes(path)
turned = next(one for one in found if one.after == "scores[:, first:]")
for mutant in (turned, None):
    print(mutants.run(path, tree, target.tests, mutant, 60.0), file=sys.stderr)
"""


def test_noticed_and_unnoticed():
    """On the selection rule, with its direction turned and as it is.

    In a process of its own: this one may have used TensorFlow, which survives no fork.
    """
    done = subprocess.run(
        [sys.executable, "-c", _NOTICED],
        capture_output=True, text=True, check=True, cwd=programs.ROOT, env=programs.environment(),
    )  # fmt: skip
    assert done.stderr.split() == ["killed", "survived"], done.stdout


def test_report():
    mutant, path = mutator.Mutant(7, "a", "b", lambda: None), "setup.py"
    outcomes = [mutants.Outcome(path, mutant, fate) for fate in ("killed", "timeout", "survived")]
    lines = mutants.report(outcomes).splitlines()
    cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    assert cells == [path, "3", "2", "0", "1", "66.7"] and lines[-1] == "setup.py:7: a -> b"
