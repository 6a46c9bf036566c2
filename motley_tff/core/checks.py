"""Checks frozen values that come from Python, where no flag has checked them.

A number is at least 0 unless its dataclass has other `BOUNDS`, `{field: (least, most)}`, or the
field's own metadata, `lower` and `upper`, say otherwise; the most may be None.
"""

import dataclasses
import math
import operator
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from motley_tff.core.errors import UserError

T = TypeVar("T")
# A bound: numbers above 0.
ABOVE_0 = math.nextafter(0.0, 1.0)


def checked(config: T, where: str = "", names: Mapping[str, str] | None = None) -> T:
    """Returns a dataclass's value with plain numbers and tuples, NumPy's made Python's.

    Args:
      where: What precedes the fields' names in messages.
      names: `{name: name in messages}`, where a field is known by another.

    Raises:
      UserError: If a field has another type than it declares, or is out of its bounds.
    """
    hints = typing.get_type_hints(type(config))
    bounds: dict[str, Any] = {}
    for kind in reversed(type(config).__mro__):
        bounds |= vars(kind).get("BOUNDS", {})
    values = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        own = field.metadata.get("lower", 0), field.metadata.get("upper")
        name, value = f"{where}{field.name}", getattr(config, field.name)
        check = _Check((names or {}).get(name, name), name, bounds.get(field.name, own), names)
        values[field.name] = check.value(value, hints[field.name])
        if values[field.name] == () != field.default:
            check.refuse(value, "at least one")
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


class _Check(typing.NamedTuple):
    """What a field is called, in messages and in full, and its bounds."""

    name: str
    path: str
    bounds: tuple[float, float | None]
    names: Mapping[str, str] | None

    def refuse(self, value: Any, expected: str) -> typing.NoReturn:
        raise UserError(f"{self.name}: found {value!r}, expected {expected}")

    def value(self, value: Any, hint: Any) -> Any:
        """Returns the value as its type hint has it."""
        kind = typing.get_origin(hint)
        if kind in (typing.Union, types.UnionType):
            kinds = [k for k in typing.get_args(hint) if k is not type(None)]
            if value is None and len(kinds) < len(typing.get_args(hint)):
                return None
            hint = next(
                (k for k in kinds if isinstance(k, type) and isinstance(value, k)), kinds[0]
            )
            kind = typing.get_origin(hint)
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, hint):
                self.refuse(value, f"a value such as {hint.__name__}()")
            return checked(value, f"{self.path}.", self.names)
        if kind is tuple:
            return self._tuple(value, typing.get_args(hint)[0])
        if kind is typing.Literal and value not in typing.get_args(hint):
            self.refuse(value, f"one of {', '.join(typing.get_args(hint))}")
        if hint in (bool, str) and not isinstance(value, hint):
            self.refuse(value, "True or False" if hint is bool else "text")
        if hint in (int, float, Any):
            return self._number(value, hint)
        return value

    def _tuple(self, value: Any, hint: Any) -> tuple:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            self.refuse(value, "several values, such as a tuple")
        parts = tuple(self.value(part, hint) for part in value)
        if len(set(parts)) < len(parts):
            self.refuse(value, "different values")
        return parts

    def _number(self, value: Any, hint: Any) -> Any:
        least, most = self.bounds
        what = "a whole number" if hint is int else "a number"
        what += " above 0" if least == ABOVE_0 else f" of at least {least:g}"
        what += "" if most is None else f" and at most {most:g}"
        if isinstance(value, (bool, str)):
            self.refuse(value, what)
        try:
            number = operator.index(value) if hint is int else float(value)
        except TypeError:
            if hint is Any:  # A tensor, or an algorithm's own default.
                return value
            self.refuse(value, what)
        if not (math.isfinite(number) and least <= number and (most is None or number <= most)):
            self.refuse(value, what)
        return number
