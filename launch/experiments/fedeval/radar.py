r"""FedEval's five scores of methods, from run directories, and their radar chart.

    ./launch/run python launch/experiments/fedeval/radar.py results/* --output_dir=DIR

Flags say what each run is for: the table `ROLES`. scorecard.py beside this file has the formulas.
A warm start's rounds, bytes and seconds count. Its models are trained side by side: a round of each
is one round.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import flags

from launch.experiments.fedeval import scorecard
from launch.report import runs as run_directories
from launch.report.comparisons import FIRST_COUNTS
from launch.report.runs import ReportedRun
from motley_tff import commandline
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from motley_tff.tables import client_tables, columns

FLAGS = flags.FLAGS
_BASELINE, _PATIENCE = errors.name("baseline"), errors.name("patience")


class Role(NamedTuple):
    """What sets a run apart: a flag with `value`, or, for None, with any but its usual value.

    A run belongs to the methods that have the same flags but for that one.
    """

    flag: str
    usual: Any
    value: Any = None


# What the tables call a run's algorithm: it is "local" without rounds, too.
_TRAINED = "algorithm of the tables"
# The first that fits says what a run is for; one that none fits is a method. FedEval's own methods
# may have another partition: on MNIST they have one class a client.
ROLES = {
    "centralized": Role("algorithm", None, "centralized"),
    "local": Role(_TRAINED, None, "local"),
    "attacked": Role("attack", "none"),
    "iid": Role("partition", "natural", "iid"),
    "dropout": Role("dropout_rate", 0.0),
    "straggler": Role("straggler_rate", 0.0),
}
_REFERENCES = ("centralized", "local")
_VARIANTS = ("iid", "dropout", "straggler")  # Of these a run has one at a time.
# Flags that decide how fast numbers come and how many, not which.
_SAME_NUMBERS = {
    "backend", "memory_limit_gb", "threads_per_client", "rounds_per_checkpoint", "v",
    "rounds_per_evaluation", "valid_clients_per_evaluation", "test_clients_per_evaluation",
    "evaluate_ood", "ood_examples", "export_scores", "group_key",
}  # fmt: skip
# What clients and server exchange: the first set that has a method's algorithm or aggregator.
_EXCHANGES = {
    "noised or compressed": {"fedstc", "fedstc_server", "compressed", "differentially_private"},
    "secure aggregation": {"secure"},
    "plain, one step of training": {"fedsgd"},
}
_OF_ONE_CLIENT = ("largest_bytes_down", "largest_bytes_up", "slowest_client_seconds")
_SLOWEST = [*_OF_ONE_CLIENT, "server_seconds"]
_TOOK = (*_SLOWEST, "bytes_down", "bytes_up", "seconds")
# {axis: what it takes}
_NEEDS = {
    "efficiency": "a FedSGD run or --baseline=RUN; with --target, both runs get there; of a warm "
    "start its table, which earlier versions did not leave",
    "robustness": "the method's runs with --partition=iid, --dropout_rate and --straggler_rate",
    "effectiveness": "a run with --algorithm=centralized and one of local training",
}
# A method's run, and those that are compared with it, by role or by `attacked_<how>`.
Method = tuple[ReportedRun, dict[str, ReportedRun]]

flags.DEFINE_string("baseline", None, "Run that costs are compared with, in place of FedSGD's.")
flags.DEFINE_enum("model", "personalized", ["personalized", "global"],
                  "Which model is scored: clients' own, or the one before it.")  # fmt: skip
flags.DEFINE_float("target", None, "Count costs until validation clients' mean metric is here.")
flags.DEFINE_integer("patience", None, "Count until the best round, which so many rounds after it "
                     "did not better.", lower_bound=1)  # fmt: skip
flags.DEFINE_enum("time", "wall", ["wall", "federated"],
                  "This machine's seconds, or those of clients behind a network.")  # fmt: skip
_NETWORK = {
    "bandwidth_mbit_down": (100.0, "Megabits a second to a client."),
    "bandwidth_mbit_up": (100.0, "Megabits a second from a client."),
    "latency_ms": (50.0, "Milliseconds a message takes beside its bytes."),
}
for _name, (_default, _meaning) in _NETWORK.items():
    flags.DEFINE_float(_name, _default, f"--time=federated: {_meaning}", lower_bound=0.0)
for _name in ("bandwidth_mbit_down", "bandwidth_mbit_up"):
    flags.register_validator(_name, lambda value: value > 0, "expected above 0")
flags.DEFINE_string("output_dir", None, "Directory that gets scorecard.csv, radar.svg, radar.png.")


def main(*paths: str) -> None:
    """Scores, prints and draws."""
    if FLAGS.target is not None and FLAGS.patience is not None:
        expected = f"no {_PATIENCE} beside it, as both say where to stop counting"
        raise UserError(errors.name("target"), FLAGS.target, expected, "leave one of them out")
    folder = pathlib.Path(os.path.expanduser(FLAGS.output_dir)) if FLAGS.output_dir else None
    if folder and (not folder.absolute().parent.is_dir() or folder.is_file()):
        expected = "a directory, or the name of one to make"
        raise UserError(errors.name("output_dir"), str(folder), expected)
    runs = run_directories.find(paths).runs
    if not runs:
        raise UserError(", ".join(paths), "no runs", "directories with a clients.csv")
    methods, references = assign(runs)
    base, names = _baseline(runs, methods), _names([run for run, _ in methods])
    rows = [_row(method, references, base) | {"method": names.pop(0)} for method in methods]
    known = columns.names("scorecard")
    attacked = sorted({name for row in rows for name in row}.difference(known))
    _print(rows, runs[0].metric, attacked)
    if folder is None:
        return
    from launch.report import radar, style  # Matplotlib takes 0.5 s.

    folder.mkdir(exist_ok=True)
    table, header = folder / "scorecard.csv", (*known, *attacked)
    csv_files.write(table, header, map(csv_files.formula_safe, rows), optional=header)
    scores = {row["method"]: [row.get(axis) for axis in columns.SCORECARD_AXES] for row in rows}
    with style.settings():
        figure = radar.chart(columns.SCORECARD_AXES, scores, scorecard.MOST)
        pictures, _ = style.save(figure, folder, "radar", "svg")
    print(table, *pictures, sep="\n")


def assign(runs: Sequence[ReportedRun]) -> tuple[list[Method], dict[str, ReportedRun]]:
    """Returns the methods, and by role what all are compared with; UserError if runs do not fit."""
    by_role: dict[str, list[ReportedRun]] = {}
    for run in runs:
        by_role.setdefault(_role(run), []).append(run)
        _check(run, runs[0])
    methods: list[Method] = [(run, {}) for run in by_role.pop("method", [])]
    if not methods:
        others = "--partition=iid, --dropout_rate, --straggler_rate, --attack"
        raise UserError("", _listed(runs), f"a run of a method, which has none of {others}")
    references: dict[str, ReportedRun] = {}
    for role, run in ((role, run) for role, own in by_role.items() for run in own):
        name = f"attacked_{run.flags['attack']}" if role == "attacked" else role
        for into in [references] if role in _REFERENCES else _owners(role, run, methods):
            if into.setdefault(name, run) is not run:
                raise UserError("", _listed([into[name], run]), f"one {name} run")
    return methods, references


def _role(run: ReportedRun) -> str:
    if not run.flags:
        expected = "run.json, whose flags say what it is for"
        raise UserError(str(run.path), None, expected, "leave it out")
    fitting = []
    for name, (flag, usual, needed) in ROLES.items():
        value = {**run.flags, _TRAINED: run.algorithm}.get(flag) or usual
        if value == needed or (needed is None and value != usual):
            fitting.append(name)
    if len(fitting) > 1 and fitting[0] in _VARIANTS:
        named = " and ".join(f"--{ROLES[name].flag}" for name in fitting)
        raise UserError(str(run.path), named, "one of them at a time")
    return fitting[0] if fitting else "method"


def _owners(role: str, run: ReportedRun, methods: Sequence[Method]) -> list[dict[str, ReportedRun]]:
    """Returns what is compared with the methods that have a run's flags but for its role's."""
    apart = [_differences(run, method) - {ROLES[role].flag} for method, _ in methods]
    changed, (nearest, _) = min(zip(apart, methods, strict=True), key=lambda pair: len(pair[0]))
    if changed:
        named = (f"--{f} ({run.flags[f]}, there {nearest.flags[f]})" for f in sorted(changed))
        stray = f"the {role} run of no method given"
        expected = f"the flags of one; {nearest.run_id} differs in {', '.join(named)}"
        raise UserError(str(run.path), stray, expected)
    return [others for (_, others), more in zip(methods, apart, strict=True) if not more]


def _differences(run: ReportedRun, method: ReportedRun) -> set[str]:
    """Returns the flags, known to both, that set two runs' numbers apart."""
    shared = run.flags.keys() & method.flags.keys() - _SAME_NUMBERS
    pairs = {flag: (run.flags[flag], method.flags[flag]) for flag in shared}
    pairs |= {f: (pairs[f][0][:1], pairs[f][1][:1]) for f in shared & {*FIRST_COUNTS}}
    return {flag for flag, (mine, other) in pairs.items() if mine != other}


def _listed(runs: Sequence[ReportedRun]) -> str:
    return ", ".join(f"{run.path} ({_role(run)})" for run in runs)


def _check(run: ReportedRun, first: ReportedRun) -> None:
    """Refuses a run of other data, whoever has which, or another metric, and one that was cut."""
    (data, metric), (other_data, other_metric) = (
        (run_directories.dataset_named(other.flags.get("dataset_name") or other.dataset,
                                       {**other.flags, "partition": None}), other.metric)
        for other in (run, first)
    )  # fmt: skip
    if (data, metric) != (other_data, other_metric):
        expected = f"{other_metric} of {other_data}, as in {first.path}"
        raise UserError(str(run.path), f"{metric} of {data}", expected)
    rounds, total = run.table("rounds"), int(run.flags.get("total_rounds", 0))
    total -= round(total * float(run.flags.get("warmstart_fraction") or 0.0))  # No `rounds.csv`.
    count = 0 if rounds is None else int(rounds["round"].max())
    if count < total:
        advice = "run it to its end, or leave it out"
        raise UserError(str(run.path), f"{count} of {total} rounds", advice=advice)


def _baseline(runs: Sequence[ReportedRun], methods: Sequence[Method]) -> ReportedRun | None:
    baselines = [run for run, _ in methods if run.flags.get("algorithm") == "fedsgd"]
    if FLAGS.baseline:
        path = pathlib.Path(os.path.expanduser(FLAGS.baseline)).resolve()
        baselines = [run for run in runs if run.path.resolve() == path][:1]
        if not baselines:
            raise UserError(_BASELINE, FLAGS.baseline, "one of the runs", "give it as well")
    if len(baselines) > 1:
        raise UserError("", _listed(baselines), "one fedsgd run", f"name one with {_BASELINE}=RUN")
    return baselines[0] if baselines else None


def _names(runs: Sequence[ReportedRun]) -> list[str]:
    """Returns what methods are called, no two alike: a line of the radar would hide another."""
    usual = {"server_optimizer": ("sgd", None), "aggregator": ("mean", None)}
    of_runs = [[r.flags[f] for f, v in usual.items() if r.flags.get(f) not in v] for r in runs]
    called = ["+".join([r.algorithm, *more]) for r, more in zip(runs, of_runs, strict=True)]
    ids, paths = [run.run_id for run in runs], [f"{run.path}:{run.run_id}" for run in runs]
    return next(names for names in (called, ids, paths) if len(set(names)) == len(runs))


def _row(
    method: Method, references: Mapping[str, ReportedRun], base: ReportedRun | None
) -> dict[str, Any]:
    """Returns a method's columns, those that are measured."""
    run, others = method
    column, higher = "baseline" if FLAGS.model == "global" else "personalized", run.higher_is_better
    known = {run.flags.get("algorithm"), run.flags.get("aggregator")}
    sent = (kind for kind, names in _EXCHANGES.items() if names & known)
    exchange, value = next(sent, "plain, many steps of training"), _value(run, column)
    row: dict[str, Any] = {"run_id": run.run_id, "value": value, "exchange": exchange}
    row |= {name: getattr(scorecard, name)(exchange) for name in ("privacy", "security")}
    cost, other = _cost(run, column), _cost(base, column) if base else None
    row |= cost._asdict() if cost else {}
    if cost and other:
        scores = scorecard.cost_scores(cost, other)
        row |= {f"{name}_score": score for name, score in scores._asdict().items()}
        row["efficiency"] = scorecard.efficiency(scores)
    for name, variant in others.items():
        theirs = _value(variant, column)
        row[f"{name}_value" if name in _VARIANTS else name] = theirs
        if name in _VARIANTS:
            # Alike clients are the easier problem, faults the harder.
            pair = (value, theirs) if name == "iid" else (theirs, value)
            points = scorecard.iid_points if name == "iid" else scorecard.handled_points
            row[f"{name}_disparity"] = disparity = scorecard.disparity(*pair, higher)
            row[f"{name}_points"] = points(disparity)
    row["robustness"] = scorecard.robustness([row.get(f"{kind}_points") for kind in _VARIANTS])
    if local := references.get("local"):
        row["local_value"] = _value(local, "personalized")
    if central := references.get("centralized"):
        # The central model itself, whatever clients made of it afterwards.
        row["central_value"] = _value(central, "baseline")
        row["central_disparity"] = scorecard.disparity(value, row["central_value"], higher)
    if local and central:
        is_better = scorecard.disparity(value, row["local_value"], higher) < 0.0
        row["effectiveness"] = scorecard.effectiveness(is_better, row["central_disparity"])
    return row


def _last_counted(run: ReportedRun, column: str) -> pd.Series | None:
    """Returns validation clients' evaluation until which costs count; None if there is none."""
    table = run.table("summary")
    if table is None:
        return None
    rows = table[(table["run_id"] == run.run_id) & (table["split"] == "valid")].sort_values("round")
    sign = 1.0 if run.higher_is_better else -1.0
    means, numbers = sign * run_directories.mean_of_all(rows, column), rows["round"].to_numpy()
    if FLAGS.target is not None:
        rows = rows[means >= sign * FLAGS.target][:1]
    elif FLAGS.patience is not None and not np.isnan(means).all():
        best = int(np.argmax(~np.isnan(means)))  # Nothing is greater than NaN.
        for place in range(best, len(rows)):
            if numbers[place] - numbers[best] > FLAGS.patience:
                break
            best = place if means[place] > means[best] else best
        rows = rows[best : best + 1]
    return None if rows.empty else rows.iloc[-1]


def _cost(run: ReportedRun, column: str) -> scorecard.Cost | None:
    """Returns what a run took as far as it counts; None if the target is never there, or nobody
    knows what its warm start took.
    """
    rounds, last, before = run.table("rounds"), _last_counted(run, column), _warm_start(run)
    if rounds is None or run.table("summary") is None:
        expected = "rounds, which costs are counted in"
        raise UserError(str(run.path), None, expected, "leave it out")
    if last is None or before is None:
        return None
    counted = pd.concat([before, rounds[rounds["round"] <= last["round"]]])
    sent, seconds = counted[["bytes_down", "bytes_up"]].sum(axis=1), float(counted["seconds"].sum())
    if FLAGS.time == "federated":
        of_rounds = counted.reindex(columns=_SLOWEST)
        if of_rounds.isna().any(axis=None):
            advice = "train with --backend=sequential, or give --time=wall"
            expected = f"the columns {', '.join(_SLOWEST)}"
            raise UserError(str(run.path / "rounds.csv"), None, expected, advice)
        network = scorecard.Network(*(FLAGS[name].value for name in _NETWORK))
        each = (scorecard.federated_seconds(a, b, c, d, network) for a, b, c, d in of_rounds.values)
        seconds = float(sum(each))
    return scorecard.Cost(len(counted), float(sent.sum()), seconds)


def _warm_start(run: ReportedRun) -> pd.DataFrame | None:
    """Returns what the rounds before the first took, all models together; None if it is unknown."""
    flags, rows = run.flags, run.table("warm_start")
    fraction = float(flags.get("warmstart_fraction") or 0.0)
    expected = round(int(flags.get("total_rounds", 0)) * fraction)
    expected += int(flags.get("num_warmstart_fedavg_rounds") or 0)
    expected += flags.get("cluster_initialization") == "updates"
    if rows is None:
        return None if expected else pd.DataFrame()
    ways = {name: "max" if name in _OF_ONE_CLIENT else "sum" for name in _TOOK if name in rows}
    means = rows.groupby([rows["model"] == 0, "round"]).agg(ways)
    return means if len(means) == expected else None


def _at(run: ReportedRun, number: int) -> ReportedRun:
    """Returns the run as it was evaluated after another round; UserError if it was not."""
    if number == run.round:
        return run
    table = client_tables.read(run.path / "clients.csv")
    rows = table[(table["run_id"] == run.run_id) & (table["round"] == number)]
    by_split = {e.keys["split"]: e for e in client_tables.evaluations(rows)}
    if "test" not in by_split:
        lack = f"no test clients of round {number}"
        raise UserError(str(run.path / "clients.csv"), lack, advice="train again")
    return dataclasses.replace(run, round=number, evaluations=by_split)


def _value(run: ReportedRun, column: str) -> float:
    """Returns the test clients' mean at the reported round, or, with --patience, at the best."""
    best = None if FLAGS.patience is None else _last_counted(run, column)
    then = run if best is None else _at(run, int(best["round"]))
    ids = [set(reported.values.client_ids) for reported in (then, run)]
    if ids[0] != ids[1]:
        lack = f"{len(ids[0])} test clients in round {then.round}, the best"
        expected = f"the {len(ids[1])} of round {run.round}"
        advice = f"train with --test_clients_per_evaluation={len(ids[0] | ids[1])}"
        raise UserError(str(run.path), lack, expected, advice)
    values: np.ndarray = getattr(then.values, column)
    if missing := int(np.isinf(values).sum()):
        lack = f"{column} models of {missing} of {len(values)} test clients that diverged"
        raise UserError(str(run.path), lack, advice="lower the rates")
    return float(np.nanmean(values))  # Others are unscored.


def _print(rows: Sequence[Mapping[str, Any]], metric: str, attacked: Sequence[str]) -> None:
    """Prints the scores, the metric without and with attacks, and what each axis lacks."""
    lines = [("0 to 5", *columns.SCORECARD_AXES, metric, *attacked)]
    forms = {
        **dict.fromkeys(columns.SCORECARD_AXES, ".2f"),
        **dict.fromkeys(("value", *attacked), ".5g"),
    }
    for row in rows:
        pairs = ((row.get(name), form) for name, form in forms.items())
        cells = ("not measured" if value is None else f"{value:{form}}" for value, form in pairs)
        lines.append((row["method"], *cells))
    print("\n".join(text_tables.aligned(lines)))
    for axis, needed in _NEEDS.items():
        if missing := [row["method"] for row in rows if row.get(axis) is None]:
            print(f"{axis} of {', '.join(missing)} is not measured: it takes {needed}")


if __name__ == "__main__":
    commandline.run_main(main, ("RUN...",))
