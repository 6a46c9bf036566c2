"""The frame of the algorithms for silos: every silo trains a model that it keeps.

One round, for a silo with the state s (its own model v, or a part of it), under the server's
weights (w, shared):

    base = FedAvg's client work from w                  # but where `replaces_fedavg`
    personal = start(shared, s, client)                 # v's learner, and what its steps need
    for batch in the silo's batches:                    # of `num_epochs` epochs, shuffled anew
        personal = step(personal, batch, base)
    s = state(personal)                                 # stays with the silo
    send (w - base's weights, contribution(personal))   # to the server, weighted by examples

and at the server, with the weighted means of what was sent,

    w = server optimizer(w, mean of FedAvg's updates)
    shared = shared optimizer(shared, mean of the contributions)

FedAvg's global model is trained as ever, on the same shuffles as without the other. It is Ditto's
anchor and APFL's other half; elsewhere it is the baseline that "% clients hurt" is counted against.
The two halves of an update are groups of their own: an aggregator that bounds updates bounds either
by itself, and one that adds noise (differential privacy) protects either by itself. MR-MTL and
pFedMe have no FedAvg beside them: theirs is the shared half alone.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from motley_tff.algorithms import fedavg, optimizers, scoring
from motley_tff.algorithms.optimizers import OptimizerConfig, optimizer_option
from motley_tff.core import algorithm, candidate_labels, learning
from motley_tff.core.client_work import Batch, Client, ClientOutput, ClientWork, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Learner, Weights
from motley_tff.core.task import Task

Nest = Any


@dataclasses.dataclass(frozen=True)
class SiloAlgorithm(fedavg.FedAvg):
    """FedAvg's hyperparameters, and the optimizer of the silos' own models.

    Its state starts anew every round. A rate of None is the clients', times `default_share`.
    """

    default_share: ClassVar[float] = 1.0
    personal_optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("sgd", None),
        "personal",
        "personal models'",
        rate_meaning="default: the clients'; per_fedavg: a tenth of it",
        trainers=("mtl_trainer",),
    )

    @property
    def personal(self) -> OptimizerConfig:
        """The optimizer of the silos' own models, with its rate."""
        if self.personal_optimizer.learning_rate is not None:
            return self.personal_optimizer
        rate = self.default_share * self.client_optimizer.learning_rate
        return dataclasses.replace(self.personal_optimizer, learning_rate=rate)

    def with_defaults(self, personalization: Any, total_rounds: int) -> fedavg.FedAvg:
        """Returns the algorithm with its personal rate."""
        return dataclasses.replace(self, personal_optimizer=self.personal)

    def personalization(
        self, task: Task, built: algorithm.Algorithm
    ) -> algorithm.Personalization | None:
        """Returns how the silos' own models are scored."""
        return personalization(task, built)


class Personal(NamedTuple):
    """A silo's own training: its model, and what else its steps need."""

    learner: Learner
    memory: Nest = ()


class Carry(NamedTuple):
    """A silo's round: FedAvg's carry (without FedAvg, the silo's weight), and its own training."""

    base: Any
    personal: Personal


@dataclasses.dataclass(frozen=True)
class PersonalTraining:
    """What a silo does for its own model.

    Attributes:
      start: `(shared, client state, client) -> Personal`.
      step: `(personal, batch, FedAvg's carry) -> personal`.
      state: `personal -> client state`; by default the model's weights.
      contribution: `personal -> update` of the shared nest; by default none.
      first_step: As `step`; its `num_first_epochs` come before.
      same_batches: Step on the same batches as FedAvg, each right before FedAvg does (so that both
        gradients are taken where the batch found the models), not in a pass with shuffles of its
        own.
      replaces_fedavg: Train no global model beside it; the server's weights are the shared nest.
    """

    start: Callable[[Nest, Nest, Client], Personal]
    step: Callable[[Personal, Batch, Any], Personal]
    state: Callable[[Personal], Nest] = lambda personal: personal.learner.weights
    contribution: Callable[[Personal], Nest] = lambda personal: ()
    num_epochs: int = 1
    first_step: Callable[[Personal, Batch, Any], Personal] | None = None
    num_first_epochs: int = 0
    same_batches: bool = False
    replaces_fedavg: bool = False


def build(
    task: Task,
    params: SiloAlgorithm,
    initial_weights: Weights,
    training: PersonalTraining,
    communicated: Nest,
    initial_state: Nest | None = None,
    personal_model: algorithm.PersonalModel = lambda weights, state: state,
    shared: Nest = (),
    shared_optimizer: algorithm.ServerOptimizer | None = None,
) -> algorithm.Algorithm:
    """Returns an algorithm for silos; the server's weights are (FedAvg's, shared), or shared alone.

    Args:
      communicated: What crosses the wire for the algorithm's sake, each way.
      initial_state: Every silo's first state; by default the initial weights.
      personal_model: By default the state.
      shared: What the server keeps beside FedAvg's weights.
      shared_optimizer: Updates that from the weighted mean of the contributions.
    """
    base = fedavg.build(task, params, initial_weights)
    state = tuple(initial_weights) if initial_state is None else initial_state
    optimizer: algorithm.ServerOptimizer
    if training.replaces_fedavg:
        weights, optimizer = shared, shared_optimizer or base.server_optimizer
        global_model = base.global_model
    else:
        weights = (base.initial_weights, shared)
        optimizer = _Halves(base.server_optimizer, shared_optimizer)
        global_model = operator.itemgetter(0)
    return dataclasses.replace(
        base,
        initial_weights=weights,
        work=_client_work(base.work, training),
        server_optimizer=optimizer,
        initial_client_state=lambda index: state,
        global_model=global_model,
        personal_model=personal_model,
        communicated=algorithm.Communicated(communicated, communicated),
        groups=_HALVES if shared_optimizer and not training.replaces_fedavg else None,
    )


_HALVES = algorithm.Groups(
    split=lambda update, weight: tuple((half, weight) for half in update),
    join=lambda means, totals: tuple(means),
    is_partial=(False, False),
)


class _Halves:
    """One optimizer on FedAvg's half, another on the shared one, None if that is empty."""

    def __init__(self, first: algorithm.ServerOptimizer, second: algorithm.ServerOptimizer | None):
        self._optimizers = (first, second)

    def initialize(self, specs: Nest) -> Nest:
        pairs = zip(self._optimizers, specs, strict=True)
        return tuple(optimizer.initialize(half) if optimizer else () for optimizer, half in pairs)

    def next(self, state: Nest, weights: Nest, gradients: Nest) -> tuple[Nest, Nest]:
        done = [
            optimizer.next(*half) if optimizer else half[:2]
            for optimizer, *half in zip(self._optimizers, state, weights, gradients, strict=True)
        ]
        return tuple(new for new, _ in done), tuple(new for _, new in done)


def _client_work(base: ClientWork, training: PersonalTraining) -> ClientWork:
    (global_pass,) = base.passes

    def init(broadcast, client_state, client):
        if training.replaces_fedavg:
            weight = tf.cast(client.num_examples["train"], tf.float32)
            return Carry(weight, training.start(broadcast, client_state, client))
        weights, shared = broadcast
        return Carry(base.init(weights, (), client), training.start(shared, client_state, client))

    def global_step(carry, batch):
        return carry._replace(base=global_pass.step(carry.base, batch))

    def personal_step(carry, batch, step=training.step):
        return carry._replace(personal=step(carry.personal, batch, carry.base))

    def both_steps(carry, batch):
        return global_step(personal_step(carry, batch), batch)

    def finish(carry):
        contribution = training.contribution(carry.personal)
        sums = carry.personal.learner.sums
        if training.replaces_fedavg:
            output = ClientOutput(contribution, carry.base, (), sums)
        else:
            output = base.finish(carry.base)
            # A personal model may diverge where the global one does not: its loss tells.
            totals = dict(output.metrics.totals)
            totals["loss"] += tf.zeros([]) * sums.totals["loss"]
            output = output._replace(
                update=(output.update, contribution), metrics=output.metrics._replace(totals=totals)
            )
        return output._replace(client_state=training.state(carry.personal))

    def pass_of(step: Callable[..., Any], num_epochs: int) -> Pass:
        return dataclasses.replace(global_pass, step=step, num_epochs=num_epochs)

    if training.same_batches:
        passes = [pass_of(both_steps, global_pass.num_epochs)]
    else:
        passes = [pass_of(personal_step, training.num_epochs)]
        if training.first_step is not None:
            first_step = functools.partial(personal_step, step=training.first_step)
            passes.insert(0, pass_of(first_step, training.num_first_epochs))
        if not training.replaces_fedavg:
            passes.insert(0, pass_of(global_step, global_pass.num_epochs))
    return ClientWork(init, tuple(passes), finish)


class Trainer:
    """Trains silos' own models on loss + strength / 2 * ||weights - anchor||^2.

    `trained` says which of the model's weights; by default all.
    """

    def __init__(
        self,
        task: Task,
        params: SiloAlgorithm,
        strength: Any = 0.0,
        trained: Sequence[bool] | None = None,
    ):
        self._task, self._strength = task, strength
        self.optimizer = optimizers.build(params.personal)
        self._trained = trained or (True,) * len(task.model.shapes)

    def start(self, weights: Weights) -> Learner:
        """Returns a learner at these weights."""
        return learning.start(self._task, self.optimizer, weights, self._trained)

    def start_personal(self, shared: Nest, state: Nest, client: Client) -> Personal:
        """Returns the training of a model that is the client state; see `PersonalTraining`."""
        return Personal(self.start(state))

    def step_personal(self, personal: Personal, batch: Batch, base: Any) -> Personal:
        """Returns a silo's training after a step on the loss alone; see `PersonalTraining`."""
        return personal._replace(learner=self.step(personal.learner, batch))

    def step(
        self,
        learner: Learner,
        batch: Batch,
        anchor: Weights | None = None,
        penalty: Callable[[Weights], tf.Tensor] | None = None,
    ) -> Learner:
        """Returns the learner after a step on the loss and a pull to `anchor`, or `penalty`."""
        if anchor is not None:
            pulled_to = anchor

            def penalty(weights):
                distance = learning.squared_distance(weights, pulled_to)
                return 0.5 * self._strength * distance

        return learning.train(self._task, self.optimizer, learner, batch, self._trained, penalty)


class SharedLayers:
    """A model of which some layers are a silo's own and the server shares the others."""

    def __init__(self, initial_weights: Weights, is_own: Sequence[bool]):
        self._initial = tuple(initial_weights)
        self.is_own, self.is_shared = tuple(is_own), tuple(not own for own in is_own)

    def own(self, weights: Weights) -> Weights:
        """Returns a silo's own layers, its client state."""
        return tuple(itertools.compress(weights, self.is_own))

    def shared(self, weights: Weights) -> Weights:
        """Returns the layers that the server shares."""
        return tuple(itertools.compress(weights, self.is_shared))

    def joined(self, shared: Weights, own: Weights) -> Weights:
        """Returns the whole model."""
        whole = learning.merge(self._initial, shared, self.is_shared)
        return learning.merge(whole, own, self.is_own)

    def build(
        self, task: Task, params: SiloAlgorithm, training: PersonalTraining
    ) -> algorithm.Algorithm:
        """Returns `build`'s algorithm, whose shared nest is the shared layers.

        A silo's state is its own layers; its memory begins with the shared ones as they came.
        """

        def contribution(personal):
            return learning.subtract(personal.memory[0], self.shared(personal.learner.weights))

        layers = self.shared(self._initial)
        return build(
            task,
            params,
            self._initial,
            dataclasses.replace(
                training,
                state=lambda personal: self.own(personal.learner.weights),
                contribution=contribution,
            ),
            communicated=layers,
            initial_state=self.own(self._initial),
            personal_model=lambda weights, state: self.joined(weights[1], state),
            shared=layers,
            shared_optimizer=optimizers.build(params.server_optimizer) if layers else None,
        )


class ScoringCarry(NamedTuple):
    """The model that is being scored, the silo's own, which comes next, the scores."""

    current: Weights
    personal: Weights
    board: scoring.Board


def personalization(task: Task, training: algorithm.Algorithm) -> algorithm.Personalization:
    """Returns the scoring of the models that were trained for each silo; nothing is trained.

    Candidate `0` is the algorithm's global model, candidate `personal` the silo's own.
    """
    personal_model, labels = training.personal_model, candidate_labels.PERSONAL
    if personal_model is None:
        raise ValueError(f"{training.name!r} trains no personal models.")

    def work(evaluation_parts, personalization_part):
        def init(broadcast, client_state, client):
            return ScoringCarry(
                current=tuple(training.global_model(broadcast)),
                personal=tuple(personal_model(broadcast, client_state)),
                board=scoring.start(task, evaluation_parts, len(labels), client),
            )

        return scoring.two_candidates(task, evaluation_parts, init, lambda carry: carry.personal)

    return algorithm.Personalization(
        "personal", labels, work, wants_server_weights=True, scores_train=True
    )


def place(num_silos: int, index: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Returns a silo's mark in the mean of a cohort: float32 [silos], 1 / weight at its index.

    The weighted mean of these has 1 / (weight of the whole cohort) where a silo took part and 0
    where it did not, so a server that is given means alone knows who took part, and how much.
    """
    is_own = tf.equal(tf.range(num_silos), index)
    return tf.where(is_own, tf.math.divide_no_nan(1.0, weight), 0.0)
