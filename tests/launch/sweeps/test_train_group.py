"""What a group's settings decide of each run by itself; `test_sweep` has whole groups."""

from types import SimpleNamespace

import pytest

from launch.sweeps import plans, train_group
from motley_tff.algorithms import Local, OptimizerConfig
from motley_tff.experiment import grid
from motley_tff.experiment.config import RunConfig
from tests import toy


@pytest.fixture
def group():
    return object.__new__(train_group.GroupTraining)


@pytest.mark.usefixtures("eagerly")
def test_a_personal_rate_is_that_of_the_settings_own_clients(group):
    task = toy.scalar_task({"a": [1.0], "b": [3.0]}, setting="cross_silo")
    group._config = RunConfig(Local(OptimizerConfig("sgd", 0.1)))
    built = group._build(task, task.model.initial_weights(0), {"client_learning_rate": 0.5})
    # From 0, by half of the way to each silo's number.
    states = toy.train(task, built, 1).client_states
    assert {i: weights[0].item() for i, weights in states.items()} == {"a": 0.5, "b": 1.5}


def test_a_run_has_its_best_round_unless_its_training_diverges_later(group, monkeypatch):
    """The validation error is 3, 1 and 2; the second run diverges in the last round."""
    runs = (plans.SweepRun(0, 100), plans.SweepRun(1, 100))
    settings = [{"client_learning_rate": rate} for rate in (0.1, 0.2)]
    scored = [
        grid.Scored(setting, 100, number, {}, number == 3 and setting is settings[1])
        for number in (1, 2, 3)
        for setting in settings
    ]
    group._group = SimpleNamespace(settings=settings, seeds=(100,))
    group._task, group._run = SimpleNamespace(runs=runs), RunConfig()
    group._first = toy.scalar_task({"a": [1.0]})
    group._selects_round = True
    group._tasks = group._starts = group._personalization = group._diverged = None

    def rows(run, after, table):
        error = {1: "3", 2: "1", 3: "2"}[after.round_number]
        return [{"round": str(after.round_number), "split": "valid", "personalized_mean": error}]

    monkeypatch.setattr(grid, "run", lambda *_: iter(scored))
    monkeypatch.setattr(group, "_rows", rows)
    best = group._best_rounds()
    found = [(run, after.round_number, after.has_diverged) for run, after in best.items()]
    assert found == [(runs[0], 2, False), (runs[1], 3, True)]
