"""Values that a user can set: each is a field of a frozen dataclass, made by `option`.

The field says all there is to say of a value: default, bounds or choices, meaning, flag, and who
has it. The flags and their help, the check of flags, grids, packages and Python, and the tables in
pages come from it.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from motley_tff.core import errors
from motley_tff.core.errors import Name, UserError

T = TypeVar("T")
# Bounds. What is above 0 is so in float32, too.
ABOVE_0, BELOW_1 = 1e-30, math.nextafter(1.0, 0.0)
_LARGEST = {int: 2**63 - 1, float: sys.float_info.max}
MAX_SEED, MAX_BATCH_SIZE, MAX_RATE = 2**32 - 1, 2**31 - 1, 3.4e38


@dataclasses.dataclass(frozen=True)
class Option:
    """A value that a user can set.

    Attributes:
      field: The dataclass's field; empty for a part of one, such as an optimizer's rate.
      name: Its names, in Python and as a flag.
      default: What it is unless it is set.
      hint: Its type: a number, a bool, a text, a tuple of such, a Literal, or one of them or None.
      meaning: What it is, for --help, without a full stop.
      lower: The least number.
      upper: The largest number; None if there is no bound.
      choices: The words it may be; none if it may be any.
      group: What it stands under in --helpfull.
      everyday: What it stands under in a trainer's short --help; empty if it is not there.
      owners: The data sets, aggregators or generators that have it; none for all.
      trainers: The trainers whose flag it is; none for all.
      elsewhere: Pairs of (word that is no choice here, advice).
      may_repeat: Whether a tuple may hold a value twice.
      parse: Makes the value of a text, or checks a text; raises a UserError.
    """

    field: str
    name: Name
    default: Any
    hint: Any
    meaning: str
    lower: float = 0
    upper: float | None = None
    choices: tuple[str, ...] = ()
    group: str = ""
    everyday: str = ""
    owners: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()
    may_repeat: bool = False
    elsewhere: tuple[tuple[str, str], ...] = ()
    parse: Callable[[str], Any] | None = None

    @property
    def kind(self) -> Any:
        """The type of the value, or of the members of a tuple: int, float, bool, str or another."""
        return typing.get_args(self._type)[0] if self.is_list else self._type

    @property
    def is_list(self) -> bool:
        """Whether there are several values."""
        return typing.get_origin(self._type) is tuple

    @property
    def _type(self) -> Any:
        return next(kind for kind in _kinds(self.hint) if kind is not type(None))

    def read(self, text: Any) -> Any:
        """Returns the value of a text, or of a list's texts; UserError if it is no such value."""
        if text is None:
            return None
        if self.is_list:
            return self.check(tuple(map(self._number, text)), text)
        if self.parse is not None and self.kind is not str:
            return self.parse(text)
        return self.check(self._number(text), text)

    def _number(self, text: Any) -> Any:
        if self.kind not in (int, float) or not isinstance(text, str):
            return text
        try:
            return self.kind(text)
        except ValueError:
            return text  # The check says what was expected.

    def check(self, value: Any, source: Any = None) -> Any:
        """Returns a value as its type has it, NumPy's numbers made Python's.

        Args:
          value: The value.
          source: What it was read from, for messages.

        Raises:
          UserError: If it has another type, or is out of its bounds.
        """
        if value is None and type(None) in _kinds(self.hint):
            return None
        value, shown = _plain(value), value if source is None else source
        if not self.is_list:
            return self._checked(value, shown)
        if isinstance(value, str) or not isinstance(value, Iterable):
            self.refuse(shown, "several values, such as a tuple")
        parts = tuple(self._checked(_plain(part), shown) for part in value)
        texts = [f"{part:g}" if isinstance(part, float) else part for part in parts]
        if len(set(texts)) < len(texts) and not self.may_repeat:
            self.refuse(shown, f"different values, each {self.expected}")
        if not parts and self.default != ():
            self.refuse(shown, "at least one")
        return parts

    def _checked(self, value: Any, shown: Any) -> Any:
        """Returns a value, or a member of a tuple."""
        if self.choices:
            is_right = isinstance(value, str) and value in self.choices
        elif self.kind in (int, float):
            is_right = self._is_within(value)
        else:
            is_right = isinstance(value, self.kind) and value != ""
        if not is_right:
            self.refuse(shown, self.expected, self._advice(value))
        if self.kind is str and self.parse is not None:
            self.parse(value)
        return float(value) if self.kind is float else value

    def _is_within(self, value: Any) -> bool:
        """Returns whether it is a number from `lower` to `upper`, if there is one."""
        if isinstance(value, bool) or not isinstance(value, int | self.kind):
            return False
        return self.lower <= value <= (_LARGEST[self.kind] if self.upper is None else self.upper)

    def _advice(self, value: Any) -> str:
        """Returns what to do about a word that is no choice, or a number that is too large."""
        largest = _LARGEST.get(self.kind)
        if largest and isinstance(value, int | float) and value > largest:
            return f"give at most {largest:,.10g}"
        near = difflib.get_close_matches(str(value), sorted(self.choices), 1)
        return dict(self.elsewhere).get(str(value)) or (f"did you mean {near[0]}?" if near else "")

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind not in (int, float):
            others = {bool: "True or False", str: "text"}
            return others.get(self.kind, f"a value such as {self.kind.__name__}()")
        words = "a whole number" if self.kind is int else "a number"
        least = "above 0" if self.lower == ABOVE_0 else f"of at least {self.lower:g}"
        if self.upper is None:
            return f"{words} {least}"
        most = f"{self.upper:,.10g}"
        if float(most.replace(",", "")) > self.upper:  # Such as `BELOW_1`.
            return f"{words} {least} and below {most}"
        if self.lower in (0, ABOVE_0):
            return f"{words} {least} and at most {most}"
        return f"{words} from {self.lower:g} to {most}"

    def refuse(self, value: Any, expected: str, advice: str = "") -> typing.NoReturn:
        """Raises a UserError for a value."""
        raise UserError(self.name, value, expected, advice)


def option(
    default: Any,
    meaning: str,
    flag: str | Mapping[str, str] = "",
    lower: float = 0,
    upper: float | None = None,
    choices: Iterable[str] = (),
    group: str = "",
    everyday: str = "",
    owners: Iterable[str] = (),
    trainers: Iterable[str] = (),
    argument: str = "",
    may_repeat: bool = False,
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """Returns a field of a frozen dataclass that a user can set; see `Option` for the rest.

    Args:
      flag: Its flag, where that is not the field's name; `{trainer: flag}` where these differ.
      choices: Those of a Literal need not be said.
      trainers: Those of a flag that differs need not be said.
      argument: What `motley_tff.run` calls it, where that is not the field's name.
    """
    metadata = {
        "meaning": meaning, "lower": lower, "upper": upper, "choices": tuple(choices),
        "group": group, "everyday": everyday, "owners": tuple(owners), "parse": parse,
        "flag": flag, "argument": argument, "may_repeat": may_repeat, "trainers": tuple(trainers),
    }  # fmt: skip
    return dataclasses.field(default=default, metadata={"option": metadata})


def with_default(kind: Any, field: str, default: Any) -> Any:
    """Returns a field of a derived dataclass that has another default than its base has."""
    return dataclasses.field(default=default, metadata=kind.__dataclass_fields__[field].metadata)


def seed(argument: str = "", everyday: str = "") -> Any:
    """Returns the field of the seed that a run and its data have in common; see `option`."""
    return option(
        0, "Seed of every random choice", upper=MAX_SEED, argument=argument, everyday=everyday
    )


def memory_limit() -> Any:
    """Returns the field of the limit that the vectorized backend and pooled data have in common."""
    return option(4.0, "Gigabytes that stacked clients or pooled examples may take")


def options(kind: type, trainer: str = "") -> tuple[Option, ...]:
    """Returns the options of a dataclass, of one trainer if it is named, in the fields' order."""
    return _options(kind, trainer)


@functools.cache
def _options(kind: Any, trainer: str) -> tuple[Option, ...]:
    every: list[Option] = []
    for field in dataclasses.fields(kind):
        if "option" in field.metadata:
            every.append(_option(kind, field.name, trainer))
        elif "expand" in field.metadata:  # An optimizer's name, rate and parameters.
            every += field.metadata["expand"](field)
    return tuple(o for o in every if not trainer or not o.trainers or trainer in o.trainers)


def _option(kind: Any, name: str, trainer: str = "") -> Option:
    field, hint = kind.__dataclass_fields__[name], _hints(kind)[name]
    metadata = dict(field.metadata["option"])
    flag, argument = metadata.pop("flag"), metadata.pop("argument")
    if isinstance(flag, Mapping):
        metadata["trainers"] = tuple(flag)
        flag = flag.get(trainer) or next(iter(flag.values()))
    for kind_ in _kinds(hint):
        if typing.get_origin(kind_) is typing.Literal:
            metadata["choices"] = typing.get_args(kind_)
    names = errors.name(argument or name, flag or name)
    return Option(field=name, name=names, default=field.default, hint=hint, **metadata)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def name_of(config: Any, field: str) -> Name:
    """Returns the names of a field of a dataclass, or of its value, for messages."""
    return _option(config if isinstance(config, type) else type(config), field).name


def checked(config: T) -> T:
    """Returns a dataclass's value, and those in it, with each option as its type has it.

    Raises:
      UserError: If an option has another type than it declares, or is out of its bounds.
    """
    kind: Any = type(config)
    values = {}
    for field in dataclasses.fields(kind):
        value, hint = getattr(config, field.name), _hints(kind)[field.name]
        parts = [part for part in _kinds(hint) if dataclasses.is_dataclass(part)]
        if "option" in field.metadata:
            value = _option(kind, field.name).check(value)
        elif parts and not isinstance(value, _kinds(hint)):
            expected = f"a value such as {parts[0].__name__}()"
            raise UserError(errors.name(field.name), value, expected)
        elif parts and value is not None:
            value = field.metadata.get("check", lambda _, inner: checked(inner))(field, value)
        values[field.name] = value
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def check_owners(config: Any, choice: Name, chosen: str) -> None:
    """Raises a UserError if an option is set that the chosen owner does not have.

    Args:
      config: A dataclass's value whose options have owners.
      choice: What chooses the owner, such as the name of the data set.
      chosen: The owner.
    """
    for its in options(type(config)):
        value = getattr(config, its.field)
        if its.owners and chosen not in its.owners and value != its.default:
            expected = f"{choice}={' or '.join(its.owners)}, not {chosen}"
            raise UserError(its.name, value, expected, "leave it out")


def _kinds(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _plain(value: Any) -> Any:
    """Returns a path as its text, and a number of NumPy's as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value
