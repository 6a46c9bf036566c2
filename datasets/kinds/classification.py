"""What tasks of classes share: loss, accuracy, ROC-AUC, classes. Outputs are logits."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.kinds import cross_entropy as cross_entropy_lib
from motley_tff.core import clients as clients_lib, functional_model, rows, task as task_lib
from motley_tff.core.errors import UserError

_MAX_CLASSES = 1000


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (softmax cross entropy, ones), in the shape of the labels."""
    losses = cross_entropy_lib.cross_entropy(labels, logits)
    return losses, tf.ones_like(losses)


def accuracy(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (1.0 where the largest logit is the label's [batch], ones [batch])."""
    correct = tf.cast(tf.equal(predicted_class(logits), labels), tf.float32)
    return correct, tf.ones_like(correct)


def predicted_class(logits: tf.Tensor) -> tf.Tensor:
    """Returns the class of the largest logit, the first of equals, int32 [batch]."""
    return tf.argmax(logits, -1, tf.int32)


def classes_in(where: str, labels: Iterable[str], advice: str = "") -> list[str]:
    """Returns the different labels, in the order of numbers if all are; UserError with one alone,
    or more than 1,000, that says `where` they are from.
    """
    known = sorted(set(labels))
    with contextlib.suppress(ValueError):
        known.sort(key=float)
    if len(known) < 2:
        raise UserError(where, f"{known[0]!r} as every training label", "labels that differ")
    if len(known) > _MAX_CLASSES:
        problem = f"{len(known):,} classes, such as {known[0][:30]!r}"
        raise UserError(where, problem, f"at most {_MAX_CLASSES:,}", advice)
    return known


def cross_entropy_of_known(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (softmax cross entropy, 1.0 where a label is not -1), [batch] each: no output stands
    for a label that was not there in training. `accuracy` counts it as wrong.
    """
    losses = cross_entropy_lib.cross_entropy(tf.maximum(labels, 0), logits)
    return losses, tf.cast(labels >= 0, tf.float32)


def fields(classes: Sequence[str], clients: Mapping[str, clients_lib.Clients]) -> dict[str, Any]:
    """Returns a task's clients, and its loss and metrics of classes that training parts have:
    accuracy, and of two classes the ROC-AUC of the second.
    """
    metrics = [task_lib.Metric("accuracy", accuracy, higher_is_better=True)]
    if len(classes) == 2:
        metrics.append(task_lib.Metric("roc_auc", area_under_roc_of_known, True, ranks=True))
    return {
        **clients,
        "loss": cross_entropy_of_known,
        "metrics": tuple(metrics),
        "score": second_class_score if len(classes) == 2 else one_vs_rest_scores,
        "scored_classes": 0 if len(classes) == 2 else len(classes),
        "prediction": predicted_class,
        "label_names": tuple(classes),
        "label_field": "label",
    }


def second_class_score(logits: tf.Tensor) -> tf.Tensor:
    """Returns what ranks examples of two classes, [batch], from logits [batch, 2]."""
    return logits[:, 1] - logits[:, 0]


def one_vs_rest_scores(logits: tf.Tensor) -> tf.Tensor:
    """Returns the log-odds of each class against the rest, [batch, classes], from logits.

    They rank examples as softmax's probabilities do, but do not round to 1 where a model is sure.
    """
    is_other = ~tf.eye(logits.shape[-1], dtype=tf.bool)[None]
    others = tf.where(is_other, logits[:, None, :], -float("inf"))
    return logits - tf.reduce_logsumexp(others, axis=-1)


def area_under_roc(labels: tf.Tensor, scores: tf.Tensor, is_real: tf.Tensor) -> tf.Tensor:
    """Returns the share of pairs of a 1 and a 0 whose scores are in the right order.

    The area under the ROC curve as the Mann-Whitney statistic; ties count half. Not-a-number with
    one class only.

    Args:
      labels: float32 [n], above 0 for the one class, else the other.
      scores: float32 [n], all finite.
      is_real: bool [n]; other rows are padding.
    """
    scores = tf.where(is_real, scores, tf.float32.max)  # Behind all others.
    positive = tf.cast(is_real & (labels > 0.0), tf.float32)
    negative = tf.cast(is_real & (labels <= 0.0), tf.float32)
    order = tf.argsort(scores)
    ordered = tf.gather(scores, order)
    before = tf.concat([[0.0], tf.cumsum(tf.gather(negative, order))], 0)
    # How many of the other class score less, and how many less or the same.
    less = tf.gather(before, tf.searchsorted(ordered, scores, "left"))
    no_more = tf.gather(before, tf.searchsorted(ordered, scores, "right"))
    area = tf.reduce_sum(positive * (less + no_more)) / 2.0
    return area / (tf.reduce_sum(positive) * tf.reduce_sum(negative))


def area_under_roc_of_known(labels: tf.Tensor, scores: tf.Tensor, is_real: tf.Tensor) -> tf.Tensor:
    """Returns `area_under_roc` of labels 0 and 1, without those that are -1: of neither class."""
    return area_under_roc(labels, scores, is_real & (labels >= 0.0))


def hand_on(inputs: str, labels: str) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Returns a preprocessing that hands on two fields of the examples as they are."""

    @rows.taken
    def preprocess(
        examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return examples[inputs], examples[labels]

    return preprocess


def image_model(
    architecture: Callable[[int], tf.keras.Model],
    num_classes: int,
    image_shape: tuple[int, int, int],
) -> functional_model.FunctionalModel:
    """Returns the model that an architecture makes of the number of classes, for images of a
    height, width and channels.
    """
    return functional_model.from_keras(
        functools.partial(architecture, num_classes), np.zeros((1, *image_shape), np.float32)
    )


def image_task(
    model: functional_model.FunctionalModel,
    num_classes: int,
    clients: Mapping[str, clients_lib.Clients],
    facts: Mapping[str, Any],
    **fields: Any,
) -> task_lib.Task:
    """Returns a task of telling images' classes, 0 to `num_classes`, exclusive; of devices, if
    nothing else is said; **fields are the task's others: name, preprocessing.
    """
    return task_lib.Task(
        model=model,
        loss=cross_entropy,
        metrics=(task_lib.Metric("accuracy", accuracy, higher_is_better=True),),
        facts={**facts, "num_classes": num_classes},
        label_field="label",
        score=one_vs_rest_scores,
        scored_classes=num_classes,
        prediction=predicted_class,
        **{"setting": "cross_device", **clients, **fields},
    )
