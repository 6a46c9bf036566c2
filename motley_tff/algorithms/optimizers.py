"""Client, server and fine-tuning optimizers by name, from a frozen config.

All are TFF's own but SGD with Nesterov's momentum, which TFF lacks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf, tff

# {optimizer: {parameter: default}} beside the learning rate, by the names TFF gives them.
PARAMETERS: dict[str, dict[str, float]] = {
    "sgd": {"momentum": 0.0, "nesterov": False},
    "momentum": {"momentum": 0.9},
    "fedavgm": {"momentum": 0.9},
    "adam": {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
    "yogi": {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-3, "initial_preconditioner_value": 1e-6},
    "adagrad": {"initial_preconditioner_value": 0.1, "epsilon": 1e-7},
    "rmsprop": {"decay": 0.9, "epsilon": 1e-7},
}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer's name and hyperparameters.

    Attributes:
      name: A key of `PARAMETERS`.
      learning_rate: At least 0 (a tensor where several runs are trained at once; None where an
        algorithm has a default).
      parameters: The optimizer's own, by TFF's argument names; those left out keep TFF's defaults.
    """

    name: str
    learning_rate: Any
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def total_gain(self) -> float | None:
        """How much of an update the optimizer applies, in all later rounds together.

        1 for SGD at rate 1; None if that depends on the updates (Adam and other adaptive ones).
        """
        if self.name == "fedavgm":  # An average: its weights add up to 1.
            return self.learning_rate
        if self.name in ("sgd", "momentum"):
            default = PARAMETERS[self.name]["momentum"]
            return self.learning_rate / (1.0 - self.parameters.get("momentum", default))
        return None


def _sgd(learning_rate: float, momentum: float = 0.0, nesterov: bool = False) -> Any:
    if nesterov and momentum:  # Without momentum it is plain SGD, as in Keras.
        return _nesterov()(learning_rate, momentum)
    return tff.learning.optimizers.build_sgdm(learning_rate, momentum)


def _momentum(learning_rate: float, momentum: float = 0.9) -> Any:
    """Heavy-ball momentum: m = momentum * m + g; w = w - lr * m."""
    return tff.learning.optimizers.build_sgdm(learning_rate, momentum)


def _fedavgm(learning_rate: float, momentum: float = 0.9) -> Any:
    """Motley's FedAvgM, an exponential average: m = b m + (1 - b) g; w = w - lr * m.

    With m' = m / (1 - b) this is heavy-ball momentum at rate (1 - b) lr.
    """
    return tff.learning.optimizers.build_sgdm((1.0 - momentum) * learning_rate, momentum)


_OURS: Mapping[str, Callable[..., Any]] = {"sgd": _sgd, "momentum": _momentum, "fedavgm": _fedavgm}


def builder(name: str) -> Callable[..., Any]:
    """Returns what makes an optimizer of a name, a key of `PARAMETERS`."""
    return _OURS.get(name) or getattr(tff.learning.optimizers, f"build_{name}")


def build(config: OptimizerConfig) -> Any:
    """Returns the `tff.learning.optimizers.Optimizer` of a config, or raises a UserError."""
    if config.name not in PARAMETERS:
        raise UserError(f"unknown optimizer {config.name!r}; expected one of {sorted(PARAMETERS)}")
    unknown = sorted(config.parameters.keys() - PARAMETERS[config.name].keys())
    if unknown:
        raise UserError(
            f"optimizer {config.name!r} has no parameter {', '.join(unknown)}; expected some of "
            f"{', '.join(PARAMETERS[config.name])}"
        )
    try:
        return builder(config.name)(config.learning_rate, **config.parameters)
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer {config.name!r}: {error}") from error


@functools.cache
def _nesterov() -> type:
    """Returns the class of SGD with Nesterov's momentum; its base is one of TFF's."""

    class Nesterov(tff.learning.optimizers.Optimizer):
        """SGD with Nesterov's momentum in the form of Sutskever et al. 2013, as Keras has it.

        m = b m + g; w = w - lr (b m + g): the step of the momentum that the next gradient would
        find. The state is that of TFF's heavy-ball momentum, whose m is the same.
        """

        def __init__(self, learning_rate: float, momentum: float):
            self._heavy_ball = tff.learning.optimizers.build_sgdm(learning_rate, momentum)

        def initialize(self, specs: Any) -> Any:
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
            return self._heavy_ball.get_hparams(state)

        def set_hparams(self, state: Any, hparams: Any) -> Any:
            return self._heavy_ball.set_hparams(state, hparams)

    return Nesterov
