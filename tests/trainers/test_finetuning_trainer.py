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
from motley_tff.core.errors import UserError
from motley_tff.tables import columns
from tests.contracts import in_process
from tests.trainers import programs

# Silos, so that a run takes a second or two beside TensorFlow's import.
SCHOOL = (
    "--dataset_name=school", "--use_synthetic_data", "--max_clients=8",
    "--server_optimizer=fedavgm", "--server_learning_rate=3", "--client_learning_rate=0.01",
    "--finetune_learning_rate=0.01,0.03", "--finetune_max_epochs=2", "--train_batch_size=32",
    "--total_rounds=6", "--rounds_per_evaluation=3", "--rounds_per_checkpoint=2",
    "--backend=sequential",
)  # fmt: skip


def run(root, *flags, **kwargs):
    return programs.run("finetuning_trainer", root, *flags, **kwargs)


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    """An uninterrupted run; returns (root, stdout, stderr)."""
    root = tmp_path_factory.mktemp("results")
    return (root, *run(root, "--experiment_name=school", *SCHOOL))


def test_tables_have_the_columns_of_the_design(school):
    of_task = columns.of_task("cross_silo", ["squared_error"])
    # The metric of a round is named after the task's.
    for name, more in (("clients", []), ("summary", []), ("rounds", ["train_half_squared_error"])):
        header = list(programs.table(school[0], "school", name))
        assert [c for c in header if c not in more] == list(columns.names(name, **of_task)), name
        assert {*more, *(metrics.POPULATION if name == "summary" else ())} <= {*header}


def test_every_round_and_every_client_has_a_row(school):
    root = school[0]
    rounds = programs.table(root, "school", "rounds")
    assert list(rounds["round"]) == list(range(1, 7))
    assert set(rounds.num_clients) == {8}
    # 28 weights and a bias in float32, to and from every silo.
    assert set(rounds.bytes_down) == set(rounds.bytes_up) == {29 * 4 * 8}
    clients = programs.table(root, "school", "clients")
    assert clients.groupby(["round", "split"]).client_id.nunique().eq(8).all()
    assert sorted(set(clients["round"])) == [3, 6]
    assert clients.client_id.str.startswith("school:").all()
    candidates = programs.table(root, "school", "candidates")
    assert len(candidates) == 2 * 2 * 8 * 5


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


def test_closing_table_and_record(school):
    root, stdout, stderr = school
    assert "clients.csv" in stdout and "% hurt" in stdout and "sequential" in stdout
    assert "train: 6/6" in stderr
    assert "tensorflow" not in stderr.lower() and "Traceback" not in stderr
    record = json.loads((root / "school" / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["flags"]["total_rounds"] == 6
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
def test_resume_is_exact(school, tmp_path):
    """A run that a signal ends while it trains, and that is started again, writes the same bytes.

    `tests/reliability` kills runs.
    """
    flags = ("--experiment_name=school", *SCHOOL)
    last = functools.partial(programs.last_checkpoint, tmp_path / "school")
    status, stderr = programs.cut(
        "finetuning_trainer", tmp_path, *flags, at=last, number=signal.SIGTERM
    )
    assert status == 143 and "Traceback" not in stderr
    assert json.loads((tmp_path / "school" / "run.json").read_text())["status"] == "stopped"
    done = last()
    _, stderr = run(tmp_path, *flags)
    assert f"train: goes on after {done}/6" in stderr
    programs.same_tables(school[0] / "school", tmp_path / "school")
    left = {p.name for p in (tmp_path / "school").rglob("*")}
    assert not [name for name in left if name.endswith(".tmp")]


@pytest.mark.slow
def test_tff_and_vectorized_give_the_same_tables(school, tmp_path):
    expected = programs.table(school[0], "school", "clients")
    for backend in ("tff", "vectorized"):
        flags = [f for f in SCHOOL if not f.startswith("--backend")]
        run(tmp_path, f"--experiment_name={backend}", *flags, f"--backend={backend}")
        rows = programs.table(tmp_path, backend, "clients")
        for column in ("baseline", "personalized", "baseline_loss", "personalized_loss"):
            np.testing.assert_allclose(rows[column], expected[column], rtol=1e-5)
        assert (rows.candidate == expected.candidate).all()


@pytest.fixture(scope="module")
def few():
    """Runs the trainer in this process, on three silos: (root, name, flags) -> directory."""
    with in_process.opened("finetuning_trainer") as opened:
        yield functools.partial(_run_few, opened)


def _run_few(opened, root, name, *flags):
    short = ("--total_rounds=1", "--backend=sequential", "--finetune_max_epochs=1")
    return opened(root, name, *short, *flags)


def test_without_epochs_it_is_plain_fedavg(few, tmp_path):
    path = few(tmp_path, "x", "--finetune_max_epochs=0")
    for name in ("clients", "summary"):
        assert set(in_process.table(path, name)["algorithm"]) == {"fedavg"}


def test_tensorboard(few, tmp_path):
    from tensorboard.backend.event_processing import event_accumulator

    path = few(tmp_path, "board", "--total_rounds=2", "--rounds_per_evaluation=2", "--tensorboard")
    events = event_accumulator.EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    tags = events.Tags()["tensors"]
    assert {"train/loss", "test/personalized_mean", "valid/pct_clients_hurt"} <= set(tags)
    losses = [tensor_util.make_ndarray(e.tensor_proto) for e in events.Tensors("train/loss")]
    expected = programs.table(tmp_path, "board", "rounds").train_loss
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def test_divergence_stops_with_round_and_client_and_keeps_the_checkpoint(tmp_path):
    flags = ("--client_learning_rate=20", "--rounds_per_checkpoint=1", "--total_rounds=100")
    _, stderr = run(
        tmp_path, "--experiment_name=x", *SCHOOL, "--rounds_per_evaluation=100", *flags, status=2
    )
    message = stderr.splitlines()[-1]
    number = int(re.search(r"round (\d+), client 'school_\d+': ", message)[1])
    assert number > 1
    rounds = programs.table(tmp_path, "x", "rounds")
    assert list(rounds["round"]) == list(range(1, number))
    newest = max(os.listdir(tmp_path / "x" / "checkpoints"))
    assert newest == f"round_{number - 1:08d}.npz"


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
    assert "data files {" in stderr and stderr.count("\n") == 1
    assert (tmp_path / "x" / "clients.csv").read_bytes() == before


def test_a_model_that_blows_up_in_the_server_step_is_an_error(few, tmp_path):
    with pytest.raises(UserError, match="not finite"):
        few(tmp_path, "x", "--server_learning_rate=3e38", "--client_learning_rate=30")
    assert not (tmp_path / "x" / "summary.csv").exists()


def test_another_metric_chooses_the_candidate_and_the_round(few, tmp_path, capsys):
    """What it says of a resumed run, too, it reads from the tables."""
    flags = (
        "--total_rounds=4", "--rounds_per_evaluation=2", "--reported_round=best",
        "--metrics=balanced_accuracy", "--tuning_metric=macro_f1", "--finetune_tuning=global",
        "--finetune_learning_rate=0.1,1,3",
    )  # fmt: skip
    few(tmp_path, "tuned", *flags)
    printed = capsys.readouterr().out
    summary = programs.table(tmp_path, "tuned", "summary")
    valid = summary[summary.split == "valid"]
    best = valid.loc[valid.personalized_macro_f1_mean.idxmax()]
    assert f"after round {best['round']} (the best" in printed and "chosen by macro_f1" in printed
    lines = [line.split() for line in printed.splitlines()]
    (test,) = summary[(summary.split == "test") & (summary["round"] == best["round"])].itertuples()
    for metric in ("balanced_accuracy", "macro_f1"):
        means = (getattr(test, f"{model}_{metric}_mean") for model in ("baseline", "personalized"))
        assert [metric, "test", *(f"{mean:.5g}" for mean in means)] in [line[:4] for line in lines]
    clients = programs.table(tmp_path, "tuned", "clients")
    own = clients[(clients.split == "valid") & (clients["round"] == best["round"])]
    assert own.personalized_macro_f1.mean() == pytest.approx(best.personalized_macro_f1_mean)
    before = (tmp_path / "tuned" / "summary.csv").read_bytes()
    few(tmp_path, "tuned", *flags)
    assert capsys.readouterr().out.strip() in printed  # Without the bar.
    assert (tmp_path / "tuned" / "summary.csv").read_bytes() == before


@pytest.mark.parametrize("flag", ["--finetune_every=2", "--reported_round=best"])
def test_the_reported_round_may_be_the_best_one(few, tmp_path, capsys, flag):
    """The rate is too large, so that the model gets worse; both ways to choose are there."""
    few(
        tmp_path, "every", "--total_rounds=4", "--rounds_per_evaluation=2", flag,
        "--server_optimizer=fedavgm", "--server_learning_rate=300", "--finetune_tuning=per_client",
        "--finetune_learning_rate=0.1,1,3",
    )  # fmt: skip
    summary = programs.table(tmp_path, "every", "summary")
    assert sorted(set(summary["round"])) == [2, 4]
    valid = summary[summary.split == "valid"]
    assert valid.loc[valid.personalized_mean.idxmax(), "round"] == 2
    assert "after round 2 (the best on validation clients)" in capsys.readouterr().out
    # Per-client choice is never worse than the shared one on the data it is made on.
    assert (valid.personalized_mean_per_client >= valid.personalized_mean_global - 1e-7).all()
