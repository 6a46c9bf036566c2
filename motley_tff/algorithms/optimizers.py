"""Client, server and fine-tuning optimizers: TFF's own, by name, from a frozen config."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from motley_tff.algorithms.optimizer_config import OptimizerConfig
from motley_tff.core.errors import UserError
from motley_tff.core.federated import tff

Optimizer: TypeAlias = tff.learning.optimizers.Optimizer


def _sgd(learning_rate: float) -> Optimizer:
    return tff.learning.optimizers.build_sgdm(learning_rate)


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
