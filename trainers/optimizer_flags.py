"""Optimizer flags under a prefix: `server_optimizer`, `server_learning_rate`, `server_adam_beta_1`.

Declared without TensorFlow, so that a wrong flag fails at once; a test holds the parameters and
their defaults to the signatures of the optimizers themselves.
"""

import math
from collections.abc import Sequence

import numpy as np
from absl import flags

from motley_tff.algorithms import optimizer_config

# {optimizer: {parameter: default}} beside the learning rate, by the names TFF gives them.
PARAMETERS: dict[str, dict[str, float]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "fedavgm": {"momentum": 0.9},
    "adam": {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
    "yogi": {
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-3,
        "initial_preconditioner_value": 1e-6,
    },
    "adagrad": {"initial_preconditioner_value": 0.1, "epsilon": 1e-7},
}


_WHOSE = {
    "client": "clients'",
    "server": "server's",
    "finetune": "fine-tuning",
    "personal": "personal models'",
}


def define(prefix: str, default_rate: float | None, many_rates: bool = False) -> None:
    """Declares the flags of one optimizer.

    Args:
      prefix: `client`, `server`, `finetune` or `personal`.
      default_rate: Default learning rate; None for that of the clients.
      many_rates: Whether the rate is a list to choose from.
    """
    who = _WHOSE[prefix]
    flags.DEFINE_enum(f"{prefix}_optimizer", "sgd", list(PARAMETERS), f"The {who} optimizer.")
    rate = f"{prefix}_learning_rate"
    if many_rates:
        flags.DEFINE_list(rate, [str(default_rate)], f"The {who} learning rates to choose from.")
        flags.register_validator(
            rate, _are_positive, "expected different finite numbers above 0, such as 0.01,0.1"
        )
    else:
        by_default = " (default: the clients')" if default_rate is None else ""
        flags.DEFINE_float(rate, default_rate, f"The {who} learning rate{by_default}.")
        flags.register_validator(rate, _is_positive, "expected a finite number above 0")
    for optimizer, parameters in PARAMETERS.items():
        for parameter, default in parameters.items():
            name = f"{prefix}_{optimizer}_{parameter}"
            flags.DEFINE_float(name, default, f"{parameter} of the {who} {optimizer}.")
            if parameter in ("momentum", "beta_1", "beta_2"):
                flags.register_validator(
                    name, lambda value: 0 <= value < 1, "expected a number from 0 to below 1"
                )
            else:
                flags.register_validator(
                    name, lambda value: value >= 0, "expected a number of at least 0"
                )


def _is_positive(value: float | None) -> bool:
    # What TensorFlow will compute with; outside float32 a rate is zero or infinite.
    return value is None or bool(0 < np.float32(value) < math.inf)


def _are_positive(values: Sequence[str]) -> bool:
    try:
        numbers = [float(value) for value in values]
        return bool(numbers) and all(map(_is_positive, numbers)) and _are_different(numbers)
    except ValueError:
        return False


def _are_different(numbers: Sequence[float]) -> bool:
    return len({float(np.float32(number)) for number in numbers}) == len(numbers)


def config(
    prefix: str, values: flags.FlagValues, default_share: float = 1.0
) -> optimizer_config.OptimizerConfig:
    """Returns the prefix's `OptimizerConfig`; of a list of rates, with the first.

    Args:
      prefix: As in `define`.
      values: The parsed flags.
      default_share: A rate that was not given is so much of the clients'.
    """
    name = values[f"{prefix}_optimizer"].value
    rate = values[f"{prefix}_learning_rate"].value
    rate = default_share * values.client_learning_rate if rate is None else rate
    rate = float(rate[0]) if isinstance(rate, list) else rate
    parameters = {p: values[f"{prefix}_{name}_{p}"].value for p in PARAMETERS[name]}
    return optimizer_config.OptimizerConfig(name, rate, parameters)
