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
                raise plugin.error(*problem)
            kinds[name] = kind
        except UserError as error:
            refused[name] = str(error)
    return kinds, refused


def _problems(name: str, kind: Any) -> Iterator[tuple[str, ...]]:
    """Yields what is wrong with a class: what was found, what was expected, what to do."""
    if not isinstance(kind, type) or "__dataclass_params__" not in vars(kind):
        yield repr(kind), "a class under @dataclasses.dataclass(frozen=True)"
        return
    card, known = vars(kind).get("card"), ", ".join(_KINDS)
    if not isinstance(card, card_lib.Card):
        advice = 'write card: ClassVar[Card] = Card("name", "Title", ...)'
        yield "no card of its own", "", advice
        return
    if card.name != name:
        yield f"the name {card.name!r} in its card", f"{name!r}, that of the entry point"
    if not isinstance(card.trainers, tuple) or not card.trainers:
        yield f"trainers {card.trainers!r} in its card", f"a tuple of {known}"
    for trainer in card.trainers:
        bases = _KINDS.get(trainer, ())
        if not bases:
            yield f"the trainer {trainer!r} in its card", f"some of {known}"
        if not issubclass(kind, bases):
            expected = f"a {' or '.join(base.__name__ for base in bases)}, as {trainer} makes"
            yield kind.__name__, expected, "derive it from that, or leave the trainer out"
    yield from _parameter_problems(kind)


def _parameter_problems(kind: Any) -> Iterator[tuple[str, ...]]:
    try:
        kind()
    except Exception as error:  # Whatever its __post_init__ raises.
        advice = "give every hyperparameter a default, by option(default, meaning)"
        yield f"no way to make it without arguments ({plugins.described(error)})", "", advice
    for option in options.options(kind):
        owner = f"of its option {option.name.field!r}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", option.name.flag):
            yield f"the flag {option.name.flag!r} {owner}", "small letters, digits, '_'"
        try:
            option.check(option.default)
        except UserError as error:
            yield f"the default {option.default!r} {owner}", error.expected
