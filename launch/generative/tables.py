"""The table that motley_generative makes of sets, and what it prints of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from launch.generative import sets as sets_lib
from launch.metrics.output import ShownTable
from motley_tff.commandline.progress import TerminalProgress
from motley_tff.core.errors import printable
from motley_tff.files import text_tables
from motley_tff.metrics.generative import class_shares, scores

Rows = Sequence[Mapping[str, Any]]
_NUM_SHOWN = 40


def scored(options: sets_lib.SetOptions, sets: sets_lib.Sets) -> ShownTable:
    """Returns all sets' scores, a row a set; UserError if there are too few examples."""
    progress = TerminalProgress()
    progress.start("score", len(sets.generated) * (1 + options.resamples))
    table = scores.table(
        sets.clients, {name: own.features for name, own in sets.generated.items()},
        options.num_neighbors, sets.features_are, options.resamples, options.base_random_seed,
        progress.advance,
    )  # fmt: skip
    progress.finish()
    rows: list[dict[str, Any]] = []
    for row in table.rows:
        own = sets.generated[str(row["generated"])]
        classes = class_shares.row(own.predicted) if own.predicted is not None else {}
        rows.append({**row, **own.facts, **classes})
    notes, sizes = list(table.notes), [row["num_examples"] for row in rows]
    if min(sizes) != max(sizes):
        notes.append(
            f"sets have {min(sizes)} to {max(sizes)} examples, and fid of fewer is higher by that "
            f"alone; --num_examples={min(sizes)} takes as many of all"
        )
    if sets.predicted is not None:
        whole = _classes(class_shares.row(sets.predicted), "a label entropy of", "class share")
        notes.append(f"the clients' own pictures have {whole}")
    every = (*scores.COLUMNS, *scores.DEVIATIONS, *class_shares.COLUMNS, *sets_lib.COLUMNS)
    columns = [c for c in every if any(row.get(c) not in (None, "") for row in rows)]
    return ShownTable(columns, rows, notes)


def _classes(row: Mapping[str, Any], entropy: str, share: str) -> str:
    return (
        f"{entropy} {row['label_entropy']:.3g} of {np.log(row['num_classes']):.3g} nats, smallest "
        f"{share} {100 * row['smallest_class_share']:.3g}%"
    )


def show(rows: Rows, notes: Sequence[str]) -> None:
    """Prints scores with their ranks, a table for each kind, and where the forms disagree."""
    print(f"features: {rows[0]['features']}, {rows[0]['num_features']} of them\n")
    names = [n for n in (*scores.DISTANCES, *scores.NEIGHBORS) if f"{n}_all" in rows[0]]
    for kind in (scores.DISTANCES, scores.NEIGHBORS):
        if columns := [f"{n}_{form}" for n in kind if n in names for form in scores.FORMS]:
            lines = [("generated", "examples", *columns)]
            for row in rows[:_NUM_SHOWN]:
                cells = (_score(row, column) for column in columns)
                lines.append((_label(row), str(row["num_examples"]), *cells))
            print("\n".join(text_tables.aligned(lines)), end="\n\n")
    if len(rows) > _NUM_SHOWN:
        print(f"The first {_NUM_SHOWN} of {len(rows)} sets; --output=FILE.csv gets all.")
    for row in rows:
        if "label_entropy" in row:
            print(f"classes of {_label(row)}: {_classes(row, 'label entropy', 'share')}")
    print("(1) is best; fid and kid are better the lower, the others the higher.")
    if len(rows) > 1:
        print("Pairs of generated sets that the all and the avg form order differently:")
        print("  " + ", ".join(_disagreement(rows, name) for name in names))
    for note in notes:
        print(f"note: {printable(note)}")


def _label(row: Mapping[str, Any]) -> str:
    return printable(row["generated"])


def _score(row: Mapping[str, Any], column: str) -> str:
    """Returns a score with its rank, such as `0.0123 (1)`; a dash where it is undefined."""
    value, deviation = row[column], row.get(f"{column}_std")
    if value != value:
        return "-"
    spread = f" ± {deviation:.2g}" if deviation is not None else ""
    return f"{value:.5g}{spread} ({row[f'{column}_rank']:g})"


def _disagreement(rows: Rows, name: str) -> str:
    whole, average = ([row[f"{name}_{form}"] for row in rows] for form in scores.FORMS)
    if any(value != value for value in average):
        return f"{name} undefined"
    count = scores.num_disagreements(whole, average)
    return f"{name} {count} of {len(rows) * (len(rows) - 1) // 2}"
