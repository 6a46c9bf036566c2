"""Each method's chosen runs: their setting, test clients' values under every seed, and costs."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from launch.compare.methods import Method
from launch.sweeps import results
from launch.sweeps.plans import Plan
from motley_tff import metrics
from motley_tff.files import csv_files
from motley_tff.metrics.client_values import ClientValues
from motley_tff.tables import client_tables

_NO_SETTING = "no setting finished under all seeds"


class Work(NamedTuple):
    """A method and the sweep whose runs it is taken from: its own, or another method's."""

    method: Method
    plan: Plan
    path: pathlib.Path

    @property
    def is_baseline(self) -> bool:
        """Whether it is the baseline of another method's runs."""
        return self.plan.grid.algorithm != self.method.name


def owner(method: Method, compared: Sequence[Method]) -> str:
    """Returns the compared method whose runs have this one as their baseline, or no name."""
    return method.baseline_of if method.baseline_of in {m.name for m in compared} else ""


def works(
    compared: Sequence[Method], plan: Callable[[Method], Plan], directory: pathlib.Path
) -> list[Work]:
    """Returns each method beside the sweep that it is taken from: a baseline from that of the
    method whose runs have it.
    """
    owners = {method.name: owner(method, compared) or method.name for method in compared}
    plans = {m.name: plan(m) for m in compared if owners[m.name] == m.name}
    return [Work(m, plans[owners[m.name]], directory / owners[m.name]) for m in compared]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a method.

    Attributes:
      method: Which.
      setting: The chosen flags, empty if there was one setting alone or none finished.
      num_settings: How many settings were tried, those inside a run, too.
      reason: Why there are no values; empty if there are.
      by_seed: `{seed: its test clients}`; of a method that is another's baseline these are the
        other's clients.
      values: `{(seed, client id): value}`; infinite where the model diverged, not-a-number where
        nothing is scored.
      at_edge: What was chosen at the edge of what was tried, in words.
      num_bytes: Between server and clients, both ways, in a run: the mean over seeds; None where
        nobody counted.
    """

    method: Method
    metric: str
    higher_is_better: bool
    num_settings: int
    setting: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reason: str = ""
    by_seed: Mapping[int, ClientValues] = dataclasses.field(default_factory=dict)
    values: Mapping[tuple[int, str], float] = dataclasses.field(default_factory=dict)
    at_edge: Sequence[str] = ()
    num_bytes: float | None = None


def outcome(work: Work, rows: Sequence[Mapping[str, Any]], directory: pathlib.Path) -> Outcome:
    """Returns what came of a method.

    Args:
      rows: Of its sweep's `sweep.csv`.
      directory: Of the comparison, which gets the clients of a baseline.
    """
    method, plan = work.method, work.plan
    if work.is_baseline:
        grid = dataclasses.replace(plan.grid, choose_by="baseline")
        plan = dataclasses.replace(plan, grid=grid)
    finished = [row for row in rows if row["status"] == "finished"]
    metric = str(finished[0]["metric"]) if finished else ""
    higher = bool(finished and finished[0]["higher_is_better"] == "1")
    tried = plan.grid.inside.values() if not work.is_baseline else ()
    number = plan.grid.num_points * math.prod(map(len, tried))
    point = results.best_point(plan, rows)
    if point is None:
        reasons = [row["reason"] for row in rows if row["status"] == "failed"]
        reason = f"{_NO_SETTING}: {reasons[0]}" if reasons else _NO_SETTING
        return Outcome(method, metric, higher, number, reason=reason)
    by_seed = _by_seed(work, plan, point, directory)
    column = "baseline" if work.is_baseline else "personalized"
    values = {
        (seed, str(client)): float(value)
        for seed, of_seed in by_seed.items()
        for client, value in zip(of_seed.client_ids, getattr(of_seed, column), strict=True)
    }
    setting = dict(plan.grid.points[point])
    return Outcome(
        method, metric, higher, number, setting, "", by_seed, values,
        tuple(_at_edge(plan, setting)), _num_bytes(work, plan, rows, point),
    )  # fmt: skip


def _by_seed(
    work: Work, plan: Plan, point: int, directory: pathlib.Path
) -> dict[int, ClientValues]:
    """Returns the test clients of a setting's runs."""
    path = work.path / "clients.csv"
    if work.is_baseline:  # Perhaps of another setting than the method's that was chosen.
        path = directory / f"{work.method.name}_clients.csv"
        clients = results.clients_of(work.path, plan, point)
        csv_files.write(path, list(clients[0]), clients)
    return {
        int(evaluation.keys["base_random_seed"]): evaluation.values
        for evaluation in client_tables.evaluations(client_tables.read(path))
        if evaluation.keys["split"] == "test"
    }


def _at_edge(plan: Plan, setting: Mapping[str, str]) -> list[str]:
    """Returns which numbers were the least or the most of several that were tried."""
    lines = []
    for flag, value in setting.items():
        numbers = [_number(text) for text in plan.grid.tried[flag]]
        known = [number for number in numbers if number is not None]
        if len(known) < 2 or len(known) < len(numbers):
            continue
        for which, end in (("least", min(known)), ("most", max(known))):
            if _number(value) == end:
                lines.append(f"{flag}={value} is the {which} that was tried")
    return lines


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _num_bytes(
    work: Work, plan: Plan, rows: Sequence[Mapping[str, Any]], point: int
) -> float | None:
    """Returns a run's bytes; runs that are trained in one call count none."""
    totals = []
    for row in rows[point * plan.num_seeds :][: plan.num_seeds]:
        summary = work.path / "runs" / row["run_id"] / "summary.csv"
        if not summary.exists():
            return None
        of_round = [r for r in csv_files.read(summary) if r["round"] == row["round"]]
        cells = [of_round[0].get(f"bytes_{way}_total") for way in ("down", "up")]
        if not all(cells):
            return None
        totals.append(sum(float(cell) for cell in cells if cell))
    return float(np.mean(totals)) if totals else None


def cost(work: Work, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a method's row of `costs.csv`, of its sweep's rows of `sweep.csv`."""
    seconds = sum(float(content.get("seconds", 0.0)) for content in _contents(work))
    return {
        "method": work.method.name,
        "num_runs": len(rows),
        "num_failed": sum(row["status"] == "failed" for row in rows),
        "seconds": None if work.is_baseline else seconds,
    }


def check_data_files(directory: pathlib.Path, works: Sequence[Work]) -> None:
    """Raises a UserError if methods were trained on different data files."""
    results.check_data_files(directory, [c for work in works for c in _contents(work)])


def _contents(work: Work) -> list[dict[str, Any]]:
    """Returns what is kept of the tasks of a method's sweep."""
    contents = (results.load(results.path_of(work.path, task)) for task in work.plan.tasks)
    return [content for content in contents if content]


class Hurt(NamedTuple):
    """The share of test clients that are worse off, in percent, the mean over seeds; and of those
    that truly are (see `metrics.true_effects`); not-a-number where nobody knows.

    `against` says of which model: `baseline` of its own runs, which it personalizes, or `fedavg`.
    """

    percent: float
    percent_truly: float
    against: str


def hurt(of_method: Outcome, fedavg: Outcome | None) -> Hurt:
    """Returns who is hurt by a method: of one that personalizes FedAvg's model against that one,
    of another against FedAvg's chosen runs, pair by pair of client and seed.
    """
    nan = math.nan
    if not of_method.by_seed or of_method.method.name == "fedavg":
        return Hurt(nan, nan, "")
    if of_method.method.personalizes_fedavg:
        values = of_method.by_seed.values()
        percent, truly = (
            float(np.mean([metrics.POPULATION[name](v) for v in values]))
            for name in ("pct_clients_hurt", "pct_truly_hurt")
        )
        return Hurt(percent, truly, "baseline")
    if fedavg is None or not fedavg.values:
        return Hurt(nan, nan, "")
    pairs = [pair for pair in of_method.values if pair in fedavg.values]
    by_seed = {seed: [pair for pair in pairs if pair[0] == seed] for seed, _ in pairs}
    shares = []
    for pairs_of_seed in by_seed.values():
        shared, own = (
            np.array([outcome.values[pair] for pair in pairs_of_seed])
            for outcome in (fedavg, of_method)
        )
        ids = np.array([client for _, client in pairs_of_seed])
        clients = ClientValues(ids, shared, own, of_method.higher_is_better, None)
        shares.append(metrics.POPULATION["pct_clients_hurt"](clients))
    return Hurt(float(np.mean(shares)) if shares else nan, nan, "fedavg")
