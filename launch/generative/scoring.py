"""Scores sets: what is printed and written."""

from typing import Any, NamedTuple

import numpy as np

from launch.generative import sets as sets_lib
from motley_tff.commandline.progress import TerminalProgress
from motley_tff.metrics.generative import class_shares, scores

Rows = list[dict[str, Any]]


class Scored(NamedTuple):
    """The columns that some row has, a row a set, and notes on them."""

    columns: list[str]
    rows: Rows
    notes: list[str]


def scored(wanted: sets_lib.Wanted, sets: sets_lib.Sets) -> Scored:
    """Returns all sets' scores; UserError if there are too few examples."""
    progress, num_sets = TerminalProgress(), len(sets.generated)
    progress.start("score", num_sets * (1 + wanted.resamples))
    table = scores.table(
        sets.clients, {name: of.features for name, of in sets.generated.items()},
        wanted.num_neighbors, sets.features_are, wanted.resamples, wanted.base_random_seed,
        progress.advance,
    )  # fmt: skip
    progress.finish()
    rows: Rows = []
    for row in table.rows:
        of = sets.generated[str(row["generated"])]
        of_classes = class_shares.row(of.predicted) if of.predicted is not None else {}
        rows.append({**row, **of.facts, **of_classes})
    notes = [*table.notes, *_note_on_sizes(rows), *_note_on_classes(sets.predicted)]
    every = (*scores.COLUMNS, *scores.DEVIATIONS, *class_shares.COLUMNS, *sets_lib.COLUMNS)
    columns = [c for c in every if any(row.get(c) not in (None, "") for row in rows)]
    return Scored(columns, rows, notes)


def _note_on_sizes(rows: Rows) -> list[str]:
    given = [row["num_examples"] for row in rows]
    if min(given) == max(given):
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
