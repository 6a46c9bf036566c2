"""FedBN (Li et al. 2021, https://arxiv.org/abs/2102.07623, Algorithm 1), stateful.

All layers but the normalization layers are averaged as in FedAvg; scales, shifts and, of a
BatchNormalization, the moving mean and variance stay with the silo. In a round, silo i joins them
with the layers that the server sends, trains all of them, and sends the others' change alone:

    w_i = (shared, norms_i);  w_i = client optimizer(w_i, loss's gradient) for each batch
    norms_i = those of w_i;   send shared - (the others of w_i)

The paper averages silos alike; here, as in FedAvg, they count by their examples. Of one silo, with
server SGD at rate 1, it is FedAvg. No FedAvg is trained beside it: the baseline is the shared
layers with the norms that all silos began with, so a silo that never trained has the baseline.

In training a BatchNormalization normalizes a batch by the batch's own mean and variance, which draw
the moving ones near; evaluations take the moving ones. That needs batches without padding, so it
runs on the backends `sequential` and `tff`; other norms run on all.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from motley_tff.algorithms import fedavg, personal_training
from motley_tff.algorithms.card import Card, takes_rows
from motley_tff.algorithms.personal_training import SharedLayers
from motley_tff.core import functional_model, learning, rows
from motley_tff.core.algorithm import Algorithm, Communicated, Personalization
from motley_tff.core.client_work import Batch, Client, ClientWork
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


@dataclasses.dataclass(frozen=True)
class MovingFedAvg(fedavg.FedAvg):
    """FedAvg whose clients move batch statistics, which the server averages, too."""

    def trained_layers(self, task: Task) -> tuple[bool, ...]:
        """Returns all but moving statistics, which no gradient trains."""
        is_statistic = task.model.is_statistic
        return tuple(not moves for moves in is_statistic) or (True,) * len(task.model.shapes)

    def client_work(self, task: Task) -> ClientWork:
        """Returns FedAvg's work, in which each batch moves the statistics."""
        work, is_statistic = super().client_work(task), task.model.is_statistic
        (pass_,) = work.passes
        if not is_statistic:
            return work

        def step(client: fedavg.FedAvgClient, batch: Batch) -> fedavg.FedAvgClient:
            with functional_model.new_statistics() as moved:
                client = pass_.step(client, batch)
            weights = learning.merge(client.learner.weights, tuple(moved), is_statistic)
            return client._replace(learner=client.learner._replace(weights=weights))

        return dataclasses.replace(work, passes=(dataclasses.replace(pass_, step=step),))


@dataclasses.dataclass(frozen=True)
class FedBn(MovingFedAvg):
    """FedAvg's hyperparameters; the client optimizer trains all layers, the server optimizer the
    shared ones.
    """

    card: ClassVar[Card] = Card(
        "fedbn",
        "FedBN",
        ("mtl_trainer",),
        "own normalization layers among shared ones, also BatchNormalization of --model",
        takes_rows=True,
    )
    tries_alone: ClassVar[bool] = True

    def trained_layers(self, task: Task) -> tuple[bool, ...]:
        """Returns all but moving statistics; a UserError if no layers are norms, or all are."""
        if not any(task.model.is_norm) or all(task.model.is_norm):
            layers = "normalization layers, such as GroupNormalization, and others to share"
            raise self.unfit(f"a model with {layers}; that of {task.dataset} has not both")
        return super().trained_layers(task)

    def probe(self) -> fedavg.FedAvg:
        """Returns what it is of one silo alone."""
        return MovingFedAvg(*vars(super().probe()).values())

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedBN; a silo's state is its norms, the server shares the others. UserError as
        `trained_layers`.
        """
        built = super().build(task, initial_weights)
        layers = SharedLayers(initial_weights, task.model.is_norm)
        work, first, shared = (
            built.work,
            layers.own(initial_weights),
            layers.shared(initial_weights),
        )

        def init(sent: Weights, norms: Weights, client: Client) -> fedavg.FedAvgClient:
            return work.init(layers.joined(sent, norms), (), client)

        def finish(client: Any) -> Any:
            output, norms = work.finish(client), layers.own(client.learner.weights)
            return output._replace(update=layers.shared(output.update), client_state=norms)

        def untrained(sent: Weights) -> Weights:
            norms = (tf.broadcast_to(w, [*rows.leading(), *w.shape]) for w in first)
            return layers.joined(sent, tuple(norms))

        return dataclasses.replace(
            built,
            initial_weights=shared,
            work=dataclasses.replace(work, init=init, finish=finish),
            initial_client_state=lambda index: first,
            global_model=untrained,
            personal_model=layers.joined,
            communicated=Communicated(shared, shared),
        )

    def personalization(self, task: Task, built: Algorithm) -> Personalization | None:
        """Returns the scoring of the silos' models."""
        return personal_training.scoring_of_own_models(task, built, takes_rows(type(self)))
