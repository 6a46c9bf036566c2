"""HypCluster (Mansour et al. 2020, https://arxiv.org/abs/2002.10619) and IFCA (Ghosh et al. 2020,
https://arxiv.org/abs/2006.04088, Algorithm 1, option "model averaging").

The server keeps k models and sends all of them. Every client of a cohort takes the one of lowest
mean loss on its training examples (ties to the first), trains it as in FedAvg, and sends its change
and which model it was. Each model has a server optimizer of its own, applied to the mean of its
clients' changes weighted by examples. A model that nobody took stays as it is, as the published
silo code has it; `steps_empty_clusters` steps its optimizer on a zero mean instead, as the
published cross-device code does, so that momentum still moves it. k = 1 gives back FedAvg.

A cluster's changes are a group of their own: TFF's aggregators bound, zero or quantize each
cluster by itself, as in the published code, and with k = 1 as FedAvg's. Unlike there, clients
outside a cluster do not move its bounds; see `backends.tff.aggregators`.

With `shares_base_layers` (IFCA section 5.3, "weight sharing") the clusters have last layers of
their own on one base, the first model's at the start, which all clients' changes move; the base is
sent once.

Ours, against mode collapse (one model that all clients take): `balance` adds to a model's mean loss
balance * (1 - round / balance_rounds) * log(k * share), where share is the running share of the
examples whose clients took it; a popular model has to be better by that much. 0, the default, is
the published rule; evaluations never use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms import fedavg, scoring
from motley_tff.algorithms.card import Card, takes_rows
from motley_tff.algorithms.optimizers import build_optimizer
from motley_tff.core import (
    candidate_labels,
    errors,
    learning,
    options,
    private_mean,
    robust_mean,
    rows,
)
from motley_tff.core.algorithm import Algorithm, Communicated, Groups, Personalization
from motley_tff.core.client_work import Client, ClientWork, Pass
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.options import option
from motley_tff.core.task import Task, masked_sum


@dataclasses.dataclass(frozen=True)
class HypCluster(fedavg.FedAvg):
    """HypCluster's hyperparameters: FedAvg's for every cluster, and its own.

    Attributes:
      steps_empty_clusters: Whether a cluster without clients takes a server step on zero.
      shares_base_layers: Whether all models have the same layers except for the last.
      balance: Strength of the penalty on popular models, in units of the loss, at least 0.
      balance_rounds: The penalty goes linearly to nothing in so many rounds, at least 1; None for
        the first half of a run's.
    """

    card: ClassVar[Card] = Card(
        "hypcluster",
        "HypCluster",
        ("hypcluster_trainer",),
        can_be_grouped=True,
        paper_row="HypCluster / IFCA",
        takes_rows=True,
    )
    tries_alone: ClassVar[bool] = True
    num_clusters: int = option(1, "Models, k; 1 is FedAvg", lower=1, upper=100, everyday="training")
    steps_empty_clusters: bool = option(
        False,
        "Step the server optimizer of a model that nobody took on a zero update, as the published "
        "cross-device code does",
        "step_empty_clusters",
    )
    shares_base_layers: bool = option(
        False,
        "One base for all clusters, the first model's (of --cluster_initialization=updates: the "
        "mean of all): only last layers are their own",
        "share_base_layers",
    )
    balance: float = option(
        0.0,
        "Ours, against mode collapse: popular models are penalized by so much loss times the log "
        "of their share, annealed to nothing over the first half of the rounds",
    )
    balance_rounds: int | None = option(
        None, "Rounds in which --balance goes to nothing (default: half of --total_rounds)",
        lower=1,
    )  # fmt: skip

    def with_defaults(self, personalization: Any, total_rounds: int) -> HypCluster:
        """Returns the algorithm with the rounds of its penalty; of none it is one."""
        rounds = max(1, total_rounds // 2) if self.balance else 1
        return dataclasses.replace(self, balance_rounds=self.balance_rounds or rounds)

    @property
    def num_models(self) -> int | None:
        """The number of clusters."""
        return self.num_clusters

    def check_beside(self, aggregator: str, has_attack: bool) -> None:
        """Raises a UserError for what takes one update of each client, whichever its model."""
        name, advice = errors.name("aggregator"), "choose another aggregator"
        if aggregator in robust_mean.NAMES:
            expected = "a mean, as an update of HypCluster is of one of its clusters"
            raise UserError(name, aggregator, expected, advice)
        if aggregator == private_mean.NAME and self.num_clusters > 1:
            expected = "a weighted mean, as this one cannot leave out clients of other clusters"
            raise UserError(name, aggregator, expected, advice)
        if has_attack:
            expected = "an algorithm that sends one model's change, not HypCluster"
            raise UserError(errors.name("attack"), None, expected, "leave it out")

    def check_clients(self, task: Task) -> None:
        """Raises a UserError if there are more clusters than training clients."""
        if self.num_clusters > len(task.train):
            name, most = options.name_of(self, "num_clusters"), len(task.train)
            expected = f"at most {most}, the training clients of {task.dataset}"
            raise UserError(name, self.num_clusters, expected)

    def build(self, task: Task, initial_weights: Sequence[learning.Weights]) -> Algorithm:
        """Returns HypCluster of the k models' first weights.

        The server's weights are (models, leaves [k, ...]; penalties [k]); in an update the second
        tells which model was trained.
        """
        if self.balance and self.balance_rounds is None:
            raise ValueError("Expected balance_rounds, which `with_defaults` fills in, found none.")
        k = len(initial_weights)
        is_last = task.model.is_last_layer
        is_shared = tuple(self.shares_base_layers and not last for last in is_last)
        stacked = tuple(
            np.stack([leaves[0]] * k if shared else leaves)
            for leaves, shared in zip(zip(*initial_weights, strict=True), is_shared, strict=True)
        )
        sent = tuple(a[0] if shared else a for a, shared in zip(stacked, is_shared, strict=True))
        return Algorithm(
            name="hypcluster",
            initial_weights=(stacked, np.zeros(k, np.float32)),
            work=_client_work(task, self.client_work(task), k),
            server_optimizer=_ClusterServer(k, self, is_shared),
            global_model=lambda weights: _model(weights[0], 0),
            cluster_models=lambda weights: [_model(weights[0], j) for j in range(k)],
            communicated=Communicated(sent, initial_weights[0]),
            shares=tuple(f"cluster_{j + 1}_share" for j in range(k)),
            groups=_groups(k, is_shared if k > 1 else (False,) * len(is_shared)),
        )

    def personalization(self, task: Task, built: Algorithm) -> Personalization | None:
        """Returns the choice of a model by its loss on the personalization part.

        Candidate `0` is the first cluster's model, `chosen` the client's.
        """

        def first(broadcast, client_state):
            models, _ = broadcast
            return _model(models, 0), no_losses(models, self.num_clusters)

        def work(evaluation_parts, personalization_part):
            looking = (loss_pass(task, personalization_part),)
            scored = scoring.two_candidates(
                task, evaluation_parts, first, lambda losses: losses.model(losses.lowest()), looking
            )

            def finish(carry):
                output = scored.finish(carry)
                cluster = carry.memory.lowest()
                return output._replace(metrics={**output.metrics, "cluster": cluster})

            return dataclasses.replace(scored, finish=finish, takes_rows=takes_rows(type(self)))

        return Personalization(
            "hypcluster", candidate_labels.CLUSTER, work, wants_server_weights=True
        )


class Losses(NamedTuple):
    """All models, leaves [k, ...], their summed losses on one client's examples, float32 [k], and
    the losses' weight.
    """

    models: learning.Weights
    totals: tf.Tensor
    weight: tf.Tensor

    def lowest(self, penalties: tf.Tensor | float = 0.0) -> tf.Tensor:
        """Returns the model of lowest mean loss plus penalty, int32.

        One whose loss is not a number is not taken as long as there is another.
        """
        means = tf.math.divide_no_nan(self.totals, self.weight[..., None]) + penalties
        finite = tf.where(tf.math.is_finite(means), means, tf.float32.max)
        return tf.argmin(finite, axis=-1, output_type=tf.int32)

    def model(self, cluster: tf.Tensor) -> learning.Weights:
        """Returns one model's weights."""
        axis = len(rows.leading())
        return tuple(tf.gather(leaf, cluster, axis=axis, batch_dims=axis) for leaf in self.models)


class HypClusterClient(NamedTuple):
    """One client's round: all models' losses, their penalties, the chosen one, its training."""

    losses: Losses
    penalties: tf.Tensor
    cluster: tf.Tensor
    base: fedavg.FedAvgClient


def _groups(k: int, is_shared: tuple[bool, ...]) -> Groups:
    """Returns each cluster's own leaves, and those that all share, as groups."""
    has_shared = any(is_shared)

    def split(update, weight):
        changes, is_chosen = update
        heads, shared = _split(changes, is_shared)
        groups = [(_model(heads, j), weight * is_chosen[j]) for j in range(k)]
        if has_shared:  # Its change is that of the client's one model.
            groups.append((tuple(tf.reduce_sum(c, axis=0) for c in shared), weight))
        return tuple(groups)

    def join(means, totals):
        mass = tf.stack(totals) / tf.add_n(totals) if k > 1 else tf.ones([1])
        scaled = [tuple(mass[j] * leaf for leaf in means[j]) for j in range(k)]
        heads = [tf.stack(leaf) for leaf in zip(*scaled, strict=True)]
        shared = [tf.tensordot(mass, s, axes=0) for s in (means[k] if has_shared else ())]
        return _joined(heads, shared, is_shared), mass

    return Groups(split, join, (k > 1,) * k + (False,) * has_shared)


def _model(models: Sequence[Any], j: Any) -> tuple[Any, ...]:
    """Returns model number j of leaves [..., k, ...]."""
    place = *[slice(None)] * len(rows.leading()), j
    return tuple(leaf[place] for leaf in models)


def _split(leaves, is_shared):
    """Returns (each model's own leaves, the shared ones)."""
    pairs = list(zip(leaves, is_shared, strict=True))
    return tuple(a for a, s in pairs if not s), tuple(a for a, s in pairs if s)


def _joined(own, shared, is_shared):
    """Returns all leaves in order of what `_split` made of them."""
    own, shared = iter(own), iter(shared)
    return tuple(next(shared if s else own) for s in is_shared)


def _client_work(task: Task, base: ClientWork, k: int) -> ClientWork:
    (training,) = base.passes

    def init(broadcast: Any, client_state: Any, client: Client) -> HypClusterClient:
        models, penalties = broadcast
        first = base.init(_model(models, 0), client_state, client)
        return HypClusterClient(no_losses(models, k), penalties, rows.full([], 0), first)

    def choose_and_begin(carry):
        cluster = carry.losses.lowest(carry.penalties)
        chosen = carry.losses.model(cluster)
        learner = carry.base.learner._replace(weights=chosen)
        return carry._replace(
            cluster=cluster, base=carry.base._replace(incoming=chosen, learner=learner)
        )

    def finish(carry):
        output = base.finish(carry.base)
        is_chosen = tf.cast(tf.equal(tf.range(k), carry.cluster[..., None]), tf.float32)
        update = tuple(rows.outer(is_chosen, u) for u in output.update)
        totals = {f"cluster_{j + 1}_share": is_chosen[..., j] for j in range(k)}
        metrics = learning.Sums(
            {**output.metrics.totals, **totals},
            {**output.metrics.weights, **dict.fromkeys(totals, rows.full([], 1.0))},
        )
        return output._replace(update=(update, is_chosen), metrics=metrics)

    passes = (
        loss_pass(task, "train").within("losses"),
        # FedAvg's shuffles: with one model this is FedAvg.
        dataclasses.replace(training.within("base"), begin=choose_and_begin, draws_as=0),
    )
    return ClientWork(init, passes, finish, takes_rows=base.takes_rows)


def no_losses(models: learning.Weights, k: int) -> Losses:
    """Returns sums over nothing."""
    return Losses(tuple(models), rows.full([k], 0.0), rows.full([], 0.0))


def loss_pass(task: Task, part: str) -> Pass:
    """Returns a pass that sums all models' losses, over a carry of `Losses`.

    The task's regularizer is part of a model's loss, as in the published silo code (Vehicle's SVM).
    """

    def step(losses, batch):
        sums = []
        for j in range(losses.totals.shape[-1]):
            weights = _model(losses.models, j)
            outputs = task.model.predict(weights, batch.x, False, batch.key)
            is_finite = learning.rows_are_finite(outputs)
            total, weight = masked_sum(task.loss, batch.y, outputs, batch.mask, is_finite)
            if task.regularizer is not None:
                total += weight * rows.each(task.regularizer, weights)
            sums.append((total, weight))
        totals = losses.totals + tf.stack([total for total, _ in sums], axis=-1)
        return losses._replace(totals=totals, weight=losses.weight + sums[0][1])

    return Pass(part, step, scoring.EVALUATION_BATCH_SIZE)


class _ClusterServer:
    """An optimizer for each model's own leaves, one for those that all share, and the penalties.

    Its state is (the models' optimizer states, that of the shared leaves, rounds done, running
    shares [k]).
    """

    def __init__(self, k: int, params: HypCluster, is_shared: tuple[bool, ...]):
        self._k, self._params, self._is_shared = k, params, is_shared
        self._optimizer = build_optimizer(params.server)

    def initialize(self, specs):
        specs_of_one = tuple(tf.TensorSpec(s.shape[1:], s.dtype) for s in specs[0])
        heads, shared = _split(specs_of_one, self._is_shared)
        states = tuple(self._optimizer.initialize(heads) for _ in range(self._k))
        common = self._optimizer.initialize(shared) if shared else ()
        return states, common, np.float32(0.0), np.full(self._k, 1.0 / self._k, np.float32)

    def next(self, state, weights, update):
        states, common, done, shares = state
        (models, _), (changes, mass) = weights, update
        heads, shared = _split(models, self._is_shared)
        head_changes, shared_changes = _split(changes, self._is_shared)
        stepped = [
            self._step(states[j], _model(heads, j), _model(head_changes, j), mass[j])
            for j in range(self._k)
        ]
        states, new_heads = zip(*stepped, strict=True)
        common, base = self._step_shared(common, shared, shared_changes)
        new = _joined(map(tf.stack, zip(*new_heads, strict=True)), base, self._is_shared)
        done, shares = done + 1.0, 0.5 * shares + 0.5 * mass
        return (states, common, done, shares), (new, self._penalties(done, shares))

    def _step_shared(self, state, leaves, changes):
        """Returns (state, leaves [k, ...]) after the mean of all clients' changes."""
        if not leaves:
            return state, ()
        # Masses sum to 1: the aggregation is a mean over clients.
        total = tuple(tf.reduce_sum(change, axis=0) for change in changes)
        state, base = self._optimizer.next(state, _model(leaves, 0), total)
        return state, tuple(tf.stack([leaf] * self._k) for leaf in base)

    def _step(self, state, model, change, mass):
        """Returns (state, model) after the mean of a cluster's changes, if it has any clients."""
        mean = tuple(tf.math.divide_no_nan(leaf, mass) for leaf in change)
        after, stepped = self._optimizer.next(state, model, mean)
        if self._params.steps_empty_clusters:
            return after, tuple(stepped)
        before = tf.nest.map_structure(tf.convert_to_tensor, state)
        return rows.select(mass > 0.0, (after, tuple(stepped)), (before, model))

    def _penalties(self, done: tf.Tensor, shares: tf.Tensor) -> tf.Tensor:
        left = tf.maximum(0.0, 1.0 - done / (self._params.balance_rounds or 1))
        # A model that nobody takes is not made infinitely attractive.
        relative = tf.maximum(self._k * shares, 0.01)
        return self._params.balance * left * tf.math.log(relative)
