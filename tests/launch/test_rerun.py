"""motley_rerun: the same run again, and what it says of one that is another."""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from tests import toy
from tests.contracts import in_process
from tests.errors import refused
from tests.launch import commands
from tests.trainers import programs

_RUNS = {
    "finetuning_trainer": ("--finetune_learning_rate=0.01,0.1", "--finetune_max_epochs=1"),
    "hypcluster_trainer": ("--num_clusters=2",),
    "knn_per_trainer": ("--coefficients=0.3,1",),
    "mtl_trainer": ("--algorithm=mocha", "--personal_learning_rate=0.02"),
}
# Stands for the Python that trains: keeps its arguments, and leaves what `now` has as the new run.
_PYTHON = """#!{python}
import json, os, pathlib, shutil, signal, sys
folder = pathlib.Path("{folder}")
option, *given = sys.argv[1:]
if option != "-m":
    os.execv("{python}", ["{python}", *sys.argv[1:]])
if (folder / "wait").exists():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit((folder / "ended").touch() or 143))
    print("train: ", flush=True)
    signal.pause()
(folder / "given.json").write_text(json.dumps(given))
flag = dict(word.split("=", 1) for word in given if "=" in word)
shutil.copytree(folder / "now", flag["--root_output_dir"] + "/" + flag["--experiment_name"])
"""
_CLIENTS = """round,split,client_id,candidate,baseline,seconds
1,valid,a,0,0.25,3
1,test,b,1,,4
"""
_RECORD = {
    "status": "finished", "run_id": "mine", "command": ["mtl_trainer"], "trainer": "mtl_trainer",
    "flags": {}, "git_commit": "abc", "cpu": "Z80", "versions": {"numpy": "1"},
}  # fmt: skip


_REAL_PYTHON = sys.executable  # Which `folder` replaces.


@pytest.fixture(scope="module")
def rerun():
    with commands.opened("launch.rerun", "RUN") as run:
        yield run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Has a run called `before`, and in `now` what the trainer leaves this time: the same."""
    python = tmp_path / "python"
    python.write_text(_PYTHON.format(python=sys.executable, folder=tmp_path))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    for name in ("before", "now"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "clients.csv").write_text(_CLIENTS)
        _record(tmp_path / name)
    return tmp_path


def _record(run, **changed):
    (run / "run.json").write_text(json.dumps({**_RECORD, **changed}))


@pytest.fixture
def compared(rerun, folder):
    """Returns (exit status, the lines printed) of the rerun of `before`."""

    def compare(*flags):
        flags = (f"--root_output_dir={folder / 'again'}", *flags)
        status, printed = rerun(folder / "before", *flags)
        shutil.rmtree(folder / "again")
        return status, printed.strip().splitlines()

    return compare


_DIFFERS = (
    "differs: clients.csv line 3 (round 1, split test, client_id b, candidate 1), column baseline: "
    "empty before, 0.5 now"
)
_REPORT = "The same commit, packages and CPU: expected the same bytes; please report it."


def _differ(folder):
    (folder / "now" / "clients.csv").write_text(_CLIENTS.replace("b,1,,", "b,1,0.5,"))


def test_times_alone_may_differ(folder, compared):
    equal = [f"equal: every table of {folder / 'before'} but for times"]
    assert compared() == (0, equal)
    (folder / "now" / "clients.csv").write_text(_CLIENTS.replace(",4\n", ",5\n"))
    assert compared() == (0, equal)
    _record(folder / "now", cpu="6502")
    assert compared() == (0, [*equal, "another cpu: Z80 before, 6502 now"])


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (_CLIENTS.replace("b,1,,", "b,1,0.5,"), _DIFFERS.removeprefix("differs: ")),
        (_CLIENTS + "1,test,c,1,,4\n", "clients.csv line 4: no line before, a line now"),
        (_CLIENTS.rpartition("1,")[0].rpartition("1,")[0],
         "clients.csv line 3: a line before, no line now"),
        ("fnord,round,split,client_id,candidate,seconds\n7,1,valid,a,0,3\n7,1,test,b,1,4\n",
         "clients.csv, columns: with baseline before, with fnord now"),
        ("\n".join(line.partition(",")[2] for line in _CLIENTS.splitlines()) + "\n",
         "clients.csv, columns: with round before, with no more now"),
    ],
)  # fmt: skip
def test_the_first_cell_line_or_column_that_differs_is_named(folder, compared, now, words):
    (folder / "now" / "clients.csv").write_text(now)
    assert compared() == (1, [f"differs: {words}", _REPORT])


def test_a_table_that_is_gone_is_no_fault_of_the_machine(folder, compared):
    (folder / "now" / "rounds.csv").write_text("round\n1\n")
    before = folder / "before" / "rounds.csv"
    assert compared() == (1, [
        "differs: rounds.csv: not there before, there now",
        f"possible cause: {before} is gone; put it back to compare it",
    ])  # fmt: skip
    (folder / "now" / "rounds.csv").rename(before)
    assert compared() == (1, ["differs: rounds.csv: there before, not there now", _REPORT])


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({}, {"git_commit": "def"}, ["another git_commit: abc before, def now"]),
        ({"cores": 2}, {"cores": 4}, ["another cores: 2 before, 4 now"]),
        ({"backend": "sequential"}, {}, ["another backend: sequential before, none now"]),
        ({}, {"results_version": 3}, ["another results_version: none before, 3 now"]),
        ({"continued_with": ["x"]}, {}, ['another continued_with: ["x"] before, none now']),
        ({"plugins": {"dataset": "a 1.0"}}, {},
         ['another plugins: {"dataset": "a 1.0"} before, none now']),
        ({}, {"versions": {"scipy": "2"}},
         ["another numpy: 1 before, none now", "another scipy: none before, 2 now"]),
        # Of data files what is in them, whatever they are called.
        ({"data_files": {"a": "1", "b": "2"}}, {"data_files": {"x": "2", "y": "3"}},
         ['another data: ["1", "2"] before, ["2", "3"] now']),
        # First weights that are given; those that a seed draws should have been the same.
        ({"initial_weights": "1", "flags": {"path_to_initial_model_weights": "w"}},
         {"initial_weights": "2"}, ["another initial_weights: 1 before, 2 now"]),
    ],
)  # fmt: skip
def test_what_is_another_explains_a_difference(folder, compared, before, now, words):
    _differ(folder)
    _record(folder / "before", **before)
    _record(folder / "now", **now)
    assert compared() == (0, [_DIFFERS, *words])


def test_what_is_the_same_or_not_known_explains_nothing(folder, compared):
    _differ(folder)
    _record(folder / "before", data_files={"a": "1", "b": "2"}, initial_weights="1")
    _record(folder / "now", data_files={"y": "2", "x": "1"}, initial_weights="2")
    assert compared() == (1, [_DIFFERS, _REPORT])
    _record(folder / "now")
    _record(folder / "before", git_commit=None)
    words = "possible cause: unknown git_commit: none before, abc now"
    assert compared() == (1, [_DIFFERS, words])
    _record(folder / "before", git_commit="abc-dirty")
    _record(folder / "now", git_commit="abc-dirty")
    words = "git_commit abc-dirty: files were changed, maybe others or otherwise than now"
    assert compared() == (1, [_DIFFERS, f"possible cause: {words}"])


def _given(folder):
    trainer, *flags = json.loads((folder / "given.json").read_text())
    return trainer, [f for f in flags if not f.startswith(("--root_output_dir", "--experiment"))]


def test_flags_that_are_not_the_trainers_own_are_given_again(folder, compared):
    flags = {
        "train_epochs": 1, "client_learning_rate": 0.3, "a": True, "b": False, "c": ["x,y", "z"],
        "d": None, "e": 0.0,
    }  # fmt: skip
    _record(folder / "before", flags=flags, data_dir="/then", trainer=None,
            command=["/bin/mtl_trainer.py", "--data_file", "/old"])  # fmt: skip
    compared()
    decided = ["--client_learning_rate=0.3", "--a", "--nob", '--c="x,y",z', "--e=0.0"]
    assert _given(folder) == (
        "trainers.mtl_trainer",
        [*decided, "--data_dir=/then", "--data_file=/old"],
    )
    compared("--data_dir=/now")
    assert _given(folder)[1] == [*decided, "--data_dir=/now", "--data_file=/old"]


def test_a_generators_betas_are_given_again(folder, compared):
    """Whatever they are: those that are not given depend on --generator."""
    flags = {"generator": "wgan_gp", "client_adam_beta_1": 0.9}
    _record(folder / "before", trainer="generative_trainer", flags=flags)
    compared()
    assert _given(folder) == ("trainers.generative_trainer", ["--client_adam_beta_1=0.9"])


def test_silos_cohort_is_given_again_where_it_is_that_of_devices(folder, compared, monkeypatch):
    """All silos take part unless it is given: ten are another run, under flags that look alike."""
    eleven = toy.three_weights("cross_silo", (2,) * 11)
    monkeypatch.setattr(in_process, "load", lambda options: eleven)
    with in_process.opened("mtl_trainer") as run:
        flags = ("--algorithm=local", "--total_rounds=1", "--backend=sequential")
        ten, every = (
            run(folder, name, *flags, *more)
            for name, more in (("ten", ["--clients_per_train_round=10"]), ("every", []))
        )
        for name, more in (("ten", []), ("every", ["--clients_per_train_round=10"])):
            with refused(str(folder / name), "cohorts"):
                run(folder, name, *flags, *more)
    for left, size in ((ten, 10), (every, None)):
        assert in_process.table(left, "rounds").num_clients.tolist() == [str(size or 11)]
        shutil.copy(left / "run.json", folder / "before")
        compared()
        cohorts = [flag for flag in _given(folder)[1] if "clients_per_train_round" in flag]
        assert cohorts == ([f"--clients_per_train_round={size}"] if size else [])


@pytest.mark.parametrize("trainer", _RUNS)
def test_a_trainers_run_is_the_same_with_the_flags_of_its_record(rerun, folder, tmp_path, trainer):
    with in_process.opened(trainer) as run:
        flags = ("--total_rounds=1", "--backend=sequential", *_RUNS[trainer])
        first = run(tmp_path / "first", "run", *flags)
    shutil.rmtree(folder / "now")
    shutil.copytree(first, folder / "now")
    assert rerun(first, f"--root_output_dir={tmp_path}")[0] == 0
    with in_process.opened(trainer) as run:
        second = run(tmp_path / "second", "run", *_given(folder)[1])
    programs.same_tables(first, second)
    flags = [
        json.loads((run_directory / "run.json").read_text())["flags"]
        for run_directory in (first, second)
    ]
    assert flags[0] == flags[1]


def test_an_end_by_signal_ends_the_trainer_and_waits_for_it(folder):
    (folder / "wait").touch()
    code = f"import sys; sys.executable = {sys.executable!r}; from launch import rerun; rerun.run()"
    command = [_REAL_PYTHON, "-c", code, folder / "before", f"--root_output_dir={folder / 'again'}"]
    with subprocess.Popen(
        command, env=programs.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "train: \n"
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    assert (folder / "ended").exists()


def test_bad_input_is_one_line(rerun, folder):
    run, again = folder / "before", f"--root_output_dir={folder / 'again'}"

    def check(where, content, flag=again, **record):
        _record(run, **record)
        with refused(where, content):
            rerun(run, flag)

    check("before", "an unfinished run", status="running")
    check("before", "a run of motley_sweep", trainer="motley_sweep")
    check("before/run.json", "no flags", flags=None)
    check("before/run.json", "no command", command=None)
    check("before/run.json", "no command", command=[], trainer=None)
    there = f"{folder}/../{folder.name}"
    check("root_output_dir", there, f"--root_output_dir={there}", run_id="before")
    shutil.copytree(folder / "now", folder / "again" / "mine")
    check("again/mine", "an earlier motley_rerun")
    shutil.rmtree(folder / "again")
    (run / "clients.csv").write_bytes(b"client_id\n\xe9\n")
    check("before/clients.csv", "'utf-8' codec can't decode byte 0xe9")
    (run / "clients.csv").unlink()
    check("before", "no CSV")
    (run / "run.json").unlink()
    with refused("before", "no run.json"):
        rerun(run, again)


def test_a_trainer_that_ends_with_an_error_is_said(rerun, folder, capfd):
    _record(folder / "before")
    shutil.rmtree(folder / "now")
    with refused("status 1", advice="above"):
        rerun(folder / "before", f"--root_output_dir={folder / 'again'}")
    assert "FileNotFoundError" in capfd.readouterr().err
