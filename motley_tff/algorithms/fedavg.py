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

from motley_tff.algorithms import rate_schedules
from motley_tff.algorithms.base import TrainingAlgorithm
from motley_tff.algorithms.card import Card, takes_rows
from motley_tff.algorithms.optimizers import OptimizerConfig, build_optimizer, optimizer_option
from motley_tff.core import learning, options, rows
from motley_tff.core.algorithm import Algorithm, Communicated, Nest, ServerOptimizer
from motley_tff.core.client_work import Batch, Client, ClientOutput, ClientWork, Pass
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Learner, Weights
from motley_tff.core.options import ABOVE_0, MAX_BATCH_SIZE, option
from motley_tff.core.task import Task

_CLIENT_RATE, _SERVER_RATE = 0.1, 1.0
_IF_OWN_DATA = "of your own data several are tried on training clients"


@dataclasses.dataclass(frozen=True)
class FedAvg(TrainingAlgorithm):
    """FedAvg's hyperparameters, which every federated algorithm has.

    Attributes:
      card: Its names, the trainers that offer it, and what it can be combined with.
      client_optimizer: The clients' optimizer; its state starts anew every round, unless silos
        keep it. Without a rate it has 0.1, or, on a user's data, the one that
        `experiment.rate_probe` chooses.
      server_optimizer: The server's; its state is kept over rounds. Without a rate it has 1; on a
        user's data that with which it takes the clients' whole mean change or, of adaptive ones,
        the one that is chosen.
      train_epochs: Local epochs a round, at least 1.
      train_batch_size: Examples a batch, at least 1.
      train_steps: A client's batches a round, in place of epochs; None for `train_epochs`.
      client_schedule: How the clients' rate changes over rounds, see `rate_schedules.factors`.
      server_schedule: How the server's does.
      decay_factor: What step and exponential multiply a rate by,
      decay_rounds: in so many rounds.
      warmup_rounds: Rounds in which the clients' rate rises to its full value; 0 for none.
      keep_optimizer_state: Whether silos keep it, see `kept_optimizers`.
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
    train_steps: int | None = option(
        None,
        "A client's batches a round, in place of --train_epochs; of wgan_gp each is an update of "
        "the critic, every --n_critic-th also one of the generator",
        lower=1,
    )
    client_schedule: rate_schedules.Name = option(
        "constant",
        "How the clients' rate goes down over rounds: cosine to nearly 0 at --total_rounds, "
        "exponential by --decay_factor in --decay_rounds, step by it at once after these. Rates at "
        "evaluations, such as fine-tuning's, stay",
    )
    server_schedule: rate_schedules.Name = option(
        "constant", "How the server's rate goes down over rounds"
    )
    decay_factor: float = option(
        0.5, "What step and exponential multiply a rate by", lower=ABOVE_0, upper=1
    )
    decay_rounds: int = option(50, "In how many rounds they do", lower=1)
    warmup_rounds: int = option(
        0,
        "The first W rounds multiply the clients' rate by 1/W, 2/W, ... 1, beside its schedule; "
        "the server's rate has no warm-up",
    )

    keep_optimizer_state: bool = option(
        False,
        "Silos' optimizers, and wgan_gp's count of batches, go on where their last round ended",
        trainers=("finetuning_trainer", "knn_per_trainer", "mtl_trainer", "generative_trainer"),
    )

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
            self.client_optimizer, self.server_optimizer, self.train_epochs, self.train_batch_size,
            self.train_steps,
        )  # fmt: skip

    def round_rates(self, total_rounds: int) -> rate_schedules.RoundRates | None:
        """Returns the rates of a run's rounds; None if they stay the same."""
        names, warmup = (self.client_schedule, self.server_schedule), self.warmup_rounds
        if not warmup and names == ("constant", "constant"):
            return None
        decay = self.decay_factor, self.decay_rounds
        return rate_schedules.RoundRates(
            rate_schedules.factors(names[0], total_rounds, *decay, warmup),
            rate_schedules.factors(names[1], total_rounds, *decay, 0),
            None if "client_schedule" in self.unused else self.client.learning_rate,
            None if "server_schedule" in self.unused else self.server.learning_rate,
        )

    @property
    def schedules_of_all_rounds(self) -> tuple[str, ...]:
        """The fields of schedules that depend on how many rounds there are in all."""
        fields = ("client_schedule", "server_schedule")
        return tuple(field for field in fields if getattr(self, field) == "cosine")

    def check_rounds(self, total_rounds: int) -> None:
        """Raises a UserError for a setting of a round's steps or rates that changes nothing, or
        that the algorithm cannot have.
        """

        def refuse(field: str, expected: str, advice: str = "leave it out") -> None:
            if getattr(self, field) != type(self).__dataclass_fields__[field].default:
                raise UserError(
                    options.name_of(self, field), getattr(self, field), expected, advice
                )

        for field, reason in self.unused.items():
            refuse(field, reason)
        if self.train_steps is not None:
            steps = options.name_of(self, "train_steps")
            refuse("train_epochs", f"1, as {steps} takes its place", "leave one of them out")
        schedules = [options.name_of(self, f"{side}_schedule") for side in ("client", "server")]
        if not {self.client_schedule, self.server_schedule} & {"step", "exponential"}:
            for field in ("decay_factor", "decay_rounds"):
                refuse(field, f"{schedules[0]} or {schedules[1]} of step or exponential")
        if 0 < total_rounds < self.warmup_rounds:
            refuse("warmup_rounds", f"at most {total_rounds}, the rounds", "give fewer")

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
        """Returns a client's epochs or steps of a round, with a step for each batch."""
        return Pass(
            part="train",
            step=step,
            batch_size=self.train_batch_size,
            num_epochs=self.train_epochs,
            num_steps=self.train_steps,
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
