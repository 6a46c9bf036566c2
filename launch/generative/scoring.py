"""Scores sets, each in its group: what is printed and written."""

from typing import Any, NamedTuple

import numpy as np

from launch.generative import sets as sets_lib
from motley_tff.core.errors import UserError
from motley_tff.metrics.generative import class_shares, scores
from trainers import terminal

Rows = list[dict[str, Any]]


class Scored(NamedTuple):
    """The columns that some row has, a row a set, group after group, and notes on them."""

    columns: list[str]
    rows: Rows
    notes: list[str]


def scored(wanted: sets_lib.Wanted, sets: sets_lib.Sets) -> Scored:
    """Returns all sets' scores; UserError if there are too few examples, or no set of a name."""
    num_neighbors = 0 if wanted.experiment == "gaussian" else wanted.num_neighbors
    critics = _wasserstein(wanted, sets)
    rows: Rows = []
    notes: dict[str, None] = {}
    progress, num_sets = terminal.TerminalProgress(), sum(map(len, sets.groups))
    progress.start("score", scores.num_steps(num_sets, num_neighbors, wanted.resamples))
    for number, group in enumerate(sets.groups):
        table = scores.table(
            sets.clients, {name: of.features for name, of in group.items()}, num_neighbors,
            sets.features_are, wanted.resamples, wanted.base_random_seed, progress.advance,
        )  # fmt: skip
        for row in table.rows:
            name = str(row["generated"])
            predicted = group[name].predicted
            of_classes = class_shares.row(predicted) if predicted is not None else {}
            rows.append(
                {**row, **group[name].facts, **critics.get((number, name), {}), **of_classes}
            )
        notes |= dict.fromkeys(table.notes)
    progress.finish()
    notes |= dict.fromkeys(_note_on_sizes(rows))
    notes |= dict.fromkeys(_note_on_classes(sets.predicted))
    every = [
        *scores.COLUMNS, *scores.DEVIATIONS, *scores.CRITICS, *scores.CRITICS_RANKS,
        *class_shares.COLUMNS, *sets_lib.COLUMNS,
    ]  # fmt: skip
    columns = [c for c in every if any(row.get(c) not in (None, "") for row in rows)]
    return Scored(columns, rows, list(notes))


def _note_on_sizes(rows: Rows) -> list[str]:
    given = [row["num_examples"] for row in rows if row["source"] in sets_lib.DRAWN]
    if not given or min(given) == max(given):
        return []
    return [
        f"sets have {min(given)} to {max(given)} examples, and fid of fewer is higher by that "
        f"alone; --num_examples={min(given)} takes as many of all"
    ]


def _note_on_classes(predicted: np.ndarray | None) -> list[str]:
    if predicted is None:
        return []
    of = class_shares.row(predicted)
    return [
        f"the clients' own pictures have a label entropy of {of['label_entropy']:.3g} of "
        f"{np.log(of['num_classes']):.3g} nats, smallest class share "
        f"{100 * of['smallest_class_share']:.3g}%"
    ]


def _wasserstein(
    wanted: sets_lib.Wanted, sets: sets_lib.Sets
) -> dict[tuple[int, str], dict[str, float]]:
    """Returns the estimates of the sets that are named, by the group's place and the name, which
    several anchors' sets have in common.
    """
    every = list(dict.fromkeys(name for group in sets.groups for name in group))
    unknown = [name for name in wanted.wasserstein if name not in every]
    if unknown:
        raise UserError(f"--wasserstein={unknown[0]}: no such set; found {', '.join(every[:5])}")
    if not wanted.wasserstein:
        return {}
    from motley_tff.metrics.generative import wasserstein  # TensorFlow takes 3 s.

    found = {}
    num_sets = sum(name in group for group in sets.groups for name in set(wanted.wasserstein))
    progress = terminal.TerminalProgress()
    progress.start("critics", num_sets * len(sets.clients.ids))
    for number, group in enumerate(sets.groups):
        for name in [name for name in group if name in wanted.wasserstein]:
            forms = wasserstein.forms(
                sets.clients, group[name].features, wanted.base_random_seed, progress.advance
            )
            found[number, name] = dict(zip(scores.CRITICS, forms, strict=True))
        of_group = [values for (of, _), values in found.items() if of == number]
        for column, rank in zip(scores.CRITICS, scores.CRITICS_RANKS, strict=True):
            ranks = scores.ranks(np.array([values[column] for values in of_group]))
            for values, value in zip(of_group, ranks.tolist(), strict=True):
                values[rank] = value
    progress.finish()
    return found
