"""What an algorithm says of itself.

An algorithm is a frozen dataclass of its hyperparameters, each made by `core.options.option`, with
a `card`; from the two come the flags and the help of its trainer, what sweeps can group, and its
names in reports and tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from motley_tff.core import options

# What trains the models of a run: rounds, or none of them. `local` is each client's own training of
# new weights, `ensemble` are models that are warm-started apart, `given` those of an earlier run.
Training = Literal["federated", "local", "ensemble", "given"]
parameter = options.option  # Its name in packages that were written before December 2026.


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
      silos_keep: What each of its clients keeps between rounds, so that they must be silos; empty
        where clients may be devices.
      is_central: Whether it trains on all clients' examples in one place.
      takes_rows: Whether its client work is written for stacks of clients, too, see `core.rows`. A
        class that is derived from another one says so itself.
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
    silos_keep: str = ""
    is_central: bool = False
    takes_rows: bool = False


def name_of(kind: type) -> str:
    """Returns what tables call an algorithm's class: its card's name, or, of a class that is
    derived from another one without a card of its own, the class's.
    """
    card = vars(kind).get("card")
    return card.name if isinstance(card, Card) else kind.__name__


def takes_rows(kind: type) -> bool:
    """Returns whether an algorithm's class says by a card of its own that its work takes rows."""
    card = vars(kind).get("card")
    return isinstance(card, Card) and card.takes_rows


def with_values(algorithm: Any, values: Mapping[str, Any]) -> Any:
    """Returns an instance of an algorithm's dataclass with other hyperparameters.

    Args:
      algorithm: The instance.
      values: `{flag: value}`, of its own parameters or an optimizer's learning rate, such as
        `client_learning_rate`; numbers, or tensors where several runs are trained in one call.
    """
    fields = {o.name.flag: o.field for o in options.options(type(algorithm)) if o.field}
    changes = {}
    for flag, value in values.items():
        if flag in fields:
            changes[fields[flag]] = value
            continue
        field = f"{flag.removesuffix('_learning_rate')}_optimizer"
        optimizer = getattr(algorithm, field)
        changes[field] = dataclasses.replace(optimizer, learning_rate=value)
    return dataclasses.replace(algorithm, **changes)
