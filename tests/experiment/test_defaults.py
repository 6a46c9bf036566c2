"""What depends on another value, by hand: as the papers and the trainers' help have it."""

import dataclasses
import functools

import pytest

from motley_tff.algorithms import (
    Centralized,
    Ditto,
    FedAvg,
    FedBabu,
    FineTuning,
    HypCluster,
    KnnPer,
    LpFt,
    OptimizerConfig,
    PerFedAvg,
    PersFL,
    PFedMe,
)
from motley_tff.experiment import defaults
from motley_tff.experiment.config import EvaluationConfig, LoopConfig, RunConfig, WarmStartConfig
from tests.errors import refused

_SGD = OptimizerConfig("sgd", 0.5)
_DEVICES, _SILOS = "cross_device", "cross_silo"


def _resolved(algorithm, personalization=None, setting=_SILOS, num_clients=7, **loop):
    config = RunConfig(algorithm, personalization, LoopConfig(**loop))
    return defaults.resolve(config, setting, num_clients)


@pytest.mark.parametrize(
    ("algorithm", "setting", "tuning", "includes"),
    [
        (FedAvg(), _DEVICES, "global", True),
        (Ditto(), _SILOS, "global", False),
        (PersFL(), _SILOS, "per_client", False),
        (HypCluster(), _DEVICES, "global", False),
        (PerFedAvg(), _SILOS, "global", False),
        (PerFedAvg(), _DEVICES, "global", True),
    ],
)
def test_who_chooses_among_what(algorithm, setting, tuning, includes):
    """A part that is given leaves the rest as it was."""
    for evaluation in (EvaluationConfig(), EvaluationConfig(ood_examples=20)):
        whole = _resolved(algorithm, setting=setting, evaluation=evaluation).loop.evaluation
        assert (whole.tuning, whole.include_baseline_candidate) == (tuning, includes)
        assert whole.ood_examples == evaluation.ood_examples
    other = EvaluationConfig(include_baseline_candidate=not includes, tuning="per_client")
    assert _resolved(algorithm, setting=setting, evaluation=other).loop.evaluation == other


@pytest.mark.parametrize(
    ("setting", "num_clients", "loop", "cohort"),
    [
        (_DEVICES, 7, {}, 7),
        (_DEVICES, 10, {}, 10),
        (_DEVICES, 3000, {}, 10),
        (_DEVICES, 7, {"clients_per_train_round": 8}, 8),  # Which is refused later.
        (_DEVICES, 7, {"clients_fraction": 0.5}, 4),  # 3.5, to the even number.
        (_DEVICES, 7, {"clients_fraction": 0.01}, 1),
        (_DEVICES, None, {}, 10),
        (_SILOS, 30, {}, None),
        (_SILOS, 30, {"clients_per_train_round": 10}, 10),
    ],
)
def test_how_many_take_part(setting, num_clients, loop, cohort):
    whole = _resolved(FedAvg(), setting=setting, num_clients=num_clients, **loop)
    assert whole.loop.clients_per_train_round == cohort


@pytest.mark.parametrize(
    ("balance", "total_rounds", "rounds"),
    [(1000.0, 11, 5), (1000.0, 1, 1), (1000.0, 0, 1), (0.0, 11, 1)],
)
def test_a_penalty_on_popular_clusters_lasts_half_of_the_rounds(balance, total_rounds, rounds):
    clusters = HypCluster(balance=balance)
    assert _resolved(clusters, total_rounds=total_rounds).algorithm.balance_rounds == rounds
    balanced = dataclasses.replace(clusters, balance_rounds=3)
    assert _resolved(balanced, total_rounds=total_rounds).algorithm.balance_rounds == 3


@pytest.mark.parametrize(
    ("algorithm", "rate"),
    [
        (Ditto(_SGD), 0.5),
        (PFedMe(_SGD, personal_optimizer=OptimizerConfig("adam", 0.3)), 0.3),
        (PerFedAvg(_SGD), 0.05),
    ],
)
def test_personal_rates_are_those_of_the_clients(algorithm, rate):
    optimizer = _resolved(algorithm).algorithm.personal_optimizer
    assert optimizer.learning_rate == pytest.approx(rate)
    assert optimizer.name == algorithm.personal_optimizer.name


def test_per_fedavg_is_trained_for_the_steps_of_its_fine_tuning():
    tuned = FineTuning(OptimizerConfig("sgd", 0.01), learning_rates=(0.2,))
    for setting in (_SILOS, _DEVICES):
        whole = _resolved(PerFedAvg(_SGD), tuned, setting)
        assert whole.algorithm.personal_optimizer == OptimizerConfig("sgd", 0.2)
    assert _resolved(PerFedAvg(_SGD), setting=_DEVICES).personalization.max_epochs == 20
    with refused("learning_rates", (0.1, 0.2), "one rate"):
        _resolved(PerFedAvg(), FineTuning(learning_rates=(0.1, 0.2)))


def test_fine_tuning_of_a_users_data_tries_three_decades():
    own = functools.partial(defaults.resolve, setting=_DEVICES, is_own_data=True)
    assert own(RunConfig()).personalization.learning_rates == (0.01, 0.1, 1.0)
    assert _resolved(FedAvg(), setting=_DEVICES).personalization.learning_rates == (0.01,)
    said = own(RunConfig(personalization=FineTuning(learning_rates=(0.2,))))
    assert said.personalization.learning_rates == (0.2,)
    # Training adapts at that rate: one, and not several.
    assert own(RunConfig(PerFedAvg(_SGD))).personalization.learning_rates == (0.01,)


@pytest.mark.parametrize(
    ("algorithm", "personalization", "kind"),
    [
        (FedAvg(), None, FineTuning),
        (FedBabu(), LpFt(), LpFt),
        (Centralized(), KnnPer(), KnnPer),
        (Ditto(), None, type(None)),
        (HypCluster(), None, type(None)),
    ],
)
def test_who_personalizes(algorithm, personalization, kind):
    assert type(_resolved(algorithm, personalization).personalization) is kind


@pytest.mark.parametrize(
    ("algorithm", "personalization"),
    [(Ditto(), FineTuning()), (HypCluster(), KnnPer()), (PerFedAvg(), KnnPer())],
)
def test_a_personalization_too_many_is_refused(algorithm, personalization):
    with refused("personalization", personalization.card.name, "none"):
        _resolved(algorithm, personalization)


def test_fine_tuning_has_the_batches_of_training():
    algorithm = FedAvg(train_batch_size=32)
    assert _resolved(algorithm).personalization.batch_size == 32
    assert _resolved(algorithm, FineTuning(batch_size=4)).personalization.batch_size == 4


def test_a_warm_start_has_the_clusters_rates_but_for_its_own():
    clusters = HypCluster(_SGD, OptimizerConfig("adam", 0.3))
    own = WarmStartConfig(2, server_learning_rate=0.7, server_adam_epsilon=1e-3)
    whole = defaults.resolve(RunConfig(clusters, warm_start=own), _SILOS)
    before = whole.warm_start.algorithm(whole.algorithm)
    assert before.client_optimizer == _SGD
    assert before.server_optimizer == OptimizerConfig("adam", 0.7, {"epsilon": 1e-3})


@pytest.mark.parametrize(
    ("before", "setting", "field", "value"),
    [
        ({"server_learning_rate": 0.7}, _SILOS, "server_learning_rate", 0.7),
        ({"server_adam_epsilon": 0.0}, _DEVICES, "server_adam_epsilon", 0.0),
        ({"fraction": 0.5}, _DEVICES, "fraction", 0.5),
        ({"fraction": 0.5, "total_rounds": 1}, _SILOS, "fraction", 0.5),
    ],
)
def test_a_warm_start_that_says_too_much_is_refused(before, setting, field, value):
    config = RunConfig(HypCluster(), warm_start=WarmStartConfig(**before))
    with refused(field, value, expected="", advice=""):
        defaults.resolve(config, setting)


def test_to_resolve_twice_is_to_resolve_once():
    for algorithm in (FedAvg(), PersFL(), HypCluster(balance=1.0), PerFedAvg()):
        whole = _resolved(algorithm, setting=_DEVICES)
        assert defaults.resolve(whole, _DEVICES, 7) == whole
