"""WGAN-GP by FedAvg (Gulrajani et al. 2017, https://arxiv.org/abs/1704.00028, Algorithm 1).

A client's step is a batch of pictures x: with z normal, u uniform, x' = G(z), x^ = x' + u (x - x'),

    the critic D minimizes   mean D(x') - D(x) + lambda (||grad D(x^)|| - 1)^2

and, every n_critic-th step, the generator G minimizes mean -D(G(z)); both by the client optimizer,
whose state starts anew each round unless a silo keeps it. Both nets are averaged. The paper's loop
draws a batch for each critic's update, too: n_critic batches are one of its iterations. Steps are
counted anew in each round, unless a silo keeps its optimizers: then it keeps their count, too.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from motley_tff.algorithms.card import Card
from motley_tff.algorithms.optimizers import OptimizerConfig, build_optimizer, optimizer_option
from motley_tff.core import (
    client_work,
    clients as clients_lib,
    functional_model,
    learning,
    options,
    tensor_random,
)
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.client_work import Client, ClientOutput, ClientWork, Pass
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import option
from motley_tff.core.task import Task
from motley_tff.generative import base

# Keeps the slope's derivative finite where the slope is 0.
_SMALLEST = 1e-12
_NOISE, _MIXING, _GENERATOR_NOISE = 0, 1, 2


class Pair(NamedTuple):
    """Both nets of a task's model, and how many numbers the generator makes a picture of."""

    generator: functional_model.FunctionalModel
    critic: functional_model.FunctionalModel
    latent_size: int

    def split(self, weights: Weights) -> tuple[Weights, Weights]:
        """Returns (the generator's weights, the critic's)."""
        first = len(self.generator.shapes)
        return tuple(weights[:first]), tuple(weights[first:])

    def make(self, weights: Weights, key: tf.Tensor, count: Any) -> tf.Tensor:
        """Returns pictures float32 [count, height, width, channels] of a generator's weights."""
        z = tensor_random.normal(key, [count, self.latent_size])
        return self.generator.predict(weights, z, False, key)

    def scores(self, weights: Weights, x: tf.Tensor) -> tf.Tensor:
        """Returns a critic's values [batch] of pictures."""
        return self.critic.predict(weights, x, False, tf.zeros([2], tf.int32))


@functools.lru_cache(maxsize=1)
def pair_of(model: functional_model.FunctionalModel) -> Pair:
    """Returns the nets of a `datasets.models.image_gan.ImageGan`."""
    whole: Any = model.build()
    return Pair(
        functional_model.from_keras(
            lambda: model.build().generator, np.zeros((1, whole.latent_size), np.float32)
        ),
        functional_model.from_keras(
            lambda: model.build().critic, np.zeros((1, *whole.image_shape), np.float32)
        ),
        whole.latent_size,
    )


@dataclasses.dataclass(frozen=True)
class WganGp(base.GenerativeAlgorithm):
    """`GenerativeAlgorithm`'s hyperparameters, and

    Attributes:
      n_critic: Critic's updates, a batch each, for one of the generator's.
      penalty: lambda.
    """

    card: ClassVar[Card] = Card("wgan_gp", "WGAN-GP", ("generative_trainer",))
    client_optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("adam", 1e-4, {"beta_1": 0.0, "beta_2": 0.9}), "client", "clients'"
    )
    n_critic: int = option(5, "wgan_gp: critic's updates for one of the generator's", lower=1)
    penalty: float = option(10.0, "wgan_gp: weight of the gradient's penalty")

    def check(self) -> None:
        """Raises a UserError if a client's round ends before a step of the generator."""
        steps = self.train_steps
        if steps is not None and steps < self.n_critic and not self.keep_optimizer_state:
            critic = options.name_of(self, "n_critic")
            kept = options.name_of(self, "keep_optimizer_state")
            expected = f"at least {critic}={self.n_critic}, or no round trains the generator"
            advice = f"give more, or a smaller {critic}, or let silos count on with {kept}"
            raise UserError(options.name_of(self, "train_steps"), steps, expected, advice)

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns the algorithm, of a task whose model is an `ImageGan`; UserError if most clients
        have too few pictures for a step of the generator.
        """
        algorithm = super().build(task, initial_weights)
        self._check_clients(task, algorithm.work.passes[0])
        optimizer, pair = build_optimizer(self.client_optimizer), pair_of(task.model)
        return self.finished(algorithm, task, _first_state(optimizer, pair))

    def client_work(self, task: Task) -> ClientWork:
        """Returns a client's round, of a task whose model is an `ImageGan`."""
        return _client_work(task, self, pair_of(task.model))

    def _check_clients(self, task: Task, pass_: Pass) -> None:
        if self.train_steps is not None or self.keep_optimizer_state:
            return
        pictures = [clients_lib.num_rows(task.train.fetch(i)["train"]) for i in task.train.ids]
        steps = client_work.num_steps(tf.constant(pictures), pass_)
        most = sorted(steps.numpy().tolist())[len(pictures) // 2]
        if most < self.n_critic:
            critic, steps = (options.name_of(self, name) for name in ("n_critic", "train_steps"))
            raise UserError(
                options.name_of(self, "train_epochs"), self.train_epochs,
                f"{critic}={self.n_critic} batches a round, or none trains the generator; most "
                f"clients have at most {most}",
                f"give {steps}, or a smaller {critic}",
            )  # fmt: skip


class WganClient(NamedTuple):
    """A client in a round: the weights as they came, both nets, and its weight."""

    incoming: Weights
    generator: Weights
    critic: Weights
    states: tuple[Any, Any]  # The optimizer's, of the generator and of the critic.
    steps: tf.Tensor
    weight: tf.Tensor
    sums: learning.Sums


def _client_work(task: Task, params: WganGp, pair: Pair) -> ClientWork:
    optimizer = build_optimizer(params.client_optimizer)
    gap = task.metric.name

    def init(broadcast: Weights, client_state: Any, client: Client) -> WganClient:
        nets = pair.split(tuple(broadcast))
        states, steps = _first_state(optimizer, pair)
        if params.keep_optimizer_state:
            kept, steps = client_state
            states = tuple(map(learning.resumed, states, kept))
        sums = learning.zero_sums(task)
        return WganClient(tuple(broadcast), *nets, tuple(states), steps, client.weight, sums)

    def train_critic(carry, batch):
        x, size = batch.x, tf.shape(batch.x)[0]
        noise, mixing = (
            tensor_random.fold(batch.key, tensor_random.LAYER, i) for i in (_NOISE, _MIXING)
        )
        generated = pair.make(carry.generator, noise, size)
        u = tf.reshape(tensor_random.uniform(mixing, [size]), [-1, 1, 1, 1])
        between = generated + u * (x - generated)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(carry.critic)
            gaps = pair.scores(carry.critic, x) - pair.scores(carry.critic, generated)
            slopes = _slopes(pair, carry.critic, between)
            losses = params.penalty * tf.square(slopes - 1.0) - gaps
            loss = _mean(losses, batch.mask)
        gradients = tape.gradient(loss, carry.critic)
        state, critic = optimizer.next(carry.states[1], carry.critic, gradients)
        sums = _sums({"loss": losses, gap: gaps}, batch.mask)
        return carry._replace(
            critic=critic,
            states=(carry.states[0], state),
            sums=tf.nest.map_structure(tf.add, carry.sums, sums),
            steps=carry.steps + 1,
        )

    def train_generator(carry, batch):
        key = tensor_random.fold(batch.key, tensor_random.LAYER, _GENERATOR_NOISE)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(carry.generator)
            generated = pair.make(carry.generator, key, tf.shape(batch.x)[0])
            loss = -_mean(pair.scores(carry.critic, generated), batch.mask)
        gradients = tape.gradient(loss, carry.generator)
        return optimizer.next(carry.states[0], carry.generator, gradients)

    def step(carry, batch):
        carry = train_critic(carry, batch)
        state, generator = tf.cond(
            tf.equal(carry.steps % params.n_critic, 0),
            lambda: train_generator(carry, batch),
            lambda: (carry.states[0], carry.generator),
        )
        return carry._replace(generator=tuple(generator), states=(state, carry.states[1]))

    def finish(carry):
        trained = (*carry.generator, *carry.critic)
        update = learning.subtract(carry.incoming, trained)
        state = (carry.states, carry.steps) if params.keep_optimizer_state else ()
        return ClientOutput(update, carry.weight, state, carry.sums)

    return ClientWork(init, (params.local_pass(task, step),), finish)


def _first_state(optimizer: Any, pair: Pair) -> tuple[tuple[Any, Any], tf.Tensor]:
    """Returns ((the optimizer's state for the generator, for the critic), the count of steps)."""
    generator, critic = (
        learning.first_state(optimizer, net.shapes) for net in (pair.generator, pair.critic)
    )
    return (generator, critic), tf.constant(0)


def _slopes(pair: Pair, critic: Weights, x: tf.Tensor) -> tf.Tensor:
    """Returns the length of the critic's gradient at each picture, [batch]."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        total = tf.reduce_sum(pair.scores(critic, x))
    return tf.sqrt(tf.reduce_sum(tf.square(tape.gradient(total, x)), [1, 2, 3]) + _SMALLEST)


def _mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.reduce_sum(values * mask), tf.reduce_sum(mask))


def _sums(values: dict[str, tf.Tensor], mask: tf.Tensor) -> learning.Sums:
    totals = {name: tf.reduce_sum(v * mask) for name, v in values.items()}
    return learning.Sums(totals, dict.fromkeys(values, tf.reduce_sum(mask)))
