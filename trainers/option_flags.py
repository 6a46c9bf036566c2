"""Flags made of options, and values made of flags.

Nothing but `core.options` says what a flag is; a flag's value is checked when it is parsed.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from motley_tff.algorithms import OptimizerConfig, optimizers
from motley_tff.algorithms.card import name_of
from motley_tff.core import options
from motley_tff.core.options import Option

FLAGS = flags.FLAGS
T = TypeVar("T")


class _Parser(flags.ArgumentParser):
    """Checks a text by an option, and keeps it as `run.json` has it: lists of texts are lists."""

    def __init__(self, option: Option):
        self._option = option
        self.enum_values = option.choices

    def parse(self, argument: Any) -> Any:
        option = self._option
        if option.is_list:
            texts = flags.ListParser().parse(argument)
            option.read(texts)
            return texts
        value = option.read(argument)
        return argument if option.kind not in (int, float) else value


def define(
    group: str, kinds: Iterable[type], trainer: str = "", into: flags.FlagValues = FLAGS
) -> None:
    """Declares the flags of dataclasses' options, those of one trainer if it is named.

    Where several dataclasses have a flag with defaults of their own, the flag has none, and its
    help lists theirs. Flags that are declared already stay as they are.
    """
    owners: dict[str, list[tuple[type, Option]]] = {}
    for kind in kinds:
        for option in options.options(kind, trainer):
            if option.name.flag not in into:
                owners.setdefault(option.name.flag, []).append((kind, option))
    for having in owners.values():
        option, defaults = having[0][1], [option.default for _, option in having]
        words = f"{option.meaning}."
        if any(default != defaults[0] for default in defaults):
            words += f" By default {_listed(having)}."
            option = dataclasses.replace(option, default=None, hint=option.hint | None)
        declare(option, words, option.group or group, into)


def declare(option: Option, words: str, group: str, into: flags.FlagValues = FLAGS) -> None:
    """Declares the flag of one option, with its help, in a group of --help."""
    name, default = option.name.flag, option.default
    if option.parse is not None and option.kind is not str:
        default = "none"
    elif option.is_list and default is not None:
        default = [f"{item:g}" if isinstance(item, float) else str(item) for item in default]
    if option.kind is bool:
        flag: Any = flags.BooleanFlag(name, default, words)
    else:
        serializer = flags.CsvListSerializer(",") if option.is_list else flags.ArgumentSerializer()
        flag = flags.Flag(_Parser(option), serializer, name, default, words)
    flags.DEFINE_flag(flag, into, module_name=f"trainers.{group}_flags")


def _listed(having: Sequence[tuple[type, Option]]) -> str:
    """Returns `1 (ditto, pfedme), 0.1 (mr_mtl)`."""
    names: dict[str, list[str]] = {}
    for kind, option in having:
        default = option.default
        text = f"{default:g}" if isinstance(default, float) else str(default)
        names.setdefault(text, []).append(name_of(kind))
    return ", ".join(f"{default} ({', '.join(n)})" for default, n in names.items())


def read(kind: type[T], trainer: str = "", values: flags.FlagValues = FLAGS, **more: Any) -> T:
    """Returns a dataclass's value of its flags and of `more` fields; a flag at None leaves the
    field its default.
    """
    fields: dict[str, Any] = {}
    for option in options.options(kind, trainer):
        if option.field and option.field not in more:
            value = option.read(values[option.name.flag].value)
            fields |= {} if value is None else {option.field: value}
    every: Any = dataclasses.fields(kind)  # type: ignore[arg-type]
    for field in every:
        expanded = field.metadata["expand"](field) if "expand" in field.metadata else []
        parts = [option for option in expanded if option.name.flag in values]
        if parts and field.name not in more:
            fields[field.name] = _optimizer(parts, field.default, values)
    return kind(**fields, **more)


def _optimizer(
    parts: Sequence[Option], default: OptimizerConfig, given: flags.FlagValues
) -> OptimizerConfig:
    """Returns the optimizer that flags say, of the options of its field."""
    values: Mapping[str, Any] = {o.name.flag: given[o.name.flag].value for o in parts}
    prefix = parts[0].name.flag.removesuffix("_optimizer")
    name, rate = values[f"{prefix}_optimizer"], values.get(f"{prefix}_learning_rate")
    parameters = {p: values[f"{prefix}_{name}_{p}"] for p in optimizers.PARAMETERS[name]}
    parameters = {p: value for p, value in parameters.items() if value is not None}
    return OptimizerConfig(name, default.learning_rate if rate is None else rate, parameters)
