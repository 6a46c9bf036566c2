"""knn_per_trainer from end to end, on synthetic schools."""

import pytest

from tests.trainers import programs

SCHOOL = (
    "--dataset_name=school", "--use_synthetic_data", "--max_clients=8", "--train_batch_size=32",
    "--client_learning_rate=0.03", "--rounds_per_evaluation=8",
)  # fmt: skip
KNN = ("--num_neighbors=5,10", "--coefficients=0.3,0.7,1", "--knn_tuning=per_client")


def run(root, *flags, status=0):
    return programs.run("knn_per_trainer", root, *flags, status=status)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("knn")
    return root, *run(root, "--experiment_name=run", "--total_rounds=8", *SCHOOL, *KNN)


def test_files(trained):
    root, stdout, _ = trained
    assert "% hurt" in stdout
    clients = programs.table(root, "run", "clients")
    labels = {"0", *(f"k{k}_c{c}" for k in (5, 10) for c in ("0.3", "0.7", "1"))}
    assert set(clients.candidate) <= labels and clients.candidate.nunique() > 2
    assert set(clients.algorithm) == {"fedavg+knn_per"}
    assert set(programs.table(root, "run", "candidates").candidate) == labels
    summary = programs.table(root, "run", "summary").iloc[-1]
    assert summary.personalized_mean < summary.baseline_mean
