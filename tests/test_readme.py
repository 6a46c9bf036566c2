"""What the README names exists."""

import itertools
import pathlib
import re
import subprocess
import sys

import pytest

from tests.trainers import programs

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Tools that come with what is installed.
_OTHER_COMMANDS = {"pytest", "NAME", "python"}
_PREPARE = tuple(f"datasets.prepare.{name}" for name in ("adni", "stack_exchange", "ted_multi"))
_SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
# {command: module} as they are installed.
_MODULES = dict(re.findall(r'"(\w+)=([\w.]+):run"', _SETUP))


def _commands():
    """Returns the README's commands: (name, arguments)."""
    joined = README.replace("\\\n", " ")
    lines = re.findall(r"\./launch/run (\w+)([^\n`]*)", joined)
    return [(name, rest.split()) for name, rest in lines]


def _help(name):
    module = name if name in _PREPARE else _MODULES[name]
    result = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        capture_output=True,
        text=True,
        env=programs.environment(),
        check=True,
    )
    return result.stdout


@pytest.fixture(scope="module")
def helps():
    trainers = set(re.findall(r"`(\w+_trainer)`", README))
    names = ({name for name, _ in _commands()} | trainers) - _OTHER_COMMANDS
    return {name: _help(name) for name in (*sorted(names), *_PREPARE)}


def test_commands_are_installed():
    for name, _ in _commands():
        assert name in _OTHER_COMMANDS or name in _MODULES, name


def test_flags_of_the_commands_exist(helps):
    for name, arguments in _commands():
        if name == "python":
            name = arguments[1]
            assert name in _PREPARE
        for argument in arguments:
            flag = re.match(r"--(?:no)?(\w+)", argument)
            if flag and name in helps:
                text = helps[name]
                assert re.search(rf"--(\[no\])?{flag[1]}\b", text), (name, argument)


def test_every_flag_that_is_named_exists(helps):
    everything = "\n".join(helps.values())
    for flag in set(re.findall(r"--([a-z]\w+)", README)) - {"help"}:
        name = flag.removeprefix("no")
        assert re.search(rf"--(\[no\])?({flag}|{name})\b", everything), flag


def test_examples_of_several_lines_can_be_copied(helps):
    for name, text in helps.items():
        for line, following in itertools.pairwise(text.splitlines()):
            assert not re.search(r"\S {4,}--\w", line), (name, line)  # a continuation swallowed
            if re.match(r" {8}\S", following) and name in line:
                assert line.endswith(" \\"), (name, line)


@pytest.mark.slow
def test_the_first_command_ends_as_the_readme_shows(tmp_path):
    """After one round of the twenty, and one epoch of fine-tuning."""
    name, flags = _commands()[0]
    assert (name, "--total_rounds=20") == ("finetuning_trainer", flags[-1])
    short = ("--total_rounds=1", "--finetune_max_epochs=1")
    stdout, _ = programs.run(name, tmp_path, *flags, *short)
    shown = README[README.index("    accuracy, mean and std over clients") :].splitlines()[:5]
    printed = stdout[stdout.index("accuracy, mean and std over clients") :].splitlines()[:5]
    heading, empty, columns, *splits = (line.split() for line in shown)
    assert [line.split() for line in printed[:3]] == [heading, empty, columns]
    for line, expected in zip(printed[3:], splits, strict=True):
        assert line.split()[:2] == expected[:2]  # The split and its number of clients.
        assert len(line.split()) == len(expected)
    left = {path.name for path in (tmp_path / "quickstart").glob("*.csv")}
    assert left == {"candidates.csv", "clients.csv", "rounds.csv", "summary.csv"}
    assert "The first command" in README and "`results/quickstart`" in README


def test_ci_calls_the_test_command_of_the_readme():
    command = "./launch/run pytest"
    assert f"    {command}\n" in README
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert f"check {command}" in lines


def test_columns_are_those_of_the_files():
    """The table of tables names every column beside a row's keys, and none that there is not."""
    from motley_tff.tables import schema

    rows = dict(re.findall(r"^\| `(\w+)\.csv` \| [^|]*\| ([^|]*) \|$", README, re.MULTILINE))
    named = {table: set(re.findall(r"`([a-z_<>]+)`", text)) for table, text in rows.items()}
    keys = {*schema.RUN, "client_id"}
    metric = "<metric>"
    assert named["clients"] - keys == set(schema.CLIENTS) - keys
    assert named["candidates"] == set(schema.CANDIDATES) - keys - {"candidate", "metric"}
    assert named["rounds"] == set(schema.rounds(metric)) - keys
    # Of the metrics it has, of which there is a list.
    assert named["summary"] - {"baseline", "personalized"} <= set(schema.summary("cross_device"))
    for column in (*schema.OOD_CLIENTS, *schema.OOD_CANDIDATES):
        assert f"`{column}`" in README, column
