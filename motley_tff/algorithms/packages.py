"""Algorithms of installed packages: entry points `motley_tff.algorithms`, `name=module:Class`.

A class is a frozen dataclass with a `card`, as this project's own: a training algorithm is a
`FedAvg`, one for silos a `SiloAlgorithm`, a personalization a `FineTuning` or a `KnnPer`; so that a
trainer's flags are its hyperparameters, too. Its other hyperparameters are made by `option`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from motley_tff.algorithms import card as card_lib
from motley_tff.algorithms.fedavg import FedAvg
from motley_tff.algorithms.finetuning import FineTuning
from motley_tff.algorithms.knn_per import KnnPer
from motley_tff.algorithms.personal_training import SiloAlgorithm
from motley_tff.core import options, plugins
from motley_tff.core.errors import UserError
from motley_tff.core.plugins import Plugin

# What each trainer's flags make.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "finetuning_trainer": (FedAvg, FineTuning),
    "knn_per_trainer": (FedAvg, KnnPer),
    "mtl_trainer": (SiloAlgorithm,),
}


def installed() -> Mapping[str, Plugin]:
    """Returns the algorithms of installed packages by name; none of them is imported."""
    return plugins.installed(plugins.ALGORITHMS)


def read(ours: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Imports them; returns (`{name: class}`, `{name: why it is none}`).

    Args:
      ours: Names that are taken.
    """
    kinds: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name, plugin in installed().items():
        try:
            plugins.check_not_ours(plugin, ours)
            kind = plugin.load()
            for problem in _problems(name, kind):
                raise plugin.error(problem)
            kinds[name] = kind
        except UserError as error:
            refused[name] = str(error)
    return kinds, refused


def _problems(name: str, kind: Any) -> Iterator[str]:
    """Yields what is wrong with a class."""
    if not isinstance(kind, type) or "__dataclass_params__" not in vars(kind):
        yield f"found {kind!r}, expected a class under @dataclasses.dataclass(frozen=True)"
        return
    card = vars(kind).get("card")
    if not isinstance(card, card_lib.Card):
        yield 'it has no card of its own; write card: ClassVar[Card] = Card("name", "Title", ...)'
        return
    if card.name != name:
        yield f"its card says {card.name!r}; the card and the entry point must have one name"
    if not isinstance(card.trainers, tuple) or not card.trainers:
        yield f"its card's trainers are {card.trainers!r}, expected a tuple of {', '.join(_KINDS)}"
    for trainer in card.trainers:
        bases = _KINDS.get(trainer, ())
        if not bases:
            yield f"its card names the trainer {trainer!r}, expected some of {', '.join(_KINDS)}"
        if not issubclass(kind, bases):
            expected = " or ".join(base.__name__ for base in bases)
            yield f"{trainer} makes a {expected}; derive it from that, or leave the trainer out"
    yield from _parameter_problems(kind)


def _parameter_problems(kind: Any) -> Iterator[str]:
    try:
        kind()
    except Exception as error:  # Whatever its __post_init__ raises.
        yield (
            f"it cannot be made without arguments: {plugins.described(error)}; give every "
            "hyperparameter a default, by option(default, meaning)"
        )
    for option in options.options(kind):
        where = f"its option {option.name.field!r}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", option.name.flag):
            yield f"{where} has the flag {option.name.flag!r}; expected small letters, digits, '_'"
        try:
            option.check(option.default)
        except UserError as error:
            yield f"{where} has the default {option.default!r}; expected {error.expected}"
