"""Random flags of every command, as subjects of `fuzz`; one command a process, as flags are global.

Trainers run on four synthetic schools, a few rounds at most; other commands on small files, as far
as they come without another program.
"""

import contextlib
import functools
import importlib
import json
import os
import pathlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

from absl import flags
from absl.testing import flagsaver

from launch import commandline
from tests.reliability import mutations
from tests.reliability.subjects import Subject

FLAGS = flags.FLAGS
# What no example may set: it would wait for other machines, or say nothing of flags.
_LEFT_ALONE = frozenset(
    {"experiment_name", "root_output_dir", "flagfile", "undefok", "verbosity", "tff_workers",
     "output", "output_dir", "figures_dir", "json", "worker_timeout_seconds"}
)  # fmt: skip
_PATHS = ("output", "output_dir", "figures_dir", "root_output_dir", "json")
_MOST_ROUNDS, _MOST_EPOCHS = 3, 20


class _Stop(BaseException):
    """All that can be known before the work is right."""


class Command(NamedTuple):
    """A command.

    Attributes:
      module: Where its `main` is.
      given: Flags and arguments that it always gets; `{}` is the folder of the example.
      positional: As of `commandline.run_main`.
      make: Writes what it reads.
    """

    module: str
    given: tuple[str, ...]
    positional: tuple[str, ...] = ()
    make: str = ""


_TRAINED = ("--experiment_name=x", "--dataset_name=school", "--use_synthetic_data",
            "--root_output_dir={}/out", "--total_rounds=1")  # fmt: skip
COMMANDS = {
    "finetuning_trainer": Command(
        "trainers.finetuning_trainer", (*_TRAINED, "--finetune_max_epochs=2")
    ),
    "hypcluster_trainer": Command("trainers.hypcluster_trainer", _TRAINED),
    "knn_per_trainer": Command("trainers.knn_per_trainer", _TRAINED),
    "mtl_trainer": Command("trainers.mtl_trainer", _TRAINED),
    "motley_metrics": Command("launch.metrics", ("{}/tuned", "{}/local"), ("PATH...",), "_tables"),
    "motley_report": Command(
        "launch.report", ("{}/tuned", "--output_dir={}/report"), ("PATH...",), "_tables"
    ),
    "motley_scorecard": Command(
        "launch.scorecard", ("{}/tuned", "{}/local"), ("PATH...",), "_tables"
    ),
    "motley_generative": Command(
        "launch.generative", ("--clients={}/clients.npz", "--generated={}/gan.npz"), (),
        "_features",
    ),
    "motley_sweep": Command(
        "launch.sweep", ("{}/grid.yaml", "--dry_run", "--use_synthetic_data"), ("GRID",), "_grid"
    ),
    "prepare.stack_exchange": Command(
        "datasets.prepare.stack_exchange",
        ("--posts_xml={}/Posts.xml", "--output={}/out.sqlite"), (), "_posts",
    ),
    "prepare.ted_multi": Command(
        "datasets.prepare.ted_multi",
        ("--talks_tsv={}/*.tsv", "--output={}/out", "--min_clients_per_word=1",
         "--min_examples_per_client=1"), (), "_talks",
    ),
    "prepare.adni": Command(
        "datasets.prepare.adni",
        ("--dicom_dir={}/dicom", "--metadata_dir={}/xml", "--suvr_csv={}/suvr.csv",
         "--output={}/out.npz"), (), "_scans",
    ),
}  # fmt: skip


def _make(command: Command) -> Callable[[pathlib.Path], None]:
    def make(folder: pathlib.Path) -> None:
        if command.make:
            from tests.reliability import subjects

            getattr(subjects, command.make)(folder)

    return make


def _damage(command: Command) -> Callable[[random.Random, pathlib.Path], None]:
    def damage(rng: random.Random, folder: pathlib.Path) -> None:
        _load(command)
        (folder / "flags.json").write_text(json.dumps([*_some(rng, sorted(_own_flags()))]))

    return damage


def _own_flags() -> set[str]:
    by_module = FLAGS.flags_by_module_dict()
    ours = ("trainers", "launch", "datasets")
    names = {f.name for m, group in by_module.items() if m.split(".")[0] in ours for f in group}
    return names - _LEFT_ALONE


def _some(rng: random.Random, names: list[str]) -> Iterator[str]:
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.random()
        if kind < 0.05:
            yield rng.choice(mutations.ODD)
        elif kind < 0.1:
            yield f"--{rng.choice(_PATHS)}={rng.choice(mutations.ODD)}"
        else:
            name = rng.choice(names)
            yield f"--{name}={_value(rng, name)}"


def _value(rng: random.Random, name: str) -> str:
    """Returns something odd, something of a flag's own, or several of either."""
    flag = FLAGS[name]
    allowed = getattr(flag.parser, "enum_values", None) or ["1", "3", "0.5", "true", "0.1,0.5"]
    pool = (*mutations.ODD, *allowed, *allowed)
    return rng.choice(pool) if rng.random() < 0.8 else f"{rng.choice(pool)},{rng.choice(pool)}"


@functools.cache
def _load(command: Command) -> Any:
    module = importlib.import_module(command.module)
    if hasattr(module, "define_flags"):
        module.define_flags()
    return module


def _read(name: str, command: Command) -> Callable[[pathlib.Path], None]:
    def read(folder: pathlib.Path) -> None:
        module = _load(command)
        given = [text.replace("{}", str(folder)) for text in command.given]
        odd = json.loads((folder / "flags.json").read_text())
        arguments = [os.fsdecode(os.fsencode(text.replace("\x00", ""))) for text in odd]
        argv = mock.patch.object(sys, "argv", [name, *given, *arguments])
        with _inside(folder / "below" / "here"), flagsaver.flagsaver(), argv:
            values = commandline.parse(sys.argv, command.positional, name)
            with _patches(command), contextlib.suppress(_Stop):
                module.main(*values)

    return read


@contextlib.contextmanager
def _inside(folder: pathlib.Path) -> Iterator[None]:
    """Makes a folder the current one, so that what is written to odd places goes there."""
    before = os.getcwd()
    folder.mkdir(parents=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _patches(command: Command) -> Any:
    if not command.module.startswith("trainers"):
        return mock.patch.dict(os.environ)
    from datasets import school
    from motley_tff.backends import sequential
    from motley_tff.core import experiment, warm_start
    from trainers import assembly

    run, fedavg, made = experiment.Experiment.run, warm_start.WarmStart.fedavg, school.synthesize

    def at_most_a_few_rounds(self):
        if _is_long():
            raise _Stop
        return run(self)

    def warm(self, models, num_rounds):
        if num_rounds > _MOST_ROUNDS or _is_long():
            raise _Stop
        return fedavg(self, models, num_rounds)

    return _All(
        mock.patch.object(assembly, "limit_threads", lambda threads: None),
        mock.patch.object(experiment.Experiment, "run", at_most_a_few_rounds),
        mock.patch.object(warm_start.WarmStart, "fedavg", warm),
        mock.patch.object(
            assembly, "_tff_backend", lambda values, n: _Yields(sequential.SequentialBackend())
        ),
        mock.patch.object(school, "synthesize", functools.partial(made, num_schools=4)),
    )


class _All:
    """Several contexts as one."""

    def __init__(self, *contexts: Any):
        self._contexts = contexts

    def __enter__(self) -> None:
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)


class _Yields(_All):
    """A context that yields a value."""

    def __init__(self, value: Any):
        super().__init__()
        self._value = value

    def __enter__(self) -> Any:
        return self._value


def _is_long() -> bool:
    """Returns whether the flags ask for work of more than a second or two."""
    epochs = [FLAGS.train_epochs]
    for name in ("finetune_max_epochs", "mocha_outer", "inner_steps", "adaptation_epochs"):
        if name in FLAGS:
            epochs.append(FLAGS[name].value or 0)
    return FLAGS.total_rounds > _MOST_ROUNDS or max(epochs) > _MOST_EPOCHS


SUBJECTS = {
    f"flags of {name}": Subject(_make(command), _damage(command), _read(name, command))
    for name, command in COMMANDS.items()
}
