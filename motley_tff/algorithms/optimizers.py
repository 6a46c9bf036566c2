"""Client, server and fine-tuning optimizers by name, from a frozen config.

All are TFF's own but SGD: Nesterov's momentum TFF lacks, and whoever trains by SGD alone, outside
the TFF backend, should not wait a second for the import of TFF.

TFF places epsilon elsewhere than others do, which matters where gradients g are tiny. With v for
the running mean of their squares, a step of `rmsprop` is g / (sqrt(v) + epsilon), as in Keras's
legacy RMSprop; in `tf.keras.optimizers.RMSprop` of TensorFlow 2.14.1 it is g / sqrt(v + epsilon).
With v for the sum of the squares, a step of `adagrad` is g / sqrt(v + epsilon); in the paper (Duchi
et al. 2011) it is g / (sqrt(v) + epsilon).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from motley_tff.core import errors, rows
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf, tff
from motley_tff.core.options import ABOVE_0, BELOW_1, MAX_RATE, Option

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
# Parameters that are shares of what was before.
_BELOW_ONE = ("momentum", "beta_1", "beta_2", "decay")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer's name and hyperparameters.

    Attributes:
      name: A key of `PARAMETERS`.
      learning_rate: At least 0 (a tensor where several runs are trained at once; None where it is
        not given: an algorithm has a default, or a run tries some).
      parameters: The optimizer's own, by TFF's argument names; those left out keep TFF's defaults.
    """

    name: str
    learning_rate: Any = None
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def momentum(self) -> float:
        """The optimizer's momentum; 0 if it has none."""
        return {**PARAMETERS.get(self.name, {}), **self.parameters}.get("momentum", 0.0)

    @property
    def total_gain(self) -> float | None:
        """How much of an update the optimizer applies, in all later rounds together.

        1 for SGD at rate 1; None if that depends on the updates (Adam and other adaptive ones).
        """
        if self.name == "fedavgm":  # An average: its weights add up to 1.
            return self.learning_rate
        if self.name in ("sgd", "momentum"):
            return self.learning_rate / (1.0 - self.momentum)
        return None

    def or_rate(self, rate: float) -> OptimizerConfig:
        """Returns it with this rate, if it has none."""
        return self if self.learning_rate is not None else self.at(rate)

    def at(self, rate: Any) -> OptimizerConfig:
        """Returns it with this rate."""
        return dataclasses.replace(self, learning_rate=rate)


def optimizer_option(
    default: OptimizerConfig,
    prefix: str,
    whose: str,
    has_rate: bool = True,
    rate_meaning: str = "",
    trainers: tuple[str, ...] = (),
) -> Any:
    """Returns a field that is an optimizer; its name, rate and each parameter of each are options.

    Args:
      default: The optimizer.
      prefix: What its flags begin with: `server_optimizer`, `server_learning_rate`,
        `server_adam_beta_1`.
      whose: Its owner in help texts.
      has_rate: Whether the rate is an option.
      rate_meaning: What it is where it is not set, if it is None.
      trainers: Those that have its flags, see `Option`.
    """
    group = f"{prefix} optimizer"

    def expand(field: Any) -> list[Option]:
        def part(name: str, flag: str, value: Any, hint: Any, meaning: str, **more: Any) -> Option:
            names = errors.name(f"{field.name}.{name}", f"{prefix}_{flag}")
            return Option("", names, value, hint, meaning, trainers=trainers, group=group, **more)

        words, meaning = tuple(PARAMETERS), f"The {whose} optimizer"
        shown = "training" if prefix in ("client", "server") else "personalization"
        every = [
            part("name", "optimizer", default.name, str, meaning, choices=words, everyday=shown)
        ]
        if has_rate:
            rate = default.learning_rate, float | None
            meaning = f"The {whose} learning rate{rate_meaning and f' ({rate_meaning})'}"
            bounds = {"lower": ABOVE_0, "upper": MAX_RATE, "everyday": shown}
            every.append(part("learning_rate", "learning_rate", *rate, meaning, **bounds))
        for optimizer, parameters in PARAMETERS.items():
            published = default.parameters if optimizer == default.name else {}
            for name, value in {**parameters, **published}.items():
                upper = BELOW_1 if name in _BELOW_ONE else None
                meaning = f"{name} of the {whose} {optimizer}"
                flag, hint = f"{optimizer}_{name}", type(value)
                every.append(part(name, flag, value, hint, meaning, upper=upper))
        return every

    metadata = {"expand": expand, "check": _checked}
    return dataclasses.field(default=default, metadata=metadata)


def _checked(field: Any, config: OptimizerConfig) -> OptimizerConfig:
    """Returns an optimizer whose numbers are Python's; UserError if one is out of its bounds."""
    parts = {option.name.flag: option for option in field.metadata["expand"](field)}
    prefix = next(iter(parts)).removesuffix("_optimizer")
    parts[f"{prefix}_optimizer"].check(config.name)
    _check_parameters(config)
    parameters = {
        name: parts[f"{prefix}_{config.name}_{name}"].check(value)
        for name, value in config.parameters.items()
    }
    rate = config.learning_rate
    if option := parts.get(f"{prefix}_learning_rate"):
        rate = option.check(rate)
    return dataclasses.replace(config, learning_rate=rate, parameters=parameters)


def _check_parameters(config: OptimizerConfig) -> None:
    if config.name not in PARAMETERS:
        raise UserError("an optimizer's name", repr(config.name), f"one of {sorted(PARAMETERS)}")
    unknown = sorted(config.parameters.keys() - PARAMETERS[config.name].keys())
    if unknown:
        known = ", ".join(PARAMETERS[config.name])
        raise UserError(
            f"parameters of optimizer {config.name!r}", ", ".join(unknown), f"some of {known}"
        )


def check_plain_sgd(config: OptimizerConfig, field: str, reason: str, advice: str = "") -> None:
    """Raises a UserError, with the reason, if an algorithm's field is not SGD without momentum."""
    if config.name != "sgd" or config.momentum:
        momentum = f" with momentum {config.momentum:g}" if config.momentum else ""
        expected = f"sgd without momentum, {reason}"
        raise UserError(errors.name(field), f"{config.name}{momentum}", expected, advice)


class Sgd:
    """SGD: w = w - lr g, or with momentum m = b m + g; w = w - lr m (heavy ball, as TFF has it).

    With Nesterov's, in the form of Sutskever et al. 2013 as Keras has it, w = w - lr (b m + g): the
    step of the momentum that the next gradient would find. It has the methods and the state of a
    `tff.learning.optimizers.Optimizer`, so that TFF's computations take it, too.
    """

    def __init__(self, learning_rate: float, momentum: float = 0.0, nesterov: bool = False):
        self._rate, self._momentum, self._nesterov = learning_rate, momentum, nesterov

    @property
    def _has_momentum(self) -> bool:
        # Where several runs are trained at once, it is a tensor of a graph.
        return tf.is_symbolic_tensor(self._momentum) or self._momentum > 0.0

    def initialize(self, specs: Any) -> Any:
        """Returns the first state, for weights of these shapes and types."""
        state = collections.OrderedDict(learning_rate=self._rate)
        if self._has_momentum:
            state["momentum"] = self._momentum
            state["accumulator"] = tf.nest.map_structure(
                lambda s: tf.zeros(s.shape, s.dtype), specs
            )
        return state

    @rows.taken
    def next(self, state: Any, weights: Any, gradients: Any) -> Any:
        """Returns (state, weights) after a step."""
        rate, directions = state["learning_rate"], gradients
        if self._has_momentum:
            momentum = state["momentum"]

            def decayed(sum_, gradient):
                return rows.aligned(momentum, sum_) * sum_ + gradient

            sums = tf.nest.map_structure(decayed, state["accumulator"], gradients)
            state = collections.OrderedDict(state, accumulator=sums)
            directions = sums
            if self._nesterov:
                directions = tf.nest.map_structure(decayed, sums, gradients)
        steps = rows.scaled(rate, directions)
        return state, tf.nest.map_structure(lambda w, step: w - step, weights, steps)


class MeasuredOptimizer:
    """An optimizer of class `Sgd` that also keeps, as `length` in its state, how far its steps
    would have taken a weight whose gradient is -1 in all of them.

    That is the rate times ||a||_1 of FedNova's paper, where a has the share of each gradient in the
    sum of all steps. Without momentum it is the sum of the steps' rates.
    """

    def __init__(self, inner: Sgd):
        self._inner = inner

    def initialize(self, specs: Any) -> Any:
        """Returns the first state, for weights of these shapes and types."""
        length = tf.TensorSpec(rows.leading(), tf.float32)
        return collections.OrderedDict(self._inner.initialize((*specs, length)), length=0.0)

    @rows.taken
    def next(self, state: Any, weights: Any, gradients: Any) -> Any:
        """Returns (state, weights) after a step."""
        length = state["length"]
        before = (*weights, length), (*gradients, -tf.ones_like(length))
        state, (*weights, length) = self._inner.next(state, *before)
        return collections.OrderedDict(state, length=length), tuple(weights)


def _fedavgm(learning_rate: float, momentum: float = 0.9) -> Any:
    """Motley's FedAvgM, an exponential average: m = b m + (1 - b) g; w = w - lr * m.

    With m' = m / (1 - b) this is heavy-ball momentum at rate (1 - b) lr.
    """
    return Sgd((1.0 - momentum) * learning_rate, momentum)


_OURS: Mapping[str, Callable[..., Any]] = {
    "sgd": Sgd,
    "momentum": lambda learning_rate, momentum=0.9: Sgd(learning_rate, momentum),
    "fedavgm": _fedavgm,
}


def builder(name: str) -> Callable[..., Any]:
    """Returns what makes an optimizer of a name, a key of `PARAMETERS`."""
    return _OURS.get(name) or getattr(tff.learning.optimizers, f"build_{name}")


def build_optimizer(config: OptimizerConfig) -> Any:
    """Returns the `tff.learning.optimizers.Optimizer` of a config whose numbers `options.checked`
    looked at; UserError if its name or a parameter's is unknown.
    """
    _check_parameters(config)
    return builder(config.name)(config.learning_rate, **config.parameters)
