"""Flags of algorithms, from their cards."""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import flags

from motley_tff import algorithms, commandline
from motley_tff.core.errors import UserError
from trainers import data_flags, optimizer_flags


def define(trainer: str, meaning: str) -> None:
    """Declares --algorithm, whose help `meaning` is, --personalization and hyperparameters.

    To be called after all of the trainer's other flags: an algorithm of an installed package whose
    flags are among them is not offered.
    """
    _refuse_taken_flags(trainer)
    offered = algorithms.offered_by(trainer)
    whereabouts = elsewhere(trainer)
    _define_choice("algorithm", algorithms.DEFAULTS[trainer], list(offered), meaning, whereabouts)
    on_top = algorithms.personalizations_of(trainer)
    if len(on_top) > 1:
        meaning = "How clients personalize the global model."
        usual = next(iter(on_top))
        _define_choice("personalization", usual, list(on_top), meaning, whereabouts)
    owners: dict[str, list[tuple[str, algorithms.Parameter]]] = {}
    for name, kind in {**offered, **on_top}.items():
        for parameter in algorithms.parameters(kind, trainer):
            owners.setdefault(parameter.flag, []).append((name, parameter))
    for flag, parameters in owners.items():
        first = parameters[0][1]
        default, words = first.default, f"{first.meaning}."
        if len(parameters) > 1:  # Each has its own default, that of a flag that is not given.
            default, words = None, f"{words} By default {_defaults(parameters)}."
        _define_parameter(flag, default, words, first)


def _define_parameter(flag: str, default: Any, words: str, like: algorithms.Parameter) -> None:
    """Declares the flag of a parameter of the kind that `like` has."""
    if like.choices:
        flags.DEFINE_enum(flag, default, list(like.choices), words)
    elif isinstance(like.default, tuple):
        _define_numbers(flag, default, words, like)
    else:
        declare = flags.DEFINE_integer if isinstance(like.default, int) else flags.DEFINE_float
        declare(flag, default, words, lower_bound=like.lower, upper_bound=like.upper)


def _define_numbers(flag: str, default: Any, words: str, like: algorithms.Parameter) -> None:
    most = math.inf if like.upper is None else like.upper
    flags.DEFINE_list(flag, default and [f"{number:g}" for number in default], words)
    flags.register_validator(
        flag,
        lambda texts: (
            texts is None
            or optimizer_flags.are_different_numbers(
                texts, lambda number: math.isfinite(number) and like.lower <= number <= most
            )
        ),
        f"expected different finite numbers from {like.lower:g}"
        + ("" if like.upper is None else f" to {like.upper:g}"),
    )


def _define_choice(
    flag: str, default: str, names: list[str], meaning: str, whereabouts: Mapping[str, str]
) -> None:
    choice = flags.EnumFlag(flag, default, meaning, names)
    choice.parser.refused = algorithms.REFUSED  # Told in place of the names that are expected.
    choice.parser.elsewhere = whereabouts  # Told beside them.
    flags.DEFINE_flag(choice)
    data_flags.register_check(flag, _check_not_refused)


def elsewhere(trainer: str) -> dict[str, str]:
    """Returns where each algorithm and personalization is, in words."""
    kinds = {"algorithm": algorithms.TRAINING, "personalization": algorithms.PERSONALIZATIONS}
    return {
        name: f"here it is --{flag}={name}"
        if trainer in kind.card.trainers
        else f"for {name} see {' and '.join(kind.card.trainers)}"
        for flag, of_flag in kinds.items()
        for name, kind in of_flag.items()
    }


def _check_not_refused(name: str) -> None:
    if name in algorithms.REFUSED:
        raise UserError(algorithms.REFUSED[name])


def _refuse_taken_flags(trainer: str) -> None:
    """Takes out algorithms of installed packages whose flags mean something else already."""
    kinds = {**algorithms.offered_by(trainer), **algorithms.personalizations_of(trainer)}
    others = algorithms.plugged()
    taken = commandline.declared() | {"algorithm", "personalization"}
    known: dict[str, tuple[str, tuple[object, ...]]] = {}
    for name, kind in kinds.items():  # This project's come first.
        for parameter in algorithms.parameters(kind, trainer):
            what = (type(parameter.default), parameter.lower, parameter.upper)
            owner, first = known.setdefault(parameter.flag, (name, what))
            if name in others and (parameter.flag in taken or what != first):
                whose = trainer if parameter.flag in taken else owner
                algorithms.refuse(
                    name,
                    f"its parameter {parameter.field!r} has the flag --{parameter.flag}, which "
                    f"{whose} has with another meaning; give another one, parameter(..., flag=...)",
                )


def of_unused_packages(trainer: str, chosen: Collection[str]) -> set[str]:
    """Returns flags that are there for algorithms of installed packages alone, none of them among
    the names `chosen` by --algorithm and --personalization.

    They decide nothing, and a run must not hang on what is installed beside it.
    """
    offered, on_top = algorithms.offered_by(trainer), algorithms.personalizations_of(trainer)
    others = algorithms.plugged()
    used: set[str] = set()
    unused: set[str] = set()
    for name, kind in {**offered, **on_top}.items():
        its_flags = {parameter.flag for parameter in algorithms.parameters(kind, trainer)}
        (unused if name in others and name not in chosen else used).update(its_flags)
    ours_on_top = on_top.keys() - others
    if len(ours_on_top) == 1 and ours_on_top <= {*chosen}:
        unused.add("personalization")
    return unused - used


def _defaults(owners: Sequence[tuple[str, algorithms.Parameter]]) -> str:
    """Returns `1 (ditto, pfedme), 0.1 (mr_mtl)`."""
    names: dict[str, list[str]] = {}
    for name, parameter in owners:
        default = parameter.default
        text = default if isinstance(default, str) else f"{default:g}"
        names.setdefault(text, []).append(name)
    return ", ".join(f"{default} ({', '.join(n)})" for default, n in names.items())


def listing(trainer: str) -> str:
    """Returns a line or more for each algorithm that a trainer offers, for its help."""
    cards = [kind.card for kind in algorithms.offered_by(trainer).values()]
    width = max(len(card.name) for card in cards) + 2
    lines, rest = [], " " * (width + 2)
    for card in cards:
        name = f"  {card.name:{width}}"
        lines.append(textwrap.fill(card.summary, 100, initial_indent=name, subsequent_indent=rest))
    return "\n".join(lines)
