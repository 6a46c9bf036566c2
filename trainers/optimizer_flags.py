"""Optimizer flags under a prefix: `server_optimizer`, `server_learning_rate`, `server_adam_beta_1`.

Declared without TensorFlow, so that a wrong flag fails at once; a test holds the parameters and
their defaults to the signatures of the optimizers themselves. A flag of an optimizer that is not
chosen is refused: it would change nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from motley_tff import commandline
from motley_tff.algorithms.optimizers import PARAMETERS
from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS
# {(optimizer, parameter): its other name}. Motley's two trainers took their optimizers from two
# libraries: HypCluster's are TFF's, those of fine-tuning are Keras's.
ALIASES = {
    ("yogi", "beta_1"): "beta1",
    ("yogi", "beta_2"): "beta2",
    ("yogi", "initial_preconditioner_value"): "initial_accumulator_value",
    ("adagrad", "initial_preconditioner_value"): "initial_accumulator_value",
}
DEFAULT = "sgd"

_BELOW_ONE = ("momentum", "beta_1", "beta_2", "decay")

_WHOSE = {
    "client": "clients'",
    "server": "server's",
    "finetune": "fine-tuning",
    "personal": "personal models'",
}


def define(prefix: str, default_rate: float | None, many_rates: bool = False) -> None:
    """Declares an optimizer's flags, with one rate (None: the clients') or a list of them."""
    who = _WHOSE[prefix]
    flags.DEFINE_enum(f"{prefix}_optimizer", DEFAULT, list(PARAMETERS), f"The {who} optimizer.")
    rate = f"{prefix}_learning_rate"
    if many_rates:
        flags.DEFINE_list(rate, [str(default_rate)], f"The {who} learning rates to choose from.")
        flags.register_validator(
            rate,
            lambda texts: are_different_numbers(texts, _is_positive),
            "expected different finite numbers above 0, such as 0.01,0.1",
        )
    else:
        by_default = (
            " (default: the clients'; per_fedavg: a tenth of it)" if default_rate is None else ""
        )
        flags.DEFINE_float(rate, default_rate, f"The {who} learning rate{by_default}.")
        flags.register_validator(rate, _is_positive, "expected a finite number above 0")
    for optimizer, parameters in PARAMETERS.items():
        for parameter, default in parameters.items():
            name = f"{prefix}_{optimizer}_{parameter}"
            _define_parameter(name, default, f"{parameter} of the {who} {optimizer}.")
            if (optimizer, parameter) in ALIASES:
                flags.DEFINE_alias(f"{prefix}_{optimizer}_{ALIASES[optimizer, parameter]}", name)


def _define_parameter(name: str, default: float, meaning: str) -> None:
    if isinstance(default, bool):
        flags.DEFINE_bool(name, default, meaning)
        return
    flags.DEFINE_float(name, default, meaning)
    is_share = name.endswith(_BELOW_ONE)
    flags.register_validator(
        name,
        # None where a trainer has defaults of its own.
        lambda value: value is None or (value >= 0 and (value < 1 or not is_share)),
        f"expected a number {'from 0 to below 1' if is_share else 'of at least 0'}",
    )


def _is_positive(value: float | None) -> bool:
    # What TensorFlow will compute with; outside float32 a rate is zero or infinite.
    return value is None or bool(0 < np.float32(value) < math.inf)


def are_different_numbers(
    texts: Sequence[str],
    is_valid: Callable[[float], bool],
    same: Callable[[float], object] = np.float32,
) -> bool:
    """Returns whether texts are one or more valid numbers, no two of which `same` makes equal."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return False
    return len(set(map(same, numbers))) == len(texts) > 0 and all(map(is_valid, numbers))


class Parameter(NamedTuple):
    """What a flag such as `server_adam_beta_1` is, under whichever of its names."""

    prefix: str
    optimizer: str
    name: str

    @property
    def flag(self) -> str:
        """The flag's first name."""
        return "_".join(self)

    @property
    def choice(self) -> str:
        """The flag that chooses the optimizer."""
        return f"{self.prefix}_optimizer"


def parameter_of(flag: str) -> Parameter | None:
    """Returns whose parameter a flag sets, or None if it is a flag of something else."""
    prefix, _, rest = flag.partition("_")
    optimizer, _, name = rest.partition("_")
    names = {alias: full for (owner, full), alias in ALIASES.items() if owner == optimizer}
    name = names.get(name, name)
    if prefix in _WHOSE and name in PARAMETERS.get(optimizer, {}):
        return Parameter(prefix, optimizer, name)
    return None


def parameter_behind(flag: str) -> Parameter | None:
    """Returns the parameter whose optimizer a flag wants chosen: a warm start's has the same."""
    return parameter_of(flag.removeprefix("warmstart_"))


def first_name(flag: str) -> str:
    """Returns the name of a flag that has two, under which it counts."""
    parameter = parameter_of(flag)
    return flag if parameter is None else parameter.flag


def check_given(given: Sequence[commandline.Given]) -> None:
    """Sees to it that only flags of the chosen optimizers count, of all in the order given.

    What a flagfile says of the optimizer that it chooses itself is put aside where another one is
    chosen after it, as in `--flagfile=PRESET --server_optimizer=sgd`. UserError if another flag of
    an optimizer that is not chosen is given, or one setting by two names.
    """
    names: dict[tuple[str, str | None], str] = {}
    for flag, _, flagfile in given:
        parameter = parameter_behind(flag)
        if parameter is None or parameter.choice not in FLAGS:
            continue
        name = first_name(flag)
        first = names.setdefault((name, flagfile), flag)
        if first != flag:  # Behind a flagfile, either name overrides what it has.
            raise UserError(f"--{first} and --{flag} are two names of one flag; give one")
        choice = parameter.choice
        if FLAGS[choice].value == parameter.optimizer:
            continue
        chosen = [g.value for g in given if (g.name, g.flagfile) == (choice, flagfile)]
        if flagfile is None or chosen[-1:] != [parameter.optimizer]:
            where = f"{flagfile}: " if flagfile else ""
            raise UserError(
                f"{where}--{flag} is a flag of {parameter.optimizer}, but --{choice} is "
                f"{FLAGS[choice].value}; leave it out, or give --{choice}={parameter.optimizer}"
            )
        FLAGS[name].unparse()
