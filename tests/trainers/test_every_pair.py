"""Each data set under a trainer, and each trainer under several: a round on synthetic data.

`contracts` has every algorithm on small data. School is in the trainers' own tests, and Motley's
own commands in `test_published_commands`.
"""

import numpy as np
import pytest

import datasets
from tests.trainers import programs

_FEW = (
    "--use_synthetic_data", "--total_rounds=1", "--final_evaluation_clients=1",
    "--experiment_name=x", "--backend=sequential", "--max_examples_per_client=6",
)  # fmt: skip
# (trainer, data set, flags of the trainer's own work, cut short). Landmarks take minutes.
_PAIRS = (
    *(("finetuning_trainer", name, "--finetune_max_epochs=1")
      for name in datasets.names() if name not in ("landmark", "school", "adni")),
    ("hypcluster_trainer", "celeba", "--num_clusters=2"),
    ("knn_per_trainer", "table", "--coefficients=0.5"),
    ("mtl_trainer", "adni", "--algorithm=ditto"),
    ("mtl_trainer", "images", "--algorithm=fedper"),
)  # fmt: skip


@pytest.mark.parametrize(("trainer", "task", "own"), _PAIRS)
def test_a_round(trainer, task, own, tmp_path):
    flags = [f"--dataset_name={task}", *_FEW, own]
    if task in datasets.DEALT:
        flags += ["--partition=dirichlet:1", "--num_clients=3"]
    is_silos = task in datasets.CROSS_SILO or trainer == "mtl_trainer"
    flags.append("--max_clients=2" if is_silos else "--clients_per_train_round=1")
    programs.run(trainer, tmp_path, *flags, eagerly=True)
    clients = programs.table(tmp_path, "x", "clients")
    assert set(clients.split) == {"valid", "test"} and set(clients.dataset) == {task}
    assert np.isfinite(clients[["baseline", "personalized", "baseline_loss"]]).all().all()
    counts = clients.groupby("split").size()
    if not is_silos:
        assert counts.tolist() == [1, 1]
    summary = programs.table(tmp_path, "x", "summary").set_index("split")
    for split, rows in clients.groupby("split"):
        assert summary.num_clients[split] == len(rows)
        assert summary.baseline_mean[split] == pytest.approx(rows.baseline.mean(), rel=1e-6)
        assert summary.pct_clients_hurt[split] == pytest.approx(100 * rows.is_hurt.mean())
