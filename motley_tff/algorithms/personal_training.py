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

from motley_tff.algorithms import fedavg, scoring
from motley_tff.algorithms.card import takes_rows
from motley_tff.algorithms.optimizers import OptimizerConfig, build_optimizer, optimizer_option
from motley_tff.core import candidate_labels, learning
from motley_tff.core.algorithm import (
    Algorithm,
    Communicated,
    Groups,
    Nest,
    Personalization,
    PersonalModel,
    ServerOptimizer,
)
from motley_tff.core.client_work import Batch, Client, ClientOutput, ClientWork, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Learner, Weights
from motley_tff.core.options import option
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class SiloAlgorithm(fedavg.FedAvg):
    """FedAvg's hyperparameters, and the optimizer of the silos' own models.

    Its state starts anew every round. A rate of None is the clients', times `default_share`.
    """

    tries_alone: ClassVar[bool] = True
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
        rate = self.default_share * self.client.learning_rate
        return dataclasses.replace(self.personal_optimizer, learning_rate=rate)

    def with_defaults(self, personalization: Any, total_rounds: int) -> SiloAlgorithm:
        """Returns the algorithm with its personal rate, once the clients' is known."""
        if self.client_optimizer.learning_rate is None:
            return self
        return dataclasses.replace(self, personal_optimizer=self.personal)

    def personalization(self, task: Task, built: Algorithm) -> Personalization | None:
        """Returns the scoring of the models that were trained for each silo; nothing is trained.

        Candidate `0` is the algorithm's global model, candidate `personal` the silo's own.
        """
        personal_model, labels = built.personal_model, candidate_labels.PERSONAL
        if personal_model is None:
            raise ValueError(f"{built.name!r} trains no personal models.")

        def first(weights, state):
            return tuple(built.global_model(weights)), tuple(personal_model(weights, state))

        def work(evaluation_parts, personalization_part):
            scored = scoring.two_candidates(task, evaluation_parts, first, lambda own: own)
            return dataclasses.replace(scored, takes_rows=takes_rows(type(self)))

        return Personalization(
            "personal", labels, work, wants_server_weights=True, scores_train=True
        )

    def trainer(
        self,
        task: Task,
        penalty: PersonalPenalty = lambda weights, personal, base: 0.0,
        trained: Sequence[bool] | None = None,
    ) -> Trainer:
        """Returns what trains silos' own models on their loss and a penalty.

        `trained` says which of the model's weights; by default all.
        """
        trained = trained or (True,) * len(task.model.shapes)
        return Trainer(task, build_optimizer(self.personal), penalty, trained)

    def build_for_silos(
        self,
        task: Task,
        initial_weights: Weights,
        training: PersonalTraining,
        communicated: Nest | None = None,
        initial_state: Nest | None = None,
        personal_model: PersonalModel = lambda weights, state: state,
        shared: Nest = (),
        shared_optimizer: ServerOptimizer | None = None,
    ) -> Algorithm:
        """Returns an algorithm whose silos train models that they keep.

        The server's weights are (FedAvg's, shared), or shared alone.

        Args:
          communicated: What crosses the wire for the algorithm's sake, each way; by default a
            model's weights.
          initial_state: Every silo's first state; by default the initial weights.
          personal_model: By default the state.
          shared: What the server keeps beside FedAvg's weights.
          shared_optimizer: Updates that from the weighted mean of the contributions.
        """
        base = fedavg.FedAvg.build(self, task, initial_weights)
        sent = tuple(initial_weights) if communicated is None else communicated
        state = tuple(initial_weights) if initial_state is None else initial_state
        algorithm = dataclasses.replace(
            base,
            work=_client_work(base.work, training),
            initial_client_state=lambda index: state,
            personal_model=personal_model,
            communicated=Communicated(sent, sent),
        )
        if training.replaces_fedavg:
            return dataclasses.replace(
                algorithm,
                initial_weights=shared,
                server_optimizer=shared_optimizer or base.server_optimizer,
            )
        return dataclasses.replace(
            algorithm,
            initial_weights=(base.initial_weights, shared),
            server_optimizer=_Halves(base.server_optimizer, shared_optimizer),
            global_model=operator.itemgetter(0),
            groups=_HALVES if shared_optimizer else None,
        )


def regularization_option(default: float) -> Any:
    """Returns the field of lambda, the strength of a pull; 0 gives back local training."""
    meaning = "Strength of the regularization; 0 is local training"
    return option(default, meaning, "lambda", everyday="personalization")


class Personal(NamedTuple):
    """A silo's own training: its model, and what else its steps need."""

    learner: Learner
    memory: Nest = ()


class SiloClient(NamedTuple):
    """A silo in a round: FedAvg's client (without FedAvg, the silo's weight), its own training."""

    base: Any
    personal: Personal


# (a silo's model, its training, FedAvg's client) -> scalar that is added to a batch's loss.
PersonalPenalty = Callable[[Weights, Personal, Any], Any]


@dataclasses.dataclass(frozen=True)
class PersonalTraining:
    """What a silo does for its own model.

    Attributes:
      start: `(shared, client state, client) -> Personal`.
      step: `(personal, batch, FedAvg's client) -> personal`.
      state: `personal -> client state`; by default the model's weights.
      contribution: `personal -> update` of the shared nest; by default none.
      num_epochs: By default as many as FedAvg takes.
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
    num_epochs: int | None = None
    first_step: Callable[[Personal, Batch, Any], Personal] | None = None
    num_first_epochs: int = 0
    same_batches: bool = False
    replaces_fedavg: bool = False


_HALVES = Groups(
    split=lambda update, weight: tuple((half, weight) for half in update),
    join=lambda means, totals: tuple(means),
    is_partial=(False, False),
)


class _Halves:
    """One optimizer on FedAvg's half, another on the shared one, None if that is empty."""

    def __init__(self, first: ServerOptimizer, second: ServerOptimizer | None):
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
    outer_pass = global_pass.within("base")

    def init(broadcast: Any, client_state: Any, client: Client) -> SiloClient:
        if training.replaces_fedavg:
            return SiloClient(client.weight, training.start(broadcast, client_state, client))
        weights, shared = broadcast
        personal = training.start(shared, client_state, client)
        return SiloClient(base.init(weights, (), client), personal)

    def personal_step(silo, batch, step=training.step):
        return silo._replace(personal=step(silo.personal, batch, silo.base))

    def both_steps(silo, batch):
        return outer_pass.step(personal_step(silo, batch), batch)

    def finish(silo):
        contribution = training.contribution(silo.personal)
        sums = silo.personal.learner.sums
        if training.replaces_fedavg:
            output = ClientOutput(contribution, silo.base, (), sums)
        else:
            output = base.finish(silo.base)
            # A personal model may diverge where the global one does not: its loss tells.
            totals = dict(output.metrics.totals)
            totals["loss"] += tf.zeros([]) * sums.totals["loss"]
            output = output._replace(
                update=(output.update, contribution), metrics=output.metrics._replace(totals=totals)
            )
        return output._replace(client_state=training.state(silo.personal))

    def pass_of(step: Callable[..., Any], num_epochs: int | None = None) -> Pass:
        epochs = global_pass.num_epochs if num_epochs is None else num_epochs
        return dataclasses.replace(global_pass, step=step, num_epochs=epochs, changes=())

    if training.same_batches:
        return ClientWork(init, (pass_of(both_steps),), finish, takes_rows=base.takes_rows)
    passes = [pass_of(personal_step, training.num_epochs)]
    if training.first_step is not None:
        first_step = functools.partial(personal_step, step=training.first_step)
        passes.insert(0, pass_of(first_step, training.num_first_epochs))
    if not training.replaces_fedavg:
        passes.insert(0, outer_pass)
    return ClientWork(init, tuple(passes), finish, takes_rows=base.takes_rows)


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Trains silos' own models; see `SiloAlgorithm.trainer`."""

    task: Task
    optimizer: Any
    penalty: PersonalPenalty
    trained: Sequence[bool]

    def start(self, weights: Weights) -> Learner:
        """Returns a learner at these weights."""
        return learning.start(self.task, self.optimizer, weights, self.trained)

    def start_personal(self, shared: Nest, state: Nest, client: Client) -> Personal:
        """Returns the training of a model that is the client state; see `PersonalTraining`."""
        return Personal(self.start(state))

    def step(self, personal: Personal, batch: Batch, base: Any) -> Personal:
        """Returns a silo's training after a step of its model; see `PersonalTraining`."""
        learner = learning.train(
            self.task, self.optimizer, personal.learner, batch, self.trained,
            penalty=lambda weights: self.penalty(weights, personal, base),
        )  # fmt: skip
        return personal._replace(learner=learner)


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
        self,
        task: Task,
        params: SiloAlgorithm,
        start: Callable[..., Personal],
        step: Callable[..., Personal],
        **more: Any,
    ) -> Algorithm:
        """Returns the algorithm whose shared nest is the shared layers.

        A silo's state is its own layers; its memory begins with the shared ones as they came. The
        other arguments are those of `PersonalTraining`.
        """

        def own(personal: Personal) -> Weights:
            return self.own(personal.learner.weights)

        def contribution(personal: Personal) -> Weights:
            return learning.subtract(personal.memory[0], self.shared(personal.learner.weights))

        layers = self.shared(self._initial)
        return params.build_for_silos(
            task,
            self._initial,
            PersonalTraining(start, step, own, contribution, **more),
            communicated=layers,
            initial_state=self.own(self._initial),
            personal_model=lambda weights, state: self.joined(weights[1], state),
            shared=layers,
            shared_optimizer=build_optimizer(params.server) if layers else None,
        )


def place(num_silos: int, client: Client) -> tf.Tensor:
    """Returns a silo's mark in the mean of a cohort: float32 [silos], 1 / weight at its index.

    The weighted mean of these has 1 / (weight of the whole cohort) where a silo took part and 0
    where it did not, so a server that is given means alone knows who took part, and how much.
    """
    is_own = tf.equal(tf.range(num_silos), client.index[..., None])
    return tf.where(is_own, tf.math.divide_no_nan(1.0, client.weight)[..., None], 0.0)
