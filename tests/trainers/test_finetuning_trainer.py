"""The fine-tuning trainer as its users run it."""

import functools
import json
import os
import re
import signal

import numpy as np
import pytest
import scipy.io
from tensorboard.util import tensor_util

from motley_tff import metrics
from motley_tff.tables import columns
from tests.trainers import programs

# Silos, so that a run takes a second or two beside TensorFlow's import.
SCHOOL = (
    "--dataset_name=school",
    "--use_synthetic_data",
    "--server_optimizer=fedavgm",
    "--server_learning_rate=3",
    "--client_learning_rate=0.01",
    "--finetune_learning_rate=0.01,0.03",
    "--finetune_max_epochs=4",
    "--train_batch_size=32",
    "--total_rounds=12",
    "--rounds_per_evaluation=4",
    "--rounds_per_checkpoint=3",
    "--backend=sequential",
)


def run(root, *flags, **kwargs):
    return programs.run("finetuning_trainer", root, *flags, **kwargs)


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    """An uninterrupted run; returns (root, stdout, stderr)."""
    root = tmp_path_factory.mktemp("results")
    return (root, *run(root, "--experiment_name=school", *SCHOOL))


def test_tables_have_the_columns_of_the_design(school):
    root = school[0]
    assert tuple(programs.table(root, "school", "clients")) == columns.names(
        "clients", **columns.of_task("cross_silo", ["squared_error"])
    )
    assert list(programs.table(root, "school", "rounds")) == [
        "run_id", "round", "num_clients", "train_loss", "train_half_squared_error", "seconds",
        "slowest_client_seconds", "server_seconds", "bytes_down", "bytes_up",
        "largest_bytes_down", "largest_bytes_up",
    ]  # fmt: skip
    both_ways = ("candidate", "personalized_mean", "personalized_std", "pct_clients_hurt")
    assert list(programs.table(root, "school", "summary")) == [
        "run_id", "dataset", "algorithm", "base_random_seed", "round", "split", "num_clients",
        "candidate", "baseline_mean", "baseline_std", "personalized_mean", "personalized_std",
        *metrics.POPULATION, "reference_mean", "bytes_down_total", "bytes_up_total",
        *(f"{c}_{how}" for how in ("global", "per_client") for c in both_ways),
    ]  # fmt: skip


def test_every_round_and_every_client_has_a_row(school):
    root = school[0]
    rounds = programs.table(root, "school", "rounds")
    assert list(rounds["round"]) == list(range(1, 13))
    assert set(rounds.num_clients) == {60}
    # 28 weights and a bias in float32, to and from every silo.
    assert set(rounds.bytes_down) == set(rounds.bytes_up) == {29 * 4 * 60}
    clients = programs.table(root, "school", "clients")
    assert clients.groupby(["round", "split"]).client_id.nunique().eq(60).all()
    assert sorted(set(clients["round"])) == [4, 8, 12]
    assert clients.client_id.str.startswith("school:").all()
    candidates = programs.table(root, "school", "candidates")
    assert len(candidates) == 3 * 2 * 60 * 9


def test_summary_follows_from_the_clients_table(school):
    root = school[0]
    clients = programs.table(root, "school", "clients")
    for row in programs.table(root, "school", "summary").itertuples():
        mine = clients[(clients["round"] == row.round) & (clients.split == row.split)]
        assert row.personalized_mean == pytest.approx(mine.personalized.mean(), rel=1e-7)
        assert row.personalized_std == pytest.approx(mine.personalized.std(ddof=0), rel=1e-6)
        assert row.pct_clients_hurt == pytest.approx(100 * mine.is_hurt.mean())
        assert (mine.is_hurt == (mine.personalized > mine.baseline)).all()
        assert set(mine.candidate) == {row.candidate}
    np.testing.assert_allclose(clients.delta, clients.baseline - clients.personalized, atol=1e-8)


def test_the_candidate_is_the_best_on_validation_silos(school):
    candidates = programs.table(school[0], "school", "candidates")
    summary = programs.table(school[0], "school", "summary")
    for number in (4, 8, 12):
        valid = candidates[(candidates["round"] == number) & (candidates.split == "valid")]
        best = valid.groupby("candidate", sort=False).value.mean().idxmin()
        assert set(summary[summary["round"] == number].candidate) == {best}


def test_closing_table_and_record(school):
    root, stdout, stderr = school
    assert "clients.csv" in stdout and "% hurt" in stdout and "sequential" in stdout
    assert "train: 12/12" in stderr
    assert "tensorflow" not in stderr.lower() and "Traceback" not in stderr
    record = json.loads((root / "school" / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["flags"]["total_rounds"] == 12
    assert record["backend"] == "sequential"
    assert record["peak_memory_mb"] > 100


def test_a_finished_experiment_is_shown_again(school):
    root, stdout, _ = school
    files = [p for p in (root / "school").rglob("*") if p.suffix in (".csv", ".npz", ".json")]
    before = {path: path.stat().st_mtime_ns for path in files}
    again, stderr = run(root, "--experiment_name=school", *SCHOOL)
    assert again == stdout
    # Nothing is trained, evaluated, or written again.
    assert "train:" not in stderr and "evaluate" not in stderr
    assert {path: path.stat().st_mtime_ns for path in files} == before


def test_other_flags_are_refused_quickly(school):
    _, stderr = run(school[0], "--experiment_name=school", *SCHOOL, "--train_epochs=2", status=2)
    assert stderr.count("\n") == 1 and "--train_epochs (1 then, 2 now)" in stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_resume_is_exact(school, tmp_path, number):
    """A run that is cut while it trains and started again writes the same bytes."""
    slow = ("--experiment_name=school", *SCHOOL)
    last = functools.partial(programs.last_checkpoint, tmp_path / "school")
    status, stderr = programs.cut("finetuning_trainer", tmp_path, *slow, at=last, number=number)
    expected = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
    assert status == expected[number] and "Traceback" not in stderr
    record = json.loads((tmp_path / "school" / "run.json").read_text())
    assert record["status"] == ("running" if number == signal.SIGKILL else "stopped")
    done = last()
    _, stderr = run(tmp_path, *slow)
    assert f"train: goes on after {done}/12" in stderr
    programs.same_tables(school[0] / "school", tmp_path / "school")
    left = {p.name for p in (tmp_path / "school").rglob("*")}
    assert not [name for name in left if name.endswith(".tmp")]


@pytest.mark.slow
def test_tff_and_vectorized_give_the_same_tables(school, tmp_path):
    expected = programs.table(school[0], "school", "clients")
    for backend in ("tff", "vectorized"):
        flags = [f for f in SCHOOL if not f.startswith("--backend")]
        run(tmp_path, f"--experiment_name={backend}", *flags, f"--backend={backend}")
        found = programs.table(tmp_path, backend, "clients")
        for column in ("baseline", "personalized", "baseline_loss", "personalized_loss"):
            np.testing.assert_allclose(found[column], expected[column], rtol=1e-5)
        assert (found.candidate == expected.candidate).all()


@pytest.mark.slow
def test_local_training_and_warm_start(school, tmp_path):
    flags = [f for f in SCHOOL if not f.startswith(("--total_rounds", "--rounds_per"))]
    run(tmp_path, "--experiment_name=local", *flags, "--total_rounds=0")
    local = programs.table(tmp_path, "local", "summary")
    assert set(local.algorithm) == {"local"} and set(local["round"]) == {0}
    weights = f"--path_to_initial_model_weights={school[0] / 'school'}"
    run(tmp_path, "--experiment_name=warm", *flags, "--total_rounds=0", weights)
    warm = programs.table(tmp_path, "warm", "clients")
    trained = programs.table(school[0], "school", "clients")
    trained = trained[trained["round"] == 12]
    np.testing.assert_allclose(warm.baseline, trained.baseline.to_numpy(), rtol=1e-6)


@pytest.mark.slow
def test_without_epochs_it_is_plain_fedavg(tmp_path):
    programs.run(
        "finetuning_trainer", tmp_path, "--dataset_name=school", "--use_synthetic_data",
        "--total_rounds=1", "--finetune_max_epochs=0", "--experiment_name=x",
    )  # fmt: skip
    for name in ("clients", "summary", "rounds"):
        rows = programs.table(tmp_path, "x", name)
        assert "algorithm" not in rows or set(rows["algorithm"]) == {"fedavg"}
    assert set(programs.table(tmp_path, "x", "clients")["algorithm"]) == {"fedavg"}


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator

    flags = ("--total_rounds=2", "--rounds_per_evaluation=2", "--tensorboard")
    run(tmp_path, "--experiment_name=board", *SCHOOL, *flags)
    events = event_accumulator.EventAccumulator(str(tmp_path / "board" / "tensorboard"))
    events.Reload()
    tags = events.Tags()["tensors"]
    assert {"train/loss", "test/personalized_mean", "valid/pct_clients_hurt"} <= set(tags)
    losses = [tensor_util.make_ndarray(e.tensor_proto) for e in events.Tensors("train/loss")]
    expected = programs.table(tmp_path, "board", "rounds").train_loss
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


@pytest.mark.slow
def test_per_client_tuning_without_the_baseline(tmp_path):
    flags = (
        "--finetune_tuning=per_client",
        "--noinclude_baseline_candidate",
        "--finetune_learning_rate=0.03,0.3",
    )
    run(tmp_path, "--experiment_name=own", *SCHOOL, "--rounds_per_evaluation=12", *flags)
    clients = programs.table(tmp_path, "own", "clients")
    assert clients.candidate.nunique() > 1 and "0" not in set(clients.candidate)
    candidates = programs.table(tmp_path, "own", "candidates")
    valid = candidates[(candidates.split == "valid") & (candidates.candidate != "0")]
    best = valid.loc[valid.groupby("client_id").value.idxmin()].set_index("client_id").candidate
    for row in clients.itertuples():
        assert row.candidate == best[row.client_id]
    summary = programs.table(tmp_path, "own", "summary")
    assert set(summary.candidate) == {"per_client"}


def test_divergence_stops_with_round_and_client_and_keeps_the_checkpoint(tmp_path):
    flags = ("--client_learning_rate=20", "--rounds_per_checkpoint=1", "--total_rounds=100")
    _, stderr = run(
        tmp_path, "--experiment_name=x", *SCHOOL, "--rounds_per_evaluation=100", *flags, status=2
    )
    message = stderr.splitlines()[-1]
    number = int(re.search(r"round (\d+): the training loss of client 'school_\d+'", message)[1])
    assert number > 1
    rounds = programs.table(tmp_path, "x", "rounds")
    assert list(rounds["round"]) == list(range(1, number))
    newest = max(os.listdir(tmp_path / "x" / "checkpoints"))
    assert newest == f"round_{number - 1:08d}.npz"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--dataset_name=shool"], "did you mean 'school'"),
        (["--valid_clients_per_round=5"], "--valid_clients_per_evaluation"),
        (["--train_batch_size=0"], "range [1, "),
        (["--client_learning_rate=-0.1"], "above 0"),
        (["--server_fedavgm_momentum=1"], "from 0 to below 1"),
        (["--client_adam_epsilon=-1"], "at least 0"),
        (["--finetune_learning_rate=0.1,nan"], "above 0"),
        (["--server_optimizer=fedadam"], "adam"),
        (["--trim_share=0.2"], "is for --aggregator=trimmed_mean, found mean"),
        (["--algorithm=fedstc", "--sparsity=0"], "expected number above 0, in the range [0, 1]"),
        (["--dataset_name=emnist", "--finetune_every=2"], "for silos (adni, school, vehicle; or"),
        (["--dataset_name=emnist", "--reported_round=best"], "which must be of the same clients"),
        (["--algorithm=per_fedavg", "--finetune_learning_rate=0.1,0.2"], "at one rate; give one"),
        (["--experiment_name==SUM(A1)"], "experiment_name"),
        (["--root_output_dir=/dev/null"], "root_output_dir"),
    ],
)
def test_bad_flags_are_one_line(tmp_path, flags, words):
    _, stderr = run(tmp_path, "--experiment_name=x", *SCHOOL, *flags, status=2)
    assert stderr.count("\n") == 1 and words in stderr
    assert not os.listdir(tmp_path)


def test_more_clients_than_there_are(tmp_path):
    flags = ("--experiment_name=x", *SCHOOL, "--clients_per_train_round=61")
    _, stderr = run(tmp_path, *flags, status=2)
    assert "school has 60 training clients" in stderr and stderr.count("\n") == 1
    assert not os.listdir(tmp_path)


def test_other_data_under_the_same_flags_are_refused(tmp_path):
    rng = np.random.default_rng(0)

    def write(name):
        cells = [np.empty((1, 4), object) for _ in range(2)]
        for i in range(4):
            cells[0][0, i] = rng.normal(size=(30, 28))
            cells[1][0, i] = rng.integers(1, 71, (30, 1)).astype(float)
        scipy.io.savemat(tmp_path / name, dict(zip("XY", cells, strict=True)))
        return f"--data_file={tmp_path / name}"

    flags = [f for f in SCHOOL if "synthetic" not in f and "total_rounds" not in f]
    flags += ["--experiment_name=x", "--total_rounds=2", "--rounds_per_evaluation=2"]
    run(tmp_path, *flags, write("one.mat"))
    before = (tmp_path / "x" / "clients.csv").read_bytes()
    _, stderr = run(tmp_path, *flags, write("two.mat"), status=2)
    assert "begun with other data files" in stderr and stderr.count("\n") == 1
    assert (tmp_path / "x" / "clients.csv").read_bytes() == before


def test_a_model_that_blows_up_in_the_server_step_is_an_error(tmp_path):
    flags = ("--experiment_name=x", *SCHOOL, "--server_learning_rate=3e38", "--total_rounds=1")
    _, stderr = run(tmp_path, *flags, status=2)
    assert "not finite" in stderr
    assert not (tmp_path / "x" / "summary.csv").exists()


@pytest.mark.parametrize(
    "flags", [["--finetune_learning_rate=0.1,0.10"], ["--base_random_seed=5000000000"],
              ["--memory_limit_gb=inf"], ["--train_epochs=5000000000"]]
)  # fmt: skip
def test_values_no_run_could_use(tmp_path, flags):
    _, stderr = run(tmp_path, "--experiment_name=x", *SCHOOL, *flags, status=2)
    assert stderr.count("\n") == 1 and flags[0].split("=")[0] in stderr


def test_the_reported_round_may_be_the_best_one(school, tmp_path):
    flags = ("--reported_round=best", "--rounds_per_evaluation=2", "--total_rounds=4")
    flags += ("--server_learning_rate=300", "--finetune_max_epochs=1")
    stdout, _ = run(tmp_path, "--experiment_name=best", *SCHOOL, *flags)
    summary = programs.table(tmp_path, "best", "summary")
    valid = summary[summary.split == "valid"]
    best = valid.loc[valid.personalized_mean.idxmin(), "round"]
    assert best == 2  # The rate is too large, so that the model gets worse.
    assert "after round 2 (the best on validation clients)" in stdout


@pytest.mark.slow
def test_finetune_every_reports_the_best_round(school, tmp_path):
    """An untrained model is never fine-tuned; validation decides, and both ways are there."""
    flags = ("--finetune_every=6", "--finetune_tuning=per_client")
    flags += ("--finetune_learning_rate=0.03,0.3",)
    stdout, _ = run(tmp_path, "--experiment_name=every", *SCHOOL, *flags)
    summary = programs.table(tmp_path, "every", "summary")
    assert sorted(set(summary["round"])) == [6, 12]
    valid = summary[summary.split == "valid"]
    best = valid.loc[valid.personalized_mean.idxmin(), "round"]
    assert f"after round {best} (the best on validation clients)" in stdout
    # Per-client choice is never worse than the shared one on the data it is made on.
    assert (valid.personalized_mean_per_client <= valid.personalized_mean_global + 1e-7).all()
    np.testing.assert_allclose(summary.personalized_mean, summary.personalized_mean_per_client)
    clients = programs.table(tmp_path, "every", "clients")
    assert clients.candidate_global.nunique() < clients.candidate_per_client.nunique()
    np.testing.assert_allclose(clients.personalized, clients.personalized_per_client)
