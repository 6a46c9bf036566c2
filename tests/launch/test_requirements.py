"""The lock is plain and complete, and commands are there."""

import ast
import pathlib
import re

import pytest

from datasets.readers import rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
USERS, DEVELOPERS = LOCKS = ("requirements.txt", "launch/developers.txt")


# A pin and its hashes, a line for each, and nothing else.
PACKAGE = re.compile(
    r"([a-z0-9]+(?:-[a-z0-9]+)*)==([0-9][A-Za-z0-9.+!]*)( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
)


def _pins(name=USERS):
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(match.group(1, 2) for match in PACKAGE.finditer(text))


def _setup_constant(name):
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py assigns no {name}")


def _normalized(requirement):
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9_.-]+", requirement).group()).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_pins_with_hashes_each_package_once(lock):
    assert PACKAGE.sub("", (ROOT / lock).read_text(encoding="utf-8")) == ""
    names = [match[1] for match in PACKAGE.finditer((ROOT / lock).read_text(encoding="utf-8"))]
    assert names == sorted(set(names))


def test_every_direct_dependency_is_locked():
    direct = _setup_constant("REQUIREMENTS") + _setup_constant("BUILD")
    assert [name for name in map(_normalized, direct) if name not in _pins()] == []
    developers = (ROOT / "launch/developers.in").read_text(encoding="utf-8").split()
    assert [name for name in map(_normalized, developers) if name not in _pins(DEVELOPERS)] == []


def test_parquet_is_an_extra_of_one_version_that_tests_install():
    assert (
        _setup_constant("PARQUET") == [rows.PYARROW] == [f"pyarrow=={_pins(DEVELOPERS)['pyarrow']}"]
    )
    assert "pyarrow" not in _pins()


def test_the_locks_agree():
    users, developers = _pins(), _pins(DEVELOPERS)
    both = users.keys() & developers.keys()
    assert both and {n: users[n] for n in both} == {n: developers[n] for n in both}


def test_console_scripts_name_modules_of_this_project():
    for command in _setup_constant("COMMANDS"):
        match = re.fullmatch(r"[a-z0-9_]+=([a-z0-9_.]+):([a-z_]+)", command)
        assert match, command
        module = ROOT.joinpath(*match.group(1).split(".")).with_suffix(".py")
        definition = re.search(
            rf"^(def {match[2]}\(|{match[2]} = )", module.read_text(), re.MULTILINE
        )
        assert definition, f"{command}: no function {match[2]}"
