"""The presets: they parse, and say what the paper's Appendix F says."""

import functools
import json
import subprocess
import sys

import pytest

from launch.sweeps import grids
from tests.trainers import programs

FOLDER = programs.ROOT / "launch" / "flagfiles"
GRIDS = programs.ROOT / "launch" / "experiments" / "divi"
# Of Divi et al.'s ten silos.
METHODS = sorted(path.name.partition(".")[0] for path in GRIDS.glob("*.yaml"))

# Appendix F.1 and F.1.1, read off the paper by hand; TedMulti's epsilon, off Motley's published
# README; the aggregator, off its code.
COMMON = {
    "client_optimizer": "sgd",
    "server_optimizer": "adam",
    "server_adam_beta_1": 0.9,
    "server_adam_beta_2": 0.99,
    "train_epochs": 1,
    "finetune_optimizer": "sgd",
    "finetune_last_layer": False,
    "aggregator": "robust",
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
    "ted_multi": (0.1, 0.01, 0.001, 32, 16, 1500, 98, 117, 30, 50, 20, 0.0005),
}


# Appendix F.1.2, read off the paper by hand: client and server rate, epsilon, clusters, warm start.
HYPCLUSTER = {
    "emnist": (0.1, 0.001, 1e-4, 2, 100),
    "stackoverflow": (0.5, 0.01, 1e-4, 2, 100),
    "landmark": (10**-2.5, 10**-3, 1e-4, 2, 8000),
    "ted_multi": (0.1, 0.01, 0.001, 2, 100),
}
_SILO_COEFFICIENTS = ["0.1", "0.3", "0.5", "0.7", "0.9", "1.0"]
# Appendices F.3 and F.4: flags of silos, beside what they have in common.
SILOS = {
    "hypcluster.school": {
        "client_learning_rate": 0.01, "server_learning_rate": 10, "num_clusters": 3,
        "warmstart_fraction": 0.2,
    },
    "hypcluster.vehicle": {
        "client_learning_rate": 0.01, "server_learning_rate": 10, "num_clusters": 4,
        "warmstart_fraction": 0,
    },
    "ditto.school": {
        "client_learning_rate": 0.001, "server_learning_rate": 10, "lambda": 1,
        "personal_learning_rate": 0.01,
    },
    "ditto.vehicle": {
        "client_learning_rate": 0.3, "server_learning_rate": 1, "lambda": 0.01,
        "personal_learning_rate": 0.1,
    },
    "mocha.school": {"lambda": 1e-4, "mocha_outer": 2, "personal_learning_rate": 0.003},
    "mocha.vehicle": {"lambda": 1e-4, "mocha_outer": 1, "personal_learning_rate": 0.03},
    "knn_per.school": {"num_neighbors": ["10"], "coefficients": _SILO_COEFFICIENTS},
    "knn_per.vehicle": {"num_neighbors": ["10"], "coefficients": _SILO_COEFFICIENTS},
    "knn_per.adni": {
        "num_neighbors": ["10"], "coefficients": _SILO_COEFFICIENTS,
        "client_learning_rate": 0.01, "server_learning_rate": 10,
    },
    "local.school": {"lambda": None},
    "local.vehicle": {"lambda": None},
    "local.adni": {"lambda": None},
    "finetuning.school": {
        "finetune_max_epochs": 100, "finetune_every": 50, "finetune_tuning": "per_client",
        "finetune_learning_rate": ["0.001", "0.003", "0.01", "0.03", "0.1"],
    },
    "finetuning.vehicle": {
        "finetune_max_epochs": 100, "finetune_every": 50, "finetune_tuning": "per_client",
        "finetune_learning_rate": ["0.003", "0.01", "0.03", "0.1", "0.3"],
    },
    "finetuning.adni": {
        "client_learning_rate": 0.01, "server_learning_rate": 10, "finetune_tuning": "per_client",
        "finetune_learning_rate": ["0.0001", "0.001", "0.01", "0.1"],
    },
    "hypcluster.adni": {
        "client_learning_rate": 0.01, "server_learning_rate": 10, "num_clusters": 2,
        "num_warmstart_fedavg_rounds": 20,
    },
    "ditto.adni": {
        "client_learning_rate": 0.01, "server_learning_rate": 10, "lambda": 1,
        "personal_learning_rate": 0.001,
    },
}  # fmt: skip
# {silo task: (batch size, rounds)}; some of ADNI's runs have other numbers of rounds.
FIXED = {"school": (32, 500), "vehicle": (64, 500), "adni": (64, 70)}
OTHER_ROUNDS = {"ditto.adni": 100, "hypcluster.adni": 50}
# Appendix F.2.1: epochs, the best rate, last layer only.
LOCAL = {
    "emnist": (200, "0.1", False), "stackoverflow": (200, "0.5", False),
    "landmark": (50, "0.01", False), "ted_multi": (50, "1.0", True),
}  # fmt: skip
TRAINERS = {
    "finetuning": "finetuning_trainer", "hypcluster": "hypcluster_trainer",
    "knn_per": "knn_per_trainer", "ditto": "mtl_trainer", "mocha": "mtl_trainer",
    "local": "mtl_trainer",
}  # fmt: skip


# Prints what a trainer's flags are with each of the presets.
_CODE = """import importlib, json, sys
from absl.testing import flagsaver
from motley_tff import commandline
importlib.import_module(f"trainers.{sys.argv[1]}")
from trainers import optimizer_flags
found = {}
for path in sys.argv[2:]:
    with flagsaver.flagsaver():
        commandline.parse(["x", f"--flagfile={path}", "--experiment_name=x"])
        optimizer_flags.check_given(commandline.given())
        found[path] = {n: flagsaver.flags.FLAGS[n].value for n in flagsaver.flags.FLAGS}
print(json.dumps(found, default=str))
"""


def _parsed(path):
    return _all_of(_trainer(path))[str(path)]


@functools.cache
def _all_of(trainer):
    """Returns {preset: flags as the trainer reads them}, in a process of its own."""
    paths = [str(path) for path in FOLDER.iterdir() if _trainer(path) == trainer]
    result = subprocess.run(
        [sys.executable, "-c", _CODE, trainer, *paths],
        capture_output=True, text=True, env=programs.environment(), check=True,
    )  # fmt: skip
    return json.loads(result.stdout)


def _trainer(path):
    name, dataset, _ = path.name.split(".")
    if dataset == "cifar10":
        return grids.parse(GRIDS / f"{name}.cifar10.yaml")[0].trainer
    # A device trains alone by fine-tuning what it got.
    return TRAINERS["finetuning" if name == "local" and dataset in LOCAL else name]


@pytest.mark.parametrize("dataset", HYPCLUSTER)
def test_hypcluster(dataset):
    found = _parsed(FOLDER / f"hypcluster.{dataset}.flags")
    assert found["dataset_name"] == dataset and found["server_adam_beta_2"] == 0.99
    names = (
        "client_learning_rate", "server_learning_rate", "server_adam_epsilon", "num_clusters",
        "num_warmstart_fedavg_rounds",
    )  # fmt: skip
    mine = [float(found[name]) for name in names]
    assert mine == pytest.approx([float(v) for v in HYPCLUSTER[dataset]])
    # The warm start is fine-tuning's FedAvg: its rates, and its rounds, cohorts and batches.
    mine = [float(found[f"warmstart_{name}"]) for name in NAMES[:3]]
    assert mine == pytest.approx(FINETUNING[dataset][:3])
    assert found["step_empty_clusters"] and found["aggregator"] == "mean"
    for name, value in zip(NAMES[3:10], FINETUNING[dataset][3:10], strict=True):
        assert found[name] == value, name


@pytest.mark.parametrize("dataset", FINETUNING)
def test_knn_per(dataset):
    found = _parsed(FOLDER / f"knn_per.{dataset}.flags")
    for name, value in zip(NAMES[:10], FINETUNING[dataset][:10], strict=True):
        assert float(found[name]) == pytest.approx(float(value)), name
    assert found["aggregator"] == "robust"
    assert found["num_neighbors"] == ["10"] and len(found["coefficients"]) == 10


@pytest.mark.parametrize("preset", SILOS)
def test_silos(preset):
    found = _parsed(FOLDER / f"{preset}.flags")
    name, dataset = preset.split(".")
    batch_size, rounds = FIXED[dataset]
    assert found["dataset_name"] == dataset and found["train_batch_size"] == batch_size
    assert found["total_rounds"] == OTHER_ROUNDS.get(preset, rounds)
    assert (found["server_optimizer"], found["server_fedavgm_momentum"]) == ("fedavgm", 0.9)
    if TRAINERS[name] == "mtl_trainer":
        assert found["algorithm"] == name
    for flag, value in SILOS[preset].items():
        assert found[flag] == value, flag


@pytest.mark.parametrize("dataset", FINETUNING)
def test_finetuning(dataset):
    found = _parsed(FOLDER / f"finetuning.{dataset}.flags")
    assert found["dataset_name"] == dataset
    for name, value in COMMON.items():
        assert found[name] == value, name
    for name, value in zip(NAMES, FINETUNING[dataset], strict=True):
        mine = found[name]
        assert float(mine[0] if isinstance(mine, list) else mine) == pytest.approx(value), name


@pytest.mark.parametrize("dataset", LOCAL)
def test_local_training_of_devices(dataset):
    found = _parsed(FOLDER / f"local.{dataset}.flags")
    names = ("finetune_max_epochs", "finetune_learning_rate", "finetune_last_layer")
    epochs, rate, last_layer = (found[name] for name in names)
    assert (epochs, *rate, last_layer) == LOCAL[dataset]
    assert (found["dataset_name"], found["total_rounds"]) == (dataset, 0)
    for name, value in zip(NAMES[6:8], FINETUNING[dataset][6:8], strict=True):
        assert found[name] == value, name


@pytest.mark.parametrize("method", METHODS)
def test_a_preset_of_cifar10_is_a_point_of_its_grid(method):
    grid, _ = grids.parse(GRIDS / f"{method}.cifar10.yaml")
    found = _parsed(FOLDER / f"{method}.cifar10.flags")

    def has(flags):
        values = {f: found[f][0] if isinstance(found[f], list) else found[f] for f in flags}
        return {f: grids.number(str(v)) for f, v in values.items()} == {
            f: grids.number(v) for f, v in flags.items()
        }

    assert found["dataset_name"] == "cifar10" and has(grid.fixed)
    assert any(map(has, grid.points))


def test_every_preset_is_checked():
    checked = {f"finetuning.{d}" for d in FINETUNING} | {f"knn_per.{d}" for d in FINETUNING}
    checked |= {f"{method}.cifar10" for method in METHODS}
    checked |= {f"hypcluster.{d}" for d in HYPCLUSTER} | {f"local.{d}" for d in LOCAL} | set(SILOS)
    assert {p.name for p in FOLDER.iterdir()} == {f"{name}.flags" for name in checked}


def test_each_names_its_source():
    for path in FOLDER.iterdir():
        source = "Divi et al. 2021" if path.match("*.cifar10.flags") else "Appendix F"
        assert source in path.read_text(encoding="utf-8"), path
