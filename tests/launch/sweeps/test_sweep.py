"""motley_sweep as a user runs it, on small synthetic schools."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import motley_tff
from motley_tff.report import building, runs
from motley_tff.tables import columns
from tests.trainers import programs

# Two tasks (batches are compiled in), four points, two rounds.
FEDAVG = """\
algorithm: fedavg
dataset: school
trainer: finetuning_trainer
fixed:
  algorithm: fedavg
  server_optimizer: fedavgm
  total_rounds: 2
  rounds_per_evaluation: 2
  finetune_max_epochs: 0
grid:
  train_batch_size: [16, 32]
  client_learning_rate: [0.03, 0.1]
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
  - {algorithm: fedprox, train_epochs: 2, proximal_strength: 0.5}
  - {algorithm: fedavg}
"""
DITTO = """\
algorithm: ditto
dataset: school
trainer: mtl_trainer
fixed:
  algorithm: ditto
  server_optimizer: fedavgm
  train_batch_size: 32
  total_rounds: 2
grid:
  lambda: [0.5, 2]
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
HYPCLUSTER = """\
algorithm: hypcluster
dataset: school
trainer: hypcluster_trainer
fixed:
  server_optimizer: fedavgm
  train_batch_size: 32
  total_rounds: 4
  num_clusters: 2
grid:
  client_learning_rate: [0.01, 0.1]
  warmstart_fraction: [0, 0.5]
"""
# Without rounds of its own it is the ensemble of FedAvg models.
ENSEMBLE = (
    HYPCLUSTER.replace("total_rounds: 4", "total_rounds: 0\n  num_warmstart_fedavg_rounds: 3")
    .replace("  warmstart_fraction: [0, 0.5]\n", "")
)  # fmt: skip
GRIDS = {
    "fedavg": FEDAVG, "ditto": DITTO, "finetuning": FINETUNING, "hypcluster": HYPCLUSTER,
    "ensemble": ENSEMBLE, "settings": SETTINGS,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweeps")
    for name, text in GRIDS.items():
        (path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return path


def start(folder, grid, *flags, environment=None, synthetic=True):
    command = [sys.executable, "-m", "launch.sweeps.command", f"{grid}.yaml", "--seeds=2", *flags]
    return subprocess.Popen(
        [*command, *(["--use_synthetic_data"] if synthetic else [])],
        cwd=folder, env={**programs.environment(), **(environment or {})},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def sweep(folder, grid, *flags, status=0, **how):
    process = start(folder, grid, *flags, **how)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == status, (process.returncode, stdout, stderr)
    return stdout, stderr


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def same(first, second):
    for name in ("sweep.csv", "best.csv", "clients.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@pytest.fixture(scope="module")
def whole(folder):
    """A sweep that nothing interrupted."""
    stdout, stderr = sweep(folder, "fedavg", "--root_output_dir=whole")
    return folder / "whole" / "fedavg", stdout, stderr


def test_tables(whole):
    directory, stdout, stderr = whole
    rows = table(directory / "sweep.csv")
    assert [(r["run_id"], r["train_batch_size"], r["base_random_seed"]) for r in rows[:3]] == [
        ("p0000_s100", "16", "100"), ("p0000_s1100", "16", "1100"), ("p0001_s100", "16", "100"),
    ]  # fmt: skip
    assert len(rows) == 8 and {row["status"] for row in rows} == {"finished"}
    points = {}
    for row in rows:
        points.setdefault(row["run_id"][:5], []).append(float(row["valid_personalized_mean"]))
    best = min(points, key=lambda point: sum(points[point]))
    clients = table(directory / "clients.csv")
    assert {row["run_id"] for row in clients} == {f"{best}_s100", f"{best}_s1100"}
    assert tuple(clients[0]) == columns.names(
        "clients", **columns.of_task("cross_silo", ["squared_error"])
    )
    test = [float(row["test_personalized_mean"]) for row in rows if row["run_id"][:5] == best]
    found = {row["statistic"]: row for row in table(directory / "best.csv")}
    assert float(found["personalized_mean"]["mean"]) == pytest.approx(sum(test) / 2, rel=1e-8)
    assert "chosen on validation clients: train_batch_size=" in stdout and "sweep.csv" in stdout
    assert stderr.strip().splitlines()[-1] == "8/8 runs, 0 failed, 0 min left"
    tasks = table(directory / "tasks.csv")
    assert len(tasks) == 2 and all(float(task["peak_memory_mb"]) > 100 for task in tasks)
    assert {task["status"] for task in tasks} == {"finished"}


def _header(path):
    return path.read_text(encoding="utf-8").splitlines()[0].split(",")


@pytest.mark.slow
def test_settings_need_not_have_the_same_flags(folder):
    sweep(folder, "settings", "--root_output_dir=settings")
    directory = folder / "settings" / "settings"
    rows = table(directory / "sweep.csv")
    assert [(r["algorithm"], r["train_epochs"], r["proximal_strength"]) for r in rows[::2]] == [
        ("fedprox", "2", "0.5"), ("fedavg", "1", ""),
    ]  # fmt: skip
    for name in ("sweep", "best"):
        header = _header(directory / f"{name}.csv")
        assert len(set(header)) == len(header)
    assert all(row["status"] == "finished" for row in rows)
    found = runs.find([str(directory)])
    assert {run.flags["train_batch_size"] for run in found.runs} == {32}
    assert len({run.flags["train_epochs"] for run in found.runs}) == 1
    # The same command again finds all of it.
    stdout, _ = sweep(folder, "settings", "--root_output_dir=settings")
    assert "2 settings x 2 seeds; 0 of 4 runs failed" in stdout


def test_a_report_shows_it(whole, tmp_path):
    directory = whole[0]
    built = building.build([str(directory)], tmp_path, "svg")
    names = {path.stem.removeprefix("school_synthetic_half_squared_error_") for path in built.files}
    assert "sweep_curves" in names and "tables" in names
    best = {row["statistic"]: row for row in table(directory / "best.csv")}
    (after,) = (
        row for row in table(tmp_path / "tables.csv") if row["statistic"] == "Per-client metric"
    )
    assert after["num_seeds"] == "2" and after["dataset"] == "school (synthetic)"
    mean = float(best["personalized_mean"]["mean"])
    assert float(after["mean"]) == pytest.approx(mean, rel=1e-6)
    (sweep,) = runs.find([str(directory)]).sweeps
    assert sweep.hyperparameters == ["train_batch_size", "client_learning_rate"]
    assert (len(sweep.rows), sweep.num_failed) == (8, 0)


@pytest.mark.slow
def test_killed_at_any_time_and_given_again(folder, whole):
    flags = ("--root_output_dir=killed", "--max_parallel=1")
    directory = folder / "killed" / "fedavg"
    process = start(folder, "fedavg", *flags)
    while not (directory / "tasks" / "0000.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert not (directory / "sweep.csv").exists()
    before = (directory / "tasks" / "0000.json").stat().st_mtime_ns
    sweep(folder, "fedavg", *flags)
    assert (directory / "tasks" / "0000.json").stat().st_mtime_ns == before
    same(directory, whole[0])


@pytest.mark.slow
def test_interrupted(folder):
    process = start(folder, "fedavg", f"--root_output_dir={folder / 'interrupted'}")
    while not _processes_of(folder / "interrupted" / "fedavg"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 130, stderr
    assert "sweeps: interrupted; the same command goes on" in stderr.splitlines()[-1]
    # What the sweep has ended may take a moment to be gone.
    deadline = time.monotonic() + 5
    while _processes_of(folder / "interrupted"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _processes_of(path):
    found = []
    for number in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", encoding="utf-8") as file:
                found += [number] if str(path) in file.read() else []
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_groups_give_what_single_trainers_give_and_a_failure_stops_no_other(folder):
    stdout, _ = sweep(folder, "ditto", "--root_output_dir=groups", status=1)
    assert "4 of 8 runs failed" in stdout and "not finite" in stdout
    rows = table(folder / "groups" / "ditto" / "sweep.csv")
    assert [row["status"] for row in rows] == ["finished", "finished", "failed", "failed"] * 2
    single = DITTO.replace("  total_rounds", "  threads_per_client: 1\n  total_rounds")
    (folder / "single.yaml").write_text(single.replace("[0.5, 2]", "[2]"), encoding="utf-8")
    sweep(folder, "single", "--seeds=1", "--root_output_dir=groups", status=1)
    alone, failed = table(folder / "groups" / "single" / "sweep.csv")
    _agree(alone, rows[4])
    assert failed["status"] == "failed" and "Lower" in failed["reason"]
    ours = {row["client_id"]: row for row in _test_clients(folder / "groups" / "single")}
    theirs = _test_clients(folder / "groups" / "ditto")
    both = {row["client_id"]: row for row in theirs if row["run_id"] == "p0000_s100"}
    assert set(ours) == set(both)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hypcluster", "ensemble"])
def test_clusters_in_groups_are_those_of_single_trainers(folder, name):
    sweep(folder, name, "--root_output_dir=groups")
    single = GRIDS[name].replace("  total_rounds", "  threads_per_client: 1\n  total_rounds")
    (folder / f"{name}_single.yaml").write_text(single, encoding="utf-8")
    sweep(folder, f"{name}_single", "--root_output_dir=groups")
    together = table(folder / "groups" / name / "sweep.csv")
    alone = table(folder / "groups" / f"{name}_single" / "sweep.csv")
    assert len(together) == len(alone) == (8 if name == "hypcluster" else 4)
    for row, other in zip(together, alone, strict=True):
        _agree(row, other, rel=1e-6)
        assert 0 < float(row["test_largest_cluster_pct"]) <= 100
    assert len({row["test_personalized_mean"] for row in together}) == len(together)


@pytest.mark.slow
def test_a_warm_start_that_diverges_fails_its_runs_alone(folder):
    text = ENSEMBLE.replace("[0.01, 0.1]", "[0.01, 1e25]")
    (folder / "diverging.yaml").write_text(text, encoding="utf-8")
    sweep(folder, "diverging", "--root_output_dir=groups", status=1)
    rows = table(folder / "groups" / "diverging" / "sweep.csv")
    assert [row["status"] for row in rows] == ["finished", "finished", "failed", "failed"]


def _test_clients(directory):
    return [row for row in table(directory / "clients.csv") if row["split"] == "test"]


def _agree(one, other, rel=1e-5):
    for column in ("candidate", "round", "metric", "higher_is_better", "num_clients"):
        assert one[column] == other[column], column
    for column in (c for c in one if c.startswith(("valid_", "test_")) and one[c]):
        assert float(one[column]) == pytest.approx(float(other[column]), rel=rel), column


@pytest.mark.slow
def test_fine_tuning_in_groups_chooses_as_the_trainer(folder):
    sweep(folder, "finetuning", "--root_output_dir=groups", "--seeds=1")
    rows = table(folder / "groups" / "finetuning" / "sweep.csv")
    arguments = [
        f"--{line.strip().replace(': ', '=')}"
        for line in FINETUNING.partition("fixed:\n")[2].partition("inside")[0].splitlines()
    ]
    programs.run(
        "finetuning_trainer", folder, "--dataset_name=school", "--use_synthetic_data",
        "--experiment_name=trainer", "--base_random_seed=100", "--client_learning_rate=0.1",
        "--finetune_learning_rate=0.001,0.01", *arguments,
    )  # fmt: skip
    summary = table(folder / "trainer" / "summary.csv")
    valid = {row["round"]: row for row in summary if row["split"] == "valid"}
    best = min(valid, key=lambda number: float(valid[number]["personalized_mean"]))
    (test,) = (row for row in summary if row["split"] == "test" and row["round"] == best)
    assert rows[1]["round"] == best
    for name in ("baseline_mean", "personalized_mean", "personalized_std", "pct_clients_hurt"):
        assert float(rows[1][f"test_{name}"]) == pytest.approx(float(test[name]), rel=1e-4), name
    (first, *_) = table(folder / "groups" / "finetuning" / "clients.csv")
    assert first["algorithm"] == test["algorithm"] == "fedavg+finetuning"


# --- what is refused ------------------------------------------------------------------------------


def refused(folder, grid, *flags, **how):
    stdout, stderr = sweep(folder, grid, *flags, status=2, **how)
    assert stdout == "" and stderr.count("\n") == 1 and stderr.startswith("sweeps: ")
    return stderr


def test_results_of_something_else_are_refused(folder, whole):
    flag = "--root_output_dir=whole"
    assert "holds results of seeds 2, not 3" in refused(folder, "fedavg", flag, "--seeds=3")
    error = refused(folder, "fedavg", flag, synthetic=False)
    assert "holds results of use_synthetic_data True, not False" in error
    (folder / "other").mkdir()
    (folder / "other" / "fedavg.yaml").write_text(FEDAVG.replace("0.03", "0.3"), encoding="utf-8")
    assert "another grid" in refused(folder, "other/fedavg", flag)
    record = whole[0] / "run.json"
    before = record.read_text(encoding="utf-8")
    content = json.loads(before)
    content["plan"]["results_version"] = 1
    record.write_text(json.dumps(content), encoding="utf-8")
    assert "holds results of results_version 1, not" in refused(folder, "fedavg", flag)
    content["plan"]["version"] = "0.0.1"
    record.write_text(json.dumps(content), encoding="utf-8")
    assert "holds results of version 0.0.1" in refused(folder, "fedavg", flag)
    content["plan"]["form"] = 1
    record.write_text(json.dumps(content), encoding="utf-8")
    error = refused(folder, "fedavg", flag)
    assert "whole/fedavg holds results of another version of motley_sweep; choose" in error
    record.write_text(before, encoding="utf-8")


@pytest.fixture(scope="module")
def grown(folder):
    """A sweep under one seed, then two: its directory, and {file: bytes} of the first's tasks."""
    root, directory = "--root_output_dir=grown", folder / "grown" / "settings"
    sweep(folder, "settings", root, "--seeds=1")
    before = {path.name: path.read_bytes() for path in (directory / "tasks").iterdir()}
    sweep(folder, "settings", root)
    return directory, before


def test_more_seeds_keep_the_runs_of_fewer(folder, grown):
    directory, before = grown
    assert len(before) == 2
    for name, content in before.items():  # Seconds are in it, which another run would change.
        assert (directory / "tasks" / name).read_bytes() == content
    rows = table(directory / "sweep.csv")
    assert [row["run_id"] for row in rows] == [
        "p0000_s100", "p0000_s1100", "p0001_s100", "p0001_s1100",
    ]  # fmt: skip
    assert {row["status"] for row in rows} == {"finished"}
    # Fewer seeds have a table of their own; nothing of the others is lost.
    sweep(folder, "settings", "--root_output_dir=grown", "--seeds=1")
    assert len(table(directory / "sweep.csv")) == 2
    sweep(folder, "settings", "--root_output_dir=grown")
    assert table(directory / "sweep.csv") == rows


def test_an_experiments_directory_is_refused(folder):
    place = folder / "experiments" / "fedavg"
    place.mkdir(parents=True)
    record = {"flags": {}, "results_version": motley_tff.RESULTS_VERSION}
    (place / "run.json").write_text(json.dumps(record), encoding="utf-8")
    error = refused(folder, "fedavg", "--root_output_dir=experiments")
    assert "belongs to an experiment" in error
    (folder / "a_file").write_text("", encoding="utf-8")
    assert "cannot write" in refused(folder, "fedavg", "--root_output_dir=a_file")


def test_a_million_points_are_asked_for(folder):
    values = ", ".join(f"0.{i:03d}" for i in range(1, 101))
    names = ("client", "server", "personal")
    lines = "".join(f"  {name}_learning_rate: [{values}]\n" for name in names)
    text = DITTO.partition("grid:\n")[0] + "grid:\n" + lines
    (folder / "million.yaml").write_text(text, encoding="utf-8")
    error = refused(folder, "million")
    assert "1000000 settings x 2 seeds are 2000000 runs" in error and "--yes" in error


def test_dry_run_prints_commands_and_writes_nothing(folder):
    stdout, stderr = sweep(folder, "ditto", "--dry_run", "--root_output_dir=dry")
    assert "launch.sweeps.train_group dry/ditto 0" in stdout and stderr == ""
    assert stdout.endswith("# 8 runs in 1 tasks; nothing was run\n")
    assert not (folder / "dry").exists()
    command = stdout.splitlines()[1].split()
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=programs.environment()
    )
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert "found no run.json" in result.stderr


def test_grids_run_one_after_the_other(folder):
    # Two of Ditto's runs diverge, which stops no other grid.
    stdout, _ = sweep(folder, "ditto", "settings.yaml", "--root_output_dir=several", status=1)
    first, second = stdout.split("\n\ncompared on school: 2 settings x 2 seeds; 0 of 4 runs failed")
    assert first.startswith("ditto on school: 4 settings x 2 seeds; 4 of 8 runs failed")
    assert first.endswith("several/ditto/tasks.csv")
    assert second.endswith("several/settings/tasks.csv\n")
    for name, number in (("ditto", 8), ("settings", 4)):
        assert len(table(folder / "several" / name / "sweep.csv")) == number


def test_no_grid_runs_if_one_cannot_be_read(folder):
    (folder / "broken.yaml").write_text(FEDAVG + "  fnord: [1]\n")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "fedavg.yaml").write_text(FEDAVG)
    root = "--root_output_dir=none"
    assert "broken.yaml line 13: unknown flag --fnord" in refused(
        folder, "fedavg", "broken.yaml", root
    )
    words = "elsewhere/fedavg.yaml: two grids are called fedavg; give each once"
    assert words in refused(folder, "fedavg", "elsewhere/fedavg.yaml", root)
    assert not (folder / "none").exists()


def test_no_grid_runs_if_one_has_results_of_another(folder, grown):
    text = (folder / "settings.yaml").read_text()
    (folder / "settings.yaml").write_text(text.replace("0.5", "0.25"))
    words = refused(folder, "fedavg", "settings.yaml", "--root_output_dir=grown")
    (folder / "settings.yaml").write_text(text)
    assert "grown/settings holds results of another grid" in words
    assert not (folder / "grown" / "fedavg" / "sweep.csv").exists()


def test_no_scheduler(folder):
    nowhere = {"PATH": "/nonexistent"}
    error = refused(folder, "fedavg", "--scheduler=slurm", environment=nowhere)
    assert "sbatch, squeue, srun not found" in error and "--scheduler=local" in error


# --- Slurm ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_slurm_writes_the_same_tables(folder, whole, cluster):
    flags = ("--scheduler=slurm", "--root_output_dir=cluster")
    sweep(folder, "fedavg", *flags, environment=cluster)
    directory = folder / "cluster" / "fedavg"
    same(directory, whole[0])
    logs = list((directory / "logs" / "slurm").glob("*_log.out"))
    assert len(logs) == 2  # One for each job of the array.


def test_a_partition_that_refuses(folder, cluster):
    flags = ("--scheduler=slurm", "--root_output_dir=refused")
    error = refused(folder, "fedavg", *flags, "--slurm_partition=none", environment=cluster)
    assert "Slurm refused the jobs" in error and "partition" in error


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer(folder, cluster, tmp_path):
    lines = pathlib.Path(cluster["SLURM_CONF"]).read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith("SlurmctldPort")]
    config = tmp_path / "slurm.conf"
    config.write_text("\n".join([*lines, "SlurmctldPort=1", ""]), encoding="utf-8")
    deaf = {**cluster, "SLURM_CONF": str(config)}
    flags = ("--scheduler=slurm", "--root_output_dir=deaf")
    assert "Slurm does not answer" in refused(folder, "fedavg", *flags, environment=deaf)


# A trainer by itself: what is compiled for one run would not be grouped with another backend.
ALONE = """\
algorithm: local
dataset: school
trainer: mtl_trainer
fixed:
  algorithm: local
  backend: sequential
  rounds_per_evaluation: 200
  rounds_per_checkpoint: 25
  total_rounds: 200
grid:
  personal_learning_rate: [0.03]
"""


@pytest.mark.slow
def test_a_job_that_is_put_back_goes_on_from_its_checkpoint(folder, cluster):
    (folder / "alone.yaml").write_text(ALONE, encoding="utf-8")
    flags = ("--seeds=1", "--root_output_dir=put_back")
    process = start(folder, "alone", *flags, "--scheduler=slurm", environment=cluster)
    directory, last = folder / "put_back" / "alone", ""
    with process:
        try:
            for number, command in enumerate(
                (["scancel", "--signal=USR1"], ["scontrol", "requeue"])
            ):
                _wait_for(lambda: _last_checkpoint(directory) > last, process)  # noqa: B023
                job = _slurm(cluster, "squeue", "--noheader", "--format=%i")
                _slurm(cluster, *command, job.strip())
                _wait_for(lambda: _times_ended(directory) > number, process)  # noqa: B023
                last = _last_checkpoint(directory)
                assert last < "round_00000200.npz"
            stdout, stderr = process.communicate(timeout=200)
        finally:
            process.kill()
    assert process.returncode == 0, (stdout, stderr)
    sweep(folder, "alone", "--seeds=1", "--root_output_dir=straight")
    same(directory, folder / "straight" / "alone")


def _times_ended(directory):
    log = (directory / "logs" / "0000.log").read_text(encoding="utf-8")
    return log.count("mtl_trainer: ended by SIGTERM")


def _last_checkpoint(directory):
    found = (directory / "runs" / "p0000_s100" / "checkpoints").glob("round_*.npz")
    return max((path.name for path in found), default="")


def _wait_for(is_there, process):
    deadline = time.monotonic() + 120
    while not is_there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, process.kill() or process.communicate()
        time.sleep(0.1)


def _slurm(environment, *command):
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return result.stdout
