"""Rates that nobody gave: by hand where a model is one weight, and what a run does with them."""

import dataclasses
import json

import numpy as np
import pytest

import motley_tff as motley
from motley_tff.algorithms import (
    Centralized,
    Ditto,
    FedAvg,
    FedSgd,
    FineTuning,
    HypCluster,
    OptimizerConfig,
)
from motley_tff.core.clients import InMemoryClients
from motley_tff.experiment import defaults, progress, rate_probe
from motley_tff.experiment.config import BackendConfig, LoopConfig, RunConfig
from tests import owners, toy

# In place of 20.
_ROUNDS = 3
_PLAIN = FineTuning(max_epochs=0)
_TWO_ONES = {"a": [1.0, 1.0]}


@pytest.fixture
def briefly(eagerly, monkeypatch):
    """Probes a few rounds."""
    monkeypatch.setattr(rate_probe, "_ROUNDS", _ROUNDS)


def _own(task):
    return dataclasses.replace(task, is_own_data=True)


def _resolved(task, algorithm, rounds=_ROUNDS):
    config = RunConfig(algorithm, loop=LoopConfig(total_rounds=rounds))
    return defaults.resolve(config, task.setting, len(task.train), task.is_own_data)


def _chosen(task, algorithm):
    return rate_probe.choose(task, _resolved(task, algorithm), progress.Silent())


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    ("algorithm", "field"),
    [
        (FedAvg(), "client_optimizer"),
        (Ditto(), "client_optimizer"),
        (Centralized(), "client_optimizer"),
        (FedSgd(), "server_optimizer"),
    ],
)
def test_losses_of_one_weight_are_those_by_hand(algorithm, field):
    """A round takes w to w - rate (w - 1), from 0."""
    task = toy.scalar_task(_TWO_ONES)
    results = _chosen(_own(task), algorithm)
    assert [*results] == [field]
    tried, losses = zip(*results[field]["tried"], strict=True)
    # The best of the first three is the last one: a decade more, then half a decade each way.
    assert tried == (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
    by_hand = [0.5 * (1.0 - rate) ** (2 * _ROUNDS) for rate in tried]
    assert losses == pytest.approx(by_hand, rel=1e-4)
    facts = {name: results[field][name] for name in ("chosen", "best", "rounds", "clients")}
    assert facts == {"chosen": 1.0, "best": 1.0, "rounds": _ROUNDS, "clients": 1}


@pytest.mark.usefixtures("briefly")
def test_an_adaptive_servers_rate_is_chosen_after_the_clients():
    """TFF's Adagrad: the sum of squares begins at 0.1, and w takes rate g / sqrt(sum + 1e-7)."""
    algorithm = FedAvg(server_optimizer=OptimizerConfig("adagrad"))
    results = _chosen(_own(toy.scalar_task(_TWO_ONES)), algorithm)
    assert [*results] == ["client_optimizer", "server_optimizer"]
    assert results["client_optimizer"]["chosen"] == 1.0

    def loss(rate):
        w, total = 0.0, 0.1
        for _ in range(_ROUNDS):
            total += (w - 1.0) ** 2  # The clients' rate is 1: they send w - 1.
            w -= rate * (w - 1.0) / np.sqrt(total + 1e-7)
        return 0.5 * (w - 1.0) ** 2

    for rate, measured in results["server_optimizer"]["tried"]:
        assert measured == pytest.approx(loss(rate), rel=1e-3, abs=1e-9)


def _searched(losses_of):
    losses = rate_probe._search(lambda r: np.array([losses_of(r)]), False, progress.Silent())
    return sorted(losses)


def test_the_search_goes_on_while_the_best_is_at_an_end():
    def parabola(best):
        return lambda rate: (np.log10(rate) - np.log10(best)) ** 2

    assert _searched(parabola(0.1)) == [0.01, 0.03, 0.1, 0.3, 1.0]
    assert _searched(parabola(12.0)) == [0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0]
    # No further than two decades.
    assert _searched(parabola(1e-9)) == [3e-5, 1e-4, 3e-4, 1e-3, 0.01, 0.1, 1.0]


def test_the_next_smaller_rate_is_taken_within_a_standard_error():
    """Differences of -0.5 and 2 have a mean of 0.75 and a standard error of 1.25."""
    best = np.array([5.0, 5.0])
    for differences, chosen in (([-0.5, 2.0], 0.1), ([1.0, 1.0], 0.3), ([0.5, 2.0], 0.3)):
        losses = {0.01: best + 9.0, 0.1: best + differences, 0.3: best}
        assert rate_probe._choice(losses) == (0.3, chosen)
    diverged = {0.1: np.full(2, np.inf), 0.3: np.full(2, np.inf)}
    assert rate_probe._choice(diverged)[1] is None
    assert rate_probe._choice({0.1: np.full(2, np.inf), 0.3: best}) == (0.3, 0.3)


@pytest.mark.parametrize(
    ("algorithm", "rounds", "without"),
    [
        (FedAvg(), 3, ["client_optimizer"]),
        (FedAvg(OptimizerConfig("sgd", 0.5)), 3, []),
        (FedAvg(OptimizerConfig("adam")), 3, ["client_optimizer"]),
        (FedAvg(), 0, []),
        (HypCluster(), 3, ["client_optimizer"]),
        (FedSgd(), 3, ["server_optimizer"]),
        (FedSgd(OptimizerConfig("sgd"), OptimizerConfig("sgd", 2.0)), 3, []),
    ],
)
def test_which_rates_are_left_open(algorithm, rounds, without):
    task = toy.scalar_task(_TWO_ONES)
    assert rate_probe.rate_free(_resolved(task, algorithm, rounds)) == []
    config = _resolved(_own(task), algorithm, rounds)
    assert rate_probe.rate_free(config) == without


def test_rates_that_are_published_or_given_stay():
    task = toy.scalar_task(_TWO_ONES)
    published = _resolved(task, FedAvg()).algorithm
    rates = [published.client_optimizer.learning_rate, published.server_optimizer.learning_rate]
    assert rates == [0.1, 1.0]
    heavy = FedAvg(OptimizerConfig("sgd", 0.7), OptimizerConfig("momentum"))
    assert _resolved(task, heavy).algorithm.server_optimizer.learning_rate == 1.0
    # The clients' whole mean change: momentum 0.9 adds up to ten times the rate.
    own = _resolved(_own(task), heavy).algorithm
    assert own.server_optimizer.learning_rate == pytest.approx(0.1)
    assert own.client_optimizer.learning_rate == 0.7


@pytest.mark.usefixtures("briefly")
def test_clients_of_one_example_leave_nothing_to_try(tmp_path):
    task = _own(toy.scalar_task({"a": [1.0], "b": [2.0]}))
    result = motley.run(task, FedAvg(), _PLAIN, rounds=1, root_output_dir=str(tmp_path))
    record = _record(tmp_path / "run")
    assert result.learning_rates.empty and "chosen_rates" not in record and _rate(record) == 0.1


@pytest.mark.usefixtures("briefly")
def test_validation_and_test_clients_are_not_looked_at():
    task = _own(toy.scalar_task({"a": [1.0, 3.0], "b": [2.0, 2.5, 4.0]}))
    empty = InMemoryClients(
        {"v": {part: {"x": np.zeros(0, np.float32)} for part in task.valid.spec}}
    )
    blind = dataclasses.replace(task, valid=empty, test=empty)
    assert _chosen(task, FedAvg()) == _chosen(blind, FedAvg())


def _record(path):
    return json.loads((path / "run.json").read_text())


def _rate(record):
    return record["configuration"]["algorithm.client_optimizer"]["learning_rate"]


@pytest.mark.usefixtures("briefly")
def test_a_resumed_run_has_the_rates_that_it_began_with(tmp_path, monkeypatch):
    task = _own(toy.scalar_task(_TWO_ONES))
    result = motley.run(task, FedAvg(), _PLAIN, rounds=1, root_output_dir=str(tmp_path))
    (rate,) = result.learning_rates.learning_rate[result.learning_rates.is_chosen]
    record = _record(tmp_path / "run")
    assert _rate(record) == rate == 1.0
    assert record["flags"]["algorithm.client_optimizer"]["learning_rate"] is None
    record["chosen_rates"]["client_optimizer"]["chosen"] = 0.123
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    monkeypatch.setattr(rate_probe, "choose", None)
    motley.run(task, FedAvg(), _PLAIN, rounds=2, root_output_dir=str(tmp_path))
    assert _rate(_record(tmp_path / "run")) == 0.123


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["vectorized", "tff"])
def test_every_backend_chooses_the_same(backend):
    task = _own(toy.classifier_task())
    one = motley.run(task, FedAvg(), _PLAIN, rounds=1).learning_rates
    again = motley.run(task, FedAvg(), _PLAIN, rounds=1, backend=BackendConfig(backend))
    assert again.learning_rates.equals(one) and one.is_chosen.sum() == 1


@pytest.mark.usefixtures("briefly")
def test_clients_who_contradict_each_other_are_tried_alone():
    """One model of all is best at 0, where it begins; each client's own is at 1 or -1."""
    task = _own(toy.scalar_task({"a": [1.0, 1.0], "b": [-1.0, -1.0]}))
    (together,) = _chosen(task, FedAvg()).values()
    assert min(loss for _, loss in together["tried"]) == pytest.approx(0.5)
    for algorithm in (Ditto(), HypCluster(num_clusters=2)):
        (alone,) = _chosen(task, algorithm).values()
        assert alone["chosen"] == 1.0 and dict(alone["tried"])[1.0] == pytest.approx(0.0)


@pytest.mark.slow
def test_defaults_are_as_good_as_the_best_rate_where_the_answer_is_personal():
    """At one rate of 0.01, Motley's default, accuracy ends 0.07 lower."""
    task = motley.create_task("table", data=owners.table(), client="owner", label="yes")
    rates = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
    several = motley.run(task, FedAvg(), FineTuning(learning_rates=rates)).candidates
    means = several.groupby(["split", "candidate"]).value.mean()
    of_rates = {}
    for rate in rates:
        own = [c for c in means["valid"].index if c == "0" or c.startswith(f"lr{rate}_")]
        of_rates[rate] = means["test"][means["valid"][own].idxmax()]
    clients = motley.run(task, FedAvg()).clients
    by_default = clients.personalized[clients.split == "test"].mean()
    assert by_default > max(of_rates.values()) - 0.02
    assert of_rates[0.01] < by_default - 0.05
