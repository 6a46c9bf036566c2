"""The directory of a run by an earlier commit (0ac46f1) is read, shown and compared as ever."""

import pathlib
import shutil

import pandas as pd
import pytest

from launch.metrics import tables
from launch.report import runs
from motley_tff.tables import client_tables
from tests.contracts import in_process

_EARLIER = pathlib.Path(__file__).parent / "earlier_run"
_FLAGS = (
    "--dataset_name=vehicle", "--total_rounds=2", "--rounds_per_evaluation=2",
    "--finetune_max_epochs=1", "--finetune_tuning=per_client", "--v=1",
)  # fmt: skip


def test_a_report_reads_it():
    (run,) = runs.find([str(_EARLIER)]).runs
    assert (run.algorithm, run.round, run.is_silo) == ("fedavg+finetuning", 2, True)
    for name in ("candidates", "rounds", "summary"):
        assert len(run.table(name)), name


def test_its_statistics_are_computed_again():
    evaluations = client_tables.evaluations(client_tables.read(_EARLIER / "clients.csv"))
    written = pd.read_csv(_EARLIER / "summary.csv")
    for evaluation, (_, row) in zip(evaluations, written.iterrows(), strict=True):
        computed = tables.summary_row(evaluation)
        for name in ("personalized_mean", "pct_clients_hurt", "wilcoxon_p", "baseline_variance"):
            assert computed[name] == pytest.approx(row[name], rel=1e-6)


def test_its_trainer_shows_it_again_and_trains_nothing(tmp_path, capsys):
    shutil.copytree(_EARLIER, tmp_path / "earlier")
    before = (tmp_path / "earlier" / "clients.csv").read_bytes()
    with in_process.opened("finetuning_trainer") as trainer:
        trainer(tmp_path, "earlier", *_FLAGS)
    said = capsys.readouterr().out
    assert "accuracy, mean and std over clients; backend: vectorized" in said
    assert (tmp_path / "earlier" / "clients.csv").read_bytes() == before
