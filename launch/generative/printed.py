"""What motley_generative prints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core.errors import printable
from motley_tff.files import text_tables
from motley_tff.metrics.generative import scores as scores_lib, theorem as theorem_lib

Rows = Sequence[Mapping[str, Any]]
_NUM_SHOWN = 40


def theorem(rows: Rows, notes: Sequence[str]) -> None:
    """Prints the parts of Theorem 1."""
    _print_features(rows)
    numbers = [c for c in theorem_lib.COLUMNS[2:] if c not in ("features", "num_features")]
    lines: list[Sequence[str]] = [("generated", "num_examples", *numbers)]
    for row in rows:
        cells = (f"{row[column]:.6g}" for column in numbers)
        lines.append((_label(row), str(row["num_examples"]), *cells))
    print("\n".join(text_tables.aligned(lines)))
    _print_notes(notes)


def _print_features(rows: Rows) -> None:
    print(f"features: {rows[0]['features']}, {rows[0]['num_features']} of them")


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {printable(note)}")


def scores(rows: Rows, notes: Sequence[str], sizes: Sequence[int]) -> None:
    """Prints scores with their ranks, a table for each kind, and where the forms disagree.

    `sizes` are those of the groups that `rows` are of, in which sets are ranked.
    """
    _print_features(rows)
    if (num_kept := rows[0].get("num_kept")) is not None:
        print(f"clients: an example and its K = {num_kept} nearest neighbours each")
    print()
    names = [n for n in (*scores_lib.DISTANCES, *scores_lib.NEIGHBORS) if f"{n}_all" in rows[0]]
    for kind in (scores_lib.DISTANCES, scores_lib.NEIGHBORS):
        if columns := [f"{n}_{form}" for n in kind if n in names for form in scores_lib.FORMS]:
            _table(rows[:_NUM_SHOWN], columns)
    if len(rows) > _NUM_SHOWN:
        print(f"The first {_NUM_SHOWN} of {len(rows)} sets; --output=FILE.csv gets all.")
    for row in rows:
        if "w1_all" in row:
            print(f"w1 of {_label(row)}: all {_score(row, 'w1_all')}, avg {_score(row, 'w1_avg')}")
    for row in rows:
        if "label_entropy" in row:
            print(
                f"classes of {_label(row)}: label entropy {row['label_entropy']:.3g} of "
                f"{np.log(row['num_classes']):.3g} nats, smallest share "
                f"{100 * row['smallest_class_share']:.3g}%"
            )
    print("(1) is best; fid, kid and w1 are better the lower, the others the higher.")
    ends = np.cumsum(sizes).tolist()
    groups = [rows[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    varied = [found for group in groups if (found := _varied(group))]
    if max(sizes) > 1:
        files = " and of the files'" if len(varied) < len(groups) else ""
        where = f", of {len(varied)} anchors' sets{files} each alone" if len(groups) > 1 else ""
        print(f"Pairs of generated sets that the all and the avg form order differently{where}:")
        num_critics = max(sum("w1_all" in row for row in group) for group in groups)
        critics = ["w1"] if num_critics > 1 else []
        print("  " + ", ".join(_disagreement(groups, name) for name in (*names, *critics)))
    if varied and all(len(group) > 1 for group in varied):
        print("\n".join(_best(varied, names)))
    _print_notes(notes)


def _table(rows: Rows, columns: Sequence[str]) -> None:
    lines = [("generated", "examples", *columns)]
    for row in rows:
        cells = (_score(row, column) for column in columns)
        lines.append((_label(row), str(row["num_examples"]), *cells))
    print("\n".join(text_tables.aligned(lines)), end="\n\n")


def _label(row: Mapping[str, Any]) -> str:
    is_told = row["source"] == "nearest"
    return printable(f"{row['series']}: {row['generated']}" if is_told else row["generated"])


def _score(row: Mapping[str, Any], column: str) -> str:
    """Returns a score with its rank, such as `0.0123 (1)`; a dash where it is undefined."""
    value, deviation = row[column], row.get(f"{column}_std")
    if value != value:
        return "-"
    spread = f" ± {deviation:.2g}" if deviation is not None else ""
    return f"{value:.5g}{spread} ({row[f'{column}_rank']:g})"


def _disagreement(groups: Sequence[Rows], name: str) -> str:
    count = pairs = 0
    for group in groups:
        rows = [row for row in group if f"{name}_all" in row]  # A critic's are of some sets.
        whole, average = ([row[f"{name}_{form}"] for row in rows] for form in scores_lib.FORMS)
        if any(value != value for value in average):
            return f"{name} undefined"
        count += scores_lib.num_disagreements(whole, average)
        pairs += len(rows) * (len(rows) - 1) // 2
    return f"{name} {count} of {pairs}"


def _varied(rows: Rows) -> Rows:
    """Returns the rows of an experiment's series."""
    made = ("gaussian", "nearest", "scaled")
    return [row for row in rows if row["source"] in made and row["parameter"] is not None]


def _best(groups: Sequence[Rows], names: Sequence[str]) -> Iterator[str]:
    """Yields what each form of each score prefers, and how often avg's is the smaller."""
    lines = [("best", "all", "avg", *(["avg smaller"] if len(groups) > 1 else []))]
    for name in names:
        sign = 1 if name in scores_lib.DISTANCES else -1
        found = []
        for rows in groups:
            pair = [[sign * row[f"{name}_{form}"] for row in rows] for form in scores_lib.FORMS]
            if not np.isfinite(pair).all():
                break
            found.append([rows[int(np.argmin(values))]["parameter"] for values in pair])
        else:
            whole, average = zip(*found, strict=True)
            smaller = sum(a < b for a, b in zip(average, whole, strict=True))
            cells = (" ".join(f"{value:.3g}" if value < 100 else f"{value:.0f}" for value in values)
                     for values in (whole, average))  # fmt: skip
            lines.append(
                (name, *cells, *([f"{smaller} of {len(groups)}"] if len(groups) > 1 else []))
            )
    yield from text_tables.aligned(lines)
