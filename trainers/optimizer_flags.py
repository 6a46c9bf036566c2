"""Names of optimizers' flags: `server_adam_beta_1` and its alias, and whose parameter it is.

A flag of an optimizer that is not chosen is refused: it would change nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from motley_tff import commandline
from motley_tff.algorithms.optimizers import PARAMETERS
from motley_tff.core import errors
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
_PREFIXES = ("client", "server", "finetune", "personal")


def define_aliases() -> None:
    """Declares the other names of parameters whose flags are declared."""
    for prefix in _PREFIXES:
        for (optimizer, parameter), alias in ALIASES.items():
            name = f"{prefix}_{optimizer}_{parameter}"
            if name in FLAGS:
                flags.DEFINE_alias(f"{prefix}_{optimizer}_{alias}", name)


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
    if prefix in _PREFIXES and name in PARAMETERS.get(optimizer, {}):
        return Parameter(prefix, optimizer, name)
    return None


def parameter_behind(flag: str) -> Parameter | None:
    """Returns the parameter whose optimizer a flag wants chosen: a warm start's has the same."""
    return parameter_of(flag.removeprefix("warmstart_"))


def first_name(flag: str) -> str:
    """Returns the name of a flag that has two, under which it counts."""
    parameter = parameter_of(flag)
    return flag if parameter is None else parameter.flag


def check_given(parsed: Sequence[commandline.Given]) -> None:
    """Sees to it that only flags of the chosen optimizers count, of all in the order given.

    What a flagfile says of the optimizer that it chooses itself is put aside where another one is
    chosen after it, as in `--flagfile=PRESET --server_optimizer=sgd`. UserError if another flag of
    an optimizer that is not chosen is given, or one setting by two names.
    """
    names: dict[tuple[str, str | None], str] = {}
    for flag, _, flagfile in parsed:
        parameter = parameter_behind(flag)
        if parameter is None or (choice := parameter.choice) not in FLAGS:
            continue
        first = names.setdefault((first_name(flag), flagfile), flag)
        if first != flag:  # Behind a flagfile, either name overrides what it has.
            raise UserError(errors.name(first), None, f"no --{flag} beside it, its other name")
        if FLAGS[choice].value == parameter.optimizer:
            continue
        chosen = [g.value for g in parsed if (g.name, g.flagfile) == (choice, flagfile)]
        if flagfile is None or chosen[-1:] != [parameter.optimizer]:
            expected = f"--{choice}={parameter.optimizer}, not {FLAGS[choice].value}"
            where = f"{flagfile or ''} --{flag}".strip()
            raise UserError(where, None, expected, "leave one of them out")
        FLAGS[first_name(flag)].unparse()
