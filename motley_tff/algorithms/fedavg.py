"""FedAvg (McMahan et al. 2017, https://arxiv.org/abs/1602.05629, Algorithm 1), generalized.

In a round the server sends its weights w to the clients of the cohort, and then

    each client i:   w_i = w                                             (`init`)
                     for each batch of its epochs:
                         w_i = client optimizer(w_i, loss's gradient)    (`local_step`)
                     sends w - w_i, and how many examples n_i it has     (`finish`)
    the server:      d = sum of n_i (w - w_i) / sum of n_i               (`weigh`, `mean`)
                     w = server optimizer(w, d)                          (`server_step`)

With server SGD at rate 1 the new w is the paper's weighted mean of the w_i. The mean change d acts
as a gradient (Reddi et al. 2020, https://arxiv.org/abs/2003.00295, Algorithm 1, "FedOpt"): with
Adam this is that paper's FedAdam, and with a momentum FedAvgM.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from motley_tff.algorithms.base import TrainingAlgorithm
from motley_tff.algorithms.card import Card, takes_rows
from motley_tff.algorithms.optimizers import OptimizerConfig, build_optimizer, optimizer_option
from motley_tff.core import learning, rows
from motley_tff.core.algorithm import Algorithm, Communicated, Nest, ServerOptimizer
from motley_tff.core.client_work import Batch, Client, ClientOutput, ClientWork, Pass
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Learner, Weights
from motley_tff.core.options import MAX_BATCH_SIZE, option
from motley_tff.core.task import Task

_CLIENT_RATE, _SERVER_RATE = 0.1, 1.0
_IF_OWN_DATA = "of your own data several are tried on training clients"


@dataclasses.dataclass(frozen=True)
class FedAvg(TrainingAlgorithm):
    """FedAvg's hyperparameters, which every federated algorithm has.

    Attributes:
      card: Its names, the trainers that offer it, and what it can be combined with.
      client_optimizer: The clients' optimizer; its state starts anew every round. Without a rate
        it has 0.1, or, on a user's data, the one that `experiment.rate_probe` chooses.
      server_optimizer: The server's; its state is kept over rounds. Without a rate it has 1; on a
        user's data that with which it takes the clients' whole mean change or, of adaptive ones,
        the one that is chosen.
      train_epochs: Local epochs a round, at least 1.
      train_batch_size: Examples a batch, at least 1.
    """

    card: ClassVar[Card] = Card(
        "fedavg", "FedAvg", ("finetuning_trainer", "knn_per_trainer"), can_be_grouped=True,
        takes_rows=True,
    )  # fmt: skip
    client_optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("sgd"),
        "client",
        "clients'",
        rate_meaning=f"default: {_CLIENT_RATE:g}; {_IF_OWN_DATA}",
    )
    server_optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("sgd"),
        "server",
        "server's",
        rate_meaning=f"default: {_SERVER_RATE:g}; for adam and other adaptive ones {_IF_OWN_DATA}",
    )
    train_epochs: int = option(
        1, "Local epochs a round", lower=1, upper=10_000, everyday="training"
    )
    train_batch_size: int = option(
        10, "Examples a batch; in fine-tuning, too, unless --finetune_batch_size is given",
        lower=1, upper=MAX_BATCH_SIZE,
        everyday="training",
    )  # fmt: skip

    @property
    def client(self) -> OptimizerConfig:
        """The clients' optimizer, with a rate."""
        return self.client_optimizer.or_rate(_CLIENT_RATE)

    @property
    def server(self) -> OptimizerConfig:
        """The server's optimizer, with a rate."""
        return self.server_optimizer.or_rate(_SERVER_RATE)

    @property
    def tried_optimizers(self) -> tuple[str, ...]:
        """The fields of the optimizers whose good rates depend on the data."""
        is_adaptive = self.server.total_gain is None
        return ("client_optimizer", "server_optimizer")[: 1 + is_adaptive]

    def with_rates(self, tries: bool) -> FedAvg:
        """Returns the algorithm with rates that were not given.

        Args:
          tries: Leave those without a rate that are then tried out; the server takes the clients'
            whole mean change.
        """
        whole = dataclasses.replace(
            self, client_optimizer=self.client, server_optimizer=self.server
        )
        if not tries or not self.tries_rates:
            return whole
        gain = self.server_optimizer.at(1.0).total_gain
        if gain is not None:
            server = self.server_optimizer.or_rate(round(1.0 / gain, 9))
            whole = dataclasses.replace(whole, server_optimizer=server)
        tried = {name: getattr(self, name) for name in self.tried_optimizers}
        return dataclasses.replace(whole, **tried)

    def probe(self) -> FedAvg:
        """Returns what a few rounds are trained by to try out rates: plain FedAvg, whatever else
        the algorithm does.
        """
        return FedAvg(
            self.client_optimizer, self.server_optimizer, self.train_epochs, self.train_batch_size
        )

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns the algorithm from these first weights of the server, or raises as `check`."""
        self.check()
        # What a round's bytes count: the server sends the layers that clients train, and gets them
        # back. A layer that clients do not train has an update of zeros.
        sent = tuple(itertools.compress(initial_weights, self.trained_layers(task)))
        return Algorithm(
            name=self.card.name,
            initial_weights=tuple(initial_weights),
            work=self.client_work(task),
            server_optimizer=build_optimizer(self.server),
            communicated=Communicated(sent, sent),
        )

    def client_work(self, task: Task) -> ClientWork:
        """Returns what a client does in a round."""
        optimizer, trained = self.local_optimizer(), self.trained_layers(task)

        def init(weights: Weights, client_state: Nest, client: Client) -> FedAvgClient:
            """Returns a client at the server's weights; FedAvg's clients keep no state."""
            learner = learning.start(task, optimizer, weights, trained)
            return FedAvgClient(tuple(weights), learner, client.weight)

        def local_step(client: FedAvgClient, batch: Batch) -> FedAvgClient:
            """Returns the client after one optimizer step on the batch's loss."""
            gradients, sums = learning.gradients(
                task, client.learner.weights, batch, client.learner.sums, trained,
                penalty=lambda weights: self.local_penalty(weights, client.incoming),
            )  # fmt: skip
            direction = self.local_direction(gradients, client)
            learner = learning.step(optimizer, client.learner, direction, trained)
            return client._replace(learner=learner._replace(sums=sums))

        def finish(client: FedAvgClient) -> ClientOutput:
            """Returns the client's update, w - w_i, and n_i, its weight in the mean."""
            update = learning.subtract(client.incoming, client.learner.weights)
            return ClientOutput(update, client.weight, (), client.learner.sums)

        pass_ = dataclasses.replace(self.local_pass(task, local_step), changes=("learner",))
        return ClientWork(init, (pass_,), finish, takes_rows=takes_rows(type(self)))

    def local_optimizer(self) -> Any:
        """Returns the optimizer of a client's steps."""
        return build_optimizer(self.client)

    def local_direction(self, gradients: Weights, client: FedAvgClient) -> Weights:
        """Returns what a client's optimizer gets of a batch's gradients: all of them."""
        return gradients

    def local_penalty(self, weights: Weights, incoming: Weights) -> tf.Tensor | float:
        """Returns what is added to a batch's loss, though not to the reported one."""
        return 0.0

    def local_pass(self, task: Task, step: Callable[[Any, Batch], Any]) -> Pass:
        """Returns a client's epochs of a round, with a step for each batch."""
        return Pass(
            part="train",
            step=step,
            batch_size=self.train_batch_size,
            num_epochs=self.train_epochs,
            shuffle=True,
            drop_remainder=task.drop_remainder,
            training=True,
        )


class FedAvgClient(NamedTuple):
    """A client in a round: the server's weights w, its own model w_i, its number of examples n_i
    as a float, and what else a derived algorithm needs.
    """

    incoming: Weights
    learner: Learner
    weight: tf.Tensor
    memory: Nest = ()


def weigh(update: Nest, weight: tf.Tensor) -> Nest:
    """Returns n_i (w - w_i), whose sum over the clients `mean` takes.

    `weight` is n_i, a scalar. Where a backend stacks runs or clients, it has their axes, which are
    the first ones of every leaf, too.
    """
    return rows.scaled(weight, update)


def mean(total: Nest, weight: tf.Tensor) -> Nest:
    """Returns the clients' mean update: the sum of n_i (w - w_i) over the sum of n_i, or zeros if
    that is 0. `total` and `weight` are the two sums, with axes as in `weigh`.
    """
    return tf.nest.map_structure(
        lambda leaf: tf.math.divide_no_nan(leaf, rows.aligned(weight, leaf)), total
    )


def server_step(
    optimizer: ServerOptimizer, weights: Nest, state: Nest, mean_update: Nest
) -> tuple[Nest, Nest]:
    """Returns the server's new weights, and its optimizer's new state."""
    state, weights = optimizer.next(state, weights, mean_update)
    return weights, state
