"""Looking changes nothing: what a run only evaluates, writes or keeps more of has no effect.

Cells that two runs share are equal byte for byte with and without it, times aside. On the
vectorized backend equal to 1e-6: a stack that is scored on one part more is another XLA program,
which may fuse, and so round, sums otherwise.
"""

from typing import NamedTuple

import numpy as np
import pytest

from tests.contracts import in_process

_FINETUNING, _HYPCLUSTER, _KNN_PER, _MTL = in_process.TRAINERS
_KEYS = {
    "candidates": ("round", "split", "client_id", "candidate"),
    "clients": ("round", "split", "client_id"),
    "clusters": ("round", "split", "cluster_id", "group"),
    "rounds": ("round",),
    "summary": ("round", "split"),
}
_OTHER = ("run_id", "seconds", "slowest_client_seconds", "server_seconds")


class Run(NamedTuple):
    """A trainer's run, and by which of the looks below it may be looked at."""

    trainer: str
    flags: tuple[str, ...]
    looks: tuple[str, ...]


_ALWAYS = ("--rounds_per_evaluation=1", "--rounds_per_checkpoint=1", "--tensorboard")
_OOD = "--evaluate_ood"
_FRACTIONS = "--personalization_fraction=1,0.5"
_SILO_RULES = "--acceptance=always,min_examples:5,validated"
_RULES = "--acceptance=always,min_examples:5,validated:0.25"
# A flag that only looks adds itself to the runs that take it.
RUNS = (
    Run(_FINETUNING, ("--finetune_max_epochs=2", "--finetune_learning_rate=0.1,0.3"),
        (*_ALWAYS, _OOD, _FRACTIONS, _SILO_RULES)),
    Run(_FINETUNING, ("--dataset_name=emnist", "--clients_per_train_round=2",
                      "--finetune_max_epochs=2", "--finetune_learning_rate=0.3"),
        (*_ALWAYS, _OOD, _FRACTIONS, _RULES)),
    Run(_KNN_PER, ("--dataset_name=vehicle", "--coefficients=0.5,1", "--train_batch_size=256"),
        (*_ALWAYS, _OOD, _FRACTIONS, _SILO_RULES, "--export_scores")),
    Run(_HYPCLUSTER, ("--num_clusters=2",), (*_ALWAYS, _OOD, _FRACTIONS, _SILO_RULES)),
    Run(_MTL, ("--algorithm=ditto",), (*_ALWAYS, _OOD, _SILO_RULES)),
)  # fmt: skip
_SHORT = ("--total_rounds=2", "--rounds_per_evaluation=2")


def _assert_shared_cells_are_equal(first, second, rtol=0.0):
    for name, keys in _KEYS.items():
        tables = [in_process.table(path, name) for path in (first, second)]
        if any(table is None for table in tables):
            assert name == "clusters" and tables == [None, None]
            continue
        one, other = (table.set_index(list(keys)) for table in tables)
        rows = one.index.intersection(other.index)
        columns = [c for c in one.columns if c in other.columns and c not in _OTHER]
        assert len(rows) and columns, name
        for column in columns:
            mine, theirs = (t.loc[rows, column].to_numpy(str) for t in (one, other))
            if rtol and not np.array_equal(mine, theirs):
                mine, theirs = (np.where(a == "", "nan", a).astype(float) for a in (mine, theirs))
                np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-9, err_msg=column)
            else:
                np.testing.assert_array_equal(mine, theirs, err_msg=f"{name}: {column}")


def _cases():
    for case in RUNS:
        yield case, "sequential", 0.0
    yield pytest.param(RUNS[-1], "vectorized", 1e-6, marks=pytest.mark.slow)


@pytest.mark.parametrize(("case", "backend", "rtol"), _cases())
def test_all_looks_at_once(case, backend, rtol, tmp_path):
    flags = (*_SHORT, f"--backend={backend}", *case.flags)
    with in_process.opened(case.trainer) as run:
        without = run(tmp_path, "without", *flags)
        looked = run(tmp_path, "looked", *flags, *case.looks)
    _assert_shared_cells_are_equal(without, looked, rtol)


def test_how_many_clients_the_last_evaluation_takes(tmp_path):
    """Others choose the candidate, so of the tables only candidates.csv has to be the same."""
    case = RUNS[1]
    flags = (*_SHORT, "--backend=sequential", *case.flags)
    with in_process.opened(case.trainer) as run:
        every, some = (
            in_process.table(run(tmp_path, f"of{n}", *flags, f"--final_evaluation_clients={n}"),
                             "candidates").drop(columns="run_id")
            for n in (0, 2)
        )  # fmt: skip
    assert set(some.groupby("split").client_id.nunique()) == {2}
    assert set(every.groupby("split").client_id.nunique()) == {3}
    rows = {tuple(row) for row in every.to_numpy()}
    assert {tuple(row) for row in some.to_numpy()} < rows
