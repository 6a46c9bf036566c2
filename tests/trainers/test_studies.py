"""What every trainer can look at beside its tables, from the command line."""

import numpy as np

from tests.contracts import in_process
from tests.trainers import programs

SILOS = ("--use_synthetic_data", "--total_rounds=2", "--rounds_per_evaluation=2")


def _few(trainer, root, *flags):
    """Runs a trainer in this process, on three clients."""
    with in_process.opened(trainer) as run:
        run(root, "x", "--backend=sequential", *SILOS, *flags)


def test_scores_give_back_the_metrics(tmp_path, capsys):
    """Accuracy and ROC-AUC of each sensor follow from its examples' scores."""
    _few(
        "knn_per_trainer", tmp_path, "--dataset_name=vehicle", "--train_batch_size=256",
        "--export_scores", "--evaluate_ood", "--ood_examples=20", "--coefficients=0.5,1",
    )  # fmt: skip
    assert capsys.readouterr().out.count("scores.csv") == 1
    clients = programs.table(tmp_path, "x", "clients").set_index(["split", "client_id"])
    is_test = clients.index.get_level_values(0) == "test"
    assert clients.ood_personalized.notna().sum() == is_test.sum()
    for key, rows in programs.table(tmp_path, "x", "scores").groupby(["split", "client_id"]):
        assert len(rows) == clients.loc[key].num_evaluation_examples
        for which in ("baseline", "personalized"):
            scores = rows[f"{which}_score"].to_numpy()
            hits = np.mean((scores > 0) == (rows.label == 1))
            np.testing.assert_allclose(hits, clients.loc[key][which], atol=1e-6)
            positive, negative = scores[rows.label == 1], scores[rows.label == 0]
            gaps = positive[:, None] - negative[None, :]
            area = np.mean((gaps > 0) + 0.5 * (gaps == 0)) if gaps.size else np.nan
            np.testing.assert_allclose(area, clients.loc[key][f"{which}_roc_auc"], atol=1e-6)


def test_a_cohort_that_shrinks(tmp_path):
    _few("finetuning_trainer", tmp_path, "--dropout_rate=0.4", "--finetune_max_epochs=0")
    rounds = programs.table(tmp_path, "x", "rounds")
    # Of three silos, of whom each stays with probability 0.6.
    assert rounds.num_clients.min() < 3
    each = rounds.bytes_down.iloc[0] / 3
    np.testing.assert_allclose(rounds.bytes_up, each * rounds.num_clients)
    summary = programs.table(tmp_path, "x", "summary")
    assert (summary.bytes_up_total == rounds.bytes_up.sum()).all()


def test_a_warm_start_is_counted(tmp_path):
    _few("hypcluster_trainer", tmp_path, "--num_clusters=3", "--num_warmstart_fedavg_rounds=4")
    rounds = programs.table(tmp_path, "x", "rounds")
    total = programs.table(tmp_path, "x", "summary").iloc[-1].bytes_down_total
    # Three models in each of two rounds, and four rounds of FedAvg for each of the three before.
    np.testing.assert_allclose(total, rounds.bytes_down.sum() * (1 + 4 / 2))
    before = programs.table(tmp_path, "x", "warm_start")
    assert before[["model", "round"]].values.tolist() == [
        [j, n] for j in (1, 2, 3) for n in (1, 2, 3, 4)
    ]
    assert before.bytes_down.sum() + rounds.bytes_down.sum() == total
    assert (before[["seconds", "num_clients", "train_loss"]] > 0).all(axis=None)
