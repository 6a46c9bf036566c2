"""Flags made of options, and values made of flags.

Nothing but `core.options` says what a flag is; a flag's value is checked when it is parsed.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

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


class NewFlag(NamedTuple):
    """A flag that is not declared, and what it stands under in --help."""

    flag: flags.Flag
    group: str


def declare(new_flags: Iterable[NewFlag]) -> None:
    """Declares flags as this program's."""
    for flag, group in new_flags:
        flags.DEFINE_flag(flag, module_name=f"trainers.{group}_flags")


def make(
    group: str, kinds: Iterable[type], trainer: str = "", taken: Collection[str] = ()
) -> dict[str, NewFlag]:
    """Returns the flags of dataclasses' options by name, those of one trainer if it is named,
    without those that are taken.

    Where several dataclasses have a flag with defaults of their own, the flag has none, and its
    help lists theirs.
    """
    owners: dict[str, list[tuple[type, Option]]] = {}
    for kind in kinds:
        for option in options.options(kind, trainer):
            if option.name.flag not in taken:
                owners.setdefault(option.name.flag, []).append((kind, option))
    by_name = {}
    for name, having in owners.items():
        option, defaults = having[0][1], [option.default for _, option in having]
        words = f"{option.meaning}."
        if any(default != defaults[0] for default in defaults):
            words += f" By default {_listed(having)}."
            option = dataclasses.replace(option, default=None, hint=option.hint | None)
        by_name[name] = flag_of(option, words, option.group or group)
    return by_name


def flag_of(option: Option, words: str, group: str) -> NewFlag:
    """Returns the flag of one option, with its help, in a group of --help."""
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
    flag.everyday = option.everyday
    return NewFlag(flag, group)


def _listed(having: Sequence[tuple[type, Option]]) -> str:
    """Returns `1 (ditto, pfedme), 0.1 (mr_mtl)`."""
    names: dict[str, list[str]] = {}
    for kind, option in having:
        default = option.default
        text = f"{default:g}" if isinstance(default, float) else str(default)
        names.setdefault(text, []).append(name_of(kind))
    return ", ".join(f"{default} ({', '.join(n)})" for default, n in names.items())


def read(kind: type[T], trainer: str = "", **more: Any) -> T:
    """Returns a dataclass's value of its flags and of `more` fields; a flag at None leaves the
    field its default.
    """
    names = [
        option.name.flag
        for option in options.options(kind, trainer)
        if (option.field and option.field not in more) or option.name.flag in FLAGS
    ]
    return value_of(kind, {name: FLAGS[name].value for name in names}, trainer, **more)


def value_of(kind: type[T], values: Mapping[str, Any], trainer: str = "", **more: Any) -> T:
    """Returns the same of `{flag: value}`, with its default where there is none."""
    fields: dict[str, Any] = {}
    for option in options.options(kind, trainer):
        if option.field and option.field not in more:
            value = option.read(values.get(option.name.flag))
            fields |= {} if value is None else {option.field: value}
    every: Any = dataclasses.fields(kind)  # type: ignore[arg-type]
    for field in every:
        parts = field.metadata["expand"](field) if "expand" in field.metadata else []
        if field.name not in more and any(part.name.flag in values for part in parts):
            prefix = parts[0].name.flag.removesuffix("_optimizer")
            own = {part.name.flag: values.get(part.name.flag) for part in parts}
            fields[field.name] = _optimizer(prefix, own, field.default)
    return kind(**fields, **more)


def _optimizer(prefix: str, values: Mapping[str, Any], default: OptimizerConfig) -> OptimizerConfig:
    """Returns the optimizer that flags with a prefix say."""
    name, rate = values.get(f"{prefix}_optimizer"), values.get(f"{prefix}_learning_rate")
    name = default.name if name is None else name
    parameters: dict[str, Any]
    parameters = {p: values.get(f"{prefix}_{name}_{p}") for p in optimizers.PARAMETERS[name]}
    parameters = {p: value for p, value in parameters.items() if value is not None}
    return OptimizerConfig(name, default.learning_rate if rate is None else rate, parameters)
