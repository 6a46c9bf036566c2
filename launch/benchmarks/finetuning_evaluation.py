"""Fine-tuning evaluation on the EMNIST CNN: every client trains, and is scored after every epoch.

Against `tff.learning.algorithms.build_personalization_eval_computation` with a personalization
that does the same, written as in TFF's tutorial.
"""

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from launch.benchmarks import ALL_THREADS, bare_loop, emnist_cnn, rounds, stock
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff.algorithms import FineTuning, optimizers, scoring
from motley_tff.backends import base
from motley_tff.backends.tff import backend as tff_backend
from motley_tff.backends.tff.runtime import tff_runtime
from motley_tff.core import client_work, random_streams, task as task_lib
from motley_tff.core.lazy import tff

_LEARNING_RATE = 0.01
_KEY = random_streams.key(rounds.SEED, "personalization", 0)


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure; stock TFF uses all threads, as it does by default."""
    measured = min(sizes.finetuning_measured_clients, sizes.finetuning_clients)
    scale = sizes.finetuning_clients / measured
    task = emnist_cnn.create_task([1], [sizes.finetuning_images] * measured)
    title = (
        f"fine-tuning {sizes.finetuning_clients} clients x {sizes.finetuning_epochs} epochs of the "
        f"EMNIST CNN, {sizes.finetuning_images} images to personalize on and as many to evaluate "
        f"on after every epoch, batch {sizes.emnist_batch_size}"
    )
    with tff_runtime(intra_op_threads=threads or None) as worker:
        listed = [
            _bare(task, sizes),
            _motley(*rounds.sequential_backend(threads), task, sizes),
            _motley("tff", tff_backend.TffBackend(), task, sizes)._replace(
                worker_pids=(worker.pid,)
            ),
        ]
        if threads == ALL_THREADS:
            listed.append(_stock(task, sizes)._replace(worker_pids=(worker.pid,)))
        yield Plan(title, [c._replace(amount=measured, scale=scale) for c in listed])


def _bare(task: task_lib.Task, sizes: Sizes) -> Contender:
    """Returns the bare loop over client after client; its batches are the same in every epoch."""
    walk = client_work.Pass("personalization", lambda carry, _: carry, sizes.emnist_batch_size)
    weights = task.model.initial_weights(rounds.SEED)
    batches = [bare_loop.batches(task.test, [i], walk, _KEY) for i in task.test.ids]
    train = bare_loop.build(task, _LEARNING_RATE)

    @tf.function(autograph=False)
    def score(weights: tuple[tf.Tensor, ...], examples: dict[str, tf.Tensor]) -> tf.Tensor:
        x, y = task.preprocess(examples, False, tf.constant(_KEY))
        outputs = task.model.predict(weights, x, False, _KEY)
        return tf.reduce_mean(task.metric.function(y, outputs)[0])

    def run(num_clients: int) -> dict[str, float]:
        accuracies = []
        for client_id, of in zip(task.test.ids[:num_clients], batches, strict=False):
            examples = dict(task.test.fetch(client_id)["evaluation"])
            personal = tuple(map(tf.convert_to_tensor, weights))
            score(personal, examples)
            for _ in range(sizes.finetuning_epochs):
                personal, _ = train(personal, of)
                accuracy = score(personal, examples)
            accuracies.append(float(accuracy))
        return {"accuracy": float(np.mean(accuracies))}

    return Contender("bare loop", run)


def _motley(name: str, backend: Any, task: task_lib.Task, sizes: Sizes) -> Contender:
    params = FineTuning(
        optimizers.OptimizerConfig("sgd", _LEARNING_RATE),
        (_LEARNING_RATE,),
        max_epochs=sizes.finetuning_epochs,
        batch_size=sizes.emnist_batch_size,
    )
    work = params.build(task).work(("evaluation",), "personalization")
    weights = task.model.initial_weights(rounds.SEED)

    def run(num_clients: int) -> dict[str, float]:
        ids = task.test.ids[:num_clients]
        call = base.ClientCall(task, work, weights, task.test, ids, _KEY)
        scored = backend.map_clients(call)
        curves = [metrics["curves"]["evaluation"]["accuracy"] for _, metrics in scored]
        return {"accuracy": float(np.mean(curves, axis=0)[-1])}

    return Contender(name, run)


def _stock(task: task_lib.Task, sizes: Sizes) -> Contender:
    computation = tff.learning.algorithms.build_personalization_eval_computation(
        stock.emnist_cnn,
        collections.OrderedDict(
            finetuning=lambda: _personalize_fn(sizes.finetuning_epochs, sizes.emnist_batch_size)
        ),
        _evaluate,
        max_num_clients=len(task.test),
    )
    weights = tff.learning.models.ModelWeights(list(task.model.initial_weights(rounds.SEED)), [])
    data = [
        {
            "train_data": stock.images(parts["personalization"]),
            "test_data": stock.images(parts["evaluation"]),
        }
        for parts in map(task.test.fetch, task.test.ids)
    ]

    def run(num_clients: int) -> dict[str, float]:
        scores = computation(weights, data[:num_clients])["finetuning"]
        return {"accuracy": float(np.mean(scores[f"epoch_{sizes.finetuning_epochs}"]))}

    return Contender("stock TFF, personalization eval", run)


def _personalize_fn(num_epochs: int, batch_size: int) -> Any:
    """Returns fine-tuning with an evaluation after every epoch."""

    @tf.function
    def personalize(model: Any, train_data: tf.data.Dataset, test_data: tf.data.Dataset) -> Any:
        batches = train_data.shuffle(1000).batch(batch_size)

        def train_one_batch(num_batches, batch):
            with tf.GradientTape() as tape:
                output = model.forward_pass(batch)
            gradients = tape.gradient(output.loss, model.trainable_variables)
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                variable.assign_sub(_LEARNING_RATE * gradient)
            return num_batches + 1

        scores = collections.OrderedDict()
        for epoch in range(1, num_epochs + 1):
            batches.reduce(0, train_one_batch)
            scores[f"epoch_{epoch}"] = _evaluate(model, test_data)["accuracy"]
        return scores

    return personalize


@tf.function
def _evaluate(model: Any, data: tf.data.Dataset) -> dict[str, tf.Tensor]:
    """Returns the accuracy of a model on unbatched data."""

    def count(hits, batch):
        logits = model.predict_on_batch(batch[0], training=False)
        right = tf.equal(tf.argmax(logits, -1, tf.int32), batch[1])
        n = tf.shape(batch[1])[0]
        return hits[0] + tf.reduce_sum(tf.cast(right, tf.int32)), hits[1] + n

    hits, n = data.batch(scoring.EVALUATION_BATCH_SIZE).reduce((0, 0), count)
    return collections.OrderedDict(accuracy=tf.cast(hits, tf.float32) / tf.cast(n, tf.float32))
