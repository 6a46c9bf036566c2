"""What an evaluation looks at beside its tables, on numbers one can work out by hand.

The model is one number w, 0 at first, with loss 0.5 (w - x)^2; one full batch at rate 1 sets it to
the mean of the personalization examples.
"""

import dataclasses

import numpy as np
import pytest

from motley_tff.algorithms import FineTuning, Local, optimizers
from motley_tff.backends import sequential
from motley_tff.core import clients
from motley_tff.evaluation.config import EvaluationConfig
from motley_tff.evaluation.evaluator import Evaluator
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")

# (personalization, evaluation): gains, is hurt, has nothing to hold out.
_HELD = {"good": ([4.0] * 5, [4.0]), "bad": ([-4.0] * 5, [4.0]), "tiny": ([2.0], [2.0])}
_ZERO = (np.zeros([1, 1], np.float32),)


def _evaluate(task=None, weights=_ZERO, **config):
    """Returns `{table: rows}` of an evaluation that takes one step of fine-tuning."""
    task = task or toy.scalar_task({"t": [1.0]}, _HELD)
    if task.setting == "cross_device":  # One validation client will do.
        task = dataclasses.replace(task, valid=clients.subset(task.valid, task.valid.ids[:1]))
    rate = optimizers.OptimizerConfig("sgd", 1.0)
    tuned = FineTuning(rate, (1.0,), 1, 10).build(task)
    config = EvaluationConfig(include_baseline_candidate=False, **config)
    evaluator = Evaluator(config, sequential.SequentialBackend(), task, tuned, seed=1)
    ids = {split: task.splits[split].ids for split in ("valid", "test")}
    calls = []
    _, tables = evaluator.evaluate(
        weights, None, ids, np.array([1, 2], np.int32), lambda: calls.append(1)
    )
    looked_at = len(task.test) + (1 if task.setting == "cross_device" else 0)
    assert len(calls) == evaluator.num_evaluations * looked_at
    return tables


def _test_rows(tables, table, key):
    return {row[key]: row for row in tables[table] if row["split"] == "test"}


def test_by_default_there_is_one_evaluation_and_no_further_table():
    tables = _evaluate()
    assert not any(list(tables[name]) for name in ("sizes", "acceptance", "scores"))
    clients = _test_rows(tables, "clients", "client_id")
    values = {i: (row["baseline"], row["personalized"]) for i, row in clients.items()}
    assert values == {"toy:good": (8, 0), "toy:bad": (8, 32), "toy:tiny": (2, 0)}


def test_rules_of_acceptance():
    tables = _evaluate(acceptance=("always", "min_examples:2", "validated:0.4"))
    rows = _test_rows(tables, "acceptance", "rule")
    accepted = {rule: row["num_accepted"] for rule, row in rows.items()}
    assert accepted == {"always": 3, "min_examples:2": 2, "validated:0.4": 2}
    # Personalized losses are 0, 32, 0; `tiny` keeps its 2 where it does not accept.
    assert rows["always"]["personalized_mean"] == pytest.approx(32 / 3)
    assert rows["validated:0.4"]["personalized_mean"] == pytest.approx(34 / 3)
    assert rows["always"]["pct_clients_hurt"] == pytest.approx(100 / 3)
    # The first rule, always, is that of the other tables.
    assert _test_rows(tables, "clients", "client_id")["toy:tiny"]["candidate"] == "1"


def test_test_clients_have_what_their_difference_rests_on():
    held = {"a": ([4.0], [4.0, 0.0, 4.0]), "b": ([2.0], [2.0])}
    tables = _evaluate(toy.scalar_task({"t": [1.0]}, held))
    rows = _test_rows(tables, "clients", "client_id")
    # Under 0 the losses are 8, 0, 8; under 4 they are 0, 8, 0: gains 8, -8, 8.
    assert rows["toy:a"]["delta_se"] == pytest.approx(np.std([8, -8, 8], ddof=1) / np.sqrt(3))
    assert (rows["toy:a"]["baseline_half"], rows["toy:a"]["delta_half"]) == (8, -8)
    assert rows["toy:a"]["num_gained"] is rows["toy:b"]["delta_se"] is None
    assert 0 < rows["toy:a"]["probability_hurt"] < 1
    summary = _test_rows(tables, "summary", "split")["test"]
    assert summary["pct_hurt_by_chance"] == 50
    assert summary["hurt_margin"] == pytest.approx(0.01 * (16 / 3 + 2) / 2)
    (valid,) = (row for row in tables["summary"] if row["split"] == "valid")
    assert np.isnan(valid["pct_truly_hurt"])


def test_the_tables_are_at_the_first_rule():
    clients = _test_rows(_evaluate(acceptance=("min_examples:2",)), "clients", "client_id")
    cells = {i: (row["candidate"], row["personalized"]) for i, row in clients.items()}
    assert cells == {"toy:good": ("1", 0), "toy:bad": ("1", 32), "toy:tiny": ("0", 2)}


def test_what_is_accepted_was_personalized_on_everything():
    """0 and 8 have mean 4: what is held out alone does not decide the model."""
    held = {"a": ([0.0, 8.0, 4.0, 4.0], [4.0])}
    tables = _evaluate(toy.scalar_task({"t": [1.0]}, held), acceptance=("validated:0.25",))
    assert _test_rows(tables, "clients", "client_id")["toy:a"]["personalized"] == 0


def test_smaller_personalization_sets():
    held = {"a": ([1.0, 3.0], [2.0]), "b": ([5.0], [5.0])}
    tables = _evaluate(toy.scalar_task({"t": [1.0]}, held), personalization_fractions=(0.5, 1.0))
    rows = _test_rows(tables, "sizes", "personalization_fraction")
    # From one of 1 and 3 the model is 1 off, from both right; b always has its one example.
    assert rows[0.5]["personalized_mean"] == pytest.approx(0.25)
    assert rows[1.0]["personalized_mean"] == 0
    # The other tables are at the first fraction.
    clients = _test_rows(tables, "clients", "client_id")
    assert clients["toy:a"]["personalized"] == 0.5
    assert clients["toy:a"]["num_personalization_examples"] == 1


def test_sizes_are_compared_with_everybody_taking_the_model():
    fractions = (1.0, 0.5)
    tables = _evaluate(personalization_fractions=fractions, acceptance=("min_examples:6",))
    rows = _test_rows(tables, "sizes", "personalization_fraction")
    # Under the rule, which nobody passes, the first would be all baselines: (8 + 8 + 2) / 3.
    assert [rows[f]["personalized_mean"] for f in fractions] == [pytest.approx(32 / 3)] * 2
    assert _test_rows(tables, "summary", "split")["test"]["personalized_mean"] == pytest.approx(6)


def test_other_clients_examples():
    alone = toy.scalar_task({"t": [1.0]}, {"a": ([4.0], [4.0])})
    clients = _test_rows(_evaluate(alone, ood_examples=5), "clients", "client_id")
    assert np.isnan(clients["toy:a"]["ood_baseline"])  # There are no others.
    tables = _evaluate(ood_examples=100)
    clients = _test_rows(tables, "clients", "client_id")
    # Good's model is 4; others' examples are 4 and 2: (0 + 2) / 2, and under 0 (8 + 2) / 2.
    assert (clients["toy:good"]["ood_baseline"], clients["toy:good"]["ood_personalized"]) == (5, 1)
    assert clients["toy:tiny"]["ood_personalized"] == 2
    valid = [row for row in tables["clients"] if row["split"] == "valid"]
    assert not any("ood_baseline" in row for row in valid)
    summary = _test_rows(tables, "summary", "split")["test"]
    # Bad: -4 on 4 and 2 is (32 + 18) / 2.
    assert summary["ood_personalized_mean"] == pytest.approx((1 + 25 + 2) / 3)
    curve = [r.get("ood_value") for r in tables["candidates"] if r["client_id"] == "toy:good"]
    assert curve == [None, None, 5, 1]  # Validation first.


def test_silos_validate_on_their_validation_part():
    silos = toy.without_keras(toy.classifier_silos((7, 12)))
    weights = silos.model.initial_weights(0)
    tables = _evaluate(silos, weights, acceptance=("validated", "always"))
    for row in tables["clients"]:
        if row["split"] == "valid":
            assert row["candidate"] == "0" or row["delta"] > 0
    assert [r["rule"] for r in tables["acceptance"]] == ["validated"] * 2 + ["always"] * 2


def test_models_that_are_personalized_in_training_have_no_set_to_cut():
    silos = toy.scalar_task({"a": [1.0]}, setting="cross_silo")
    built = Local().build(silos, silos.model.initial_weights(0))
    personal = Local().personalization(silos, built)
    config = EvaluationConfig(personalization_fractions=(0.5,))
    with refused("personalization_fractions", (0.5,), "1"):
        Evaluator(config, sequential.SequentialBackend(), silos, personal, 1)
