"""Flags are declared without TensorFlow; here they are held to what they stand for."""

import inspect
import subprocess
import sys

import pytest
from absl.testing import flagsaver

from datasets.options import DataOptions
from motley_tff import algorithms, commandline
from motley_tff.algorithms import optimizers
from motley_tff.commandline.parsing import EVERYDAY
from motley_tff.core import options
from tests.contracts import in_process
from tests.errors import refused
from tests.trainers import programs
from trainers import TRAINERS, algorithm_flags, config, program

# Motley's flags and their published defaults.
PUBLISHED = {
    "experiment_name": None, "dataset_name": None, "total_rounds": 100, "rounds_per_evaluation": 10,
    "rounds_per_checkpoint": 50, "clients_per_train_round": 10, "train_epochs": 1,
    "train_batch_size": 10, "path_to_initial_model_weights": None, "finetune_max_epochs": 20,
    "finetune_last_layer": False, "valid_clients_per_evaluation": 100,
    "test_clients_per_evaluation": 100, "base_random_seed": 0, "use_synthetic_data": False,
}  # fmt: skip
HYPCLUSTER = {
    **{n: v for n, v in PUBLISHED.items() if "finetune" not in n and "weights" not in n},
    "num_clusters": 1,
    "path_to_initial_model_weights_list": None,
}


def test_optimizer_flags_are_the_optimizers_parameters():
    for name, expected in optimizers.PARAMETERS.items():
        parameters = dict(inspect.signature(optimizers.builder(name)).parameters)
        parameters.pop("learning_rate")
        defaults = {p.name: p.default for p in parameters.values()}
        assert defaults == expected, name


@pytest.mark.parametrize(
    ("trainer", "published"),
    [("finetuning_trainer", PUBLISHED), ("hypcluster_trainer", HYPCLUSTER)],
)
def test_published_flags_keep_names_and_defaults(trainer, published):
    defaults = {"experiment_name": None, **config.default_flags(trainer, "emnist")}
    assert {name: defaults[name] for name in published} == published


def test_flags_of_one_data_set_reach_it():
    expected = {
        "adni_split": "published", "gld23k": True, "group_key": "series", "l2_reg": 0.5,
        "mask_padding": True, "min_characters": 150, "shakespeare_split": "snippets",
        "lam_svm": 0.25, "only_digits": True, "test_split": 0.2, "val_split": 0.3,
        "setting": "cross_silo", "client_column": "c", "label_column": "l", "label_kind": "numbers",
        "text_column": "t", "time_column": "d", "image_size": 32, "model": "mlp",
        "feature_columns": ("a", "b"), "categorical_columns": ("b",), "model_sizes": (64, 32),
        "ignore_columns": ("n",), "date_format": "day_first",
        "missing_values": ("NA", "-9"), "delimiter": ";", "decimal": ",", "group_column": "g",
        "valid_clients": ("x", "y"), "test_clients": ("group=z",), "stratify": True,
    }  # fmt: skip
    texts = {n: ",".join(map(str, v)) if isinstance(v, tuple) else v for n, v in expected.items()}
    arguments = [f"--{name}={text}" for name, text in texts.items()]
    owned = [option.field for option in options.options(DataOptions) if option.owners]
    with in_process.opened("finetuning_trainer"), flagsaver.flagsaver():
        commandline.parse(["", "--experiment_name=x", "--dataset_name=emnist", *arguments])
        read = config.data_options()
    assert {field: getattr(read, field) for field in owned} == expected


def test_no_temporary_directory_is_one_line(monkeypatch):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(config, "read", lambda trainer: None)
    monkeypatch.setattr("tempfile.gettempdir", none)
    with refused("found in ['/tmp']", advice="TMPDIR"):
        program.train("finetuning_trainer")


def test_the_help_lists_algorithms_in_two_columns():
    lines = algorithm_flags.listing("mtl_trainer").splitlines()
    names = list(algorithms.offered_by("mtl_trainer"))
    second = 4 + max(map(len, names))
    assert [line[:second].strip() for line in lines if line[:second].strip()] == names
    assert all(line[second - 2 : second] == "  " and line[second] != " " for line in lines)


def _help(trainer, flag):
    command = [sys.executable, "-m", f"trainers.{trainer}", flag]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=programs.ROOT)
    return done.stdout


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_short_help_fits_a_screen(trainer):
    lines = _help(trainer, "--help").splitlines()
    assert len(lines) <= 80 and max(map(len, lines)) <= 100
    places = {line.removesuffix(":").lower(): i for i, line in enumerate(lines)}
    titles = [group for group in EVERYDAY if group in places]
    assert sorted(titles, key=places.get) == titles and {"data", "training", "output"} <= {*titles}
    assert all(lines[places[title] + 1].startswith("  --") for title in titles)
    everyday = [line.split("=")[0].split()[0] for line in lines if line.startswith("  --")]
    assert {"--dataset_name", "--total_rounds", "--experiment_name"} <= {*everyday}
    assert any(line.startswith("--helpfull lists all flags") for line in lines[-6:])


def test_help_of_a_topic_lists_its_flags_alone():
    def named(topic):
        lines = _help("finetuning_trainer", f"--help={topic}").splitlines()
        return {line.split("=")[0].strip() for line in lines if line.startswith("  --")}

    common = {"--flagfile", "--verbosity"}
    assert "--server_adam_beta_1" in named("adam")
    assert all("adam" in name for name in named("adam") - common)
    assert {"--server_optimizer", "--server_sgd_momentum"} <= named("server optimizer")
    assert named("no such topic") == common
