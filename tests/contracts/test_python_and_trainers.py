"""`motley.run` gives what trainers give: the same configuration, and the same cells."""

import dataclasses
import functools
from unittest import mock

import pytest
from absl import flags
from absl.testing import flagsaver

import motley_tff as motley
from datasets.options import DataOptions
from motley_tff import algorithms, commandline
from motley_tff.algorithms import FineTuning, OptimizerConfig, optimizers
from motley_tff.core.errors import UserError
from motley_tff.experiment import defaults, runner
from motley_tff.experiment.config import RunConfig
from tests import eager, toy
from tests.contracts import configurations, in_process
from tests.trainers import programs
from trainers import algorithm_flags, config as trainers_config, optimizer_flags

_DATASETS = {"mtl_trainer": "school", "generative_trainer": "mnist"}


class _Captured(Exception):
    """Has the configuration that would be run."""


def _capture(task, config, *rest):
    raise _Captured(config)


@pytest.fixture(scope="module", params=configurations.TRAINERS)
def opened(request):
    """Returns (a trainer's name, a task, flags -> the configuration that the trainer would run)."""
    trainer = request.param
    name = _DATASETS.get(trainer, "emnist")
    task = in_process.load(DataOptions(name))
    with in_process.opened(trainer):

        def resolved(*given):
            with flagsaver.flagsaver():
                commandline.parse(
                    [trainer, "--experiment_name=x", f"--dataset_name={name}", *given]
                )
                run = trainers_config.read(trainer).run
            return defaults.resolve(run, task.setting, len(task.train))

        yield trainer, task, resolved


def _from_python(task, config, is_argument):
    """Returns what `motley.run` would run, or of what it has no argument for, what is resolved."""
    if not is_argument:
        whole = defaults.resolve(config, task.setting, len(task.train))
        whole.check()
        return whole
    loop = config.loop
    with (
        mock.patch.object(runner, "run", _capture),
        mock.patch.object(runner, "limit_threads", lambda threads: True),
        pytest.raises(_Captured) as captured,
    ):
        motley.run(
            task, config.algorithm, config.personalization, rounds=loop.total_rounds,
            seed=loop.base_random_seed, clients_per_round=loop.clients_per_train_round,
            rounds_per_evaluation=loop.rounds_per_evaluation, stop_after=loop.stop_after,
            min_improvement=loop.min_improvement, evaluation=loop.evaluation,
            backend=config.backend,
        )  # fmt: skip
    return captured.value.args[0]


def _outcome(function, *arguments):
    """Returns the settings of what a function returns, optimizers with all parameters; its error,
    if it refuses.
    """
    try:
        return _whole(function(*arguments)).settings()
    except UserError as error:
        return {"error": str(error)}


def _whole(value):
    if isinstance(value, OptimizerConfig):
        parameters = {**optimizers.PARAMETERS[value.name], **value.parameters}
        return dataclasses.replace(value, parameters=parameters)
    if not dataclasses.is_dataclass(value):
        return value
    fields = {f.name: _whole(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return dataclasses.replace(value, **fields)


class _Comparison:
    """Both configurations of a pair of classes, and where they differ."""

    def __init__(self, opened, kind, personalization):
        self.trainer, self._task, self._resolved = opened
        self.differences, self.seen = [], set()
        self._choice = configurations.choosing(kind, personalization)
        self._makes_pictures = self.trainer == "generative_trainer"
        # A Python user leaves out what is fine-tuning anyway.
        on_top = None if personalization in (None, FineTuning) else personalization()
        self.config = RunConfig(kind(), on_top)
        self.base = self._compare(self.config, ())
        if on_top is None and personalization is not None and not self._makes_pictures:
            self.config = dataclasses.replace(self.config, personalization=FineTuning())

    def change(self, change):
        """Compares a change, unless a table says why it has no flag."""
        texts = change.flags(self.trainer, self.config)
        if texts is not None:
            moved = self._compare(change.made_to(self.config), texts, change.field)
            assert moved != self.base, f"{texts} moves nothing"
            self.seen.update(text[2:].partition("=")[0] for text in texts)

    def _compare(self, config, texts, field=""):
        is_argument = not field.startswith(configurations.WITHOUT_ARGUMENT)
        is_argument = is_argument and not self._makes_pictures
        python = _outcome(_from_python, self._task, config, is_argument)
        by_flags = _outcome(self._resolved, *self._choice, *texts)
        names = [n for n in {**python, **by_flags} if python.get(n) != by_flags.get(n)]
        if names:
            cells = {n: (python.get(n), by_flags.get(n)) for n in names[:3]}
            self.differences.append((*self._choice, *texts, cells))
        return by_flags


def test_every_field_is_its_flag(opened):
    trainer, differences, seen = opened[0], [], set()
    for i, pair in enumerate(configurations.kinds(trainer)):
        compared = _Comparison(opened, *pair)
        for change in configurations.changes(compared.config):
            # What is of no class is the same with each.
            if not i or change.field.startswith(("algorithm.", "personalization.")):
                compared.change(change)
        differences += compared.differences
        seen |= compared.seen
    assert not differences, "\n".join(map(str, differences))
    data = {field.name for field in dataclasses.fields(DataOptions)}
    chosen = [flags.FLAGS[f].value for f in ("algorithm", "personalization") if f in flags.FLAGS]
    left = set(in_process.declared()) - seen - data
    left -= algorithm_flags.of_unused_packages(trainer, chosen)
    left -= {flag for flag in left if optimizer_flags.parameter_of(flag)}
    assert [flag for flag in left if not configurations.is_no_field(trainer, flag)] == []


def test_every_parameter_is_its_flag(opened):
    compared = _Comparison(opened, *configurations.kinds(opened[0])[0])
    for change in configurations.parameters(compared.config):
        compared.change(change)
    assert not compared.differences, "\n".join(map(str, compared.differences))
    first = {optimizer_flags.first_name(flag) for flag in in_process.declared()}
    assert {flag for flag in first - compared.seen if optimizer_flags.parameter_of(flag)} == set()


def test_options_of_data_are_as_in_python(opened):
    trainer, _, _ = opened
    with flagsaver.flagsaver():
        commandline.parse([trainer, "--experiment_name=x", "--dataset_name=emnist"])
        assert trainers_config.data_options(trainer) == DataOptions("emnist")
    assert {f.name for f in dataclasses.fields(DataOptions)} <= set(in_process.declared())


def _runs():
    """Yields a trainer and a pair of classes, of every class at least once."""
    for trainer in algorithms.DEFAULTS:
        pairs = configurations.kinds(trainer)
        # The others of kNN-Per's trainer are those of fine-tuning's.
        for pair in pairs[:1] if trainer == "knn_per_trainer" else pairs:
            names = "-".join(kind.card.name for kind in pair if kind)
            yield pytest.param(trainer, *pair, id=f"{trainer}-{names}")


@pytest.mark.parametrize(("trainer", "kind", "personalization"), _runs())
def test_the_cells_are_the_same(trainer, kind, personalization, tmp_path, monkeypatch):
    monkeypatch.setattr(in_process, "load", _three_weights)
    is_silo = trainer == "mtl_trainer" or kind.card.silos_keep
    name = "school" if is_silo else "emnist"
    # HypCluster's penalty goes to nothing in half of them, of which one is the least.
    rounds = 4 if kind is algorithms.HypCluster else 1
    config = RunConfig(kind(), personalization and personalization())
    with in_process.opened(trainer) as run:
        small = configurations.small(config)
        texts = [text for change in small for text in change.flags(trainer, config) or ()]
        by_trainer = run(
            tmp_path / "trainer", "run", *configurations.choosing(kind, personalization), *texts,
            f"--dataset_name={name}", f"--total_rounds={rounds}",
            f"--rounds_per_evaluation={rounds}", "--backend=sequential",
        )  # fmt: skip
    for change in small:
        config = change.made_to(config)
    with in_process.small(), eager.running():
        motley.run(
            _three_weights(DataOptions(name)), config.algorithm, config.personalization,
            rounds=rounds, backend=motley.BackendConfig("sequential"),
            evaluation=motley.EvaluationConfig(acceptance=("always",)),
            root_output_dir=str(tmp_path / "python"), experiment_name="run",
        )  # fmt: skip
    programs.same_tables(by_trainer, tmp_path / "python" / "run")


@functools.cache
def _three_weights(options):
    return toy.three_weights("cross_silo" if options.dataset_name == "school" else "cross_device")
