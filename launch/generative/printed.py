"""What motley_generative prints."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core.errors import printable
from motley_tff.files import text_tables
from motley_tff.metrics.generative import scores as scores_lib

Rows = Sequence[Mapping[str, Any]]
_NUM_SHOWN = 40


def _print_features(rows: Rows) -> None:
    print(f"features: {rows[0]['features']}, {rows[0]['num_features']} of them")


def scores(rows: Rows, notes: Sequence[str]) -> None:
    """Prints scores with their ranks, a table for each kind, and where the forms disagree."""
    _print_features(rows)
    print()
    names = [n for n in (*scores_lib.DISTANCES, *scores_lib.NEIGHBORS) if f"{n}_all" in rows[0]]
    for kind in (scores_lib.DISTANCES, scores_lib.NEIGHBORS):
        if columns := [f"{n}_{form}" for n in kind if n in names for form in scores_lib.FORMS]:
            _table(rows[:_NUM_SHOWN], columns)
    if len(rows) > _NUM_SHOWN:
        print(f"The first {_NUM_SHOWN} of {len(rows)} sets; --output=FILE.csv gets all.")
    for row in rows:
        if "label_entropy" in row:
            print(
                f"classes of {_label(row)}: label entropy {row['label_entropy']:.3g} of "
                f"{np.log(row['num_classes']):.3g} nats, smallest share "
                f"{100 * row['smallest_class_share']:.3g}%"
            )
    print("(1) is best; fid and kid are better the lower, the others the higher.")
    if len(rows) > 1:
        print("Pairs of generated sets that the all and the avg form order differently:")
        print("  " + ", ".join(_disagreement(rows, name) for name in names))
    for note in notes:
        print(f"note: {printable(note)}")


def _table(rows: Rows, columns: Sequence[str]) -> None:
    lines = [("generated", "examples", *columns)]
    for row in rows:
        cells = (_score(row, column) for column in columns)
        lines.append((_label(row), str(row["num_examples"]), *cells))
    print("\n".join(text_tables.aligned(lines)), end="\n\n")


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
    whole, average = ([row[f"{name}_{form}"] for row in rows] for form in scores_lib.FORMS)
    if any(value != value for value in average):
        return f"{name} undefined"
    count = scores_lib.num_disagreements(whole, average)
    return f"{name} {count} of {len(rows) * (len(rows) - 1) // 2}"
