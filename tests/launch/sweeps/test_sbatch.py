"""The scripts of launch/slurm, on a real Slurm of one node."""

import re
import subprocess
import time

import pytest

from tests.trainers import programs

FOLDER = programs.ROOT / "launch" / "slurm"
SCRIPTS = sorted(FOLDER.glob("*.sbatch"))
# Stands for launch/run: says what it was given. With --wait its first start waits for SIGTERM.
RUN = """#!/bin/bash
echo "given: $*"
[[ $* == *--wait* && ! -e ended ]] || exit 0
trap 'echo ended; touch ended; exit 143' TERM
touch started
sleep 100 &
wait
"""


@pytest.fixture()
def project(tmp_path):
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "run").write_text(RUN, encoding="utf-8")
    (tmp_path / "launch" / "run").chmod(0o755)
    return tmp_path


def start(cluster, project, script, *arguments):
    command = ["sbatch", "--wait", "--cpus-per-task=1", "--mem=1G", FOLDER / script, *arguments]
    return subprocess.Popen(command, cwd=project, env=cluster)


def logs(project):
    return [path.read_text(encoding="utf-8") for path in project.glob("*.log")]


@pytest.mark.slow
def test_seeds(cluster, project):
    assert start(cluster, project, "seeds.sbatch", "mtl_trainer", "--lambda=1").wait(280) == 0
    assert sorted(logs(project)) == [
        f"given: mtl_trainer --lambda=1 --base_random_seed={seed} --experiment_name=seed_{seed} "
        "--root_output_dir=results/motley\n"
        for seed in (100, 1100, 2100, 3100, 4100)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "flags"), [("trainer.sbatch", "mtl_trainer --wait"),
                          ("sweep.sbatch", "motley_sweep mtl_trainer --wait")],
)  # fmt: skip
def test_a_run_whose_time_is_up_goes_on(cluster, project, script, flags):
    process = start(cluster, project, script, "mtl_trainer", "--wait")
    deadline = time.monotonic() + 250
    while not (project / "started").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    # Slurm counts minutes, so here the signal that says so is sent by hand.
    jobs = ["squeue", "--noheader", "--format=%i"]
    job = subprocess.run(jobs, env=cluster, capture_output=True, text=True, check=True).stdout
    subprocess.run(["scancel", "--signal=TERM", job.strip()], env=cluster, check=True)
    assert process.wait(250) == 0
    # Under load Slurm has been seen to answer before it had written what the job said.
    expected = [f"given: {flags}", "ended", f"given: {flags}"]
    while (said := _said(project)) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert said == expected


def _said(project):
    (log,) = logs(project)
    return [line for line in log.splitlines() if line.startswith(("given: ", "ended"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_says_of_itself(script):
    text = script.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", script], check=True)
    assert f"launch/slurm/{script.name}" in text
    for option in ("--requeue", "--signal=TERM@90", "--cpus-per-task", "--mem", "--time"):
        assert re.search(rf"^#SBATCH {option}", text, re.MULTILINE), option
    # A node of two cores can run it as it is.
    assert int(re.search(r"^#SBATCH --cpus-per-task=(\d+)$", text, re.MULTILINE)[1]) <= 2
