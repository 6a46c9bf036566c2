"""The scripts of launch/slurm, on a real Slurm of one node."""

import re
import subprocess
import sys
import time

import pytest

from tests.trainers import programs

FOLDER = programs.ROOT / "launch" / "slurm"
SCRIPTS = sorted(FOLDER.glob("*.sbatch"))
# Stands for launch/run, which would install packages.
RUN = f"""#!/bin/bash
name=$1
shift
[[ $name == motley_sweep ]] && exec {sys.executable} -m launch.sweeps.command "$@"
exec {sys.executable} -m "trainers.$name" "$@"
"""


@pytest.fixture()
def project(tmp_path):
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "run").write_text(RUN, encoding="utf-8")
    (tmp_path / "launch" / "run").chmod(0o755)
    return tmp_path


def submit(cluster, project, *arguments, status=0):
    command = ["sbatch", "--wait", "--cpus-per-task=1", "--mem=1G", *arguments]
    result = subprocess.run(
        command, cwd=project, env=cluster, capture_output=True, text=True, timeout=280, check=False
    )
    logs = "\n".join(path.read_text(encoding="utf-8") for path in project.glob("*.log"))
    assert result.returncode == status, (result.stderr, logs)
    return logs


QUICK = ("--dataset_name=school", "--use_synthetic_data", "--algorithm=local", "--total_rounds=1")


@pytest.mark.slow
def test_one_run(cluster, project):
    script = str(FOLDER / "trainer.sbatch")
    logs = submit(cluster, project, script, "mtl_trainer", *QUICK, "--experiment_name=mine")
    assert (project / "results" / "mine" / "clients.csv").exists() and "personalized" in logs


@pytest.mark.slow
def test_seeds(cluster, project):
    # The first bad flag ends a trainer at once: what is tested is the array.
    submit(cluster, project, str(FOLDER / "seeds.sbatch"), "mtl_trainer", "--oops", status=2)
    logs = {path.name: path.read_text(encoding="utf-8") for path in project.glob("*.log")}
    assert len(logs) == 5 and all("unknown flag --oops" in text for text in logs.values())


@pytest.mark.slow
def test_a_run_whose_time_is_up_goes_on(cluster, project):
    script = (FOLDER / "trainer.sbatch").read_text(encoding="utf-8")
    # Slurm counts minutes, so here the signal that says so is sent by hand.
    process = subprocess.Popen(
        ["sbatch", "--wait", "--cpus-per-task=1", "--mem=1G", "/dev/stdin", "mtl_trainer", *QUICK,
         "--total_rounds=200", "--rounds_per_evaluation=200", "--rounds_per_checkpoint=25",
         "--backend=sequential", "--experiment_name=mine"],
        cwd=project, env=cluster, stdin=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdin.write(script)
    process.stdin.close()
    checkpoints = project / "results" / "mine" / "checkpoints"
    deadline = time.monotonic() + 250
    while not list(checkpoints.glob("round_*.npz")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    jobs = ["squeue", "--noheader", "--format=%i"]
    job = subprocess.run(jobs, env=cluster, capture_output=True, text=True, check=True).stdout
    subprocess.run(["scancel", "--signal=TERM", job.strip()], env=cluster, check=True)
    assert process.wait(250) == 0
    (log,) = project.glob("*.log")
    text = log.read_text(encoding="utf-8")
    before, ended, after = text.partition("ended by SIGTERM")
    assert ended and "ended by SIGTERM" not in after and "personalized" in after
    assert "train: goes on after " in after and "goes on" not in before


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_says_of_itself(script):
    text = script.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", script], check=True)
    assert f"launch/slurm/{script.name}" in text
    for wanted in ("--requeue", "--signal=TERM@90", "--cpus-per-task", "--mem", "--time"):
        assert re.search(rf"^#SBATCH {wanted}", text, re.MULTILINE), wanted
