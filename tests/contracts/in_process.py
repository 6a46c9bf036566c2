"""Trainers in this process, on silos and clients so few that a run takes half a second.

`with opened("mtl_trainer") as run: run(root, "name", "--algorithm=ditto")` is what the trainer
does with these flags, but for signals and exit status. The data are made up: `school` is
`toy.classifier_silos`, `emnist` `toy.classifier_task`, `vehicle` a few sensors. On the sequential
backend TensorFlow's functions run eagerly: tracing them would take longer than all the rest.
"""

import contextlib
import functools
import importlib
import sys
from unittest import mock

import pandas as pd
from absl import flags
from absl.testing import flagsaver

import datasets
from datasets import options as data_options, vehicle
from motley_tff import commandline
from motley_tff.experiment import run_directory
from tests import eager, toy
from trainers import program

TRAINERS = ("finetuning_trainer", "hypcluster_trainer", "knn_per_trainer", "mtl_trainer")
_NUM_SENSORS = 3
_SIZES = (7, 12, 5)
_SEED_OF_DATA = 3


@contextlib.contextmanager
def opened(trainer):
    """Yields what runs a trainer: `(root, name, *flags) -> the run's directory`.

    Trainers declare the same flags, each when it is imported: those of other programs make room.
    """
    known = flags.FLAGS
    before = {flag: known[flag] for flag in declared()}
    for flag in before:
        delattr(known, flag)
    sys.modules.pop(f"trainers.{trainer}", None)
    importlib.import_module(f"trainers.{trainer}")

    def run(root, name, *given):
        argv = [trainer, f"--root_output_dir={root}", f"--experiment_name={name}"]
        if not any(flag.startswith("--dataset_name") for flag in given):
            argv.append("--dataset_name=school")
        with flagsaver.flagsaver(), small():
            commandline.parse([*argv, "--use_synthetic_data", *given])
            yields_each_client = known["backend"].value == "sequential"
            with eager.running() if yields_each_client else contextlib.nullcontext():
                program.train(trainer)
        return root / name

    try:
        yield run
    finally:
        for flag in declared():
            delattr(known, flag)
        sys.modules.pop(f"trainers.{trainer}", None)
        for value in before.values():
            flags.DEFINE_flag(value)  # As one of this module's, or it would not be found again.


def declared():
    """Returns the names of the flags that programs of ours have declared here."""
    ours = ("trainers", "launch", "tests")
    by_module = flags.FLAGS.flags_by_module_dict()
    found = {f.name for m, fs in by_module.items() if m.partition(".")[0] in ours for f in fs}
    return sorted(name for name in found if name in flags.FLAGS)


@contextlib.contextmanager
def small():
    """Has trainers and Python load these tasks, in a process where TensorFlow runs already."""
    from motley_tff.experiment import runner

    with (
        mock.patch.object(datasets, "_load", load),
        # TensorFlow runs already.
        mock.patch.object(runner, "limit_threads", lambda threads: True),
        mock.patch.object(run_directory, "_git_commit", lambda: None),
    ):
        yield


@functools.cache
def load(options: data_options.DataOptions):
    """Returns the task that stands in for a data set."""
    if options.dataset_name == "vehicle":
        made = vehicle.synthesize(options.seed, _NUM_SENSORS)
        return vehicle.create_task_from_data(made.features, made.targets, options.seed)
    if options.dataset_name in datasets.CROSS_SILO:
        return silos()
    return toy.without_keras(toy.classifier_task(len(_SIZES), _SIZES, _SEED_OF_DATA))


def silos():
    """Returns what stands in for `school`."""
    return toy.without_keras(toy.classifier_silos(_SIZES, _SEED_OF_DATA))


def table(directory, name):
    """Returns one of a run's tables, cells as text, or None if there is none."""
    path = directory / f"{name}.csv"
    return pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else None
