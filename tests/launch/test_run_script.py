"""launch/run, tried on tiny projects: real uv and pip, wheels from a folder, no network."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# launch/run puts uv here where it is not on PATH.
_INSTALLED_UV = pathlib.Path(sys.prefix) / ".uv" / "bin" / "uv"
UV = str(_INSTALLED_UV) if _INSTALLED_UV.exists() else shutil.which("uv") or "no uv"
BASE_PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)

# Builds the editable wheel of a project without setuptools: its name, what it needs as comments of
# pyproject.toml, and the commands of its setup.py if it has one.
BACKEND = """
    import pathlib, re, zipfile

    def build_editable(folder, config_settings=None, metadata_directory=None):
        text = pathlib.Path("pyproject.toml").read_text()
        name, needs = (re.search(f'# {key}: *(.*)', text)[1] for key in ("name", "needs"))
        setup = pathlib.Path("setup.py")
        commands = re.findall(r'^    "(.*)",$', setup.read_text(), re.M) if setup.exists() else []
        info = f"{name}-1.0.dist-info/"
        wheel_name = f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(pathlib.Path(folder) / wheel_name, "w") as wheel:
            requires = "".join(f"Requires-Dist: {n}\\n" for n in needs.split())
            wheel.writestr(f"{name}.pth", str(pathlib.Path.cwd()) + "\\n")
            wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\\nName: {name}\\n"
                           f"Version: 1.0\\n{requires}")
            wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: tiny\\n"
                           "Root-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr(info + "entry_points.txt",
                           "[console_scripts]\\n" + "".join(c + "\\n" for c in commands))
            wheel.writestr(info + "RECORD", "")
        return wheel_name
"""
_BUILD_SYSTEM = """
[build-system]
requires = []
build-backend = "tiny_backend"
backend-path = ["."]
"""


def make_wheel(folder, name, version, program=None):
    """Writes a wheel, with a program of its name; returns its line of a lock."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    if program is not None:
        files[f"{name}-{version}.data/scripts/{name}"] = program
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16
            wheel.writestr(entry, content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


class Project:
    """A folder with launch/run, a one-package lock and a command `hello`."""

    def __init__(self, folder):
        self.root = folder / "a project"  # with a space, as people have
        self.wheels = folder / "wheels"
        self.wheels.mkdir(parents=True)
        (self.root / "launch").mkdir(parents=True)
        shutil.copy(ROOT / "launch" / "run", self.root / "launch" / "run")
        tools = folder / "tools"
        tools.mkdir()
        (tools / "uv").symlink_to(UV)
        self.path = f"{tools}:{os.environ['PATH']}"
        self.write("tiny_backend.py", BACKEND)
        self.write("pyproject.toml", "# name: tiny\n# needs:\n" + _BUILD_SYSTEM)
        self.write("setup.py", 'COMMANDS = [\n    "hello=greeting:hello",\n]\n')
        (self.root / "datasets").mkdir()
        self.write("datasets/__init__.py", "REGISTRY = {}\n")
        self.write("greeting.py", "def hello():\n    print('hello')\n")
        self.pins = {v: make_wheel(self.wheels, "pebble", v) for v in ("1.0", "2.0")}
        self.extra = make_wheel(self.wheels, "gravel", "1.0")
        self.lock(self.pins["1.0"] + self.extra)
        tool = make_wheel(self.wheels, "ruff", "3.0", "#!python\nprint('a tool')\n")
        self.write("launch/developers.txt", self.extra + tool)

    def write(self, name, text):
        (self.root / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def lock(self, text):
        (self.root / "requirements.txt").write_text(text, encoding="utf-8")

    def environment(self, **changes):
        # An active environment's Python would be found, too.
        ours = ("CONDA_", "MOTLEY_", "PIP_", "UV_", "VIRTUAL_ENV")
        return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | {
            "PATH": self.path,
            "MOTLEY_PYTHON": BASE_PYTHON,
            "UV_CACHE_DIR": str(self.root.parent / "cache"),
            "UV_NO_CONFIG": "1",
            # As people name a mirror; launch/run tells uv of it.
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.wheels.as_uri(),
            **changes,
        }

    def start(self, *arguments, **changes):
        return subprocess.Popen(
            [self.root / "launch" / "run", *arguments],
            env=self.environment(**changes),
            cwd=self.root.parent,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments, **changes):
        with self.start(*arguments, **changes) as process:
            process.stdout_text, process.stderr_text = process.communicate(timeout=120)
        return process

    def installs(self):
        return self.log().count(" pip sync ")

    def log(self):
        return (self.root / ".venv-install.log").read_text(encoding="utf-8")


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A project after its first use, shared; tests leave it up to date."""
    project = Project(tmp_path_factory.mktemp("installed"))
    project.first = project.run("hello", PYTHONPATH="/nonexistent", PYTHONHOME="/nonexistent")
    return project


def assert_one_line_and_status_2(process, *words):
    lines = process.stderr_text.splitlines()
    lines = [
        line for line in lines if not re.search("installing|updating|fetching|waiting for it", line)
    ]
    assert process.returncode == 2, process.stderr_text
    assert len(lines) == 1, process.stderr_text
    assert lines[0].startswith("motley: ")
    for word in words:
        assert word in lines[0]
    assert process.stdout_text == ""


def test_the_first_use_installs_and_the_second_runs_the_sources_of_the_checkout(installed):
    first = installed.first
    assert (first.returncode, first.stdout_text) == (0, "hello\n"), first.stderr_text
    assert re.fullmatch(
        r"motley: first use: installing 2 packages into \.venv .*\n", first.stderr_text
    )
    stamp = installed.root / ".venv" / ".motley-stamp"
    before = stamp.stat().st_mtime_ns
    installed.write("greeting.py", "def hello():\n    print('changed')\n")
    second = installed.run("hello")
    installed.write("greeting.py", "def hello():\n    print('hello')\n")
    assert (second.stdout_text, second.stderr_text) == ("changed\n", "")
    assert stamp.stat().st_mtime_ns == before


def test_second_use_starts_no_python_and_waits_for_nothing(installed, tmp_path):
    """What launch/run itself takes; told by what it starts, as a busy machine has no clock."""
    folder = installed.root / ".venv" / "bin"
    (folder / "nothing").symlink_to("/bin/true")
    slow = ("python", "python3", "python3.10", "python3.11", "pip", "sleep", "uv")
    for name in slow:
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/started\n")
        (tmp_path / name).chmod(0o755)
    kept = folder / "python"
    kept.rename(folder / "kept")
    kept.symlink_to(tmp_path / "python")
    try:
        assert installed.run("nothing", PATH=f"{tmp_path}:{os.environ['PATH']}").returncode == 0
    finally:
        kept.unlink()
        (folder / "kept").rename(kept)
    assert not (tmp_path / "started").exists(), (tmp_path / "started").read_text()


def test_arguments_folder_and_exit_status_are_passed_on(installed):
    code = "import os, sys; print(os.getcwd(), sys.argv[1:]); sys.exit(7)"
    process = installed.run("python", "-c", code, "a b", "*", "", PYTHONPATH="/nonexistent")
    assert process.stdout_text == f"{installed.root.parent} ['a b', '*', '']\n"
    assert process.returncode == 7


def test_the_command_does_not_hold_the_install_lock(installed):
    with (installed.root / "setup.py").open("a", encoding="utf-8") as file:
        file.write("# Changed, so that the command is one that has installed.\n")
    code = "import time; print('started', flush=True); time.sleep(60)"
    with installed.start("python", "-c", code) as process:
        try:
            assert process.stdout.readline() == "started\n"
            attempt = ["flock", "-n", installed.root / ".venv.lock", "true"]
            assert subprocess.run(attempt, timeout=10).returncode == 0
        finally:
            process.kill()


def test_changed_lock_and_setup_are_installed_in_place(installed):
    marker = installed.root / ".venv" / "kept"
    marker.touch()
    installed.lock(installed.pins["2.0"])
    installed.write(
        "setup.py", 'COMMANDS = [\n    "hello=greeting:hello",\n    "hi=greeting:hello",\n]\n'
    )
    code = "import pebble, importlib.util as u; print(pebble.version, u.find_spec('gravel'))"
    process = installed.run("python", "-c", code)
    assert process.stdout_text == "2.0 None\n", process.stderr_text
    assert len(process.stderr_text.splitlines()) == 1
    assert marker.exists()
    assert installed.run("hi").stdout_text == "hello\n"


def test_a_developers_tool_brings_its_packages_which_then_stay(project):
    assert project.run("hello").stdout_text == "hello\n"
    assert not (project.root / ".venv" / "bin" / "ruff").exists()
    process = project.run("ruff")
    assert process.stdout_text == "a tool\n", process.stderr_text
    assert process.stderr_text.startswith("motley: first use of a developers' tool")
    assert project.run("ruff").stderr_text == ""
    # An update keeps them; the users' commands do not ask for newer ones.
    project.lock(project.pins["2.0"] + project.extra)
    assert "updating" in project.run("hello").stderr_text
    assert project.run("ruff").stderr_text == ""
    project.write(
        "launch/developers.txt", make_wheel(project.wheels, "ruff", "4.0", "#!python\nprint(4)\n")
    )
    assert project.run("hello").stderr_text == ""
    assert project.run("ruff").stdout_text == "4\n"


def test_a_new_data_set_is_installed(installed):
    installed.write("datasets/__init__.py", "REGISTRY = {'new': 'datasets.new'}\n")
    process = installed.run("hello")
    assert "the list of data sets changed: updating" in process.stderr_text
    assert installed.run("hello").stderr_text == ""


def make_plugin(folder, name, needs="", version=1):
    """Writes the sources of a package with one module."""
    folder.mkdir(exist_ok=True)
    (folder / "tiny_backend.py").write_text(textwrap.dedent(BACKEND))
    (folder / f"{name}.py").write_text("here = __file__\n")
    (folder / "pyproject.toml").write_text(
        f"# name: {name}\n# needs: {needs}\n# version of this file: {version}\n[project]\n"
        f'name = "{name}"\nversion = "1.0"\ndependencies = {needs.split()}\n{_BUILD_SYSTEM}'
    )


_FOUND = """
import importlib.util as u
print([n for n in ("moss", "quartz", "pebble", "gravel") if u.find_spec(n)])
"""


def test_plugins_are_installed_beside_the_pins_and_again_after_every_sync(installed):
    make_plugin(installed.root.parent / "a plug-in", "moss", needs="tiny quartz")
    make_wheel(installed.wheels, "quartz", "3.0")
    installed.lock(installed.pins["1.0"])
    installed.write("plugins.txt", "# Ours.\n\n  ../a plug-in  # editable\r\nquartz==3.0\n")
    process = installed.run("python", "-c", _FOUND + "import moss; print(moss.here)")
    here = installed.root.parent / "a plug-in" / "moss.py"
    assert process.stdout_text == f"['moss', 'quartz', 'pebble']\n{here}\n", process.stderr_text
    assert "plugins.txt" in process.stderr_text
    before = installed.installs()
    assert installed.run("hello").stderr_text == ""
    # The lock changes: what it does not list goes, plug-ins come again.
    installed.lock(installed.pins["1.0"] + installed.extra)
    process = installed.run("python", "-c", _FOUND)
    assert process.stdout_text == "['moss', 'quartz', 'pebble', 'gravel']\n"
    # The package says something else of itself, such as another entry point.
    make_plugin(installed.root.parent / "a plug-in", "moss", version=2)
    assert "updating" in installed.run("hello").stderr_text
    installed.write("plugins.txt", "")
    assert installed.run("python", "-c", _FOUND).stdout_text == "['pebble', 'gravel']\n"
    (installed.root / "plugins.txt").unlink()
    assert installed.run("hello").stdout_text == "hello\n"
    assert installed.run("hello").stderr_text == "" and before == 1


@pytest.mark.slow
def test_what_is_wrong_in_plugins_txt_is_one_line(installed):
    make_plugin(installed.root.parent / "greedy", "greedy", needs="pebble>=2")
    (installed.root.parent / "empty").mkdir()
    installed.lock(installed.pins["1.0"])
    for line, *words in (
        ("../nowhere", "there is no", "nowhere"),
        ("-e ~/nowhere", "there is no", "nowhere"),
        ("../empty", "empty has no pyproject.toml"),
        ("--index-url=http://x", "'--index-url=http://x'", "a package's folder, or"),
        ("one two three", "'one two three'", "neither a folder nor what pip takes"),
        ("granite==9", "'granite==9'", "granite"),
        ("../greedy", "depends on pebble>=2 and pebble==1.0", "pins of requirements.txt do not"),
    ):
        installed.write("plugins.txt", f"# A comment.\n{line}\n")
        assert_one_line_and_status_2(installed.run("hello"), "plugins.txt line 2", *words)
    (installed.root / "plugins.txt").unlink()
    assert installed.run("hello").stdout_text == "hello\n"


def test_unknown_command_names_the_known_ones(installed, project):
    for name in ("helo", "../../bin/true", ""):
        process = installed.run(name)
        assert_one_line_and_status_2(process, "hello", "pytest", "ruff")
    assert_one_line_and_status_2(project.run("helo"), "'helo'", "hello")
    assert not (project.root / ".venv").exists()


@pytest.mark.slow
def test_first_uses_at_once_make_one_install_of_one_that_was_interrupted(project):
    (project.root / ".venv" / "bin").mkdir(parents=True)
    (project.root / ".venv" / ".motley-stamp").touch()
    half_made = project.root / ".venv" / "bin" / "hello"
    half_made.write_text("#!/bin/sh\necho half-made\n")
    half_made.chmod(0o755)
    processes = [project.start("hello") for _ in range(4)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [answer[0] for answer in answers] == ["hello\n"] * 4, answers
    errors = [answer[1] for answer in answers]
    assert sum("installing 2 packages" in error for error in errors) == 1
    assert all(len(error.splitlines()) <= 1 for error in errors)
    assert project.installs() == 1


@pytest.mark.slow
def test_failed_install_is_one_line_for_those_who_waited_too(project):
    (project.wheels / "pebble-1.0-py3-none-any.whl").unlink()
    processes = [project.start("hello") for _ in range(3)]
    for process in processes:
        process.stdout_text, process.stderr_text = process.communicate(timeout=120)
        assert_one_line_and_status_2(process, "no pebble==1.0", ".venv-install.log")
    assert project.installs() == 1


@pytest.mark.slow
def test_wrong_hash_and_unreachable_index_are_one_line_each(project):
    good = project.pins["1.0"]
    project.lock(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, good))
    assert_one_line_and_status_2(project.run("hello"), "not the one that is pinned (pebble==1.0")
    project.lock("granite==3.0 --hash=sha256:" + "0" * 64 + "\n")
    process = project.run(
        "hello", PIP_NO_INDEX="0", PIP_INDEX_URL="http://127.0.0.1:9/", UV_HTTP_RETRIES="0"
    )
    assert_one_line_and_status_2(process, "the package index cannot be reached")


def _program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_unsuitable_motley_python_is_one_line(project, tmp_path):
    other = _program(tmp_path / "other", "echo cpython 3.12.1")
    for value, words in {
        str(other): ["cpython 3.12.1", "CPython 3.11 or 3.10"],
        "/bin/true": ["not a Python", "CPython 3.11 or 3.10"],
        "/nonexistent/python": ["not a Python", "CPython 3.11 or 3.10"],
    }.items():
        assert_one_line_and_status_2(project.run("hello", MOTLEY_PYTHON=value), value, *words)


def _hide_pythons(tmp_path, *shown):
    """Returns changes to the environment: a PATH of the tools that launch/run needs."""
    tools = tmp_path / "few tools"
    tools.mkdir()
    for name in (
        "awk bash cat dirname df env find flock grep head ls mkdir mv readlink rm sed sha256sum"
        " sort tail tr uname"
    ).split():
        (tools / name).symlink_to(shutil.which(name))
    for name, path in shown:
        (tools / name).symlink_to(path)
    home = tmp_path / "home"
    home.mkdir()
    return {"MOTLEY_PYTHON": "", "HOME": str(home), "PATH": str(tools)}


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ([("uv", UV)], ("no CPython 3.11 or 3.10", "MOTLEY_PYTHON")),
        ([], ("neither uv", "nor a Python 3 with pip")),
    ],
)
def test_no_python_and_none_to_be_had_is_one_line(project, tmp_path, shown, words):
    environment = _hide_pythons(tmp_path, *shown)
    environment["UV_PYTHON_INSTALL_MIRROR"] = (tmp_path / "no mirror").as_uri()
    process = project.run("hello", **environment, UV_PYTHON_INSTALL_DIR=str(tmp_path / "pythons"))
    assert_one_line_and_status_2(process, *words)


@pytest.mark.parametrize("on_path", [None, "uv 0.7.2"])
def test_uv_is_installed_by_pip_where_there_is_none_or_an_old_one(project, tmp_path, on_path):
    pin = make_wheel(project.wheels, "uv", "9.9.9", f'#!/bin/sh\nexec {UV} "$@"\n')
    project.write("launch/uv.txt", pin)
    shown = [("python3", sys.executable)]
    if on_path:
        shown.append(("uv", _program(tmp_path / "old uv", f"echo {on_path}")))
    environment = _hide_pythons(tmp_path, *shown) | {"MOTLEY_PYTHON": BASE_PYTHON}
    process = project.run("hello", **environment)
    assert process.stdout_text == "hello\n", process.stderr_text + project.log()
    assert (project.root / ".venv" / ".uv" / "bin" / "uv").exists()
    if on_path:
        return
    project.write("launch/uv.txt", re.sub(r"sha256:.*", "sha256:" + "0" * 64, pin))
    project.lock(project.pins["2.0"])
    shutil.rmtree(project.root / ".venv" / ".uv")
    assert_one_line_and_status_2(project.run("hello", **environment), "not the one that is pinned")


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (".venv/bin", ".venv exists and was not made by"),
        (".venv.lock", "cannot write in"),  # As good as a read-only folder, for root too.
    ],
)
def test_what_is_in_the_way_is_one_line_and_left_alone(project, folder, words):
    (project.root / folder).mkdir(parents=True)
    assert_one_line_and_status_2(project.run("hello"), words, str(project.root))
    assert (project.root / folder).is_dir()
