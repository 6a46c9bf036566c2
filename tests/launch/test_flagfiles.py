"""The presets: they parse, and say what the paper's Appendix F says."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.trainers import programs

FOLDER = programs.ROOT / "launch" / "flagfiles"

# Appendix F.1 and F.1.1, read off the paper by hand.
COMMON = {
    "client_optimizer": "sgd",
    "server_optimizer": "adam",
    "server_adam_beta_1": 0.9,
    "server_adam_beta_2": 0.99,
    "train_epochs": 1,
    "finetune_optimizer": "sgd",
    "finetune_last_layer": False,
}
NAMES = (
    "client_learning_rate", "server_learning_rate", "server_adam_epsilon",
    "clients_per_train_round", "train_batch_size", "total_rounds", "valid_clients_per_evaluation",
    "test_clients_per_evaluation", "rounds_per_evaluation", "rounds_per_checkpoint",
    "finetune_max_epochs", "finetune_learning_rate",
)  # fmt: skip
FINETUNING = {
    "emnist": (0.1, 0.001, 0.001, 50, 20, 1500, 100, 100, 100, 100, 20, 0.005),
    "stackoverflow": (1.0, 0.1, 0.001, 200, 16, 1500, 200, 200, 100, 100, 20, 0.1),
    "landmark": (0.01, 10**-2.5, 1e-5, 64, 16, 30000, 32, 96, 1000, 1000, 10, 0.007),
    "ted_multi": (0.1, 0.01, 1e-7, 32, 16, 1500, 98, 117, 30, 50, 20, 0.0005),
}


def _parsed(path: pathlib.Path):
    """Returns the flags as the trainer reads them, in a process of its own."""
    code = (
        "import json, sys; from launch import commandline; "
        "from trainers import finetuning_trainer as t; commandline.parse(sys.argv); "
        "print(json.dumps({n: t.FLAGS[n].value for n in t.FLAGS}, default=str))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, f"--flagfile={path}", "--experiment_name=x"],
        capture_output=True, text=True, env=programs.environment(), check=True,
    )  # fmt: skip
    return json.loads(result.stdout)


@pytest.mark.parametrize("dataset", FINETUNING)
def test_finetuning(dataset):
    found = _parsed(FOLDER / f"finetuning.{dataset}.flags")
    assert found["dataset_name"] == dataset
    for name, value in COMMON.items():
        assert found[name] == value, name
    for name, value in zip(NAMES, FINETUNING[dataset], strict=True):
        mine = found[name]
        assert float(mine[0] if isinstance(mine, list) else mine) == pytest.approx(value), name


def test_every_preset_is_checked():
    assert {p.name for p in FOLDER.iterdir()} == {f"finetuning.{d}.flags" for d in FINETUNING}


def test_each_names_its_source():
    for path in FOLDER.iterdir():
        assert "Appendix F" in path.read_text(encoding="utf-8"), path
