"""A row of FedEval's scorecard for each method, from its run and those it is compared with."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from launch.scorecard import runs as scorecard_runs
from motley_tff.core.errors import UserError
from motley_tff.metrics import scorecard
from motley_tff.report.runs import Run

COLUMNS = (
    "method", "run_id", *scorecard.AXES, "value", "local_value", "central_value",
    "central_disparity", "rounds", "bytes", "seconds", "rounds_score", "bytes_score",
    "seconds_score", "iid_value", "dropout_value", "straggler_value", "iid_disparity",
    "dropout_disparity", "straggler_disparity", "iid_points", "dropout_points", "straggler_points",
    "exchange",
)  # fmt: skip
# Before what was done to a method, of the value that it then has.
ATTACKED = "attacked_"
PERSONALIZED, GLOBAL = "personalized", "baseline"


class Counting(NamedTuple):
    """Which costs count.

    Attributes:
      target: Those until validation clients' mean metric is there; None for all.
      patience: Those until the first round whose mean was not bettered in so many rounds after it,
        whose model is the one that is scored; None for all.
      network: What lies between clients and server in federated time; None for wall time.
    """

    target: float | None = None
    patience: int | None = None
    network: scorecard.Network | None = None


ALL_ROUNDS = Counting()


def build(
    roles: scorecard_runs.Roles, column: str, counting: Counting = ALL_ROUNDS
) -> list[dict[str, Any]]:
    """Returns `columns` of each method; None, or nothing, where a run for it is missing.

    The column, `PERSONALIZED` or `GLOBAL`, says which model of the methods is scored. UserError if
    a run was cut, or a client of it has no value.
    """
    if counting.patience is not None:
        roles = _at_best(roles, column, counting)
    names = scorecard_runs.names(roles.methods)
    rows = []
    for name, (run, variants, attacked) in zip(names, roles.methods, strict=True):
        exchange = scorecard_runs.exchange(run)
        rows.append({
            "method": name,
            "run_id": run.run_id,
            "value": _value(run, column),
            **_efficiency(run, roles.baseline, column, counting),
            **_robustness(run, variants, column),
            **_effectiveness(run, roles, column),
            "exchange": exchange,
            "privacy": scorecard.privacy(exchange),
            "security": scorecard.security(exchange),
            **{ATTACKED + how: _value(of, column) for how, of in attacked.items()},
        })  # fmt: skip
    return rows


def columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns `COLUMNS`, and those of attacks that any row has."""
    return (*COLUMNS, *sorted({name for row in rows for name in row}.difference(COLUMNS)))


def _at_best(roles: scorecard_runs.Roles, column: str, counting: Counting) -> scorecard_runs.Roles:
    """Returns the same with each run at the round until which its costs count: what is stopped
    there has that model.
    """

    def moved(run: Run, column: str) -> Run:
        summary = run.table("summary")
        if summary is None:
            return run
        rows = summary[(summary["run_id"] == run.run_id) & (summary["split"] == "valid")]
        last = _last_counted(rows.sort_values("round"), f"{column}_mean", run, counting)
        return run if last is None else _with_the_same_clients(run, int(last["round"]))

    methods = [
        scorecard_runs.Method(
            moved(run, column),
            {kind: [moved(of, column) for of in runs] for kind, runs in variants.items()},
            {how: moved(of, column) for how, of in attacked.items()},
        )
        for run, variants, attacked in roles.methods
    ]
    return scorecard_runs.Roles(
        methods,
        roles.baseline,
        roles.centralized and moved(roles.centralized, GLOBAL),
        roles.local and moved(roles.local, PERSONALIZED),
    )


def _with_the_same_clients(run: Run, number: int) -> Run:
    """Returns the run at a round; UserError if that scored other test clients than the last."""
    then = run.at(number)
    ids = [set(of.values.client_ids) for of in (then, run)]
    if ids[0] != ids[1]:
        raise UserError(
            f"{run.path}: found {len(ids[0])} test clients in round {number}, the best, expected "
            f"the {len(ids[1])} of round {run.round}; train with --test_clients_per_evaluation="
            f"{len(ids[0] | ids[1])}"
        )
    return then


def _efficiency(run: Run, baseline: Run | None, column: str, counting: Counting) -> dict[str, Any]:
    cost = _cost(run, column, counting)
    other = None if baseline is None else _cost(baseline, column, counting)
    if cost is None or other is None:
        return {} if cost is None else cost._asdict()
    scores = scorecard.cost_scores(cost, other)
    named = {f"{name}_score": score for name, score in scores._asdict().items()}
    return {**cost._asdict(), **named, "efficiency": scorecard.efficiency(scores)}


def _cost(run: Run, column: str, counting: Counting) -> scorecard.Cost | None:
    """Returns what a run took, all of it or until the target; None if it is never there."""
    _check_whole(run)
    rounds, summary = run.table("rounds"), run.table("summary")
    if rounds is None or summary is None:
        raise UserError(f"{run.path} has no rounds, which costs are counted in; leave it out")
    rows = summary[(summary["run_id"] == run.run_id) & (summary["split"] == "valid")]
    last = _last_counted(rows.sort_values("round"), f"{column}_mean", run, counting)
    if last is None:
        return None
    counted = rounds[rounds["round"] <= last["round"]]
    # The summary's totals know of a warm start as well.
    sent = [last.get(f"bytes_{way}_total", counted[f"bytes_{way}"].sum()) for way in ("down", "up")]
    return scorecard.Cost(len(counted), float(sum(sent)), _seconds(run, counted, counting.network))


def _check_whole(run: Run) -> None:
    """Refuses a run that was cut."""
    rounds = run.table("rounds")
    total = int(run.flags.get("total_rounds", 0))
    # A warm start is not in `rounds.csv`.
    total -= round(total * float(run.flags.get("warmstart_fraction") or 0.0))
    count = 0 if rounds is None else int(rounds["round"].max())
    if count < total:
        raise UserError(f"{run.path} has {count} of {total} rounds; run it to its end, or leave it")


def _last_counted(
    rows: pd.DataFrame, column: str, run: Run, counting: Counting
) -> pd.Series | None:
    """Returns the evaluation until which costs count, of a run's on validation clients, by round;
    None if the target is never there.
    """
    means = rows[column] if run.higher_is_better else -rows[column]
    if counting.target is not None:
        target = counting.target if run.higher_is_better else -counting.target
        return rows[means >= target].iloc[0] if (means >= target).any() else None
    if counting.patience is None or means.isna().all():
        return rows.iloc[-1]
    best = int(np.argmax(means.notna()))  # Nothing is greater than NaN.
    for place in range(best, len(rows)):
        if rows["round"].iloc[place] - rows["round"].iloc[best] > counting.patience:
            break
        if means.iloc[place] > means.iloc[best]:
            best = place
    return rows.iloc[best]


def _seconds(run: Run, rounds: pd.DataFrame, network: scorecard.Network | None) -> float:
    """Returns what rounds took: this machine, or clients behind a network."""
    if network is None:
        return float(rounds["seconds"].sum())
    needed = [
        "largest_bytes_down", "largest_bytes_up", "slowest_client_seconds", "server_seconds",
    ]  # fmt: skip
    for name in needed:
        if name not in rounds or rounds[name].isna().any():
            raise UserError(
                f"{run.path / 'rounds.csv'} has no {name}, which --time=federated needs; train "
                "with --backend=sequential, or give --time=wall"
            )
    down, up, client, server = (rounds[name] for name in needed)
    of_rounds = zip(down, up, client, server, strict=True)
    return sum(scorecard.federated_seconds(*numbers, network) for numbers in of_rounds)


def _robustness(run: Run, variants: scorecard_runs.Variants, column: str) -> dict[str, Any]:
    """Returns the worst disparity of each kind, the value it is of, and its points."""
    value = _value(run, column)
    row: dict[str, Any] = {}
    for kind, variant_runs in variants.items():
        for variant in variant_runs:
            _check_whole(variant)
        others = [_value(variant, column) for variant in variant_runs]
        # Alike clients are the easier problem, faults the harder.
        pairs = [(value, other) if kind == "iid" else (other, value) for other in others]
        disparities = [scorecard.disparity(*pair, run.higher_is_better) for pair in pairs]
        worst = max(disparities, default=None)
        points = scorecard.iid_points if kind == "iid" else scorecard.handled_points
        row[f"{kind}_value"] = None if worst is None else others[disparities.index(worst)]
        row[f"{kind}_disparity"] = worst
        row[f"{kind}_points"] = None if worst is None else points(worst)
    return row | {"robustness": scorecard.robustness([row[f"{kind}_points"] for kind in variants])}


def _effectiveness(run: Run, roles: scorecard_runs.Roles, column: str) -> dict[str, Any]:
    value = _value(run, column)
    for reference in (roles.local, roles.centralized):
        if reference is not None:
            _check_whole(reference)
    local = None if roles.local is None else _value(roles.local, PERSONALIZED)
    # The central model itself, whatever clients made of it afterwards.
    central = None if roles.centralized is None else _value(roles.centralized, GLOBAL)
    row: dict[str, Any] = {"local_value": local, "central_value": central}
    if central is not None:
        row["central_disparity"] = scorecard.disparity(value, central, run.higher_is_better)
        if local is not None:
            is_better = value > local if run.higher_is_better else value < local
            row["effectiveness"] = scorecard.effectiveness(is_better, row["central_disparity"])
    return row


def _value(run: Run, column: str) -> float:
    """Returns the mean of a column over the test clients of the reported evaluation."""
    values = getattr(run.values, column)
    missing = int(np.isnan(values).sum())
    if missing or not len(values):
        raise UserError(
            f"{run.path}: {missing} of {len(values)} test clients have no "
            f"{column} {run.metric}; if training has diverged, lower the learning rates"
        )
    return float(values.mean())
