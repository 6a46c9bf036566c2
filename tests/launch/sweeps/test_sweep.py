"""motley_sweep on real trainers, once, and with a program that stands for them (`stand_in`)."""

import functools
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from absl.testing import flagsaver

import motley_tff
from launch.report import runs
from launch.sweeps import data_check, grids, plans
from motley_tff.core import candidates
from motley_tff.tables import columns, comparable
from tests.contracts import in_process
from tests.launch import commands
from tests.launch.sweeps import stand_in
from tests.trainers import programs

# Runs of their own.
FEDAVG = """\
algorithm: fedavg
dataset: emnist
trainer: finetuning_trainer
fixed:
  total_rounds: 1
grid:
  client_learning_rate: [0.5, 0.25]
"""
SETTINGS = """\
algorithm: compared
dataset: school
trainer: finetuning_trainer
fixed:
  train_batch_size: 32
  train_epochs: 1
  total_rounds: 1
  finetune_max_epochs: 0
settings:
  - {algorithm: fedprox, train_epochs: 2, proximal_strength: 0.5, client_learning_rate: 0.1}
  - {algorithm: fedavg, client_learning_rate: 0.2}
"""
# Runs that are trained together, half of which diverge.
GROUP = """\
algorithm: fedavg
dataset: school
trainer: finetuning_trainer
fixed:
  train_batch_size: 32
  total_rounds: 1
  finetune_max_epochs: 0
grid:
  server_learning_rate: [0.5, 1]
  client_learning_rate: [0.03, 1e30]
"""
FINETUNING = """\
algorithm: finetuning
dataset: school
trainer: finetuning_trainer
fixed:
  server_optimizer: fedavgm
  train_batch_size: 32
  total_rounds: 2
  rounds_per_evaluation: 2
  finetune_every: 1
  finetune_max_epochs: 2
  finetune_tuning: per_client
  include_baseline_candidate: false
inside:
  finetune_learning_rate: [0.001, 0.01]
grid:
  client_learning_rate: [0.01, 0.1]
"""
# Trained together; with a flag of its backend, each by itself.
TABLE = """\
algorithm: fedavg
dataset: table
trainer: finetuning_trainer
fixed:
  model: mlp
  model_sizes: 8,8
  setting: {setting}
  total_rounds: 3
  finetune_max_epochs: 2{backend}
grid:
  client_learning_rate: [0.03, 0.1]
  train_epochs: [1, 2]
"""
GRIDS = {
    "fedavg": FEDAVG, "settings": SETTINGS, "group": GROUP,
    "finetuning": FINETUNING,
}  # fmt: skip


def start(folder, *arguments, environment=None):
    return subprocess.Popen(
        [sys.executable, "-m", "launch.sweeps.command", *arguments],
        cwd=folder, env={**programs.environment(), **(environment or {})},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def sweep(folder, *arguments, status=0, environment=None):
    process = start(folder, *arguments, environment=environment)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == status, (process.returncode, stdout, stderr)
    return stdout, stderr


def column(directory, name):
    return [row[name] for row in commands.rows(directory / "sweep.csv")]


def _write_grids(folder):
    for name, text in GRIDS.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


# --- real trainers --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A sweep of a group, and one of a run by itself: (folder, stdout, stderr)."""
    folder = tmp_path_factory.mktemp("sweeps")
    _write_grids(folder)
    text = SETTINGS.replace("  - {algorithm: fedavg, client_learning_rate: 0.2}\n", "")
    (folder / "settings.yaml").write_text(text)
    flags = ("--use_synthetic_data", "--seeds=1", "--root_output_dir=out")
    return folder, *sweep(folder, "group.yaml", "settings.yaml", *flags, status=1)


def test_grids_run_one_after_the_other(real):
    _, stdout, stderr = real
    first, second = stdout.split("\n\ncompared on school: 1 settings x 1 seeds; 0 of 1 runs failed")
    assert first.startswith("fedavg on school: 4 settings x 1 seeds; 2 of 4 runs failed")
    assert "not finite" in first and first.endswith("out/group/tasks.csv")
    assert second.endswith("out/settings/tasks.csv\n")
    assert stderr.splitlines() == [
        "group:", "runs: 4/4, failed 2", "settings:", "runs: 1/1, failed 0",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["group", "settings"])
def test_tables(real, name):
    directory = real[0] / "out" / name
    rows = [row for row in commands.rows(directory / "sweep.csv") if row["status"] == "finished"]
    best = min(rows, key=lambda row: float(row["valid_personalized_mean"]))
    clients = commands.rows(directory / "clients.csv")
    assert {row["run_id"] for row in clients} == {best["run_id"]}
    data = comparable.of_table(directory / "clients.csv", best["run_id"])
    assert (data["use_synthetic_data"], data["val_split"]) == (True, 0.15)
    assert tuple(clients[0]) == columns.names(
        "clients", **columns.of_task("cross_silo", ["squared_error"])
    )
    by_statistic = {row["statistic"]: row for row in commands.rows(directory / "best.csv")}
    mean = pytest.approx(float(best["test_personalized_mean"]), rel=1e-8)
    assert float(by_statistic["personalized_mean"]["mean"]) == mean
    (task,) = commands.rows(directory / "tasks.csv")
    assert task["status"] == "finished" and float(task["peak_memory_mb"]) > 100


@pytest.mark.slow
def test_a_group_reports_the_round_that_its_trainers_report(tmp_path):
    _write_grids(tmp_path)
    sweep(tmp_path, "finetuning.yaml", "--seeds=2", "--use_synthetic_data")
    rows = commands.rows(tmp_path / "results" / "finetuning" / "sweep.csv")
    plan = plans.Plan(grids.read(tmp_path / "finetuning.yaml"), 2, use_synthetic_data=True)
    for run, row in zip(itertools.product((0, 1), plan.seeds), rows, strict=True):
        arguments = plan.arguments(plans.SweepRun(*run), tmp_path)
        programs.run(plan.grid.trainer, tmp_path, *arguments)
        summary = commands.rows(tmp_path / "runs" / row["run_id"] / "summary.csv")
        reported = candidates.best_round(summary, higher_is_better=False)
        (valid, test) = (r for r in summary if r["round"] == reported)
        assert (row["round"], row["candidate"]) == (reported, test["candidate"])
        for split, expected in (("valid", valid), ("test", test)):
            found = float(row[f"{split}_personalized_mean"])
            assert found == pytest.approx(float(expected["personalized_mean"]), rel=1e-5)


# --- a stand-in -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Has the grids; the trainers that are started are stood for."""
    _write_grids(tmp_path)
    program, _ = stand_in.write(tmp_path)
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def command():
    with commands.opened("launch.sweeps.command", "GRID...") as run:
        yield run


@pytest.fixture
def swept(command, folder):
    """Returns what runs a sweep here under two seeds, or as many as are given."""
    return functools.partial(command, "--seeds=2", "--root_output_dir=out")


@pytest.fixture
def refused(command, folder):
    return functools.partial(command.refused, "--seeds=2", "--root_output_dir=out")


def test_the_best_setting_by_hand(folder, swept):
    status, stdout = swept("fedavg.yaml")
    directory = folder / "out" / "fedavg"
    assert column(directory, "run_id") == [
        "p0000_s100", "p0000_s1100", "p0001_s100", "p0001_s1100",
    ]  # fmt: skip
    assert column(directory, "client_learning_rate") == ["0.5", "0.5", "0.25", "0.25"]
    assert column(directory, "base_random_seed") == ["100", "1100"] * 2
    assert column(directory, "valid_personalized_mean") == ["0.5", "0.5", "0.25", "0.25"]
    assert column(directory, "test_personalized_mean")[2:] == ["0.26", "0.36"]
    assert {row["run_id"] for row in commands.rows(directory / "clients.csv")} == {
        "p0001_s100", "p0001_s1100",
    }  # fmt: skip
    by_statistic = {row["statistic"]: row for row in commands.rows(directory / "best.csv")}
    assert float(by_statistic["personalized_mean"]["mean"]) == pytest.approx(0.31)
    assert float(by_statistic["personalized_mean"]["std_over_seeds"]) == pytest.approx(0.05)
    assert "chosen on validation clients: client_learning_rate=0.25" in stdout
    assert "0.31 ± 0.05" in stdout and status == 0
    assert json.loads((directory / "run.json").read_text())["status"] == "finished"


def test_settings_need_not_have_the_same_flags(folder, swept):
    swept("settings.yaml")
    directory = folder / "out" / "settings"
    rows = commands.rows(directory / "sweep.csv")
    assert [(r["algorithm"], r["train_epochs"], r["proximal_strength"]) for r in rows[::2]] == [
        ("fedprox", "2", "0.5"), ("fedavg", "1", ""),
    ]  # fmt: skip
    for name in ("sweep", "best"):
        header = (directory / f"{name}.csv").read_text().splitlines()[0].split(",")
        assert len(set(header)) == len(header)
    inputs = runs.find([str(directory)])
    assert {(run.algorithm, run.flags["train_epochs"]) for run in inputs.runs} == {("fedavg", 2)}


def test_more_seeds_keep_the_runs_of_fewer(folder, swept):
    directory = folder / "out" / "fedavg"
    swept("fedavg.yaml", "--seeds=1")
    before = {path: path.read_bytes() for path in (directory / "tasks").iterdir()}
    assert len(before) == 2
    swept("fedavg.yaml")
    for path, content in before.items():  # Seconds are in it, which another run would change.
        assert path.read_bytes() == content
    four = column(directory, "run_id")
    assert len(four) == 4
    # Fewer seeds have a table of their own; nothing of the others is lost.
    swept("fedavg.yaml", "--seeds=1")
    assert column(directory, "run_id") == four[::2]
    (folder / "hold").touch()  # Nothing is started.
    swept("fedavg.yaml")
    assert column(directory, "run_id") == four


def test_what_failed_is_tried_again(folder, swept):
    (folder / "fedavg.yaml").write_text(FEDAVG.replace("0.5", "2"))
    status, stdout = swept("fedavg.yaml", "--seeds=1")
    directory = folder / "out" / "fedavg"
    assert status == 1 and "1 of 2 runs failed\nthe first because: the loss is not" in stdout
    assert column(directory, "status") == ["failed", "finished"]
    assert column(directory, "reason") == ["the loss is not finite", ""]
    log = directory / "logs" / "0000.log"
    assert log.read_text().count("not finite") == 1
    assert swept("fedavg.yaml", "--seeds=1")[0] == 1
    assert log.read_text().count("not finite") == 2


def test_data_are_loaded_once_before_anything_runs(folder, swept, refused, monkeypatch):
    asked = []

    def complaint(trainer, arguments, environment):
        asked.append((trainer, *arguments))
        return "no data there"

    monkeypatch.setattr(data_check, "complaint", complaint)
    assert refused("settings.yaml") == "settings: no data there; nothing was run"
    (arguments,) = asked
    assert arguments[0] == "finetuning_trainer" and "--dataset_name=school" in arguments
    assert not (folder / "out").exists()
    monkeypatch.undo()
    with in_process.opened("finetuning_trainer"), flagsaver.flagsaver():
        flags = ["--experiment_name=x", "--dataset_name=emnist", f"--data_dir={folder / 'none'}"]
        assert str(folder / "none") in data_check._load("finetuning_trainer", flags)
        flags = [*flags[:1], "--dataset_name=vehicle", "--use_synthetic_data"]
        assert data_check._load("finetuning_trainer", flags) is None


def test_a_sweep_says_what_is_left_out_of_its_data(tmp_path, capsys):
    rows = [f"c{i // 4},{i % 9},{('a', 'b', 'b', 'a')[i % 4] if i else ''}" for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["who,x,y", *rows]))
    flags = ["--experiment_name=x", "--dataset_name=table", f"--data_file={tmp_path / 't.csv'}",
             "--client_column=who", "--label_column=y"]  # fmt: skip
    with in_process.opened("finetuning_trainer"), flagsaver.flagsaver():
        assert data_check._load("finetuning_trainer", flags) is None
    assert capsys.readouterr().err == "warning: of the data, 1 rows without label are left out\n"


def test_a_sweep_stops_after_a_task_that_fails_before_its_training(folder, swept, refused):
    (folder / "fedavg.yaml").write_text(FEDAVG.replace("[0.5", "[20, 0.5"))
    message = refused("fedavg.yaml", "--seeds=1", "--max_parallel=1")
    assert message.startswith("p0000_s100 failed before its training: trainer: no data; ")
    assert os.listdir(folder / "out" / "fedavg" / "runs") == []
    # One of which anything was written may have failed for its own reasons.
    run = folder / "out" / "fedavg" / "runs" / "p0000_s100"
    run.mkdir()
    (run / "run.json").write_text("{}")
    status, stdout = swept("fedavg.yaml", "--seeds=1")
    assert status == 1 and "1 of 3 runs failed\nthe first because: trainer: no data" in stdout


def _same(first, second):
    for name in ("sweep.csv", "best.csv", "clients.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def _wait_for(is_there, process):
    deadline = time.monotonic() + 120
    while not is_there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, process.kill() or process.communicate()
        time.sleep(0.02)


def _processes_of(path):
    numbers = []
    for number in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", encoding="utf-8") as file:
                numbers += [number] if str(path) in file.read() else []
        except OSError:
            continue
    return numbers


def test_interrupted_then_killed_and_given_again(folder, swept):
    swept("fedavg.yaml")
    _, environment = stand_in.write(folder)
    place = folder / "cut"
    arguments = ("fedavg.yaml", "--seeds=2", f"--root_output_dir={place}", "--max_parallel=1")
    first, second = (place / "fedavg" / "runs" / f"p000{number}_s100" for number in (0, 1))
    (folder / "hold").touch()
    process = start(folder, *arguments, environment=environment)
    _wait_for((first / "started_1").exists, process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "sweeps: interrupted; the same command goes on" in stderr.splitlines()[-1]
    assert (first / "checkpoints" / "1").exists() and not _processes_of(place)
    (folder / "hold").write_text("1")  # The first run, which has started once, does not wait.
    process = start(folder, *arguments, environment=environment)
    _wait_for((second / "started_1").exists, process)
    process.kill()
    process.communicate()
    done = place / "fedavg" / "tasks" / "0000.json"
    before = done.stat().st_mtime_ns
    assert not (place / "fedavg" / "sweep.csv").exists()
    (folder / "hold").unlink()
    sweep(folder, *arguments, environment=environment)
    assert done.stat().st_mtime_ns == before
    _same(place / "fedavg", folder / "out" / "fedavg")


def test_results_of_something_else_are_refused(folder, refused):
    # Of runs that are trained together seeds may not be more or fewer.
    plan = plans.Plan(grids.read(folder / "group.yaml"), 2, use_synthetic_data=True).identity()
    record = {"flags": {}, "status": "finished", "results_version": motley_tff.RESULTS_VERSION}
    place = folder / "out" / "group"
    place.mkdir(parents=True)

    def words(*flags, **other):
        changed = {**record, "plan": {**plan, **other}}
        (place / "run.json").write_text(json.dumps(changed))
        return refused("group.yaml", "--use_synthetic_data", *flags)

    assert "seeds 2, expected 3" in words("--seeds=3")
    assert "use_synthetic_data True, expected False" in words("--nouse_synthetic_data")
    assert "results_version 1, expected" in words(results_version=1)
    assert "another version of motley_sweep" in words(results_version=1, form=1)
    (folder / "group.yaml").write_text(GROUP.replace("0.03", "0.3"))
    # No grid runs if one has results of another.
    error = words("fedavg.yaml")
    assert error.startswith("out/group: ") and "another grid" in error
    assert not (folder / "out" / "fedavg" / "sweep.csv").exists()


def test_an_experiments_directory_is_refused(folder, refused):
    place = folder / "out" / "fedavg"
    place.mkdir(parents=True)
    record = {"flags": {}, "results_version": motley_tff.RESULTS_VERSION}
    (place / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert "out/fedavg: found an experiment, expected a sweep" in refused("fedavg.yaml")
    (folder / "a_file").write_text("", encoding="utf-8")
    error = refused("fedavg.yaml", "--root_output_dir=a_file")
    assert "a_file/fedavg" in error and error.endswith("choose another --root_output_dir")
    (place / "tasks").mkdir()
    (place / "run.json").rename(place / "tasks" / "0000.json")  # Of nobody knows what.
    assert refused("fedavg.yaml").endswith("; choose another --root_output_dir")
    (folder / "my fedavg.yaml").write_text(FEDAVG)
    assert refused("my fedavg.yaml").startswith("my fedavg.yaml: found my fedavg")


@pytest.mark.slow
def test_a_million_points_are_asked_for(folder, refused):
    values = ", ".join(f"0.{i:04d}" for i in range(1, 1001))
    names = ("client", "server")
    lines = "".join(f"  {name}_learning_rate: [{values}]\n" for name in names)
    text = GROUP.partition("grid:\n")[0] + "grid:\n" + lines
    (folder / "million.yaml").write_text(text, encoding="utf-8")
    error = refused("million.yaml")
    assert "1000000 settings x 2 seeds are 2000000 runs" in error and "--yes" in error


def test_dry_run_prints_commands_and_writes_nothing(folder, swept):
    status, stdout = swept("group.yaml", "--dry_run")
    assert "launch.sweeps.train_group out/group 0" in stdout and status == 0
    assert stdout.endswith("# 8 runs in 1 tasks; nothing was run\n")
    assert not (folder / "out").exists()
    result = subprocess.run(
        stdout.splitlines()[1].split(), capture_output=True, text=True, env=programs.environment()
    )
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert "out/group: expected run.json" in result.stderr


def test_no_grid_runs_if_one_cannot_be_read(folder, refused):
    (folder / "broken.yaml").write_text(FEDAVG + "fnord: 1\n")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "fedavg.yaml").write_text(FEDAVG)
    assert "broken.yaml line 8: found key fnord" in refused("fedavg.yaml", "broken.yaml")
    words = "elsewhere/fedavg.yaml: found a second grid called fedavg"
    assert words in refused("fedavg.yaml", "elsewhere/fedavg.yaml")
    assert not (folder / "out").exists()


def test_no_scheduler(refused, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    error = refused("fedavg.yaml", "--scheduler=slurm")
    assert error.startswith("--scheduler=slurm: ") and "sbatch, squeue, srun" in error


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["cross_device", "cross_silo"])
def test_perceptrons_trained_together_have_the_numbers_of_runs_by_themselves(tmp_path, setting):
    flags = ("--use_synthetic_data", "--seeds=2", "--root_output_dir=out")
    for name, backend in (("together", ""), ("alone", "\n  backend: sequential")):
        text = TABLE.format(setting=setting, backend=backend)
        (tmp_path / f"{name}.yaml").write_text(text)
        sweep(tmp_path, f"{name}.yaml", *flags)
    together, alone = (tmp_path / "out" / name for name in ("together", "alone"))
    assert len(list((together / "tasks").glob("*.json"))) == 4 and not os.listdir(together / "runs")
    for name in [c for c in commands.rows(alone / "sweep.csv")[0] if c.endswith(("_mean", "_std"))]:
        mine, theirs = ([float(x) for x in column(place, name)] for place in (together, alone))
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-7), name
    rows = [commands.rows(place / "clients.csv") for place in (together, alone)]
    mine, theirs = ([(row["split"], row["client_id"]) for row in of] for of in rows)
    assert mine == theirs


# --- Slurm ----------------------------------------------------------------------------------------

_SLURM = ("fedavg.yaml", "--scheduler=slurm", "--root_output_dir=cluster")


@pytest.mark.slow
def test_slurm_writes_the_same_tables(folder, swept, cluster):
    swept("fedavg.yaml")
    _, environment = stand_in.write(folder)
    sweep(folder, *_SLURM, "--seeds=2", environment={**cluster, **environment})
    directory = folder / "cluster" / "fedavg"
    _same(directory, folder / "out" / "fedavg")
    logs = list((directory / "logs" / "slurm").glob("*_log.out"))
    assert len(logs) == 4  # One for each job of the array.


def test_a_partition_that_refuses(refused, cluster, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", cluster["SLURM_CONF"])
    error = refused(*_SLURM, "--slurm_partition=none")
    assert error.startswith("Slurm: ") and "--slurm_partition" in error


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer(refused, cluster, tmp_path, monkeypatch):
    lines = pathlib.Path(cluster["SLURM_CONF"]).read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith("SlurmctldPort")]
    config = tmp_path / "slurm.conf"
    lines += ["SlurmctldPort=1", "MessageTimeout=2", "TCPTimeout=1", ""]
    config.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("SLURM_CONF", str(config))
    assert "Slurm: found no answer" in refused(*_SLURM)


@pytest.mark.slow
def test_a_job_that_is_put_back_goes_on_from_its_checkpoint(folder, cluster):
    (folder / "fedavg.yaml").write_text(FEDAVG.replace("0.5, ", ""))
    _, environment = stand_in.write(folder)
    (folder / "hold").write_text("2")  # The third start comes to the end.
    process = start(folder, *_SLURM, "--seeds=1", environment={**cluster, **environment})
    run = folder / "cluster" / "fedavg" / "runs" / "p0000_s100"
    with process:
        try:
            for number, command in enumerate(
                (["scancel", "--signal=USR1"], ["scontrol", "requeue"]), 1
            ):
                _wait_for((run / f"started_{number}").exists, process)
                job = _slurm(cluster, "squeue", "--noheader", "--format=%i")
                _slurm(cluster, *command, job.strip())
                _wait_for((run / "checkpoints" / str(number)).exists, process)
            stdout, stderr = process.communicate(timeout=200)
        finally:
            process.kill()
    assert process.returncode == 0, (stdout, stderr)
    assert (run / "started_3").exists() and "0 of 1 runs failed" in stdout


def _slurm(environment, *command):
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return result.stdout
