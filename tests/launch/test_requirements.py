"""The lock is plain and complete, and `datasets` is this project's package."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIN = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==([0-9][A-Za-z0-9.+!]*)( \\)?")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


USERS, DEVELOPERS = LOCKS = ("requirements.txt", "launch/developers.txt")


def _lines(name):
    return (ROOT / name).read_text(encoding="utf-8").splitlines()


def _pins(name=USERS):
    return dict(match.group(1, 2) for line in _lines(name) if (match := PIN.fullmatch(line)))


def _setup_constant(name):
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py assigns no {name}")


def _normalized(requirement):
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9_.-]+", requirement).group()).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_holds_pins_and_hashes_and_nothing_else(lock):
    odd = [line for line in _lines(lock) if not (PIN.fullmatch(line) or HASH.fullmatch(line))]
    assert odd == []
    assert "://" not in "\n".join(_lines(lock))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock):
    lines = _lines(lock)
    bare = [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if PIN.fullmatch(line) and not HASH.fullmatch(following)
    ]
    assert bare == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_each_package_once(lock):
    names = [match.group(1) for line in _lines(lock) if (match := PIN.fullmatch(line))]
    assert names == sorted(set(names))


def test_every_direct_dependency_is_locked():
    direct = _setup_constant("REQUIREMENTS") + _setup_constant("BUILD")
    assert [name for name in map(_normalized, direct) if name not in _pins()] == []
    assert [name for name in _lines("launch/developers.in") if name not in _pins(DEVELOPERS)] == []


def test_the_locks_agree():
    users, developers = _pins(), _pins(DEVELOPERS)
    both = users.keys() & developers.keys()
    assert both and {n: users[n] for n in both} == {n: developers[n] for n in both}


def test_lock_keeps_to_what_tensorflow_federated_runs_with():
    pins = _pins()
    assert pins["tensorflow-federated"] == "0.87.0"
    assert pins["jax"] == pins["jaxlib"] == "0.4.13"
    assert pins["typing-extensions"] == "4.5.0"
    assert pins["numpy"] == "1.25.2"


def test_datasets_is_this_projects_package():
    import datasets

    assert pathlib.Path(datasets.__path__[0]).resolve() == ROOT / "datasets"


def test_console_scripts_name_modules_of_this_project():
    for command in _setup_constant("COMMANDS"):
        match = re.fullmatch(r"[a-z0-9_]+=([a-z0-9_.]+):([a-z_]+)", command)
        assert match, command
        module = ROOT.joinpath(*match.group(1).split(".")).with_suffix(".py")
        assert module.is_file(), f"{command}: no file {module.relative_to(ROOT)}"
        nodes = ast.parse(module.read_text()).body
        assigned = [t for node in nodes if isinstance(node, ast.Assign) for t in node.targets]
        names = {getattr(node, "name", None) for node in nodes}
        names |= {target.id for target in assigned if isinstance(target, ast.Name)}
        assert match.group(2) in names, f"{command}: no function {match.group(2)}"
