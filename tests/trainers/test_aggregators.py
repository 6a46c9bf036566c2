"""`--aggregator` reaches a run: clipped, the same clients make another model."""

import numpy as np
import pytest

from tests.trainers import programs

# Updates longer than 1, where TFF's clip begins.
VEHICLE = (
    "--dataset_name=vehicle", "--use_synthetic_data", "--max_clients=4", "--total_rounds=2",
    "--clients_per_train_round=3", "--client_learning_rate=0.3", "--train_batch_size=8",
    "--finetune_max_epochs=1",
)  # fmt: skip


@pytest.mark.slow
def test_robust_trains_another_model(tmp_path):
    rounds, clients = [], []
    for name in ("mean", "robust"):
        flags = ("--backend=sequential",) if name == "mean" else ()
        programs.run(
            "finetuning_trainer", tmp_path, f"--experiment_name={name}", f"--aggregator={name}",
            *VEHICLE, *flags, eagerly=bool(flags),
        )  # fmt: skip
        rounds.append(programs.table(tmp_path, name, "rounds").train_loss)
        clients.append(programs.table(tmp_path, name, "clients").baseline_loss)
    (first, second), (first_robust, second_robust) = rounds
    assert first == pytest.approx(first_robust), "of the initial model"
    assert abs(second_robust / second - 1) > 0.1
    assert np.mean(np.abs(clients[1] / clients[0] - 1) > 0.01) > 0.5
