"""What an algorithm says of itself, and its parameters as trainers offer them.

An algorithm is a frozen dataclass of its hyperparameters with a `card`; from the two come the flags
and the help of its trainer, what sweeps can group, and its names in reports and tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple


@dataclasses.dataclass(frozen=True)
class Card:
    """Facts of an algorithm.

    Attributes:
      name: In flags and tables.
      title: In figures and reports.
      trainers: Those that offer it.
      summary: What it does, for --help.
      paper_row: Its rows in Motley's Tables 4 and 5; empty where it is in neither.
      on_fedavg: A personalization's title on FedAvg, where that is not `FedAvg + title`.
      trains_fedavg: Whether FedAvg's model is trained beside it, as its baseline.
      can_be_grouped: Whether runs that differ in rates alone can be trained in one compiled call.
      wants_mean: Why no aggregator but the plain mean fits; empty where any does.
      is_central: Whether it trains on all clients' examples in one place.
    """

    name: str
    title: str
    trainers: tuple[str, ...]
    summary: str = ""
    paper_row: str = ""
    on_fedavg: str = ""
    trains_fedavg: bool = False
    can_be_grouped: bool = False
    wants_mean: str = ""
    is_central: bool = False


def name_of(kind: type) -> str:
    """Returns what tables call an algorithm's class: its card's name, or, of a class that is
    derived from another one without a card of its own, the class's.
    """
    card = vars(kind).get("card")
    return card.name if isinstance(card, Card) else kind.__name__


class Parameter(NamedTuple):
    """A hyperparameter that is a flag: the dataclass's field, the flag, what its --help says."""

    field: str
    flag: str
    default: Any
    meaning: str
    lower: float
    upper: float | None
    choices: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()


def parameter(
    default: Any,
    meaning: str,
    flag: str = "",
    lower: float = 0,
    upper: float | None = None,
    choices: tuple[str, ...] = (),
    trainers: tuple[str, ...] = (),
) -> Any:
    """Returns a field of an algorithm's dataclass that becomes a flag: a whole number, a float, a
    word of `choices`, or a tuple of floats, as its default is.

    Args:
      meaning: Its help, without a full stop and the default, which is added.
      flag: Its flag, where that is not the field's name.
      upper: Largest value, None if there is no bound.
      trainers: Those that have the flag, where not all do that offer the algorithm.
    """
    metadata = {
        "meaning": meaning, "flag": flag, "lower": lower, "upper": upper, "choices": choices,
        "trainers": trainers,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


def parameters(algorithm: type, trainer: str | None = None) -> list[Parameter]:
    """Returns the parameters of an algorithm's dataclass that are flags, of a trainer if one is
    named.
    """
    every = (
        Parameter(**{**f.metadata, "field": f.name, "default": f.default,
                     "flag": f.metadata["flag"] or f.name})
        for f in dataclasses.fields(algorithm) if f.metadata
    )  # fmt: skip
    return [p for p in every if trainer is None or not p.trainers or trainer in p.trainers]


def with_values(algorithm: Any, values: Mapping[str, Any]) -> Any:
    """Returns an instance of an algorithm's dataclass with other hyperparameters.

    Args:
      algorithm: The instance.
      values: `{flag: value}`, of its own parameters or an optimizer's learning rate, such as
        `client_learning_rate`; numbers, or tensors where several runs are trained in one call.
    """
    fields = {parameter.flag: parameter.field for parameter in parameters(type(algorithm))}
    changes = {}
    for flag, value in values.items():
        if flag in fields:
            changes[fields[flag]] = value
            continue
        field = f"{flag.removesuffix('_learning_rate')}_optimizer"
        optimizer = getattr(algorithm, field)
        changes[field] = dataclasses.replace(optimizer, learning_rate=value)
    return dataclasses.replace(algorithm, **changes)
