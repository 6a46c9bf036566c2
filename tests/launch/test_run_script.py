"""launch/run, tried on tiny projects: real venv and pip, wheels from a folder, no network."""

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
BASE_PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)

# Builds the editable wheel of a tiny project without setuptools.
BACKEND = """
    import pathlib, re, zipfile

    def build_editable(folder, config_settings=None, metadata_directory=None):
        text = pathlib.Path("setup.py").read_text()
        scripts = "".join(line + "\\n" for line in re.findall(r'^    "(.*)",$', text, re.M))
        name = "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
            info = "tiny-1.0.dist-info/"
            wheel.writestr("tiny.pth", str(pathlib.Path.cwd()) + "\\n")
            wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tiny\\n"
                           "Version: 1.0\\n")
            wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: tiny\\n"
                           "Root-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr(info + "entry_points.txt", "[console_scripts]\\n" + scripts)
            wheel.writestr(info + "RECORD", "")
        return name
"""


def make_wheel(folder, name, version):
    """Writes a pure Python wheel and returns its line of a lock."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in files.items():
            wheel.writestr(file, content)
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
        self.write("tiny_backend.py", BACKEND)
        self.write(
            "pyproject.toml",
            """
            [build-system]
            requires = []
            build-backend = "tiny_backend"
            backend-path = ["."]
            """,
        )
        self.write("setup.py", 'COMMANDS = [\n    "hello=greeting:hello",\n]\n')
        self.write("greeting.py", "def hello():\n    print('hello')\n")
        self.pins = {v: make_wheel(self.wheels, "pebble", v) for v in ("1.0", "2.0")}
        self.extra = make_wheel(self.wheels, "gravel", "1.0")
        self.lock(self.pins["1.0"] + self.extra)

    def write(self, name, text):
        (self.root / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def lock(self, text):
        (self.root / "requirements.txt").write_text(text, encoding="utf-8")

    def environment(self, **changes):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "MOTLEY_"))}
        return clean | {
            "MOTLEY_PYTHON": BASE_PYTHON,
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

    def pip_runs(self):
        return self.log().count(" -m pip install ")

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
    lines = [line for line in process.stderr_text.splitlines() if "installing" not in line]
    assert process.returncode == 2, process.stderr_text
    assert len(lines) == 1, process.stderr_text
    assert lines[0].startswith("motley: ")
    for word in words:
        assert word in lines[0]
    assert process.stdout_text == ""


def test_first_use_installs_and_runs(installed):
    assert installed.first.returncode == 0, installed.first.stderr_text
    assert installed.first.stdout_text == "hello\n"
    assert re.fullmatch(
        r"motley: first use: installing 2 packages into \.venv .*\n", installed.first.stderr_text
    )


def test_second_use_is_quiet_and_runs_the_sources_of_the_checkout(installed):
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


def test_unknown_command_names_the_known_ones(installed, project):
    for name in ("helo", "../../bin/true", ""):
        process = installed.run(name)
        assert_one_line_and_status_2(process, "hello", "pytest", "ruff")
    assert_one_line_and_status_2(project.run("helo"), "'helo'", "hello")
    assert not (project.root / ".venv").exists()


@pytest.mark.slow
def test_interrupted_install_is_made_again(project):
    venv = project.root / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".motley-stamp").touch()
    (venv / "bin" / "hello").write_text("#!/bin/sh\necho half-made\n")
    (venv / "bin" / "hello").chmod(0o755)
    assert project.run("hello").stdout_text == "hello\n"


@pytest.mark.slow
def test_eight_first_uses_at_once_make_one_install(project):
    processes = [project.start("hello") for _ in range(8)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [answer[0] for answer in answers] == ["hello\n"] * 8, answers
    errors = [answer[1] for answer in answers]
    assert sum("installing 2 packages" in error for error in errors) == 1
    assert all(len(error.splitlines()) <= 1 for error in errors)
    assert project.pip_runs() == 2  # the lock, and the project


@pytest.mark.slow
def test_failed_install_is_one_line_for_those_who_waited_too(project):
    (project.wheels / "pebble-1.0-py3-none-any.whl").unlink()
    processes = [project.start("hello") for _ in range(3)]
    for process in processes:
        process.stdout_text, process.stderr_text = process.communicate(timeout=120)
        process.stderr_text = "".join(
            line for line in process.stderr_text.splitlines(True) if "waiting for it" not in line
        )
        assert_one_line_and_status_2(process, "no pebble==1.0", ".venv-install.log")
    assert project.pip_runs() == 1


@pytest.mark.slow
def test_wrong_hash_and_unreachable_index_are_one_line_each(project):
    good = project.pins["1.0"]
    project.lock(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, good))
    assert_one_line_and_status_2(project.run("hello"), "requirements.txt pins (pebble==1.0")
    project.lock("pebble==3.0\n")
    process = project.run(
        "hello", PIP_NO_INDEX="0", PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="1"
    )
    assert_one_line_and_status_2(process, "the package index cannot be reached")
    project.lock(good)
    assert project.run("hello").stdout_text == "hello\n"


def _program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_unsuitable_motley_python_is_one_line(project, tmp_path):
    other = _program(tmp_path / "other", "echo cpython 3.12.1 12 ok /usr/bin/python3.12")
    bare = _program(tmp_path / "bare", "echo cpython 3.11.2 11 without-venv /usr/bin/python3.11")
    expected = "CPython 3.11 or 3.10"
    for value, words in {
        str(other): ["cpython 3.12.1", expected],
        str(bare): ["3.11.2 without-venv", expected],
        "/bin/true": ["not a Python", expected],
        "/nonexistent/python": ["not a program", expected],
    }.items():
        assert_one_line_and_status_2(project.run("hello", MOTLEY_PYTHON=value), value, *words)


def _hide_pythons(project, tmp_path):
    """A PATH of the tools launch/run needs, and a launch/run that looks nowhere else."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (
        "awk bash cat comm df env find flock grep head ls mkdir mv readlink rm sed sha256sum sort"
        " tail timeout tr uname"
    ).split():
        (tools / name).symlink_to(shutil.which(name))
    script = project.root / "launch" / "run"
    text = script.read_text()
    places = "/usr/local/bin /usr/bin /opt/python*/bin /opt/python/*/bin"
    assert places in text
    script.write_text(text.replace(places, ""))
    home = tmp_path / "home"
    home.mkdir()
    return tools, {"MOTLEY_PYTHON": "", "HOME": str(home), "PATH": str(tools), "PYENV_ROOT": ""}


def test_no_suitable_python_lists_what_was_found(project, tmp_path):
    tools, environment = _hide_pythons(project, tmp_path)
    assert_one_line_and_status_2(
        project.run("hello", **environment), "no suitable Python", "found none", "MOTLEY_PYTHON"
    )
    _program(tools / "python3", "echo cpython 3.12.1 12 ok /usr/bin/python3.12")
    _program(tools / "python3.11", "echo cpython 3.11.2 11 without-venv /usr/bin/python3.11")
    assert_one_line_and_status_2(
        project.run("hello", **environment), "3.12.1 (/usr", "3.11.2 without-venv"
    )
    assert not (project.root / ".venv" / "bin").exists()


def test_python_3_11_is_preferred_wherever_it_is_and_shims_are_not_run(project, tmp_path):
    tools, environment = _hide_pythons(project, tmp_path)
    shims, versions = tmp_path / "shims", tmp_path / "versions" / "3.11.9" / "bin"
    shims.mkdir()
    versions.mkdir(parents=True)
    for name in ("python3", "python3.11"):
        _program(shims / name, "echo a shim was run >&2; sleep 60")
    _program(tools / "python3.10", "echo cpython 3.10.1 10 ok /nonexistent/python3.10")
    _program(versions / "python3.11", "echo cpython 3.11.9 11 ok /nonexistent/python3.11")
    project.run("hello", **environment | {"PATH": f"{shims}:{tools}"})
    assert "/nonexistent/python3.11 -I -m venv" in project.log()


def test_a_venv_made_by_someone_else_is_left_alone(project):
    (project.root / ".venv" / "bin").mkdir(parents=True)
    assert_one_line_and_status_2(project.run("hello"), ".venv exists and was not made by")
    assert (project.root / ".venv" / "bin").is_dir()


def test_folder_that_cannot_be_written_is_one_line(project):
    (project.root / ".venv.lock").mkdir()  # as good as a read-only folder, for root too
    assert_one_line_and_status_2(project.run("hello"), "cannot write in", str(project.root))
