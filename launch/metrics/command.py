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
from typing import TYPE_CHECKING, Literal

from absl import flags

from launch.metrics import output as metrics_output, tables as metrics_tables, workbook
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.tables import client_tables, reading

if TYPE_CHECKING:
    import pandas as pd

FLAGS = flags.FLAGS
_MOST_DIGITS = 15

flags.DEFINE_list(
    "columns",
    None,
    "A foreign CSV's columns: client=...,baseline=... and, if it has them, personalized=, run=, "
    "round=, seed=, split=, examples=, cluster=, group=.",
)
flags.DEFINE_string("metric", None, "What a foreign CSV's values are, such as accuracy.")
flags.DEFINE_bool("higher_is_better", None, "Of a foreign CSV whose values are no accuracies.")
flags.DEFINE_string("round", "last", "Which rounds: a number, last (of each run) or all.")
flags.DEFINE_list("splits", None, "Which splits, separated by commas; all without it.")
flags.DEFINE_bool("compare", False, "Runs side by side, on the clients that all of them have.")
flags.DEFINE_string("global", None, "Run with the global model; each PATH's own baseline without.")
flags.DEFINE_string("local", None, "Run with a model trained on each client alone.")
flags.DEFINE_bool("anyway", False, "Compare runs, too, that are not scored on the same; warns.")
flags.DEFINE_bool("per_client", False, "Write a row per client to --output, not the table.")
flags.DEFINE_bool(
    "secure_average",
    False,
    "Of a scores.csv: the averages of ROC-AUC through TFF's secure aggregation beside the plain.",
)
flags.DEFINE_string(
    "output", None,
    "File that gets the table, by its suffix: .csv, .md, .tex; or .xlsx, a workbook of the table, "
    "the clients and the candidates.",
)  # fmt: skip


@flags.validator("round", "expected last, all or a whole number")
def _is_round(value: str) -> bool:
    # Python takes no number of thousands of digits.
    return value in ("last", "all") or (value.isdecimal() and len(value) <= _MOST_DIGITS)


@flags.validator("columns", "expected our name=the file's, separated by commas, each of ours once")
def _is_mapping(pairs: list[str] | None) -> bool:
    if pairs is None:
        return True
    names = {pair.split("=")[0] for pair in pairs}
    return len(names) == len(pairs) and all(0 < p.find("=") < len(p) - 1 for p in pairs)


@dataclasses.dataclass(frozen=True)
class _Settings:
    """The flags' values, under the flags' names but for the two paths."""

    columns: dict[str, str] | None
    metric: str | None
    higher_is_better: bool | None
    round: int | Literal["last", "all"]
    splits: list[str] | None
    compare: bool
    global_path: str | None
    local_path: str | None
    per_client: bool
    output: str | None
    secure_average: bool
    anyway: bool

    @property
    def is_quantum(self) -> bool:
        """Whether the quantum of improvement is asked for."""
        return self.global_path is not None or self.local_path is not None

    @property
    def is_workbook(self) -> bool:
        """Whether --output is a workbook."""
        return self.output is not None and self.output.endswith(workbook.SUFFIX)

    def check(self) -> None:
        """Raises a UserError where flags contradict each other."""
        if self.output:
            metrics_output.check_output(self.output, (*metrics_output.SUFFIXES, workbook.SUFFIX))
        if self.compare and self.is_quantum:
            raise UserError("--compare: expected without --global and --local; leave either out")
        if self.per_client and self.is_workbook:
            raise UserError("--per_client: a workbook has a sheet of clients anyway; leave it out")
        if self.per_client and not self.output:
            raise UserError("--per_client: expected with --output; name a file")
        if self.anyway and not self.compare and not self.is_quantum:
            raise UserError("--anyway: expected with --compare, --global or --local; leave it out")
        if self.round == "all" and (self.compare or self.is_quantum):
            raise UserError("--round=all: expected one round of each run to compare")


def main(*paths: str) -> None:
    """Computes, prints and writes."""
    columns = None if FLAGS.columns is None else dict(p.split("=", 1) for p in FLAGS.columns)
    number = int(FLAGS.round) if FLAGS.round.isdecimal() else FLAGS.round
    settings = _Settings(
        columns, FLAGS.metric, FLAGS.higher_is_better, number, FLAGS.splits, FLAGS.compare,
        FLAGS["global"].value, FLAGS.local, FLAGS.per_client, FLAGS.output,
        FLAGS.secure_average, FLAGS.anyway,
    )  # fmt: skip
    settings.check()
    files = client_tables.find(paths)
    scores = [path for path in files if client_tables.is_scores(path)]
    if scores and len(scores) < len(files):
        raise UserError(f"{scores[0]} has scores and other files have clients; give one kind")
    if settings.secure_average and not scores:
        raise UserError(f"--secure_average: found {files[0]}, expected a scores.csv; leave it out")
    if not scores:
        table, clients = _of_clients(files, settings)
    elif settings.compare or settings.is_quantum:
        raise UserError(f"{scores[0]} has scores; expected tables of clients to compare")
    else:
        examples = {
            path: _choose(path, client_tables.read_scores(path), settings) for path in scores
        }
        table, clients = metrics_tables.roc_aucs(examples.values(), settings.secure_average)
    print("\n".join(metrics_output.text(table)))
    if settings.output and settings.is_workbook:
        sheets = _sheets_of_scores(examples, clients) if scores else _sheets(files, settings)
        first = workbook.of_table("summary", table, "--output=FILE.csv")
        workbook.write(pathlib.Path(os.path.expanduser(settings.output)), [first, *sheets])
    elif settings.output:
        shown = clients if clients and settings.per_client else table
        metrics_output.write(settings.output, shown)


run = functools.partial(commandline.run_main, main, positional=("PATH...",))


def _sheets(files: Sequence[pathlib.Path], settings: _Settings) -> list[workbook.Sheet]:
    """Returns the chosen rows of the files, and of our runs' candidates, under the same names."""
    chosen = _chosen(files, settings)
    names = _names(chosen, settings)
    clients = {p: table.assign(run_id=table["run_id"].map(names[p])) for p, table in chosen.items()}
    candidates = {}
    for path, own in clients.items() if settings.columns is None else ():
        beside = path.with_name("candidates.csv")
        if path.name == "clients.csv" and beside.is_file():
            table = reading.read(reading.open_file(beside), "candidates")
            if {"run_id", "round"} <= set(table):
                table = client_tables.choose(table, settings.round, settings.splits)
            candidates[beside] = table.assign(run_id=own["run_id"].iloc[0])
    more = [workbook.of_frames("candidates", candidates)] if candidates else []
    return [workbook.of_frames("clients", clients), *more]


def _sheets_of_scores(
    tables: Mapping[pathlib.Path, "pd.DataFrame"], clients: metrics_output.Table | None
) -> list[workbook.Sheet]:
    """Returns each client's ROC-AUC, and the scores of all examples."""
    own = (
        [workbook.of_table("clients", clients, "--output=FILE.csv --per_client")] if clients else []
    )
    return [*own, workbook.of_frames("scores", tables)]


def _of_clients(
    paths: Sequence[pathlib.Path], settings: _Settings
) -> tuple[metrics_output.Table, metrics_output.Table | None]:
    """Returns the table and, where asked for, one with a row per client."""
    evaluations = _evaluations(paths, settings)
    if settings.compare:
        return metrics_tables.compare(evaluations, settings.anyway)
    if settings.is_quantum:
        global_runs, local_runs = (
            _evaluations(client_tables.find([path]), settings) if path is not None else None
            for path in (settings.global_path, settings.local_path)
        )
        return metrics_tables.quantum(evaluations, global_runs, local_runs, settings.anyway)
    if settings.per_client:
        raise UserError("--per_client: expected with --compare, --global, --local or a scores.csv")
    return metrics_tables.summary(evaluations), None


def _evaluations(
    paths: Iterable[pathlib.Path], settings: _Settings
) -> list[client_tables.Evaluation]:
    """Returns the chosen evaluations of all files, under names of their runs that no two share."""
    tables = _chosen(paths, settings)
    names = _names(tables, settings)
    return [
        dataclasses.replace(e, keys={**e.keys, "run_id": names[path][e.keys["run_id"]]})
        for path, table in tables.items()
        for e in client_tables.evaluations(table, path)
    ]


def _chosen(
    paths: Iterable[pathlib.Path], settings: _Settings
) -> dict[pathlib.Path, "pd.DataFrame"]:
    """Returns the chosen rows of all files."""
    tables = {}
    for path in paths:
        table = client_tables.read(
            path, settings.columns, settings.metric, settings.higher_is_better
        )
        tables[path] = _choose(path, table, settings)
    return tables


def _names(
    tables: Mapping[pathlib.Path, "pd.DataFrame"], settings: _Settings
) -> dict[pathlib.Path, dict[str, str]]:
    """Returns what runs go by, `{path: {run_id: name}}`: those of the same name that are compared,
    or in one workbook, by where they are.
    """
    runs = {path: table["run_id"].unique() for path, table in tables.items()}
    times = Counter(name for names in runs.values() for name in names)
    is_apart = settings.compare or settings.is_workbook
    names: dict[pathlib.Path, dict[str, str]] = {}
    for path, own in runs.items():
        place = str(client_tables.place(path))
        at_place = {name: place if len(own) == 1 else f"{place}/{name}" for name in own}
        names[path] = {n: at_place[n] if is_apart and times[n] > 1 else n for n in own}
    return names


def _choose(path: pathlib.Path, table: "pd.DataFrame", settings: _Settings) -> "pd.DataFrame":
    """Returns the chosen rows; UserError if there are none."""
    chosen = client_tables.choose(table, settings.round, settings.splits)
    if chosen.empty:
        raise UserError(_nothing_of(path, table, settings))
    return chosen


def _nothing_of(path: pathlib.Path, table: "pd.DataFrame", settings: _Settings) -> str:
    """Returns the message for a choice of rows that a table does not have."""
    choice = f"--round={settings.round}"
    if settings.splits is not None:
        choice += f" and --splits={','.join(settings.splits)}"
    contents = [
        f"{name}s {', '.join(map(str, sorted(table[name].unique())))}"
        for name in ("round", "split")
        if name in table
    ]
    return f"{path} has nothing of {choice}; it has {' and '.join(contents)}"


if __name__ == "__main__":
    run()
