"""Runs that can stand in one figure: of one data set and metric, by algorithm and setting."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from launch.report import names
from launch.report.runs import Inputs, ReportedRun, Sweep
from motley_tff.tables import client_tables, comparable

# Flags that name no other method: seeds, places, speed, how often and on whom one looks.
_NO_SETTING = re.compile(
    "base_random_seed|.*_dir|experiment_name|.*path_to_.*|backend|v|verbosity|threads_per_client|"
    "memory_limit_gb|rounds_per_.*|.*_clients_per_evaluation|final_evaluation_clients|"
    "tensorboard|dataset_name|use_synthetic_data|evaluate_ood|ood_examples|"
    "export_scores|group_key"
)
_SHORT = {
    "num_warmstart_fedavg_rounds": "warm start",
    "warmstart_fraction": "warm start",
    "cluster_initialization": "from",
    "num_clusters": "k",
    "client_learning_rate": "client",
    "server_learning_rate": "server",
    "finetune_learning_rate": "rate",
    "finetune_max_epochs": "epochs",
}
# Values that say that something is not done.
_OFF = ("0", "None", "False", "random", "natural")
_MAX_SETTING = 40
# The tables are at the first of these; the others have tables of their own.
FIRST_COUNTS = ("personalization_fraction", "acceptance")

Item = TypeVar("Item")
MakeTable = Callable[[ReportedRun], pd.DataFrame | None]


class Series(NamedTuple):
    """An algorithm (of the tables) under one setting: its runs, by seed, and a label for legends.

    `setting` is what tells it from other settings of the same algorithm: `{flag: value}`.
    """

    label: str
    algorithm: str
    setting: Mapping[str, str]
    runs: Sequence[ReportedRun]

    @property
    def num_seeds(self) -> int:
        """How many seeds there are; a run that was repeated under another name adds none."""
        return len({run.seed for run in self.runs})

    def over_seeds(self, function: Callable[[ReportedRun], float]) -> "Value":
        """Returns the mean and standard deviation over the seeds of a number of each run."""
        return Value.of([function(run) for run in self.runs], [run.seed for run in self.runs])


class Value(NamedTuple):
    """Mean and standard deviation over seeds (the population's, as Motley's); nan for one seed."""

    mean: float
    std: float

    @classmethod
    def of(cls, numbers: Sequence[float], seeds: Sequence[float] | None = None) -> "Value":
        """Returns the mean and standard deviation of runs' numbers.

        Runs of one seed (the same again, say, or with --evaluate_ood) are averaged first; without
        `seeds` all differ.
        """
        values = np.asarray(numbers, float)
        if seeds is not None:
            each = np.asarray(seeds)
            values = np.array([values[each == seed].mean() for seed in dict.fromkeys(seeds)])
        if not len(values):
            return cls(float("nan"), float("nan"))
        return cls(float(values.mean()), float(values.std()) if len(values) > 1 else float("nan"))


class Comparison(NamedTuple):
    """All that is known of one data set ("NAME (synthetic)" of made-up data) under one metric.

    `is_silo`: whether the same clients train and test. Series are in the order of figures.
    `warnings`: lines on what runs differ in that should be the same.
    """

    dataset: str
    metric: str
    higher_is_better: bool
    is_silo: bool
    series: Sequence[Series]
    sweeps: Sequence[Sweep] = ()
    warnings: Sequence[str] = ()

    @property
    def metric_name(self) -> str:
        """The metric in words."""
        return self.metric.replace("_", " ")

    @property
    def metric_label(self) -> str:
        """The metric as an axis says it."""
        return f"{self.metric_name} (0–1)" if self.is_share else self.metric_name

    @property
    def is_share(self) -> bool:
        """Whether the metric is an accuracy from 0 to 1, not one in percent."""
        runs = [run for series in self.series for run in series.runs]
        in_percent = any(client_tables.is_percent(run.rows) for run in runs)
        return "accuracy" in self.metric and not in_percent

    @property
    def better(self) -> str:
        """What a caption says of the metric's direction."""
        return "higher is better" if self.higher_is_better else "lower is better"

    def of_series(self, function: Callable[[Series], Item | None]) -> list[Item]:
        """Returns what a function makes of each series, without those that it has nothing of."""
        return [item for series in self.series if (item := function(series)) is not None]

    def over_seeds(
        self, table: MakeTable, key: str, sort: bool = True, shared: bool = False
    ) -> pd.DataFrame:
        """Returns the tables of runs, with a row for each value of a key, None of one that has
        none, as one: `algorithm`, the key, ascending or as it comes, and of each other column the
        mean over seeds and its deviation (`_std`); of `shared` values those that all runs of a
        series have.
        """
        rows = []
        for series in self.series:
            tables = [(run.seed, table(run)) for run in series.runs]
            parts = [part.assign(seed=seed) for seed, part in tables if part is not None]
            for value, part in pd.concat(parts).groupby(key, sort=sort) if parts else ():
                if shared and len(part) < len(parts):
                    continue
                row: dict[str, Any] = {"algorithm": series.label, key: value}
                for column in part.columns.drop([key, "seed"]):
                    row[column], row[f"{column}_std"] = Value.of(part[column], part["seed"])
                rows.append(row)
        return pd.DataFrame(rows, columns=None if rows else ["algorithm"])


def compare(inputs: Inputs, anyway: bool = False) -> list[Comparison]:
    """Returns a comparison for each data set and metric that is there; UserError if runs are not
    scored on the same, unless they are compared `anyway`.
    """
    compared = []
    keys = {(run.dataset, run.metric) for run in inputs.runs}
    for key in sorted(keys | {(sweep.dataset, sweep.metric) for sweep in inputs.sweeps}):
        runs = [run for run in inputs.runs if (run.dataset, run.metric) == key]
        sweeps = [sweep for sweep in inputs.sweeps if (sweep.dataset, sweep.metric) == key]
        higher, is_silo = (runs or sweeps)[0].higher_is_better, all(run.is_silo for run in runs)
        warnings = _unlike(runs, anyway)
        runs.sort(key=lambda run: names.rank(run.algorithm))
        groups = itertools.groupby(runs, key=lambda run: run.algorithm)
        series = [s for name, group in groups for s in _settings(name, list(group))]
        compared.append(Comparison(*key, higher, is_silo, series, sweeps, warnings))
    return compared


def _unlike(runs: Sequence[ReportedRun], anyway: bool) -> list[str]:
    """Returns warnings of what runs differ in; of several seeds rows and scales may differ, which
    are compared within each.
    """
    times = Counter(run.run_id for run in runs)
    named = {r.run_id if times[r.run_id] == 1 else f"{r.path}/{r.run_id}": r for r in runs}
    by_seed: dict[int, dict[str, ReportedRun]] = {}
    for name, run in named.items():
        by_seed.setdefault(run.seed, {})[name] = run
    firsts = {}
    for of_seed in by_seed.values():
        name, run = next(iter(of_seed.items()))
        drawn = (comparable.LABEL_RANGE, comparable.SEED)
        firsts[name] = {k: v for k, v in run.data.items() if k not in drawn}
    warnings = comparable.check(firsts, {}, anyway)
    for of_seed in by_seed.values():
        data, rows = ({n: getattr(r, k) for n, r in of_seed.items()} for k in ("data", "rows"))
        warnings += comparable.check(data, rows, anyway)
    return warnings


def _settings(algorithm: str, runs: Sequence[ReportedRun]) -> list[Series]:
    """Returns the runs of one algorithm, apart where their flags differ."""
    # A flag that an older version did not have tells nothing.
    shared = sorted(set.intersection(*(set(run.flags) for run in runs)))
    values = pd.DataFrame([{name: _value(run, name) for name in shared} for run in runs])
    settings = [name for name in shared if not _NO_SETTING.fullmatch(name)]
    differing = [name for name in settings if values[name].nunique() > 1]
    # Where a run starts from differs with the seed anyway; within a seed it is a setting.
    alike = values.groupby([np.array([run.seed for run in runs]), *differing])
    starts = [name for name in shared if "path_to_" in name]
    differing += [name for name in starts if alike[name].nunique().max() > 1]
    groups: dict[tuple[str, ...], list[ReportedRun]] = {}
    for run, setting in zip(runs, values[differing].to_numpy().tolist(), strict=True):
        groups.setdefault(tuple(setting), []).append(run)
    labels = _labels(names.title(algorithm), differing, sorted(groups))
    series = []
    for setting, group in sorted(groups.items()):
        flags = dict(zip(differing, setting, strict=True))
        ordered = sorted(group, key=lambda run: (run.seed, run.run_id))
        series.append(Series(labels[setting], algorithm, flags, ordered))
    return series


def _value(run: ReportedRun, flag: str) -> str:
    """Returns a flag's value as text: 3 and 3.0 are the same, lists are 0.1/0.2."""
    value = run.flags[flag]
    if isinstance(value, list):
        value = "/".join(map(str, value[:1] if flag in FIRST_COUNTS else value))
    text = str(value)
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _labels(
    name: str, flags: Sequence[str], settings: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], str]:
    """Returns the name with each setting, or with letters where that would be too long."""
    if len(settings) == 1:
        return {settings[0]: name}
    texts = [
        ", ".join(
            f"{_SHORT.get(flag, flag.replace('_', ' '))} {value}"
            for flag, value in zip(flags, setting, strict=True)
            if value not in _OFF
        )
        for setting in settings
    ]
    if len(set(texts)) < len(texts) or max(map(len, texts)) > _MAX_SETTING:
        texts = [chr(ord("A") + i) if i < 26 else f"({i + 1})" for i in range(len(texts))]
        return {s: f"{name} {letter}" for s, letter in zip(settings, texts, strict=True)}
    return {
        s: f"{name}, {words}" if words else name for s, words in zip(settings, texts, strict=True)
    }
