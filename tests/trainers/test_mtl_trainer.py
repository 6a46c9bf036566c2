"""mtl_trainer from end to end, on synthetic silos, as a user runs it."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from tests.contracts import in_process
from tests.trainers import programs

SCHOOL = (
    "--dataset_name=school", "--use_synthetic_data", "--max_clients=8", "--total_rounds=4",
    "--rounds_per_evaluation=2", "--train_batch_size=32", "--base_random_seed=3",
    "--backend=sequential",
)  # fmt: skip
DITTO = (
    "--algorithm=ditto", "--client_learning_rate=0.01", "--personal_learning_rate=0.03", *SCHOOL
)  # fmt: skip


def run(root, *flags, **kwargs):
    return programs.run("mtl_trainer", root, *flags, **kwargs)


@pytest.fixture(scope="module")
def ditto(tmp_path_factory):
    root = tmp_path_factory.mktemp("ditto")
    stdout, stderr = run(root, "--experiment_name=ditto", *DITTO, eagerly=True)
    return root, stdout, stderr


def test_files(ditto):
    root, stdout, stderr = ditto
    assert "personal" in stdout and "% hurt" in stdout and "Traceback" not in stderr
    clients = programs.table(root, "ditto", "clients")
    assert set(clients["round"]) == {2, 4} and set(clients.split) == {"valid", "test"}
    assert set(clients.candidate) == {"personal"} and set(clients.algorithm) == {"ditto"}
    last = clients[clients["round"] == 4]
    assert last.personalized.mean() < last.baseline.mean()
    assert not np.allclose(last.personalized_squared_error, last.personalized)
    np.testing.assert_allclose(last.personalized_squared_error, 2 * last.personalized, rtol=1e-5)
    # Silos are scored on their training parts as well.
    candidates = programs.table(root, "ditto", "candidates")
    assert set(candidates.split) == {"train", "valid", "test"}
    assert set(candidates.candidate) == {"0", "personal"}
    summary = programs.table(root, "ditto", "summary")
    np.testing.assert_allclose(summary.pct_clients_hurt, summary.pct_clients_hurt_global)


def test_personal_models_are_exported(ditto):
    root, _, _ = ditto
    with np.load(root / "ditto" / "personal_models.npz", allow_pickle=False) as file:
        ids, kernels = file["client_ids"], file["w000"]
    assert len(ids) == len(set(ids)) == len(kernels) == 8
    assert len(np.unique(kernels.round(6), axis=0)) == 8
    with np.load(root / "ditto" / "global_model.npz", allow_pickle=False) as file:
        assert file["w000"].shape == kernels.shape[1:]


def test_mocha_leaves_a_row_and_a_column_of_relations_for_each_silo(tmp_path):
    flags = ("--algorithm=mocha", "--total_rounds=2", "--mocha_outer=2", "--backend=sequential")
    with in_process.opened("mtl_trainer") as run_here:
        relations = _relations(run_here(tmp_path, "mocha", *flags))
    assert len(relations) == 3
    assert len(set(np.round(np.diag(relations), 6))) == 3, "rows differ"


def _relations(directory):
    """Returns the matrix, which is of silos in one order and of trace 1, as Omega is."""
    relations = pd.read_csv(directory / "relations.csv", index_col="client_id")
    assert list(relations.index) == list(relations.columns)
    matrix = relations.to_numpy()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    assert np.trace(matrix) == pytest.approx(1.0, abs=1e-4)
    return relations


@pytest.mark.slow
def test_mocha_leaves_its_relations(tmp_path):
    flags = [f for f in SCHOOL if not f.startswith(("--backend", "--max_clients"))]
    run(tmp_path, "--experiment_name=mocha", "--algorithm=mocha", *flags, "--mocha_outer=2")
    relations = _relations(tmp_path / "mocha")
    assert len(relations) == 60
    picture = tmp_path / "mocha" / "figures" / "relations.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    record = json.loads((tmp_path / "mocha" / "run.json").read_text())
    assert record["backend"] == "vectorized"
    # The learned relations are stronger inside the planted groups than between them.
    groups = record["data"]["client_groups"]
    assert _block_contrast(relations, groups) > 0.1


def _block_contrast(relations, groups):
    """Mean correlation of two silos of one group, minus that of two of different groups."""
    matrix = relations.to_numpy()
    scale = np.sqrt(np.diag(matrix))
    correlation = matrix / scale[:, None] / scale
    names = np.array([groups[name.partition(":")[2]] for name in relations.index])
    same, other = names[:, None] == names, names[:, None] != names
    np.fill_diagonal(same, False)
    return correlation[same].mean() - correlation[other].mean()


def test_an_algorithm_without_state(tmp_path):
    flags = ("--dataset_name=vehicle", "--train_batch_size=256", "--total_rounds=1")
    with in_process.opened("mtl_trainer") as run_here:
        run_here(tmp_path, "maml", "--algorithm=per_fedavg", "--backend=sequential", *flags)
    clients = programs.table(tmp_path, "maml", "clients")
    assert set(clients.candidate) <= set("12345") and clients.personalized_roc_auc.max() <= 1
    assert not (tmp_path / "maml" / "personal_models.npz").exists()


def test_a_global_model_that_is_worse_than_nothing_is_named_again_and_again(tmp_path, capsys):
    """The server's steps are far too long."""
    flags = ("--algorithm=local", "--total_rounds=1", "--backend=sequential",
             "--server_learning_rate=100", "--personal_learning_rate=0.5")  # fmt: skip
    with in_process.opened("mtl_trainer") as run_here:
        path = run_here(tmp_path, "tiny", *flags)
        (line,) = re.findall("warning: the global model .*", capsys.readouterr().out)
        run_here(tmp_path, "tiny", *flags)
    constant = json.loads((path / "run.json").read_text())["constant_prediction"]
    summary = programs.table(tmp_path, "tiny", "summary").set_index("split").loc["test"]
    assert f"accuracy {summary.baseline_mean:.4g}" in line and f"{constant['test']:.4g}: " in line
    assert line in capsys.readouterr().out  # Of a finished run, from its files.


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ditto", "mr_mtl", "fedrep"])
def test_a_run_goes_on_where_it_is_compiled(algorithm, tmp_path):
    """From the eleventh round and evaluation on; XLA lost one of the loops over three parts."""
    flags = [f"--algorithm={algorithm}", "--total_rounds=12", "--rounds_per_evaluation=1"]
    run(tmp_path, "--experiment_name=x", *SCHOOL[:3], *flags)
    assert len(programs.table(tmp_path, "x", "rounds")) == 12
