"""Motley's Tables 4 to 7: means and standard deviations over clients and over seeds.

Tables 4 (cross-device) and 5 (cross-silo) print mean ± std over test clients, each averaged over
the seeds; Tables 6 and 7 print each of these numbers ± its standard deviation over the seeds.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from launch.report import names
from launch.report.comparisons import Comparison, Series, Value
from motley_tff import metrics

_MISSING = "–"


class Entry(NamedTuple):
    """One number, or words in its place, of a row and column.

    `group` is the algorithm, with its setting where there are several, `statistic` such as
    "Per-client metric after FT"; mean and std are over clients, each a Value over seeds.
    """

    group: str
    statistic: str
    mean: Value | None = None
    std: Value | None = None
    words: str = ""
    is_percent: bool = False


class PaperTable(NamedTuple):
    """A table as text: `cells` hold the algorithm, what is shown, and a column a data set."""

    number: int
    title: str
    header: Sequence[str]
    cells: Sequence[Sequence[str]]


def entries(series: Series) -> Iterator[Entry]:
    """Yields all that the tables say of an algorithm, in the paper's order."""
    setting = series.label.removeprefix(names.title(series.algorithm))
    group = names.paper_row(series.algorithm) + setting
    flags = series.runs[0].flags

    def clients(statistic: str, model: str = "personalized") -> Entry:
        mean = series.over_seeds(lambda run: float(np.mean(getattr(run.values, model))))
        std = series.over_seeds(lambda run: float(np.std(getattr(run.values, model))))
        return Entry(group, statistic, mean, std)

    def percent(statistic: str, metric: str) -> Entry:
        of_clients = metrics.POPULATION[metric]
        value = series.over_seeds(lambda run: of_clients(run.values))
        return Entry(group, statistic, value, is_percent=True)

    if series.algorithm == names.ENSEMBLE:
        yield clients("Per-client metric by ensembling k FedAvg models")
    elif names.is_fine_tuned(series.algorithm):
        yield clients("Per-client metric before FT", "baseline")
        yield clients("Per-client metric after FT")
        yield percent('% clients "hurt" after FT', "pct_clients_hurt")
        if flags:
            layers = "Last layer" if flags.get("finetune_last_layer") else "All layers"
            yield Entry(group, "FT all layers vs last layer", words=layers)
    else:
        yield clients("Per-client metric")
        if series.algorithm == "hypcluster":
            if (number := flags.get("num_clusters")) is not None:
                yield Entry(group, "No. tuned clusters (k)", words=str(number))
            yield percent("% clients largest cluster", "largest_cluster_pct")
            if flags:
                is_warm = any(map(flags.get, ("num_warmstart_fedavg_rounds", "warmstart_fraction")))
                yield Entry(group, "Warmstart from FedAvg", words="Yes" if is_warm else "No")
        elif series.algorithm not in ("local", "fedavg"):
            yield percent('% clients "hurt"', "pct_clients_hurt")


def tables(comparisons: Sequence[Comparison]) -> list[PaperTable]:
    """Returns Tables 4 and 6 of cross-device data sets, 5 and 7 of silos, as far as there are."""
    tables = []
    for is_silo, numbers in ((False, (4, 6)), (True, (5, 7))):
        compared = [c for c in comparisons if c.series and c.is_silo == is_silo]
        columns = [[e for series in c.series for e in entries(series)] for c in compared]
        header = ["Algorithm", "Metrics", *(f"{c.dataset} ({c.metric_name})" for c in compared)]
        if compared:
            kind = "cross-silo" if is_silo else "cross-device"
            short = f"Test metrics, {kind}: mean ± std over clients, averaged over seeds"
            full = f"Test metrics, {kind}: every number ± its std over seeds"
            tables.append(PaperTable(numbers[0], short, header, _cells(columns, is_silo, False)))
            tables.append(PaperTable(numbers[1], full, header, _cells(columns, is_silo, True)))
    return sorted(tables, key=lambda table: table.number)


def _cells(columns: Sequence[Sequence[Entry]], is_silo: bool, with_seeds: bool) -> list[list[str]]:
    printed = [dict(_printed(column, is_silo, with_seeds)) for column in columns]
    keys = dict.fromkeys(key for column in printed for key in column)
    order = {group: place for place, group in enumerate(dict.fromkeys(key[0] for key in keys))}
    rows = sorted(keys, key=lambda key: order[key[0]])
    return [[*key, *(column.get(key, _MISSING) for column in printed)] for key in rows]


def _printed(
    column: Sequence[Entry], is_silo: bool, with_seeds: bool
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields ((algorithm, statistic), cell)."""
    mean_digits, std_digits = (4, 4) if is_silo else (3, 2)
    for group, statistic, mean, std, words, is_percent in column:
        if mean is None:
            yield (group, statistic), words
        elif is_percent:
            shown = mean if with_seeds else Value(mean.mean, math.nan)
            yield (group, statistic), over_seeds(shown, 1, 1, "%")
        elif with_seeds and std is not None:
            yield (group, f"{statistic}: mean"), over_seeds(mean, mean_digits, mean_digits)
            yield (group, f"{statistic}: std"), over_seeds(std, std_digits, mean_digits)
        elif std is not None:
            value = Value(mean.mean, std.mean)
            yield (group, statistic), over_seeds(value, mean_digits, std_digits)


def over_seeds(value: Value, digits: int, std_digits: int, unit: str = "") -> str:
    """Returns "0.844 ± .10" as the paper writes it: no zero before the point of the second, unless
    it has a unit.

    `digits` after the point; a std that is not finite is left out.
    """
    if not math.isfinite(value.mean):
        return _MISSING
    mean, std = f"{value.mean:.{digits}f}{unit}", f"{value.std:.{std_digits}f}{unit}"
    if not math.isfinite(value.std):
        return mean
    return f"{mean} ± {std[1:] if std.startswith('0.') and not unit else std}"


# Of the tables' numbers as a file: one number a cell.
COLUMNS = (
    "dataset", "metric", "algorithm", "statistic", "mean", "mean_std_over_seeds",
    "std_over_clients", "std_over_clients_std_over_seeds", "num_seeds",
)  # fmt: skip


def rows(comparison: Comparison) -> Iterator[dict[str, object]]:
    """Yields a row of `COLUMNS` for each number of the tables."""
    for series in comparison.series:
        for entry in entries(series):
            if entry.mean is not None:
                keys = (comparison.dataset, comparison.metric, series.label, entry.statistic)
                numbers = (*entry.mean, *(entry.std or (None, None)), series.num_seeds)
                yield dict(zip(COLUMNS, (*keys, *numbers), strict=True))
