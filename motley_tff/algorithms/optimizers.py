"""Client, server and fine-tuning optimizers by name, from a frozen config.

All are TFF's own but SGD with Nesterov's momentum, which TFF lacks.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from motley_tff.algorithms.optimizer_config import OptimizerConfig
from motley_tff.core.errors import UserError
from motley_tff.core.federated import tff

Optimizer: TypeAlias = tff.learning.optimizers.Optimizer


class _Nesterov(Optimizer):
    """SGD with Nesterov's momentum in the form of Sutskever et al. 2013, as Keras has it.

    m = b m + g; w = w - lr (b m + g): the step of the momentum that the next gradient would find.
    The state is that of TFF's heavy-ball momentum, whose m is the same.
    """

    def __init__(self, learning_rate: float, momentum: float):
        self._heavy_ball = tff.learning.optimizers.build_sgdm(learning_rate, momentum)

    def initialize(self, specs: Any) -> Any:
        """Returns the state before the first step."""
        return self._heavy_ball.initialize(specs)

    def next(self, state: Any, weights: Any, gradients: Any) -> Any:
        """Returns (state, weights) after a step; weights without a gradient stay."""
        after, _ = self._heavy_ball.next(state, weights, gradients)

        def step(weight, accumulator, gradient):
            if gradient is None:
                return weight
            ahead = after["momentum"] * accumulator + tf.convert_to_tensor(gradient)
            return weight - after["learning_rate"] * ahead

        return after, tf.nest.map_structure(step, weights, after["accumulator"], gradients)

    def get_hparams(self, state: Any) -> Any:
        """Returns rate and momentum."""
        return self._heavy_ball.get_hparams(state)

    def set_hparams(self, state: Any, hparams: Any) -> Any:
        """Returns a state with other values of them."""
        return self._heavy_ball.set_hparams(state, hparams)


def _sgd(learning_rate: float, momentum: float = 0.0, nesterov: bool = False) -> Optimizer:
    if nesterov and momentum:  # Without momentum it is plain SGD, as in Keras.
        return _Nesterov(learning_rate, momentum)
    return tff.learning.optimizers.build_sgdm(learning_rate, momentum)


def _momentum(learning_rate: float, momentum: float = 0.9) -> Optimizer:
    """Heavy-ball momentum: m = momentum * m + g; w = w - lr * m."""
    return tff.learning.optimizers.build_sgdm(learning_rate, momentum)


def _fedavgm(learning_rate: float, momentum: float = 0.9) -> Optimizer:
    """Motley's FedAvgM, an exponential average: m = b m + (1 - b) g; w = w - lr * m.

    With m' = m / (1 - b) this is heavy-ball momentum at rate (1 - b) lr.
    """
    return tff.learning.optimizers.build_sgdm((1.0 - momentum) * learning_rate, momentum)


BUILDERS: Mapping[str, Callable[..., Optimizer]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "fedavgm": _fedavgm,
    "adam": tff.learning.optimizers.build_adam,
    "yogi": tff.learning.optimizers.build_yogi,
    "adagrad": tff.learning.optimizers.build_adagrad,
    "rmsprop": tff.learning.optimizers.build_rmsprop,
}


def build(config: OptimizerConfig) -> Optimizer:
    """Returns TFF's optimizer for a config.

    Raises:
      UserError: If the name is unknown or TFF refuses a value.
    """
    if config.name not in BUILDERS:
        raise UserError(f"unknown optimizer {config.name!r}; expected one of {sorted(BUILDERS)}")
    try:
        return BUILDERS[config.name](config.learning_rate, **config.parameters)
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer {config.name!r}: {error}") from error
