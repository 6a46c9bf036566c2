"""motley_compare with a program that stands for trainers (`stand_in`), and once with real ones."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from launch.sweeps import data_check
from tests.launch import commands
from tests.launch.sweeps import stand_in
from tests.trainers import programs

FLAGS = ("--dataset_name=emnist", "--experiment_name=c", "--total_rounds=1")
TABLES = ("compare.csv", "comparisons.csv")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the trainers that are started are stood for."""
    program, _ = stand_in.write(tmp_path)
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def command():
    with commands.opened("launch.compare.command") as run:
        yield run


@pytest.fixture
def compare(command, folder):
    def run(*arguments):
        return command(*FLAGS, "--root_output_dir=out", "--noreport", *arguments)

    return run


@pytest.fixture
def refused(command, folder):
    def run(*arguments, base=FLAGS):
        return command.refused(*base, "--root_output_dir=out", *arguments)

    return run


def rows(directory, table, key="method"):
    return {row[key]: row for row in commands.rows(directory / table)}


def test_the_comparison_by_hand(folder, compare):
    status, stdout = compare("--algorithms=fedavg,finetuning,knn_per", "--seeds=2")
    directory = folder / "out" / "c"
    assert status == 0
    # FedAvg is the baseline of fine-tuning's runs, and has none of its own.
    assert not (directory / "fedavg").exists()
    of_method = rows(directory, "compare.csv")
    # The lowest error of the published rate's neighbours: 0.03, and of baselines, 2 less that, 0.3.
    settings = [row["setting"].partition("=")[2] for row in of_method.values()]
    assert settings == ["0.3", "0.03", "0.03"]
    # The seeds' mean is 0.06 more on test clients.
    means = {name: float(row["mean"]) for name, row in of_method.items()}
    assert means == pytest.approx({"fedavg": 1.64, "finetuning": 0.09, "knn_per": 0.09})
    assert float(of_method["finetuning"]["std_over_seeds"]) == pytest.approx(0.05)
    assert of_method["finetuning"]["pct_clients_hurt"] == "0"
    pairs = rows(directory, "comparisons.csv")
    assert (pairs["knn_per"]["is_identical"], pairs["knn_per"]["p_holm"]) == ("1", "1")
    # The three clients' means are a tenth of 0.09 apart: mean -1.55, s 0.009.
    t = 1.55 / (0.009 / np.sqrt(3))
    assert float(pairs["fedavg"]["difference"]) == pytest.approx(-1.55)
    assert float(pairs["fedavg"]["p"]) == pytest.approx(2 * stats.t.sf(t, 2), rel=1e-6)
    assert float(pairs["fedavg"]["p_holm"]) == pytest.approx(4 * stats.t.sf(t, 2), rel=1e-6)
    assert stdout.count("identical") == 1 and "fine-tuning helps by 1.6 (1.5 to 1.6)" in stdout
    assert "client_learning_rate=0.03 is the least that was tried" in stdout
    assert rows(directory, "costs.csv")["fedavg"]["seconds"] == ""
    # Given again, nothing is run.
    (folder / "hold").touch()
    assert compare("--algorithms=fedavg,finetuning,knn_per", "--seeds=2") == (0, stdout)


def test_it_asks_for_the_data_once_and_trains_no_two_baselines(folder, compare, monkeypatch):
    asked = []
    monkeypatch.setattr(data_check, "complaint", lambda *arguments: asked.append(arguments))
    status, stdout = compare("--seeds=1", "--fixed=client_learning_rate=0.1")
    assert status == 0 and len(asked) == 1
    names = {path.name for path in (folder / "out" / "c").iterdir() if path.is_dir()}
    assert names == {"local", "finetuning", "finetuning_last_layer", "knn_per", "hypcluster"}
    assert "(local training: none)" in stdout
    monkeypatch.setattr(data_check, "complaint", lambda *arguments: "no file there")
    with pytest.raises(Exception, match="no file there; nothing was run"):
        compare("--seeds=2", "--experiment_name=d")


def test_a_method_that_cannot_run_leaves_the_others(folder, compare, capsys):
    arguments = ("--seeds=1", "--algorithms=local,fedprox", "--max_parallel=1")
    status, stdout = compare(*arguments, "--fixed=proximal_strength=20")
    assert status == 1 and "fedprox is left out: trainer: no data" in capsys.readouterr().err
    of_method = rows(folder / "out" / "c", "compare.csv")
    assert of_method["fedprox"]["mean"] == "" and float(of_method["local"]["mean"]) > 0
    assert of_method["fedprox"]["reason"].endswith("trainer: no data")
    assert "FedProx + fine-tuning: no setting finished under all seeds: trainer: no data" in stdout


def _start(folder, environment, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "launch.compare.command", *FLAGS, "--noreport", *arguments],
        cwd=folder, env={**programs.environment(), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _wait_for(is_there, process):
    deadline = time.monotonic() + 120
    while not is_there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_interrupted_then_killed_and_given_again(folder, compare):
    names = "--algorithms=finetuning,fedavg,knn_per"
    _, stdout = compare(names, "--seeds=1", "--max_parallel=1")
    # TensorFlow is not imported beside its children.
    (folder / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')\n")
    _, environment = stand_in.write(folder)
    place = folder / "cut" / "c"
    arguments = (names, "--seeds=1", "--root_output_dir=cut", "--max_parallel=1")
    first, second = (place / "finetuning" / "runs" / f"p000{i}_s100" for i in (0, 1))
    (folder / "hold").touch()
    process = _start(folder, environment, *arguments)
    _wait_for((first / "started_1").exists, process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "interrupted; the same command goes on" in stderr.splitlines()[-1]
    (folder / "hold").write_text("1")
    process = _start(folder, environment, *arguments)
    _wait_for((second / "started_1").exists, process)
    process.kill()
    process.communicate()
    (folder / "hold").unlink()
    process = _start(folder, environment, *arguments)
    again, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    for table in TABLES:
        assert (place / table).read_bytes() == (folder / "out" / "c" / table).read_bytes()
    # Seconds alone are others.
    kept = [line for line in stdout.splitlines() if "±" not in line and "out/c" not in line]
    assert set(kept) - {line for line in kept if "FedAvg" in line[:10]} <= set(again.splitlines())


@pytest.mark.slow
def test_slurm_writes_the_same_tables(folder, compare, cluster):
    arguments = ("--algorithms=fedavg,finetuning,knn_per", "--seeds=1")
    compare(*arguments)
    _, environment = stand_in.write(folder)
    process = _start(folder, {**cluster, **environment}, *arguments, "--scheduler=slurm",
                     "--root_output_dir=cluster")  # fmt: skip
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    for table in TABLES:
        there, here = (folder / root / "c" / table for root in ("cluster", "out"))
        assert there.read_bytes() == here.read_bytes()
    logs = list((folder / "cluster" / "c").glob("*/logs/slurm/*_log.out"))
    assert len(logs) == 6  # One for each job of the two arrays.


@pytest.mark.slow
def test_a_budget_is_planned_once(folder, compare):
    arguments = ("--algorithms=finetuning,local", "--seeds=1", "--total_rounds=40", "--budget=1h")
    assert compare(*arguments)[0] == 0
    directory = folder / "out" / "c"
    plan = json.loads((directory / "plan.json").read_text())
    assert (plan["total_rounds"], plan["level"]) == (40, "all")
    assert set(plan["timings"]) == {"finetuning", "local"}
    assert not (directory / ".timing").exists()
    # Another machine's timings would plan otherwise: what is there holds.
    plan |= {"total_rounds": 7, "level": "one"}
    (directory / "plan.json").write_text(json.dumps(plan))
    for path in ("finetuning", "local"):
        (directory / path).rename(folder / path)
    _, stdout = compare(*arguments)
    assert "each method has 7 rounds" in stdout
    assert rows(directory, "compare.csv")["finetuning"]["num_settings"] == "3"


def test_dry_run_prints_every_command(folder, compare):
    status, stdout = compare("--dry_run", "--seeds=2", "--algorithms=fedavg,finetuning")
    commands_of = [line for line in stdout.splitlines() if "trainers.finetuning_trainer" in line]
    assert status == 0 and len(commands_of) == 6 and not (folder / "out").exists()
    assert stdout.endswith("# 6 runs in 6 tasks; nothing was run\n")


def test_bad_input_is_one_line(folder, refused, compare):
    assert "did you mean ditto?" in refused("--algorithms=dito")
    assert "give --setting=cross_silo" in refused("--algorithms=finetuning,ditto")
    assert "expected different values" in refused("--algorithms=local,local")
    assert refused("--seeds=0") == ("--seeds=0: expected a whole number from 1 to 1,000")
    assert "expected a time such as 90s, 10m or 2h" in refused("--budget=soon")
    assert "a whole number of at least 1" in refused("--total_rounds=0")
    assert "no such flag of finetuning_trainer; did you mean" in refused(
        "--fixed=train_batch_siz=3"
    )
    own = "--fixed=proximal_strength=1"
    assert "a flag of no compared method" in refused("--algorithms=local", own)
    assert "FLAG=VALUE" in refused("--fixed=train_batch_size")
    assert "found what motley_compare decides; give --total_rounds" in refused(
        "--fixed=total_rounds=3"
    )
    assert "--seeds says how many" in refused("--base_random_seed=3")
    assert refused(base=FLAGS[1:]) == "--dataset_name is required; give --dataset_name=..."
    assert refused(base=FLAGS[:1]).startswith("--experiment_name is required")
    assert "--data_file beside it; give it" in refused("--dataset_name=table")
    assert "did you mean 'emnist'" in refused("--dataset_name=emnst")
    many = "finetuning,fedprox,fedsgd,fedbabu,centralized,knn_per,hypcluster"
    assert "or give --yes" in refused("--seeds=1000", f"--algorithms={many}")
    assert not (folder / "out").exists()


def test_another_comparison_is_refused(folder, refused, compare):
    compare("--algorithms=finetuning", "--seeds=1")
    assert "seeds (1 then, 2 now)" in refused("--algorithms=finetuning", "--seeds=2")
    assert "algorithms (" in refused("--algorithms=local", "--seeds=1")
    record = folder / "out" / "c" / "run.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "trainer": "mtl_trainer"}))
    expected = "found a run of mtl_trainer, expected one of motley_compare"
    assert expected in refused("--algorithms=local", "--seeds=1")


# --- real trainers --------------------------------------------------------------------------------


@pytest.mark.slow
def test_real_runs_against_pandas_and_scipy(tmp_path):
    arguments = (
        "--dataset_name=school", "--use_synthetic_data", "--experiment_name=c", "--seeds=2",
        "--total_rounds=4", "--algorithms=local,fedavg,finetuning,ditto",
        "--fixed=finetune_max_epochs=2",
    )  # fmt: skip
    process = subprocess.run(
        [sys.executable, "-m", "launch.compare.command", *arguments], cwd=tmp_path,
        env=programs.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    directory = tmp_path / "results" / "c"
    assert (directory / "report" / "report.html").exists()
    keys = ["base_random_seed", "client_id"]

    def values(path, column):
        table = pd.read_csv(path)
        return table[table["split"] == "test"].set_index(keys)[column]

    of_method = {n: values(directory / n / "clients.csv", "personalized")
                 for n in ("local", "finetuning", "ditto")}  # fmt: skip
    of_method["fedavg"] = values(directory / "fedavg_clients.csv", "baseline")
    frame = pd.DataFrame(of_method)
    assert len(frame) == len(of_method["local"]) and frame.notna().all(axis=None)
    by_client = frame.groupby("client_id").mean()
    of_tables = rows(directory, "compare.csv")
    for name in of_method:
        assert float(of_tables[name]["mean"]) == pytest.approx(by_client[name].mean())
    for row in commands.rows(directory / "comparisons.csv"):
        own, other = (by_client[row[key]] for key in ("method", "reference"))
        assert float(row["p"]) == pytest.approx(stats.ttest_rel(own, other).pvalue, rel=1e-4)
        assert float(row["difference"]) == pytest.approx((other - own).mean(), rel=1e-4)
    # FedAvg's setting is the one whose baseline is best on validation data.
    sweep = pd.read_csv(directory / "finetuning" / "sweep.csv")
    best = sweep.groupby("client_learning_rate")["valid_baseline_mean"].mean().idxmin()
    assert of_tables["fedavg"]["setting"] == f"client_learning_rate={best:g}"
