"""Every trainer and algorithm on tasks of its own setting: a round on synthetic data, real tables.

The default tier has each task but Landmarks and School once, the slow one every trainer on each;
`contracts` has every algorithm on small data. Motley's own commands, on Landmarks too, are in
`test_published_commands`.
"""

import numpy as np
import pytest

import datasets
from motley_tff import algorithms
from tests.trainers import programs

_FEW = (
    "--use_synthetic_data", "--total_rounds=1", "--final_evaluation_clients=1",
    "--experiment_name=x", "--backend=sequential",
)  # fmt: skip
# {trainer: flags of its own work, cut short}
_OWN = {
    "finetuning_trainer": ("--finetune_max_epochs=1",),
    "hypcluster_trainer": ("--num_clusters=2",),
    "knn_per_trainer": ("--coefficients=0.5",),
}
# What takes minutes is left to the published commands.
_DEAR = ("landmark",)


def _pairs():
    """Yields (trainer, task, algorithm or None)."""
    for task in datasets.names():
        for trainer in _OWN:
            if task not in _DEAR:
                yield trainer, task, None
    yield from (("mtl_trainer", task, None) for task in datasets.EITHER_SETTING)
    every = algorithms.offered_by("mtl_trainer")
    # PersFL needs classes.
    yield from (("mtl_trainer", "adni", name) for name in every if name != "persfl")


def _is_quick(trainer, task, algorithm):
    # The trainers' own tests run on School.
    return trainer == "finetuning_trainer" and task != "school"


@pytest.mark.parametrize(
    ("trainer", "task", "algorithm"),
    [pytest.param(*p, marks=[] if _is_quick(*p) else pytest.mark.slow) for p in _pairs()],
)
def test_a_round(trainer, task, algorithm, tmp_path):
    flags = [f"--dataset_name={task}", *_FEW, *_OWN.get(trainer, ())]
    if task in datasets.DEALT:
        flags.append("--partition=dirichlet:1")
    if algorithm is not None:
        flags.append(f"--algorithm={algorithm}")
    is_silos = task in datasets.CROSS_SILO or trainer == "mtl_trainer"
    if not is_silos:
        flags.append("--clients_per_train_round=1")
    programs.run(trainer, tmp_path, *flags)
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
