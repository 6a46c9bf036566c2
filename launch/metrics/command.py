"""motley_metrics: every metric of a table of clients, runs side by side, federated ROC-AUC.

Each PATH is a run's directory (or one above, or a pattern), a CSV with a row per client, or a run's
scores.csv. Without more flags the run's summary.csv is computed again from its clients.csv.

    motley_metrics results/quickstart
    motley_metrics metrics_stat.csv                              # LEAF's
    motley_metrics mine.csv --columns=client=user,baseline=fedavg,personalized=mine
    motley_metrics results/ditto results/mocha --compare --output=compared.tex
    motley_metrics results/ditto --global=results/fedavg --local=results/local
    motley_metrics results/vehicle/scores.csv --secure_average
    motley_metrics results/ditto results/mocha --output=results.xlsx   # with all rows, in sheets

--global or --local print the quantum of improvement, F = P - max(G, L). Worst, best and gains
follow the metric's direction. motley_tff/tables/README.md says what the columns mean.
"""

import dataclasses
import functools
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from launch.metrics import output as metrics_output, tables as metrics_tables, workbook
from launch.metrics.output import ShownTable
from motley_tff import commandline
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.core.options import option
from motley_tff.tables import client_tables, reading
from motley_tff.tables.client_tables import Evaluation
from trainers import option_flags

if TYPE_CHECKING:
    import pandas as pd

_LEAVE_OUT = "leave it out"
_MOST_DIGITS = 15


@dataclasses.dataclass(frozen=True)
class _MetricsOptions:
    """What motley_metrics can be told, each a flag."""

    columns: tuple[str, ...] | None = option(
        None,
        "A foreign CSV's columns: client=...,baseline=... and, if it has them, personalized=, "
        "run=, round=, seed=, split=, examples=, cluster=, group=",
        may_repeat=True,
    )
    metric: str | None = option(None, "What a foreign CSV's values are, such as accuracy")
    higher_is_better: bool | None = option(None, "Of a foreign CSV whose values are no accuracies")
    round: str = option("last", "Which rounds: a number, last (of each run) or all")
    splits: tuple[str, ...] | None = option(
        None, "Which splits, separated by commas; all without it", may_repeat=True
    )
    compare: bool = option(False, "Runs side by side, on the clients that all of them have")
    global_path: str | None = option(
        None, "Run with the global model; each PATH's own baseline without", flag="global"
    )
    local_path: str | None = option(
        None, "Run with a model trained on each client alone", flag="local"
    )
    anyway: bool = option(False, "Compare runs, too, that are not scored on the same; warns")
    per_client: bool = option(False, "Write a row per client to --output, not the table")
    secure_average: bool = option(
        False,
        "Of a scores.csv: the averages of ROC-AUC through TFF's secure aggregation beside the "
        "plain",
    )
    output: str | None = option(
        None,
        "File that gets the table, by its suffix: .csv, .md, .tex; or .xlsx, a workbook of the "
        "table, the clients and the candidates",
    )

    @property
    def renamed(self) -> dict[str, str] | None:
        """The columns of a foreign CSV, `{ours: its}`."""
        return None if self.columns is None else dict(p.split("=", 1) for p in self.columns)

    @property
    def is_quantum(self) -> bool:
        """Whether the quantum of improvement is asked for."""
        return self.global_path is not None or self.local_path is not None

    @property
    def is_workbook(self) -> bool:
        """Whether --output is a workbook."""
        return self.output is not None and self.output.endswith(workbook.SUFFIX)

    def rows(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Returns the rows of the rounds and splits."""
        number: Any = int(self.round) if self.round.isdecimal() else self.round
        return client_tables.choose(table, number, self.splits)

    def some_rows(self, path: pathlib.Path, table: "pd.DataFrame") -> "pd.DataFrame":
        """Returns the rows of the rounds and splits; UserError if there are none."""
        rows = self.rows(table)
        if not rows.empty:
            return rows
        flag = "" if self.splits is None else f" and --splits={','.join(self.splits)}"
        contents = " and ".join(
            f"{name}s {', '.join(map(str, sorted(table[name].unique())))}"
            for name in ("round", "split")
            if name in table
        )
        raise UserError(str(path), contents, f"--round={self.round}{flag} among them")

    def check(self) -> None:
        """Raises a UserError where a value is none, or flags contradict each other."""
        is_number = self.round.isdecimal() and len(self.round) <= _MOST_DIGITS
        if not is_number and self.round not in ("last", "all"):
            raise UserError(errors.name("round"), self.round, "last, all or a whole number")
        names = [pair.partition("=") for pair in self.columns or ()]
        if len({name for name, *_ in names}) < len(names) or not all(n and c for n, _, c in names):
            expected = "our name=the file's, separated by commas, each of ours once"
            raise UserError(errors.name("columns"), self.columns, expected)
        if self.output:
            metrics_output.check_output(self.output, (*metrics_output.SUFFIXES, workbook.SUFFIX))
        if self.compare and self.is_quantum:
            raise UserError("--compare", None, "no --global or --local beside it")
        if self.per_client and self.is_workbook:
            advice = "leave it out; a workbook has a sheet of clients anyway"
            raise UserError("--per_client", f"--output={self.output}", advice=advice)
        if self.per_client and not self.output:
            raise UserError("--per_client", "no --output", advice="name a file")
        if self.anyway and not self.compare and not self.is_quantum:
            raise UserError("--anyway", None, "--compare, --global or --local", _LEAVE_OUT)
        if self.round == "all" and (self.compare or self.is_quantum):
            raise UserError("--round=all", None, "one round of each run to compare")


for _flag in option_flags.make("", [_MetricsOptions]).values():
    flags.DEFINE_flag(_flag.flag)


def main(*paths: str) -> None:
    """Computes, prints and writes."""
    options = option_flags.read(_MetricsOptions)
    options.check()
    files = client_tables.find(paths)
    scores = [path for path in files if client_tables.is_scores(path)]
    if scores and len(scores) < len(files):
        raise UserError(str(scores[0]), "scores", "clients as in others", "give one kind")
    if options.secure_average and not scores:
        raise UserError("--secure_average", files[0], "a scores.csv", _LEAVE_OUT)
    clients: ShownTable | None
    if not scores:
        table, clients = _of_clients(files, options)
    elif options.compare or options.is_quantum:
        raise UserError(str(scores[0]), "scores", "tables of clients to compare")
    else:
        examples = {
            path: options.some_rows(path, client_tables.read_scores(path)) for path in scores
        }
        table, clients = metrics_tables.roc_aucs(examples.values(), options.secure_average)
    print("\n".join(metrics_output.text(table)))
    if options.output and options.is_workbook:
        sheets = [workbook.of_table("summary", table, "--output=FILE.csv")]
        if scores and clients:
            source = "--output=FILE.csv --per_client"
            sheets.append(workbook.of_table("clients", clients, source))
            sheets.append(workbook.of_frames("scores", examples))
        else:
            sheets += _sheets(files, options)
        workbook.write(pathlib.Path(os.path.expanduser(options.output)), sheets)
    elif options.output:
        metrics_output.write(options.output, (options.per_client and clients) or table)


run = functools.partial(commandline.run_main, main, positional=("PATH...",))


def _sheets(files: Sequence[pathlib.Path], options: _MetricsOptions) -> list[workbook.Sheet]:
    """Returns the chosen rows of the files, and of our runs' candidates, under the same names."""
    chosen = _chosen(files, options)
    names = _names(chosen, options)
    clients = {p: table.assign(run_id=table["run_id"].map(names[p])) for p, table in chosen.items()}
    candidates = {}
    for path, own in clients.items() if options.columns is None else ():
        table_path = path.with_name("candidates.csv")
        if path.name == "clients.csv" and table_path.is_file():
            table = reading.read(reading.open_file(table_path), "candidates")
            if {"run_id", "round"} <= set(table):
                table = options.rows(table)
            candidates[table_path] = table.assign(run_id=own["run_id"].iloc[0])
    more = [workbook.of_frames("candidates", candidates)] if candidates else []
    return [workbook.of_frames("clients", clients), *more]


def _of_clients(
    paths: Sequence[pathlib.Path], options: _MetricsOptions
) -> tuple[ShownTable, ShownTable | None]:
    """Returns the table and, where asked for, one with a row per client."""
    evaluations = _evaluations(paths, options)
    if options.compare:
        return metrics_tables.compare(evaluations, options.anyway)
    if options.is_quantum:
        global_runs, local_runs = (
            _evaluations(client_tables.find([path]), options) if path is not None else None
            for path in (options.global_path, options.local_path)
        )
        return metrics_tables.quantum(evaluations, global_runs, local_runs, options.anyway)
    if options.per_client:
        expected = "--compare, --global, --local or a scores.csv beside it"
        raise UserError("--per_client", None, expected, _LEAVE_OUT)
    return metrics_tables.summary(evaluations), None


def _evaluations(paths: Iterable[pathlib.Path], options: _MetricsOptions) -> list[Evaluation]:
    """Returns the chosen evaluations of all files, under names of their runs that no two share."""
    tables = _chosen(paths, options)
    names = _names(tables, options)
    return [
        dataclasses.replace(e, keys={**e.keys, "run_id": names[path][e.keys["run_id"]]})
        for path, table in tables.items()
        for e in client_tables.evaluations(table, path)
    ]


def _chosen(
    paths: Iterable[pathlib.Path], options: _MetricsOptions
) -> dict[pathlib.Path, "pd.DataFrame"]:
    """Returns the chosen rows of all files."""
    form = (options.renamed, options.metric, options.higher_is_better)
    return {path: options.some_rows(path, client_tables.read(path, *form)) for path in paths}


def _names(
    tables: Mapping[pathlib.Path, "pd.DataFrame"], options: _MetricsOptions
) -> dict[pathlib.Path, dict[str, str]]:
    """Returns what runs go by, `{path: {run_id: name}}`: those of the same name that are compared,
    or in one workbook, by where they are.
    """
    runs = {path: table["run_id"].unique() for path, table in tables.items()}
    times = Counter(name for names in runs.values() for name in names)
    is_apart = options.compare or options.is_workbook
    names: dict[pathlib.Path, dict[str, str]] = {}
    for path, own in runs.items():
        place = str(client_tables.place(path))
        at_place = {name: place if len(own) == 1 else f"{place}/{name}" for name in own}
        names[path] = {n: at_place[n] if is_apart and times[n] > 1 else n for n in own}
    return names


if __name__ == "__main__":
    run()
