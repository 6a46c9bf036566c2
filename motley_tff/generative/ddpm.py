"""DDPM by FedAvg (Ho et al. 2020, https://arxiv.org/abs/2006.11239), and how it is sampled.

With b_1 ... b_T from 1e-4 to 0.02 in equal steps and a_t the product of 1 - b_1 ... 1 - b_t, a net
that gets x_t = sqrt(a_t) x + sqrt(1 - a_t) e and t predicts e by its mean squared error (Algorithm
1), which makes it FedAvg on a task whose labels are e. These b are for the paper's T of 1,000; of
another T they are times 1000 / T, as in the code of Nichol and Dhariwal 2021
(https://arxiv.org/abs/2102.09672), and at most 0.999. Otherwise x_T would not be the noise that
sampling begins with: of 100 steps, sqrt(a_T) would be 0.36. The server keeps a mean of its weights
over rounds, m <- decay m + (1 - decay) w, which samples; the paper's is over steps.

Pictures are drawn by the paper's Algorithm 2 with variance b_t, or in S steps by DDIM (Song et al.
2021, https://arxiv.org/abs/2010.02502, equation 12 with eta = 0), where the picture that is
predicted at each step is clipped to -1 ... 1, and the noise is what x_t has beside it. (The papers
do not say so; Ho et al.'s code clips, too. Algorithm 2 here is as printed, without.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from motley_tff.algorithms import optimizers
from motley_tff.algorithms.card import Card
from motley_tff.algorithms.fedavg import FedAvgClient
from motley_tff.algorithms.optimizers import OptimizerConfig, optimizer_option
from motley_tff.core import learning, tensor_random
from motley_tff.core.algorithm import Algorithm, Communicated, ServerOptimizer
from motley_tff.core.client_work import Client
from motley_tff.core.lazy import tf
from motley_tff.core.learning import Weights
from motley_tff.core.options import BELOW_1, option
from motley_tff.core.task import Task
from motley_tff.generative import base

NUM_STEPS = 1000
FEWEST_STEPS = 20  # Of fewer, the last b would be above 1.
_FIRST_BETA, _LAST_BETA, _LARGEST_BETA = 1e-4, 0.02, 0.999
_TIME, _NOISE = 0, 1

# (x_t [batch, ...], t int32 [batch]) -> the noise in it
Predict = Callable[[Any, Any], Any]


def betas(num_steps: int = NUM_STEPS) -> np.ndarray:
    """Returns b_1 ... b_T, float64 [T]; T at least `FEWEST_STEPS`."""
    scaled = np.linspace(_FIRST_BETA, _LAST_BETA, num_steps) * (NUM_STEPS / num_steps)
    return np.minimum(scaled, _LARGEST_BETA)


def noised(
    x: tf.Tensor, key: tf.Tensor, num_steps: int = NUM_STEPS
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns ((x_t, t int32 [batch], 0-based), e) of pictures, a time drawn for each."""
    size = tf.shape(x)[0]
    keys = [tensor_random.fold(key, tensor_random.LAYER, i) for i in (_TIME, _NOISE)]
    t = tf.cast(tensor_random.uniform(keys[0], [size]) * num_steps, tf.int32)
    noise = tensor_random.normal(keys[1], tf.shape(x))
    kept = np.cumprod(1.0 - betas(num_steps))
    signal, of_noise = (tf.constant(np.sqrt(a), tf.float32) for a in (kept, 1.0 - kept))
    shape = [-1] + [1] * (len(x.shape) - 1)
    x_t = tf.reshape(tf.gather(signal, t), shape) * x
    x_t += tf.reshape(tf.gather(of_noise, t), shape) * noise
    return (x_t, t), noise


def sample(
    predict: Predict,
    shape: tuple[int, ...],
    key: tf.Tensor,
    sampling_steps: int | None = None,
    num_steps: int = NUM_STEPS,
) -> tf.Tensor:
    """Returns pictures float32 in `shape`, [n, height, width, channels].

    Args:
      sampling_steps: DDIM's S, at most `num_steps`; None for all of Algorithm 2.
      num_steps: T.
    """
    b = betas(num_steps)
    kept = np.cumprod(1.0 - b)
    x = tensor_random.normal(tensor_random.fold(key, tensor_random.STEP, num_steps), shape)
    if sampling_steps is None:
        times = np.arange(num_steps)
    else:
        spaced = np.linspace(0, num_steps - 1, sampling_steps)
        spaced[-1] = num_steps - 1  # Where noise alone is: a single step is from there, too.
        times = np.unique(spaced.round().astype(int))
    for i in reversed(range(len(times))):
        t = times[i]
        before = kept[times[i - 1]] if i else 1.0
        noise = predict(x, tf.fill(shape[:1], tf.constant(t, tf.int32)))
        if sampling_steps is None:
            x = (x - b[t] / np.sqrt(1.0 - kept[t]) * noise) / np.sqrt(1.0 - b[t])
            if t:
                of_step = tensor_random.fold(key, tensor_random.STEP, int(t))
                x += np.sqrt(b[t]) * tensor_random.normal(of_step, shape)
        else:
            clean = (x - np.sqrt(1.0 - kept[t]) * noise) / np.sqrt(kept[t])
            clean = tf.clip_by_value(clean, -1.0, 1.0)
            noise = (x - np.sqrt(kept[t]) * clean) / np.sqrt(1.0 - kept[t])
            x = np.sqrt(before) * clean + np.sqrt(1.0 - before) * noise
    return x


@dataclasses.dataclass(frozen=True)
class Ddpm(base.GenerativeAlgorithm):
    """`GenerativeAlgorithm`'s hyperparameters, and

    Attributes:
      server_decay: The mean's decay a round, from 0, which is no mean, to below 1.
    """

    card: ClassVar[Card] = Card("ddpm", "DDPM", ("generative_trainer",))
    client_optimizer: OptimizerConfig = optimizer_option(
        OptimizerConfig("adam", 2e-4, {"beta_1": 0.9, "beta_2": 0.999}), "client", "clients'"
    )
    server_decay: float = option(
        0.9,
        "ddpm: decay a round of the mean of the weights, which makes pictures; 0 for the weights "
        "themselves",
        upper=BELOW_1,
    )

    def build(self, task: Task, initial_weights: Weights) -> Algorithm:
        """Returns FedAvg of the net and of its mean, which clients neither get nor send."""
        plain = super().build(task, initial_weights)
        work, first = plain.work, tuple(initial_weights)

        def init(broadcast: Any, state: Any, client: Client) -> FedAvgClient:
            carry = work.init(broadcast["net"], (), client)
            if not self.keep_optimizer_state:
                return carry
            state = learning.resumed(carry.learner.optimizer_state, state)
            return carry._replace(learner=carry.learner._replace(optimizer_state=state))

        def finish(carry):
            output = work.finish(carry)
            nothing = tuple(tf.zeros_like(w) for w in output.update)
            state = carry.learner.optimizer_state if self.keep_optimizer_state else ()
            update = {"net": output.update, "mean": nothing}
            return output._replace(update=update, client_state=state)

        algorithm = dataclasses.replace(
            plain,
            name=self.card.name,
            initial_weights={"net": first, "mean": first},
            work=dataclasses.replace(work, init=init, finish=finish),
            server_optimizer=_Averaging(plain.server_optimizer, self.server_decay),
            global_model=lambda weights: weights["mean"],
            communicated=Communicated(first, first),
        )
        optimizer = optimizers.build_optimizer(self.client_optimizer)
        return self.finished(algorithm, task, learning.first_state(optimizer, task.model.shapes))


class _Averaging:
    """A server optimizer, and the mean of what it makes."""

    def __init__(self, inner: ServerOptimizer, decay: float):
        self._inner, self._decay = inner, decay

    def initialize(self, specs: Any) -> Any:
        """Returns the inner optimizer's first state."""
        return self._inner.initialize(specs["net"])

    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        """Returns (new state, new weights)."""
        state, net = self._inner.next(state, weights["net"], gradients["net"])
        mean = tuple(
            self._decay * m + (1.0 - self._decay) * w
            for m, w in zip(weights["mean"], net, strict=True)
        )
        return state, {"net": net, "mean": mean}
