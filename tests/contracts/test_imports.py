"""What a trainer imports beside TensorFlow is little, and nothing heavy before it is used."""

import collections
import compileall
import re
import subprocess
import sys

import pytest

import datasets
import launch
import motley_tff
import trainers

# Of the time that TensorFlow's own import takes. Measured: 0.04, and 0.11 if nothing is compiled.
LARGEST_RATIO = 0.1
# TensorFlow imports pandas and jax itself; here they are counted where others import them.
FORBIDDEN = {"tensorflow_federated", "jax", "sklearn", "matplotlib", "pandas", "scipy.stats"}
FLAGS = (
    "--dataset_name=emnist", "--clients_per_train_round=1", "--final_evaluation_clients=1",
    "--finetune_max_epochs=0", "--max_examples_per_client=6", "--total_rounds=1",
    "--backend=sequential", "--use_synthetic_data", "--experiment_name=imports",
)  # fmt: skip

Import = collections.namedtuple("Import", "name seconds ancestors")


def _imports(*arguments):
    """Returns a program's imports in order, each with its own seconds and who asked for it."""
    command = [sys.executable, "-X", "importtime", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr[-2000:]
    lines = re.findall(r"^import time: +(\d+) \| +\d+ \| ( *)(\S+)$", process.stderr, re.MULTILINE)
    imports, path = [], []
    # A module stands behind those that it imports, which are indented by two more blanks.
    for microseconds, indent, name in reversed(lines):
        del path[len(indent) // 2 :]
        imports.append(Import(name, int(microseconds) / 1e6, tuple(path)))
        path.append(name)
    return imports


@pytest.fixture(scope="module")
def tensorflow():
    """The modules that TensorFlow imports, once ours are compiled as they are for users."""
    for package in (datasets, launch, motley_tff, trainers):
        assert compileall.compile_dir(package.__path__[0], quiet=1)
    return {i.name for i in _imports("-c", "import tensorflow")}


def test_a_trainer_imports_little_beside_tensorflow(tensorflow, tmp_path):
    for attempt in ("first", "second", "third"):  # On a busy machine one may be slow by chance.
        beside, ratio = _beside_tensorflow(tensorflow, tmp_path / attempt)
        if ratio <= LARGEST_RATIO:
            break
    assert ratio <= LARGEST_RATIO, sorted(beside, key=lambda i: -i.seconds)[:20]
    # Or the ratio would be of nothing.
    assert {"motley_tff.experiment.runner", "trainers.config"} <= {i.name for i in beside}


def _beside_tensorflow(tensorflow, folder):
    """Returns what a trainer imports beside TensorFlow, and its time in TensorFlow's."""
    imports = _imports("-m", "trainers.finetuning_trainer", f"--root_output_dir={folder}", *FLAGS)
    beside = [i for i in imports if i.name not in tensorflow and "tensorflow" not in i.ancestors]
    early = [i for i in imports if i.name in FORBIDDEN and "tensorflow" not in i.ancestors]
    assert not early, [(i.name, i.ancestors) for i in early]
    # Both parts are timed in one process, so that a busy machine slows both.
    seconds = sum(i.seconds for i in imports if i.name in tensorflow)
    return beside, sum(i.seconds for i in beside) / seconds
