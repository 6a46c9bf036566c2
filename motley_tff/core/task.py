"""A task: who the clients are, what the model is, and how it is judged. Frozen, checks itself."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from motley_tff.core import errors, functional_model, rows
from motley_tff.core.clients import Clients
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf

# Clients that come and go and keep nothing, or a few that keep a state.
Setting = Literal["cross_device", "cross_silo"]
MAX_SCORED_CLASSES = 100
_EXPORT_SCORES = errors.name("export_scores")

# (labels, model outputs) -> (value of each entry, weight of each entry). Entries are examples, or
# tokens of examples ([batch, time]); a weight of zero leaves an entry out (padding, say). An entry
# depends on its own example alone.
EntryFunction = Callable[["tf.Tensor", "tf.Tensor"], tuple["tf.Tensor", "tf.Tensor"]]


class Metric(NamedTuple):
    """A per-client metric.

    Attributes:
      function: Its value is the weighted mean of this function's entries over a client's examples;
        of a `ranks` metric `(labels [n], outputs [n], is real [n]) -> scalar` over all examples.
      ranks: Whether it compares examples with each other, as a ROC-AUC does. Only evaluations
        compute it, and never as the first metric; it may be not-a-number.
      by_client: Whether evaluations compute it outside of graphs, of each client's
        `metrics.per_client.Examples`, which its function takes; never as the first metric.
      reads_scores: Of a `by_client` metric, whether it reads the examples' scores.
    """

    name: str
    function: Callable[..., Any]
    higher_is_better: bool
    ranks: bool = False
    by_client: bool = False
    reads_scores: bool = False

    @property
    def is_mean(self) -> bool:
        """Whether it is a weighted mean of entries."""
        return not (self.ranks or self.by_client)

    @property
    def worst(self) -> float:
        """What stands for the value of a model that diverged, see `metrics.client_values`."""
        return -math.inf if self.higher_is_better else math.inf


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything an algorithm may know about a data set.

    Attributes:
      dataset: Registered name, such as `emnist`; the first half of every `client_id` cell.
      setting: Cross-device tasks split the clients (train / valid / test, the last two with parts
        `personalization` and `evaluation`); cross-silo tasks split each silo's examples (`train`,
        `valid` and `test` parts, the same silos everywhere).
      loss: Entry losses and weights; a batch's loss is their weighted mean.
      metrics: The first one is what the tables report; the others become extra columns.
      preprocess: `(raw examples, training, key) -> (x, y)` for one batch, inside a graph.
      train: Clients that train; their part is `train`.
      valid: Clients that candidates are chosen on.
      test: Clients that are reported.
      max_train_examples: In a round, an epoch over a client's part `train` takes at most so many
        examples, drawn anew for each; all if None.
      drop_remainder: Whether training leaves out an epoch's short last batch.
      regularizer: `weights -> scalar` added to the training loss, or None.
      facts: What a reader of `run.json` should know: clients left out and why, the data's files.
        A user is told of `..._left_out`, a count, or counts by reason, and of lines in `notes`.
      neighbours: What neighbours say in kNN-Per; see `algorithms.knn_per`.
      reference: `{client id: value}` of the metric, for valid and test clients: that of a guess
        that needs no model, such as a client's most frequent word. Empty if there is none.
      counts: Its weights tell real entries (tokens) from padding; by default the loss's do, which
        may count padding.
      is_real: `labels -> bool`, whether an entry counts, where the loss and all metrics give the
        others a weight of 0 and no example has a score; else None.
      score: `outputs -> float32 [batch]`, what `ranks` metrics compare, of labels 1 and 0, or -1 of
        an example of neither class; None if outputs are that. Of a task of `scored_classes`,
        `outputs -> float32 [batch, scored_classes]`, each class against the rest.
      scored_classes: How many classes have a score each; 0 where a `ranks` metric's one score tells
        two apart, or where there is none.
      exports_scores: Whether evaluations give back every example's label and scores.
      prediction: `outputs -> [batch]`, the class, as in the labels, or the number that a model
        predicts; None of words and of pictures.
      label_unit: Of numbers, what 1.0 of a label is in the label's own unit; None of classes.
      summarized: Metrics (or the loss) but the first whose means a summary has.
      chooses_by: What candidates and rounds are chosen by; None for the first metric.
      label_names: What labels (of text: token ids) mean, for people: `label_names[label]`. Empty
        if they speak for themselves.
      label_field: The field of an example that holds its class, one number; None if it has none.
      is_own_data: Whether the data are the user's own, for which nobody has published rates.
      generate: `(the model's weights, how many, int32 [2] key) -> pictures uint8 [n, height, width,
        channels]`, of a model that makes some; else None.
    """

    dataset: str
    setting: Setting
    model: functional_model.FunctionalModel
    loss: EntryFunction
    metrics: tuple[Metric, ...]
    preprocess: Callable[[Mapping[str, tf.Tensor], bool, tf.Tensor], tuple[Any, tf.Tensor]]
    train: Clients
    valid: Clients
    test: Clients
    max_train_examples: int | None = None
    drop_remainder: bool = False
    regularizer: Callable[[functional_model.Weights], tf.Tensor] | None = None
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    neighbours: Literal["classification", "svm", "regression", "predictions"] = "classification"
    reference: Mapping[str, float] = dataclasses.field(default_factory=dict)
    label_names: Sequence[str] = ()
    score: Callable[[tf.Tensor], tf.Tensor] | None = None
    scored_classes: int = 0
    exports_scores: bool = False
    prediction: Callable[[tf.Tensor], tf.Tensor] | None = None
    label_unit: float | None = None
    summarized: tuple[Metric, ...] = ()
    chooses_by: Metric | None = None
    counts: EntryFunction | None = None
    is_real: Callable[[tf.Tensor], tf.Tensor] | None = None
    label_field: str | None = None
    generate: Callable[[Any, int, Any], Any] | None = None
    is_own_data: bool = False

    def __post_init__(self):
        if not self.metrics or not self.metrics[0].is_mean:
            raise ValueError("A task needs a first metric, and one that is a mean of entries.")
        if self.exports_scores:
            self._check_has_scores()
        for split, clients in self.splits.items():
            expected = {self.personalization_part(split), self.evaluation_part(split)}
            missing = expected - set(clients.spec)
            if missing:
                raise ValueError(
                    f"Clients of split {split!r} of {self.dataset!r} lack the parts "
                    f"{sorted(missing)}; found {sorted(clients.spec)}."
                )
        fields = tuple(self.train.spec["train"].items())
        check_model_reads_data(self.dataset, self.model, self.loss, self.preprocess, fields)

    def __repr__(self) -> str:
        """Returns five lines: the data set, its clients, their examples, the model, the metrics."""
        kind = "silos" if self.setting == "cross_silo" else "devices"
        counts = ", ".join(f"{len(clients):,} {split}" for split, clients in self.splits.items())
        fields = ", ".join(
            f"{name} {spec.dtype.name} {list(spec.shape[1:])}"
            for name, spec in self.train.spec["train"].items()
        )
        metrics = ", ".join(
            f"{metric.name} ({'higher' if metric.higher_is_better else 'lower'} is better)"
            for metric in self.metrics
        )
        return (
            f"Task {self.dataset}: {kind}, {self.facts.get('source', 'data')}\n"
            f"  clients: {counts}\n  examples: {fields}\n"
            f"  model: {self.model.num_weights:,} weights, {len(self.model.shapes)} arrays\n"
            f"  metrics: {metrics}"
        )

    @property
    def metric(self) -> Metric:
        """The metric that is reported."""
        return self.metrics[0]

    @property
    def tuning_metric(self) -> Metric:
        """The metric that candidates and rounds are chosen by."""
        return self.chooses_by or self.metric

    @property
    def chosen_by(self) -> tuple[bool, str | None]:
        """Whether higher is better in what chooses rounds, and its name unless it is reported."""
        name = self.chooses_by.name if self.chooses_by else None
        return self.tuning_metric.higher_is_better, name

    @property
    def splits(self) -> dict[str, Clients]:
        """The three client sets by name."""
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @property
    def num_scores(self) -> int:
        """How many scores an example has under one model."""
        return self.scored_classes or 1

    @property
    def by_client(self) -> tuple[Metric, ...]:
        """The metrics that are computed of clients' examples."""
        return tuple(metric for metric in self.metrics if metric.by_client)

    @property
    def keeps_examples(self) -> bool:
        """Whether evaluations give back what every candidate says of every example."""
        return self.exports_scores or bool(self.by_client)

    @property
    def keeps_scores(self) -> bool:
        """Whether evaluations keep scores, to export or to compare them."""
        reads = any(metric.ranks or metric.reads_scores for metric in self.metrics)
        return self.exports_scores or reads

    @property
    def num_kept(self) -> int:
        """How many numbers of an example evaluations keep under one model, see `kept_of`."""
        return self.num_scores * self.keeps_scores + bool(self.by_client)

    def kept_of(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns what evaluations keep of a batch's outputs, float32 [batch, num_kept]: scores
        first, if any are kept, and what is predicted last, if a metric reads it.
        """
        kept = [self.scores_of(outputs)] if self.keeps_scores else []
        if self.by_client:
            assert self.prediction is not None
            kept.append(tf.cast(self.prediction(outputs), tf.float32)[:, None])
        return tf.concat(kept, axis=1)

    def scores_of(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the scores of a batch's outputs, [batch, num_scores]."""
        scores = outputs if self.score is None else self.score(outputs)
        return tf.reshape(scores, [-1, self.num_scores])

    def entry_weights(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the weights of a batch's entries, 0 for those that are padding."""
        return (self.counts or self.loss)(labels, outputs)[1]

    def personalization_part(self, split: str) -> str:
        """Name of the part that personalizes a client of this split."""
        if self.setting == "cross_silo" or split == "train":
            return "train"
        return "personalization"

    def evaluation_part(self, split: str) -> str:
        """Name of the part that a client of this split is scored on."""
        if self.setting == "cross_silo" or split == "train":
            return split
        return "evaluation"

    def _check_has_scores(self) -> None:
        if not self.scored_classes and not any(metric.ranks for metric in self.metrics):
            expected = f"a task of labels, such as emnist or vehicle, not {self.dataset}"
            raise UserError(_EXPORT_SCORES, None, expected, "leave it out")
        if self.scored_classes > MAX_SCORED_CLASSES:
            most = f"at most {MAX_SCORED_CLASSES} classes, as each example has a row for each"
            expected = f"{most}, not the {self.scored_classes:,} of {self.dataset}"
            raise UserError(_EXPORT_SCORES, None, expected, "leave it out")


# What was checked last: a task is changed several times before it is used. By identity, as what a
# package hands in may have no hash.
_checked: list[Any] = []


def check_model_reads_data(
    dataset: str,
    model: functional_model.FunctionalModel,
    loss: EntryFunction,
    preprocess: Callable[..., tuple[Any, tf.Tensor]],
    fields: tuple[tuple[str, tf.TensorSpec], ...],
) -> None:
    """Traces a model on an abstract batch of its data: a mismatch fails here, by name.

    Raises:
      ValueError: The model's, the loss's or the preprocessing's own error.
    """
    parts = [model, loss, preprocess]
    if _checked and fields == _checked[-1] and all(map(operator.is_, parts, _checked)):
        return
    spec = dict(fields)

    def forward(examples, key, *weights):
        x, y = preprocess(examples, True, key)
        values, _ = loss(y, model.predict(weights, x, True, key))
        return values

    weights = [tf.TensorSpec(shape, tf.float32) for shape in model.shapes]
    try:
        tf.function(forward, autograph=False).get_concrete_function(
            spec, tf.TensorSpec([2], tf.int32), *weights
        )
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"The model of {dataset!r} cannot read its data {spec}: {error}"
        ) from error
    _checked[:] = [*parts, fields]


def masked_sum(
    function: EntryFunction,
    y: tf.Tensor,
    outputs: tf.Tensor,
    mask: tf.Tensor,
    is_finite: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (weighted sum of the entries, sum of their weights) over the real rows; the entries
    of rows that are not `is_finite`, bool [batch], are not-a-number.
    """
    return masked_sums((function,), y, outputs, mask, is_finite)[0]


def masked_sums(
    functions: Sequence[EntryFunction],
    y: tf.Tensor,
    outputs: tf.Tensor,
    mask: tf.Tensor,
    is_finite: tf.Tensor | None,
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns `masked_sum` of several functions."""

    def entries(y, outputs):
        return [function(y, outputs) for function in functions]

    def summed(values, weights):
        weights = weights * rows.aligned(mask, weights)
        if is_finite is not None:
            values = tf.where(rows.aligned(is_finite, values), values, float("nan"))
        # A padded row's value may be anything, also infinite; zero times that must stay zero.
        return rows.total(tf.where(weights > 0, values, 0.0) * weights), rows.total(weights)

    return [summed(*entry) for entry in rows.by_example(entries, y, outputs)]
