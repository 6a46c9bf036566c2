"""Flags of algorithms, from their cards."""

import textwrap
from collections.abc import Sequence

from absl import flags

from motley_tff import algorithms


def define(trainer: str, meaning: str) -> None:
    """Declares --algorithm, whose help `meaning` is, --personalization and hyperparameters."""
    offered = algorithms.offered_by(trainer)
    flags.DEFINE_enum("algorithm", algorithms.DEFAULTS[trainer], list(offered), meaning)
    on_top = algorithms.personalizations_of(trainer)
    if len(on_top) > 1:
        meaning = "How clients personalize the global model."
        flags.DEFINE_enum("personalization", next(iter(on_top)), list(on_top), meaning)
    owners: dict[str, list[tuple[str, algorithms.Parameter]]] = {}
    for name, kind in {**offered, **on_top}.items():
        for parameter in algorithms.parameters(kind):
            owners.setdefault(parameter.flag, []).append((name, parameter))
    for flag, parameters in owners.items():
        first = parameters[0][1]
        default, words = first.default, f"{first.meaning}."
        if len(parameters) > 1:  # Each has its own default, that of a flag that is not given.
            default, words = None, f"{words} By default {_defaults(parameters)}."
        is_whole = isinstance(first.default, int)
        declare = flags.DEFINE_integer if is_whole else flags.DEFINE_float
        declare(flag, default, words, lower_bound=first.lower, upper_bound=first.upper)


def _defaults(owners: Sequence[tuple[str, algorithms.Parameter]]) -> str:
    """Returns `1 (ditto, pfedme), 0.1 (mr_mtl)`."""
    names: dict[float, list[str]] = {}
    for name, parameter in owners:
        names.setdefault(parameter.default, []).append(name)
    return ", ".join(f"{default:g} ({', '.join(n)})" for default, n in names.items())


def listing(trainer: str) -> str:
    """Returns a line or more for each algorithm that a trainer offers, for its help."""
    cards = [kind.card for kind in algorithms.offered_by(trainer).values()]
    width = max(len(card.name) for card in cards) + 2
    lines, rest = [], " " * (width + 2)
    for card in cards:
        name = f"  {card.name:{width}}"
        lines.append(textwrap.fill(card.summary, 100, initial_indent=name, subsequent_indent=rest))
    return "\n".join(lines)
