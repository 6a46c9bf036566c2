"""Metrics that an evaluation is asked for: which a task takes, and what clients' work gives."""

import dataclasses

import numpy as np
import pytest

from datasets.kinds import classification
from motley_tff import algorithms
from motley_tff.backends import base
from motley_tff.core import random_streams
from motley_tff.evaluation import client_scores, evaluate, further_metrics
from motley_tff.evaluation.config import EvaluationConfig
from motley_tff.metrics import per_client
from motley_tff.metrics.per_client.examples import ClientExamples
from tests import eager, synthetic, toy
from tests.contracts import registry
from tests.errors import refused

_OF_CLASSES = ("balanced_accuracy", "macro_f1", "roc_auc")


def _with(task, *names, **more):
    return further_metrics.with_metrics(task, EvaluationConfig(metrics=names, **more))


def _classes():
    """Returns a task of three classes, which have a score each."""
    score = classification.one_vs_rest_scores
    return dataclasses.replace(toy.classifier_task(), score=score, scored_classes=3)


def test_a_task_without_them_stays_as_it_is():
    task = toy.classifier_task()
    assert _with(task) == task
    assert _with(task, tuning_metric="accuracy").chooses_by is None


def test_what_a_task_takes():
    task = _with(_classes(), "macro_f1", tuning_metric="loss")
    assert [m.name for m in task.metrics] == ["accuracy", "macro_f1"]
    assert [m.name for m in task.summarized] == ["macro_f1", "loss"]
    assert task.tuning_metric.name == "loss" and task.metric.name == "accuracy"
    # What a task has already is not computed twice.
    table = _with(synthetic.task("table"), "roc_auc")
    assert not table.by_client and [m.name for m in table.summarized] == ["roc_auc", "loss"]
    # Few examples of a user's say little by their accuracy; of numbers the loss is the error.
    assert table.tuning_metric.name == "loss"
    assert _with(synthetic.task("school"), "r2").chooses_by is None
    assert _with(task, "macro_f1", tuning_metric="loss") == task


@pytest.mark.parametrize(
    ("name", "metric", "expected"),
    [
        ("text", "macro_f1", "no class"), ("table", "r2", "macro_f1"),
        ("school", "macro_f1", "r2"), ("table", "loss", "macro_f1"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(name, metric, expected):
    with refused("metrics", metric, expected):
        _with(synthetic.task(name), metric)


def test_a_misspelt_metric_is_named():
    with refused("tuning_metric", "f1_macro", "loss", advice="macro_f1"):
        _with(_classes(), tuning_metric="f1_macro")
    many = dataclasses.replace(_classes(), scored_classes=101)
    with refused("metrics", "roc_auc", "macro_f1"):
        _with(many, "roc_auc")


def _task():
    """Returns silos of uneven sizes, whose stacks have padding behind the examples."""
    silos = toy.classifier_silos((7, 12, 3, 20))
    scored = dataclasses.replace(silos, score=classification.one_vs_rest_scores, scored_classes=3)
    return _with(scored, *_OF_CLASSES)


def _arrays(task, backend, name):
    work = registry.PERSONALIZATIONS[name](task).work(("valid", "test"), "train")
    weights = registry.BROADCASTS.get(name, lambda w: w)(task.model.initial_weights(7))
    key = random_streams.key(5, "personalization", 3)
    call = base.ClientCall(task, work, weights, task.valid, task.valid.ids, key)
    return client_scores.arrays_of(task, [metrics for _, metrics in backend.map_clients(call)])


def _reference(task, name):
    with eager.running(), registry.BACKENDS[registry.REFERENCE]() as backend:
        return _arrays(task, backend, name)


def test_they_are_those_of_the_exported_scores():
    """The predicted class is that of the largest score, and accuracy the share that is right."""
    task = _task()
    reference = _reference(dataclasses.replace(task, exports_scores=True), "finetuning")
    sizes = reference["num_examples/test"]
    assert sizes.tolist() == [7, 12, 3, 20]
    labels = np.split(reference["scores/test/labels"], np.cumsum(sizes)[:-1])
    outputs = np.split(reference["scores/test/outputs"], np.cumsum(sizes)[:-1])
    for i, (own, scores) in enumerate(zip(labels, outputs, strict=True)):
        by_class = scores.reshape(len(own), -1, 3)
        predictions = by_class.argmax(axis=2)
        is_right = (predictions == own[:, None]).mean(axis=0)
        np.testing.assert_allclose(reference["curves/test/accuracy"][i], is_right, rtol=1e-6)
        for metric in task.by_client:
            expected = per_client.of_client(metric.name, ClientExamples(own, predictions, by_class))
            found = reference[f"curves/test/{metric.name}"][i]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(np.unique(reference["curves/test/macro_f1"])) > 4


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "vectorized")) for n in registry.BACKENDS],
)
def test_backends_agree(name):
    reference = _reference(_task(), "hypcluster")
    with registry.BACKENDS[name]() as backend:
        arrays = _arrays(_task(), backend, "hypcluster")
    assert not [array for array in arrays if array.startswith("scores/")]  # Kept for nobody.
    for metric in ("accuracy", *_OF_CLASSES):
        for part in ("valid", "test"):
            key = f"curves/{part}/{metric}"
            np.testing.assert_allclose(arrays[key], reference[key], rtol=1e-5)


@pytest.mark.parametrize("name", ["knn_per", "hypcluster"])
def test_all_who_score_candidates_give_them(name):
    arrays = _reference(_task(), name)
    accuracy, balanced = (arrays[f"curves/test/{m}"] for m in ("accuracy", "balanced_accuracy"))
    assert balanced.shape == accuracy.shape and np.isfinite(balanced).all()
    assert np.array_equal(balanced == 1, accuracy == 1)


def _scores(**values):
    arrays = {name: np.float32(value) for name, value in values.items()}
    ids = tuple("abc"[: len(next(iter(arrays.values())))])
    sizes = np.ones(len(ids), int)
    return client_scores.ClientScores(ids, arrays, sizes, sizes)


def test_the_tuning_metric_chooses():
    """Candidate 1 is best by accuracy, 2 by macro F1, whose mean leaves out who has none."""
    task = _with(toy.classifier_silos((7, 12, 3)), "macro_f1")
    nan = np.nan
    of_split = _scores(
        accuracy=[[0.1, 0.9, 0.5]] * 3, macro_f1=[[0.1, 0.2, 0.3], [0.0, 0.2, 0.1], [nan] * 3]
    )
    scores = {"valid": of_split, "test": of_split}
    assert evaluate.choose(task, scores, "global", True)["test"].tolist() == [1, 1, 1]
    tuned = _with(toy.classifier_silos((7, 12, 3)), tuning_metric="macro_f1")
    assert evaluate.choose(tuned, scores, "global", True)["test"].tolist() == [1, 1, 1]
    assert evaluate.choose(tuned, scores, "per_client", True)["test"].tolist() == [2, 1, 0]


def test_algorithms_on_silos_give_them():
    task = _task()
    built = registry.STATEFUL["ditto"](task, task.model.initial_weights(7))
    work = algorithms.Ditto().personalization(task, built).work(("valid", "test"), "train")
    states = [built.initial_client_state(i) for i in range(len(task.valid))]
    call = base.ClientCall(
        task, work, built.initial_weights, task.valid, task.valid.ids, np.int32([1, 2]), states
    )
    with eager.running(), registry.BACKENDS[registry.REFERENCE]() as backend:
        arrays = client_scores.arrays_of(task, [m for _, m in backend.map_clients(call)])
    assert arrays["curves/test/macro_f1"].shape == (4, 2)
    assert np.isfinite(arrays["curves/test/macro_f1"]).all()
