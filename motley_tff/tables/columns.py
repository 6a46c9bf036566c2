"""The columns of every table: name, kind, unit, meaning. The project writes, reads, checks and
documents tables by `columns.csv` and `tables.csv` beside this file.

    columns.names("clients", **columns.of_task("cross_silo"))   # in the order of the file
    columns.find("clients", "baseline").kind                    # "float32"

A name with a placeholder stands for several columns, or for none: `train_<metric>`.
`python -m motley_tff.tables.columns` writes them into the page beside this file.
"""

import csv
import itertools
import pathlib
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from motley_tff.core import candidates

# `float32` is a number that was one; `count` a whole number, 0 or more; `binary` is 0 or 1.
Kind = Literal["text", "number", "float32", "count", "binary"]

# Whose validation data choose a silo's candidate; both are in the tables of silos.
WAYS: tuple[candidates.Tuning, ...] = typing.get_args(candidates.Tuning)
# Whose scores are in the tables beside each other.
MODELS = ("baseline", "personalized")


class Column(NamedTuple):
    """A column.

    Attributes:
      name: Its name, perhaps with one `<placeholder>`.
      kind: What its cells are.
      meaning: What they say, as the documentation has it.
      can_be_empty: Whether a cell may be empty: not applicable, or not finite.
      optional: Whether a writer may leave it out of a row.
    """

    name: str
    kind: Kind
    meaning: str
    can_be_empty: bool = False
    optional: bool = False

    @property
    def placeholder(self) -> str:
        """What stands between its angle brackets, or nothing."""
        match = re.search("<(.*)>", self.name)
        return match[1] if match else ""


class TableColumns(NamedTuple):
    """A table: what a row is of, which commands and flags leave it, and its columns in order."""

    row: str
    when: str
    columns: tuple[Column, ...]


# What says which run a row is of, and when: the first columns of most tables.
RUN = ("run_id", "dataset", "algorithm", "base_random_seed", "round", "split")
# Of a run in a sweep.
STATISTICS = (
    "baseline_mean", "baseline_std", "personalized_mean", "personalized_std", "pct_clients_hurt",
    "largest_cluster_pct",
)  # fmt: skip
# Of a scorecard: each from 0 to 5 points.
SCORECARD_AXES = ("efficiency", "robustness", "effectiveness", "privacy", "security")
_FOLDER = pathlib.Path(__file__).parent


def _read(name: str) -> list[dict[str, str]]:
    with open(_FOLDER / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _tables() -> dict[str, TableColumns]:
    """Returns what `tables.csv` and `columns.csv` say."""
    columns: dict[str, list[Column]] = {}
    for row in _read("columns.csv"):
        table, kind = row.pop("table"), typing.cast(Kind, row["kind"])
        is_empty, is_optional = row["can_be_empty"] == "yes", row["optional"] == "yes"
        column = Column(row["name"], kind, row["meaning"], is_empty, is_optional)
        columns.setdefault(table, []).append(column)
    rows = {row["table"]: (row["row"], row["when"]) for row in _read("tables.csv")}
    return {name: TableColumns(*words, tuple(columns[name])) for name, words in rows.items()}


TABLES: Mapping[str, TableColumns] = _tables()
# What an evaluation writes, in this order: the summary comes last and vouches for the others.
EVALUATION_TABLES = (
    "candidates", "clients", "clusters", "sizes", "acceptance", "scores", "summary"
)  # fmt: skip
# What tables of earlier versions lack: a run that goes on has empty cells there.
LATER = (
    "num_unscored", "num_diverged", "baseline_num_diverged", "diverged_candidates", "delta_se",
    "num_gained", "num_lost", "baseline_half", "delta_half", "probability_hurt",
    "pct_hurt_by_chance", "pct_truly_hurt", "pct_truly_hurt_low", "pct_truly_hurt_high",
    "num_surely_hurt", "hurt_margin", "epsilon",
)  # fmt: skip
OPTIONAL = frozenset(
    column.name.partition("<")[0]
    for table in TABLES.values()
    for column in table.columns
    if column.optional
)


def names(table: str, **values: Sequence[str]) -> tuple[str, ...]:
    """Returns a table's columns, in the order of the file; `values` are `placeholder=its values`.

    One without values stands for no column. `ood`, `scores`, `tuning`, `schedule` and `private` are
    there or not: their one value is "".
    """
    in_order: list[str] = []
    for key, group in itertools.groupby(TABLES[table].columns, lambda column: column.placeholder):
        templates = [column.name for column in group]
        for value in values.get(key, ()) if key else [""]:
            in_order += [name.replace(f"<{key}>", value) for name in templates]
    return tuple(in_order)


def of_task(
    setting: str,
    further: Sequence[str] = (),
    with_ood: bool = False,
    with_scores: bool = False,
    summarized: Sequence[str] = (),
) -> dict[str, Sequence[str]]:
    """Returns the placeholders' values in an evaluation's tables.

    In the setting `cross_silo` there are both ways of choosing a candidate, in `cross_device` none;
    `further` are the task's metrics but the first, `summarized` those whose means a summary has.
    """
    return {
        "way": WAYS if setting == "cross_silo" else (),
        "further": further,
        "ood": [""] if with_ood else [],
        "scores": [""] if with_scores else [],
        "summarized": summarized,
    }


def table_of(stem: str) -> str:
    """Returns which table a file is by its name, such as `heterogeneity_school`; else `sweep`."""
    known = [name for name in TABLES if stem == name or stem.startswith(f"{name}_")]
    return known[0] if known else "sweep"


def find(table: str, name: str) -> Column | None:
    """Returns the column of a table that a name in its header stands for, None if it is unknown."""
    for column in TABLES[table].columns:
        pattern = re.escape(_shown(column))
        if re.fullmatch(re.sub("<.*>", ".+", pattern), name):
            return column
    return None


def _shown(column: Column) -> str:
    """Returns a name without the placeholders that stand for nothing."""
    return re.sub("<ood>|<scores>|<tuning>|<schedule>|<private>", "", column.name)


def documentation() -> str:
    """Returns the tables of all columns, as the page beside this file has them, in Markdown."""
    run = [column for column in TABLES["clients"].columns if column.name in RUN]
    parts = [f"| key | kind | meaning |\n|---|---|---|\n{_rows(run, ())}"]
    parts += [
        f"### `{name}.csv`\n\nA row per {table.row}.\nWritten {table.when}.\n\n"
        f"| column | kind | meaning |\n|---|---|---|\n{_rows(table.columns, run)}"
        for name, table in TABLES.items()
    ]
    return "\n\n".join(parts) + "\n"


def _rows(columns: Sequence[Column], left_out: Sequence[Column]) -> str:
    """Returns a row a column; the baseline's and the personalized models' share one."""
    lines: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        if column not in left_out:
            kind = column.kind + "?" * column.can_be_empty
            lines.setdefault((kind, column.meaning), []).append(f"`{_shown(column)}`")
    return "\n".join(
        f"| {', '.join(shown)} | {kind} | {meaning} |" for (kind, meaning), shown in lines.items()
    )


if __name__ == "__main__":
    page = _FOLDER / "README.md"
    parts = re.split("(<!-- columns: (?:begin|end) -->\n?)", page.read_text("utf-8"))
    page.write_text("".join([*parts[:2], documentation(), *parts[3:]]), encoding="utf-8")
