"""kNN-Per (Marfoq et al. 2021, https://arxiv.org/abs/2111.09360, equations 7 and 8).

A client looks up each evaluation example's nearest neighbours among its personalization examples,
in the representation that the global model gives them, and mixes what they say with what the model
says: coefficient * neighbours + (1 - coefficient) * model. Embeddings are computed once a client,
neighbours once an example; all coefficients and numbers of neighbours come from them.

What neighbours say depends on the task (`core.task.Task.neighbours`):
- `classification`: p(label) ~ sum of exp(-distance) over the neighbours with that label, by
  log-sum-exp, so that far neighbours do not give 0 / 0; mixed with the model's softmax. In text
  every token is an example.
- `svm`: 2 p - 1, p being the inverse-distance weighted share of neighbours labelled +1; mixed with
  the margin.
- `regression`: the inverse-distance weighted mean of their targets; mixed with the prediction.
- `predictions`: the plain mean of the global model's predictions on them (the published ADNI code).

Inverse distances are scikit-learn's `weights="distance"`: a neighbour at distance 0 silences those
that are not. With fewer than k examples all of them are neighbours; with none the model stands
alone. A coefficient weighs the neighbours everywhere (in the published ADNI code it weighs the
model). At coefficient 1 a label that no neighbour has gets a probability of 1e-30, not 0.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

from motley_tff.algorithms import scoring
from motley_tff.algorithms.card import Card, Training
from motley_tff.core import candidate_labels, errors, learning, paired
from motley_tff.core.algorithm import Personalization
from motley_tff.core.client_work import Batch, Client, ClientOutput, ClientWork, Pass
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.options import ABOVE_0, option
from motley_tff.core.task import Task

_SMALLEST = 1e-30
# Distances of a batch to all of a client's examples are held at once: of tokens there are many.
_BATCH_SIZE, _TOKEN_BATCH_SIZE = 128, 16


@dataclasses.dataclass(frozen=True)
class KnnPer:
    """kNN-Per's hyperparameters.

    Attributes:
      num_neighbors: Numbers of neighbours to try, each at least 1.
      coefficients: Weights of the neighbours to try, in (0, 1]; candidate 0 is the global model.
    """

    card: ClassVar[Card] = Card(
        "knn_per",
        "kNN-Per",
        ("knn_per_trainer",),
        paper_row="FedAvg + kNN-Per",
        on_fedavg="kNN-Per",
    )
    num_neighbors: tuple[int, ...] = option(
        (10,),
        "Numbers of neighbours, k, to choose from",
        lower=1,
        upper=1000,
        everyday="personalization",
    )
    coefficients: tuple[float, ...] = option(
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "Weights of the neighbours to choose from; 0, the global model, is always tried",
        lower=ABOVE_0, upper=1,
        everyday="personalization",
    )  # fmt: skip

    def check(self, training: Training) -> None:
        """Raises a UserError if nothing trains a global model."""
        if training == "local":
            rounds, path = errors.name("rounds", "total_rounds"), "path_to_initial_model_weights"
            advice = f"give rounds, or {errors.name('initial_models', path)}"
            raise UserError(rounds, 0, "1 or more, which train a global model", advice)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The candidates' labels."""
        return candidate_labels.of_neighbors(self.num_neighbors, self.coefficients)

    def build(self, task: Task) -> Personalization:
        """Returns kNN-Per for a task; UserError if its model says that it has no representation."""
        work = functools.partial(_client_work, task, self, _embedding_shape(task))
        return Personalization("knn_per", self.candidates, work)


class Datastore(NamedTuple):
    """A client's personalization examples (tokens, in text); the last place is for padding.

    Attributes:
      embeddings: float32 [places, dim].
      values: What a neighbour says: int32 labels or float32 targets [places].
      is_real: float32 [places], 1 where there is an example.
      count: int32 scalar, places filled so far.
    """

    embeddings: tf.Tensor
    values: tf.Tensor
    is_real: tf.Tensor
    count: tf.Tensor


class KnnPerClient(NamedTuple):
    """One client's scoring of the global model, `weights`.

    Attributes:
      sums: `{part: Sums}` with float32 [candidates] leaves.
      examples: `{part: scoring.RankedExamples}`, a column for each candidate.
      example_sums: `{part: paired.ExampleSums}`, the same.
    """

    weights: learning.Weights
    datastore: Datastore
    sums: dict[str, learning.Sums]
    examples: dict[str, scoring.RankedExamples]
    example_sums: dict[str, paired.ExampleSums]
    num_examples: dict[str, tf.Tensor]


def _client_work(task, params, shape, evaluation_parts, personalization_part) -> ClientWork:
    num_candidates = len(params.candidates)
    dim, num_tokens = shape

    def init(broadcast: Any, client_state: Any, client: Client) -> KnnPerClient:
        # Neighbours beyond what a client has are these places, which are never real.
        places = client.capacity[personalization_part] * num_tokens + max(params.num_neighbors) + 1
        is_labels = task.neighbours == "classification"
        zeros = {name: tf.zeros([num_candidates]) for name in learning.entry_functions(task)}
        return KnnPerClient(
            weights=tuple(broadcast),
            datastore=Datastore(
                tf.zeros([places, dim]),
                tf.zeros([places], tf.int32 if is_labels else tf.float32),
                tf.zeros([places]),
                tf.constant(0),
            ),
            sums={part: learning.Sums(zeros, dict(zeros)) for part in evaluation_parts},
            examples=scoring.empty_examples(task, evaluation_parts, num_candidates, client),
            example_sums={
                part: paired.empty(client.capacity[part], (num_candidates,))
                for part in evaluation_parts
            },
            num_examples=client.num_examples,
        )

    size = _BATCH_SIZE if num_tokens == 1 else _TOKEN_BATCH_SIZE
    passes = (
        Pass(personalization_part, functools.partial(_remember, task), _BATCH_SIZE),
        *(
            Pass(part, functools.partial(_score, task, params, part), size)
            for part in evaluation_parts
        ),
    )
    return ClientWork(init, passes, lambda carry: _finish(task, carry))


def _embedding_shape(task: Task) -> tuple[int, int]:
    """Returns (length of a representation, tokens an example; 1 where it is not text)."""
    spec = task.train.spec["train"]
    weights = [tf.TensorSpec(shape, tf.float32) for shape in task.model.shapes]

    def embed(examples, *weights):
        x, _ = task.preprocess(examples, False, tf.zeros([2], tf.int32))
        return task.model.embed(weights, x)

    shape = tf.function(embed, autograph=False).get_concrete_function(spec, *weights).output_shapes
    return shape[-1], shape[1] if len(shape) == 3 else 1


def _remember(task, carry: KnnPerClient, batch: Batch) -> KnnPerClient:
    """Appends a batch's real examples or tokens."""
    datastore = carry.datastore
    embeddings, outputs = task.model.embed_and_predict(carry.weights, batch.x, batch.key)
    weights = task.entry_weights(batch.y, outputs)  # Padded tokens are no neighbours.
    mask = tf.reshape(batch.mask, [-1] + [1] * (len(weights.shape) - 1))
    is_real = tf.reshape(tf.cast(mask * weights > 0.0, tf.float32), [-1])
    values = outputs if task.neighbours == "predictions" else batch.y
    number = tf.shape(is_real)[0]
    # Padding rows, which are the last of a batch, share the last place.
    last = tf.shape(datastore.is_real)[0] - 1
    in_batch = tf.reshape(tf.broadcast_to(mask, tf.shape(weights)), [-1])
    places = tf.where(in_batch > 0.0, datastore.count + tf.range(number), last)[:, None]
    flat = tf.reshape(embeddings, [-1, datastore.embeddings.shape[-1]])
    values = tf.cast(tf.reshape(values, [-1]), datastore.values.dtype)
    filled = Datastore(
        tf.tensor_scatter_nd_update(datastore.embeddings, places, flat),
        tf.tensor_scatter_nd_update(datastore.values, places, values),
        tf.tensor_scatter_nd_update(datastore.is_real, places, is_real * in_batch),
        datastore.count + tf.reduce_sum(tf.cast(in_batch, tf.int32)),
    )
    return carry._replace(datastore=filled)


class Neighbours(NamedTuple):
    """The nearest ones of each example, nearest first: [examples, k]."""

    distances: tf.Tensor
    values: tf.Tensor
    is_real: tf.Tensor


def nearest(datastore: Datastore, embeddings: tf.Tensor, k: int, exact: bool) -> Neighbours:
    """Returns the k of a datastore's examples nearest to each embedding, float32 [examples, dim].

    `exact` subtracts before squaring, which takes [examples, places, dim] floats, instead of after,
    as a matrix product, which loses digits of small distances.
    """
    if exact:
        squares = tf.reduce_sum(
            tf.square(embeddings[:, None, :] - datastore.embeddings[None, :, :]), axis=-1
        )
    else:
        squares = (
            tf.reduce_sum(tf.square(embeddings), axis=-1)[:, None]
            + tf.reduce_sum(tf.square(datastore.embeddings), axis=-1)[None, :]
            - 2.0 * tf.matmul(embeddings, datastore.embeddings, transpose_b=True)
        )
    is_real = datastore.is_real > 0.0
    squares = tf.where(is_real[None, :], tf.maximum(squares, 0.0), tf.float32.max)
    top, places = tf.math.top_k(-squares, k)
    return Neighbours(
        tf.sqrt(-top), tf.gather(datastore.values, places), tf.gather(is_real, places)
    )


def _score(task, params: KnnPer, part: str, carry: KnnPerClient, batch: Batch) -> KnnPerClient:
    """Adds a batch's scores under every candidate."""
    embeddings, outputs = task.model.embed_and_predict(carry.weights, batch.x, batch.key)
    is_text = len(embeddings.shape) == 3
    flat = tf.reshape(embeddings, [-1, carry.datastore.embeddings.shape[-1]])
    neighbours = nearest(carry.datastore, flat, max(params.num_neighbors), exact=not is_text)
    candidates = [outputs]
    for k in params.num_neighbors:
        mix = _mixer(task, Neighbours(*(leaf[:, :k] for leaf in neighbours)), outputs)
        candidates.extend(mix(c) for c in params.coefficients)
    added = [learning.entry_sums(task, batch, outputs) for outputs in candidates]
    sums = tf.nest.map_structure(lambda t, *a: t + tf.stack(a), carry.sums[part], *added)
    of_examples = [paired.of_batch(task, batch, outputs) for outputs in candidates]
    values = tf.stack([values for values, _ in of_examples], axis=1)
    appended = paired.append(carry.example_sums[part], batch, values, of_examples[0][1])
    carry = carry._replace(
        sums={**carry.sums, part: sums}, example_sums={**carry.example_sums, part: appended}
    )
    if part not in carry.examples:
        return carry
    kept = tf.concat([scoring.kept_of_examples(task, c) for c in candidates], axis=1)
    columns = tf.range(kept.shape[1])
    examples = scoring.append(carry.examples[part], batch, kept, columns)
    return carry._replace(examples={**carry.examples, part: examples})


def _mixer(task, neighbours: Neighbours, outputs: tf.Tensor):
    """Returns `coefficient -> outputs` of the model and the neighbours together."""
    has_no_neighbour = tf.logical_not(tf.reduce_any(neighbours.is_real, axis=1))
    if task.neighbours == "classification":
        return _label_mixer(neighbours, outputs, has_no_neighbour)
    if task.neighbours == "predictions":
        shares = tf.cast(neighbours.is_real, tf.float32)
        shares = tf.math.divide_no_nan(shares, tf.reduce_sum(shares, axis=1, keepdims=True))
    else:
        shares = inverse_distance_shares(neighbours)
    values = neighbours.values
    if task.neighbours == "svm":
        values = tf.where(values > 0.0, 1.0, -1.0)  # The shares of these sum to 2 p - 1.
    prediction = tf.where(has_no_neighbour, outputs, tf.reduce_sum(shares * values, axis=1))
    return lambda c: c * prediction + (1.0 - c) * outputs


def inverse_distance_shares(neighbours: Neighbours) -> tf.Tensor:
    """Returns what each neighbour counts, [examples, k], 1 in all (0 where there is none)."""
    is_here = neighbours.is_real & tf.equal(neighbours.distances, 0.0)
    inverse = tf.math.divide_no_nan(1.0, neighbours.distances)
    inverse = tf.where(neighbours.is_real, inverse, 0.0)
    raw = tf.where(
        tf.reduce_any(is_here, axis=1, keepdims=True), tf.cast(is_here, tf.float32), inverse
    )
    return tf.math.divide_no_nan(raw, tf.reduce_sum(raw, axis=1, keepdims=True))


def _label_mixer(neighbours: Neighbours, logits: tf.Tensor, has_no_neighbour: tf.Tensor):
    num_labels = logits.shape[-1]
    model = tf.nn.softmax(tf.reshape(logits, [-1, num_labels]))
    far = tf.where(neighbours.is_real, -neighbours.distances, tf.float32.min)
    # The nearest neighbour's exponent is subtracted: the largest term is 1.
    shares = tf.nn.softmax(far, axis=1) * tf.cast(neighbours.is_real, tf.float32)
    rows = tf.broadcast_to(tf.range(tf.shape(shares)[0])[:, None], tf.shape(shares))
    # What is not real, such as a label of no training part, has a share of 0 somewhere.
    places = tf.stack([rows, tf.maximum(neighbours.values, 0)], axis=-1)
    probabilities = tf.tensor_scatter_nd_add(tf.zeros_like(model), places, shares)
    probabilities = tf.where(has_no_neighbour[:, None], model, probabilities)

    def mix(c):
        mixed = c * probabilities + (1.0 - c) * model
        return tf.reshape(tf.math.log(tf.maximum(mixed, _SMALLEST)), tf.shape(logits))

    return mix


def _finish(task, carry: KnnPerClient) -> ClientOutput:
    curves = {part: learning.scores(task, sums) for part, sums in carry.sums.items()}
    for part, examples in carry.examples.items():
        columns = range(0, examples.outputs.shape[1], task.num_kept)
        each = [scoring.ranking_metrics(task, examples, column) for column in columns]
        for name in each[0]:
            curves[part][name] = tf.stack([values[name] for values in each])
    sums = {part: (s.values, s.weights) for part, s in carry.example_sums.items()}
    return scoring.output(task, carry, curves, sums)
