"""What the documentation names exists, and its front page stays short."""

import itertools
import pathlib
import re
import subprocess
import sys

import pytest

from motley_tff import algorithms
from motley_tff.tables import columns
from tests.trainers import programs
from trainers import published_flags

ROOT = pathlib.Path(__file__).parents[1]
_FOLDERS = ("datasets", "findings", "launch", "motley_tff", "tests", "trainers")
_MANUAL = [
    ROOT / "README.md",
    *sorted(page for folder in _FOLDERS for page in (ROOT / folder).rglob("README.md")),
]
# {page: its text}
MANUAL = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in _MANUAL}
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = {**MANUAL, "CONTRIBUTING.md": CONTRIBUTING}
README = MANUAL["README.md"]
COLUMNS = MANUAL["motley_tff/tables/README.md"]
# The line of the front page that is what it is: what a command prints.
_PRINTED = "    accuracy, mean and std over clients;"
_MODULES = dict(re.findall(r'"(\w+)=([\w.]+):run"', (ROOT / "setup.py").read_text()))
_RUN = (ROOT / "launch" / "run").read_text()
_TOOLS = " ".join(re.findall(r'^(?:DEVELOPERS_)?TOOLS="(.*?)"', _RUN, re.MULTILINE)).split()
_PREPARE = tuple(f"datasets.prepare.{name}" for name in ("adni", "stack_exchange", "ted_multi"))

_SCRIPTS = tuple(
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "launch" / "experiments").glob("*/*.py"))
    if "commandline.run_main" in path.read_text(encoding="utf-8")
)


def _commands(pages=PAGES):
    """Returns the commands of pages: (page, name or module, arguments)."""
    commands = []
    for page, text in pages.items():
        joined = text.replace("\\\n", " ")
        for name, rest in re.findall(r"\./launch/run ([a-z]\w+)([^\n`#]*)", joined):
            arguments = rest.split()
            if name == "python":  # A module, or a script by its path.
                arguments = arguments[arguments[0] == "-m" :]
                name, arguments = arguments[0], arguments[1:]
            commands.append((page, name, arguments))
    return commands


def _help(name):
    program = [name] if name in _SCRIPTS else ["-m", _MODULES.get(name, name)]
    result = subprocess.run(
        [sys.executable, *program, "--helpfull"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=programs.environment(),
        check=True,
    )
    return result.stdout


@pytest.fixture(scope="module")
def helps():
    return {name: _help(name) for name in (*_MODULES, *_PREPARE, *_SCRIPTS)}


def _has(text, flag):
    return re.search(rf"--(\[no\])?({flag}|{flag.removeprefix('no')})\b", text)


def test_commands_exist():
    assert len(_commands()) > 50
    for page, name, _ in _commands():
        is_module = "." in name and (ROOT / f"{name.replace('.', '/')}.py").exists()
        assert is_module or name in (*_MODULES, *_TOOLS, *_SCRIPTS), (page, name)


def test_flags_of_commands_exist(helps):
    for page, name, arguments in _commands():
        for argument in arguments:
            flag = re.match(r"--(\w+)", argument)
            if flag and name in helps:
                assert _has(helps[name], flag[1]), (page, name, argument)
            elif flag and name.startswith("tests."):
                source = (ROOT / f"{name.replace('.', '/')}.py").read_text()
                assert re.search(rf"[\"-]{flag[1]}\"", source), (page, name, argument)


@pytest.mark.parametrize("page", MANUAL)
def test_flags_that_are_named_exist(page, helps):
    everything = "\n".join(helps.values())
    text = re.sub(r"\./launch/run python -m tests\.[^\n]*", "", MANUAL[page])
    for flag in set(re.findall(r"--([a-z]\w*)", text)) - {"help"} - set(published_flags.SILO):
        assert _has(everything, flag), flag


def test_files_and_headings_that_are_linked_exist():
    for page, text in PAGES.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith("https://"):
                continue
            path, _, heading = target.partition("#")
            file = (ROOT / page).parent / path if path else ROOT / page
            assert file.exists(), (page, target)
            if heading:
                assert heading in _headings(file.read_text(encoding="utf-8")), (page, target)


def _headings(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_paths_that_are_named_exist():
    """Those from the project's root, perhaps with a pattern."""
    for page, text in PAGES.items():
        for path in re.findall(rf"`((?:{'|'.join(_FOLDERS)})/[\w./*-]*)`", text):
            assert any(ROOT.glob(path.rstrip("/"))), (page, path)


def test_lines_are_short():
    """But tables, addresses, and two lines of the front page."""
    for page, text in PAGES.items():
        for line in text.splitlines():
            may_be_long = line.startswith("|") or "://" in line
            may_be_long |= page == "README.md" and line.startswith(_PRINTED)
            assert len(line) <= 100 or may_be_long, (page, line)


def test_the_front_page_is_short():
    assert len(README.splitlines()) <= 150
    assert len(README.split()) <= 900


def test_pages_are_read_in_an_hour():
    words = {page: len(text.split()) for page, text in MANUAL.items()}
    del words["README.md"], words["motley_tff/tables/README.md"]  # The latter is generated.
    assert sum(words.values()) <= 10_000
    assert max(n for page, n in words.items() if page.startswith("launch/experiments/")) <= 500


@pytest.mark.parametrize("page", PAGES)
def test_no_page_has_a_riddle(page):
    riddles = r"as fits|as you say|is ours|put some|only so is|is told from|whose each|of both"
    assert re.findall(rf"\b(?:{riddles})\b", PAGES[page]) == []
    # Numbers begin with a digit.
    assert re.findall(r"(?<![\w.)\]/*<>`~])\.\d+", PAGES[page]) == []


def test_the_front_page_leads_to_every_page():
    assert set(MANUAL) - {"README.md"} <= set(re.findall(r"\]\(([^)\s]+)\)", README))


def test_every_command_is_on_the_front_page():
    for name in _MODULES:
        assert f"`{name}`" in README, name


def test_examples_of_several_lines_can_be_copied(helps):
    for name, text in helps.items():
        for line, following in itertools.pairwise(text.splitlines()):
            assert not re.search(r"\S {4,}--\w", line), (name, line)  # a continuation swallowed
            if re.match(r" {8}\S", following) and name in line:
                assert line.endswith(" \\"), (name, line)


@pytest.mark.slow
def test_the_first_command_ends_as_the_readme_shows(tmp_path):
    """After one round of the ten, and one epoch of fine-tuning."""
    _, name, flags = _commands({"README.md": README})[0]
    assert name == "finetuning_trainer" and "--total_rounds=10" in flags
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
    assert any(re.fullmatch(rf"check (env \w+=\S+ )?{re.escape(command)}", line) for line in lines)


@pytest.mark.slow
def test_the_python_example_runs(tmp_path, monkeypatch):
    """After two rounds of the hundred."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example.replace("=100", "=2"), names)
    assert names["result"].directory is None
    assert (tmp_path / "results" / "fedavg" / "summary.csv").exists()


def test_every_algorithm_is_named():
    named = set(re.findall(r"`(?:--\w+=)?(\w+)`", MANUAL["trainers/README.md"]))
    ours = {n: card for n, card in algorithms.CARDS.items() if n not in algorithms.plugged()}
    assert {*ours} - named - {"hypcluster", "knn_per"} == set()
    for card in ours.values():
        words = "fine-tuning" if card.name == "finetuning" else card.title.lower()
        assert words.split()[0] in README.lower(), card.title


def test_columns_are_those_of_the_files():
    """`python -m motley_tff.tables.columns` writes them there."""
    between = re.search(r"<!-- columns: begin -->\n(.*)<!-- columns: end -->", COLUMNS, re.DOTALL)[
        1
    ]
    assert between == columns.documentation()
