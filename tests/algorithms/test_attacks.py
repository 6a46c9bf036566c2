"""Attacks: who attacks, what they send, and which means keep it out."""

import dataclasses
import warnings

import numpy as np
import pytest

import motley_tff as motley
from motley_tff.algorithms import FedAvg, FedBabu, HypCluster, MrMtl, OptimizerConfig, attacks
from motley_tff.backends import sequential
from motley_tff.core import clients
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")

_STEP = FedAvg(OptimizerConfig("sgd", 1.0), OptimizerConfig("sgd", 1.0), 1, 100)
# Clients' means; a full step at rate 1 goes there.
_MEANS = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0}


def _scalar():
    return toy.scalar_task({name: [value] * 2 for name, value in _MEANS.items()})


def _one_round(task, algorithm, robust=None):
    backend = sequential.SequentialBackend(1, robust, trim_share=0.2)
    return toy.train(task, algorithm, backend=backend).weights


def _attacked(task, text, algorithm=_STEP, seed=3):
    built = algorithm.build(task, task.model.initial_weights(0))
    return attacks.attacked(built, task, attacks.parse(text), seed)


def test_a_seeded_share_sends_its_update_times_minus_the_factor():
    task = _scalar()
    (attacker,) = attacks.attackers(task, attacks.parse("sign_flip:0.2:10"), 3)
    chosen = {attacks.attackers(task, attacks.parse("sign_flip:0.2:1"), s)[0] for s in range(20)}
    assert len(chosen) > 3
    (update,) = _one_round(task, _attacked(task, "sign_flip:0.2:10"))
    honest = sum(value for name, value in _MEANS.items() if name != attacker)
    assert update.item() == pytest.approx((honest - 10 * _MEANS[attacker]) / 5)


def test_what_is_left_out_moves_nothing():
    task = _scalar()
    (attacker,) = attacks.attackers(task, attacks.parse("sign_flip:0.2:1000"), 3)
    values = sorted([value for name, value in _MEANS.items() if name != attacker])
    (median,) = _one_round(task, _attacked(task, "sign_flip:0.2:1000"), "median")
    assert median.item() == pytest.approx(values[1])  # The attacker is below all.
    (trimmed,) = _one_round(task, _attacked(task, "sign_flip:0.2:1000"), "trimmed_mean")
    assert trimmed.item() == pytest.approx(np.mean(values[:3]))


def test_flipped_labels_are_trained_on_and_nothing_else():
    task = toy.without_keras(toy.classifier_task(3))
    task = dataclasses.replace(task, facts={"num_classes": 3})
    (attacker,) = attacks.attackers(task, attacks.parse("label_flip:0.3"), 3)
    flipped = {i: task.train.fetch(i)["train"] for i in task.train.ids}
    flipped[attacker] = flipped[attacker] | {"y": 2 - flipped[attacker]["y"]}
    by_hand = dataclasses.replace(
        task, train=clients.InMemoryClients({i: {"train": e} for i, e in flipped.items()})
    )
    honest, expected = (
        _one_round(t, _STEP.build(t, t.model.initial_weights(0))) for t in (task, by_hand)
    )
    for a, b in zip(_one_round(task, _attacked(task, "label_flip:0.3")), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert not all(np.allclose(a, b) for a, b in zip(expected, honest, strict=True))


def test_silos_that_attack_are_named_and_not_evaluated():
    silos, attack = toy.classifier_silos(), attacks.parse("sign_flip:0.2:1")
    chosen = attacks.attackers(silos, attack, 3)
    task = attacks.unevaluated(silos, attack, 3)
    assert task.facts["attackers"] == sorted(chosen) and task.train is silos.train
    others = [i for i in silos.test.ids if i not in chosen]
    assert list(task.test.ids) == list(task.valid.ids) == others and others != [*silos.test.ids]
    assert attacks.unevaluated(silos, None, 3) is silos
    devices = toy.classifier_task()
    assert attacks.unevaluated(devices, attack, 3).test is devices.test
    only = dataclasses.replace(silos, test=clients.subset(silos.test, chosen))
    with refused("attack", "sign_flip:0.2:1", "all 1 test clients"):
        attacks.unevaluated(only, attack, 3)


@pytest.mark.parametrize(
    "text",
    ["label_flip", "label_flip:0", "label_flip:1", "label_flip:1.5", "label_flip:nan",
     "sign_flip:0.1", "sign_flip:0.1:0", "sign_flip:0.1:-1", "sign_flip:0.1:inf", "sign_flip:x:1",
     "noise:0.1", "None", ""],
)  # fmt: skip
def test_attacks_that_are_none(text):
    with refused("attack", text):
        attacks.parse(text)


def test_what_cannot_be_attacked():
    with refused("attack", "sign_flip:0.2:1", "all 1 training clients"):
        _attacked(toy.scalar_task({"all": [1.0]}), "sign_flip:0.2:1")
    with refused("attack", "label_flip:0.2", "classes", "sign_flip"):
        _attacked(_scalar(), "label_flip:0.2")
    task = toy.classifier_task()
    models = [task.model.initial_weights(i) for i in range(2)]
    several, one = (HypCluster(num_clusters=k).build(task, models[:k]) for k in (2, 1))
    # MR-MTL's updates have a client's place beside the model's change.
    silos = toy.classifier_silos()
    placed = MrMtl().build(silos, silos.model.initial_weights(0))
    for built, its_task in ((several, task), (one, task), (placed, silos)):
        with refused("attack", "sign_flip:0.2:1", "one model's change"):
            attacks.attacked(built, its_task, attacks.parse("sign_flip:0.2:1"), 0)


@pytest.mark.parametrize(
    ("share", "cohort", "rounds", "said"),
    [
        (0.1, 5, 1, "nobody of 5 clients a round, and is their plain mean; give 0.2, or"),
        (0.4, 2, 1, "; train with more clients"),
        (0.1, None, 1, ""),  # All ten.
        (0.2, 5, 1, ""),
        (0.0, 5, 1, ""),
        (0.1, 5, 0, ""),
    ],
)
def test_a_trimmed_mean_that_leaves_nobody_out_is_said(share, cohort, rounds, said):
    task = toy.scalar_task({f"c{i}": [1.0] for i in range(10)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trimmed = {"aggregator": "trimmed_mean", "trim_share": share}
        for aggregator in (trimmed, {"aggregator": "median"}):
            # Nobody trains: FedBABU refuses a model of one layer.
            with refused("algorithm", "fedbabu"):
                motley.run(
                    task, FedBabu(), rounds=rounds, clients_per_round=cohort,
                    backend=motley.BackendConfig("sequential", **aggregator),
                )  # fmt: skip
    lines = [str(warning.message) for warning in caught if "trimmed_mean" in str(warning.message)]
    assert [said in line for line in lines] == [True] * bool(said)
