r"""FedEval's five scores of methods, from run directories, and their radar chart.

    ./launch/run python launch/experiments/fedeval/radar.py results/fedsgd results/fedavg \
        results/fedavg_iid results/fedavg_dropout results/fedavg_straggler results/centralized \
        results/local --output_dir=DIR

Flags say what each run is for (the table `ROLES`). Scores go from 0 to 5, and
motley_tff/metrics/scorecard.py has their formulas. Costs are of all rounds of a run; with --target,
they are of those until the validation clients' mean is there; with --patience, of those until the
best such mean, which so many rounds after it did not better, and the model of that round is scored.
Rounds and seconds of HypCluster's warm start are in no table and are not counted; its bytes are.
--time=federated counts seconds of clients behind a network, and needs --backend=sequential. It
leaves out the evaluations, which FedEval counts as well.
"""

import functools
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import flags

from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from motley_tff.metrics import scorecard
from motley_tff.report import runs as run_directories
from motley_tff.report.comparisons import FIRST_COUNTS
from motley_tff.report.runs import Run
from motley_tff.tables import columns

FLAGS = flags.FLAGS
_PERSONALIZED, _GLOBAL = "personalized", "baseline"


class Role(NamedTuple):
    """What sets a run apart: a flag with `value`, or, for None, with any but its usual value.

    It belongs to the method that has the same flags but for that one and, at most, those `beside`.
    """

    flag: str
    usual: Any
    value: Any = None
    beside: Collection[str] = ()


# What the tables call a run's algorithm: it is "local" without rounds, too.
_TRAINED = "algorithm of the tables"
_DEFENCE = ("aggregator", "trim_share", "dp_noise_multiplier")
_VARIANTS = {
    "iid": Role("partition", "natural", "iid"),
    "dropout": Role("dropout_rate", 0.0),
    "straggler": Role("straggler_rate", 0.0),
}
# The first that fits counts; a run that none fits is a method. FedEval's own methods may have
# another partition: on MNIST they have one class a client.
ROLES = {
    "centralized": Role("algorithm", None, "centralized"),
    "local": Role(_TRAINED, None, "local"),
    "attacked": Role("attack", "none", None, (*_DEFENCE, *(v.flag for v in _VARIANTS.values()))),
    **_VARIANTS,
}
# Flags that decide how fast numbers come and how many, not which.
_SAME_NUMBERS = {
    "backend", "memory_limit_gb", "threads_per_client", "rounds_per_checkpoint", "v",
    "rounds_per_evaluation", "valid_clients_per_evaluation", "test_clients_per_evaluation",
    "evaluate_ood", "ood_examples", "export_scores", "group_key",
}  # fmt: skip
# What clients and server exchange: the first flag and value of a method's that is here says it.
_EXCHANGES = {
    ("algorithm", "fedstc"): "noised or compressed",
    ("algorithm", "fedstc_server"): "noised or compressed",
    ("aggregator", "compressed"): "noised or compressed",
    ("aggregator", "differentially_private"): "noised or compressed",
    ("aggregator", "secure"): "secure aggregation",
    ("algorithm", "fedsgd"): "plain, one step of training",
}
# {axis: what it takes}
_NEEDS = {
    "efficiency": "a FedSGD run or --baseline=RUN; with --target, both runs get there",
    "robustness": "the method's runs with --partition=iid, --dropout_rate and --straggler_rate",
    "effectiveness": "a run with --algorithm=centralized and one of local training",
}

flags.DEFINE_string("baseline", None, "Run that costs are compared with, in place of FedSGD's.")
flags.DEFINE_enum(
    "model", "personalized", ["personalized", "global"],
    "Which model of a method is scored: each client's own, or the global one before it.",
)  # fmt: skip
flags.DEFINE_float("target", None, "Count costs until validation clients' mean metric is here.")
flags.DEFINE_integer(
    "patience", None, "Count until the best round, which so many rounds after it did not better.",
    lower_bound=1,
)  # fmt: skip
flags.DEFINE_enum(
    "time", "wall", ["wall", "federated"],
    "Whose seconds: this machine's, or those of clients behind a network.",
)  # fmt: skip
_NETWORK = {
    "bandwidth_mbit_down": (100.0, "Megabits a second from the server to a client."),
    "bandwidth_mbit_up": (100.0, "Megabits a second from a client to the server."),
    "latency_ms": (50.0, "Milliseconds a message takes beside its bytes."),
}
for _name, (_default, _meaning) in _NETWORK.items():
    flags.DEFINE_float(_name, _default, f"--time=federated: {_meaning}", lower_bound=0.0)
for _name in ("bandwidth_mbit_down", "bandwidth_mbit_up"):
    flags.register_validator(_name, lambda value: value > 0, "expected above 0")
flags.register_multi_flags_validator(
    ["target", "patience"],
    lambda values: values["target"] is None or values["patience"] is None,
    "--target and --patience both say where to stop counting; leave one out",
)
flags.DEFINE_string("output_dir", None, "Directory that gets scorecard.csv, radar.svg, radar.png.")


class Method(NamedTuple):
    """A method's run, and those that are compared with it, by role or by `attacked_<how>`."""

    run: Run
    others: dict[str, Run]


def main(*paths: str) -> None:
    """Scores, prints and draws."""
    folder = _checked(FLAGS.output_dir) if FLAGS.output_dir else None
    runs = run_directories.find(paths).runs
    if not runs:
        raise UserError(f"no runs in {', '.join(paths)}; expected directories with a clients.csv")
    methods, references = assign(runs)
    base = _baseline(runs, methods)
    rows = [
        {"method": name, **_row(method, references, base)}
        for name, method in zip(_names([m.run for m in methods]), methods, strict=True)
    ]
    known = columns.names("scorecard")
    attacked = sorted({name for row in rows for name in row}.difference(known))
    _print(rows, runs[0].metric, attacked)
    if folder is None:
        return
    from motley_tff.report import radar  # With Matplotlib, 500 ms.

    folder.mkdir(exist_ok=True)
    table, header = folder / "scorecard.csv", (*known, *attacked)
    csv_files.write(table, header, map(csv_files.formula_safe, rows), optional=header)
    scores = {row["method"]: [row.get(axis) for axis in scorecard.AXES] for row in rows}
    print(table, *radar.save(folder, scorecard.AXES, scores, scorecard.MOST), sep="\n")


def _checked(text: str) -> pathlib.Path:
    folder = pathlib.Path(os.path.expanduser(text))
    if not folder.absolute().parent.is_dir() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"--output_dir={folder}: expected a directory, or the name of one to make")
    return folder


def assign(runs: Sequence[Run]) -> tuple[list[Method], dict[str, Run]]:
    """Returns the methods, and by role what all of them are compared with; UserError if a run does
    not fit, was cut, or has the role of another.
    """
    by_role: dict[str, list[Run]] = {}
    for run in runs:
        by_role.setdefault(_role(run), []).append(run)
        _check(run, runs[0])
    methods = [Method(run, {}) for run in by_role.pop("method", [])]
    if not methods:
        raise UserError(f"no run of a method among {_listed(runs)}; give one without --dropout_rate"
                        ", --straggler_rate, --attack and --partition=iid")  # fmt: skip
    references: dict[str, Run] = {}
    for role, of in by_role.items():
        for run in of:
            if role in ("centralized", "local"):
                _put(references, role, run)
                continue
            for method, changed in _owners(role, run, methods):
                name = role if role != "attacked" else _attack(run, changed)
                _put(method.others, name, run)
    return methods, references


def _role(run: Run) -> str:
    if not run.flags:
        raise UserError(f"{run.path} has no run.json, whose flags say what the run is for")
    known = {**run.flags, _TRAINED: run.algorithm}
    fitting = []
    for name, role in ROLES.items():
        value = known.get(role.flag) or role.usual
        if value != role.usual if role.value is None else value == role.value:
            fitting.append(name)
    if len(fitting) > 1 and fitting[0] in _VARIANTS:
        named = " and ".join(f"--{ROLES[name].flag}" for name in fitting)
        raise UserError(f"{run.path} has {named}; expected runs with one of them at a time")
    return fitting[0] if fitting else "method"


def _owners(role: str, run: Run, methods: Sequence[Method]) -> list[tuple[Method, set[str]]]:
    """Returns the methods that a variant belongs to, and what else sets it apart from them."""
    flag, beside = ROLES[role].flag, ROLES[role].beside
    apart = [(method, _differences(run, method.run) - {flag}) for method in methods]
    fitting = [(method, changed) for method, changed in apart if changed.issubset(beside)]
    if not fitting:
        nearest, changed = min(apart, key=lambda pair: len(pair[1].difference(beside)))
        named = ", ".join(
            f"--{name} ({run.flags[name]}, there {nearest.run.flags[name]})"
            for name in sorted(changed.difference(beside))
        )
        raise UserError(
            f"{run.path} is the {role} run of no method given; {nearest.run.run_id} differs in "
            f"{named}"
        )
    least = min(len(changed) for _, changed in fitting)
    return [pair for pair in fitting if len(pair[1]) == least]


def _differences(run: Run, method: Run) -> set[str]:
    """Returns the flags, known to both, that set two runs' numbers apart."""
    pairs = {
        flag: (run.flags[flag], method.flags[flag])
        for flag in run.flags.keys() & method.flags.keys() - _SAME_NUMBERS
    }
    for flag in pairs.keys() & set(FIRST_COUNTS):
        pairs[flag] = pairs[flag][0][:1], pairs[flag][1][:1]
    return {flag for flag, (mine, other) in pairs.items() if mine != other}


def _put(into: dict[str, Run], name: str, run: Run) -> None:
    if into.setdefault(name, run) is not run:
        raise UserError(f"several {name} runs: {_listed([into[name], run])}; give one of them")


def _attack(run: Run, changed: Collection[str]) -> str:
    """Returns the column of an attack, and of what else was changed, as in `sign_flip+median`."""
    more = (f"{run.flags[f]}" if f == "aggregator" else f"{f}={run.flags[f]}" for f in changed)
    return "+".join([f"attacked_{run.flags['attack']}", *sorted(more)])


def _listed(runs: Sequence[Run]) -> str:
    return ", ".join(f"{run.path} ({_role(run)})" for run in runs)


def _check(run: Run, first: Run) -> None:
    """Refuses a run of other data or another metric, and one that was cut."""
    data, metric = zip(*((_undealt(of), of.metric) for of in (run, first)), strict=True)
    for name, (mine, other) in (("dataset", data), ("metric", metric)):
        if mine != other:
            raise UserError(
                f"{run.path} has {name} {mine} and {first.path} has {other}; give runs of one"
            )
    rounds, total = run.table("rounds"), int(run.flags.get("total_rounds", 0))
    # A warm start is not in `rounds.csv`.
    total -= round(total * float(run.flags.get("warmstart_fraction") or 0.0))
    count = 0 if rounds is None else int(rounds["round"].max())
    if count < total:
        raise UserError(f"{run.path} has {count} of {total} rounds; run it to its end, or leave it")


def _undealt(run: Run) -> str:
    """Returns what a run's data are, whoever has which."""
    name = run.flags.get("dataset_name")
    flags_of = {**run.flags, "partition": None}
    return run_directories.dataset_named(name, flags_of) if name else run.dataset


def _baseline(runs: Sequence[Run], methods: Sequence[Method]) -> Run | None:
    if FLAGS.baseline:
        path = pathlib.Path(os.path.expanduser(FLAGS.baseline)).resolve()
        if found := [run for run in runs if run.path.resolve() == path]:
            return found[0]
        raise UserError(f"--baseline={FLAGS.baseline} is none of the runs given; give it as well")
    found = [m.run for m in methods if m.run.flags.get("algorithm") == "fedsgd"]
    if len(found) > 1:
        raise UserError(f"several fedsgd runs: {_listed(found)}; name one with --baseline=RUN")
    return found[0] if found else None


def _names(runs: Sequence[Run]) -> list[str]:
    """Returns what methods are called, no two alike: a line of the radar would hide another."""
    usual = {"server_optimizer": "sgd", "aggregator": "mean"}
    unusual = [[str(r.flags[f]) for f, v in usual.items() if r.flags.get(f, v) != v] for r in runs]
    called = ["+".join([r.algorithm, *more]) for r, more in zip(runs, unusual, strict=True)]
    for names in (called, [run.run_id for run in runs]):
        if len(set(names)) == len(names):
            return names
    return [str(r.path if r.path.name == r.run_id else r.path / r.run_id) for r in runs]


def _row(method: Method, references: Mapping[str, Run], base: Run | None) -> dict[str, Any]:
    """Returns a method's columns, those that are measured."""
    run, column = method.run, _GLOBAL if FLAGS.model == "global" else _PERSONALIZED
    value, higher = _value(run, column), run.higher_is_better
    of_flags = (what for (f, v), what in _EXCHANGES.items() if run.flags.get(f) == v)
    exchange = next(of_flags, "plain, many steps of training")
    privacy, security = scorecard.privacy(exchange), scorecard.security(exchange)
    row: dict[str, Any] = {"run_id": run.run_id, "value": value, "exchange": exchange}
    row |= {"privacy": privacy, "security": security}
    cost, other = _cost(run, column), None if base is None else _cost(base, column)
    if cost is not None:
        row |= cost._asdict()
    if cost is not None and other is not None:
        scores = scorecard.cost_scores(cost, other)
        row |= {f"{name}_score": score for name, score in scores._asdict().items()}
        row["efficiency"] = scorecard.efficiency(scores)
    values = {name: _value(of, column) for name, of in method.others.items()}
    for kind in set(values) & set(_VARIANTS):
        # Alike clients are the easier problem, faults the harder.
        pair = (value, values[kind]) if kind == "iid" else (values[kind], value)
        disparity = scorecard.disparity(*pair, higher)
        points = scorecard.iid_points if kind == "iid" else scorecard.handled_points
        row |= {f"{kind}_disparity": disparity, f"{kind}_points": points(disparity)}
    row |= {f"{n}_value" if n in _VARIANTS else n: of for n, of in values.items()}
    row["robustness"] = scorecard.robustness([row.get(f"{kind}_points") for kind in _VARIANTS])
    # The central model itself, whatever clients made of it afterwards.
    for name, which in (("local", _PERSONALIZED), ("centralized", _GLOBAL)):
        if name in references:
            row[f"{name.removesuffix('ized')}_value"] = _value(references[name], which)
    if "central_value" in row:
        row["central_disparity"] = scorecard.disparity(value, row["central_value"], higher)
    if {"central_value", "local_value"} <= row.keys():
        is_better = (value > row["local_value"]) == higher and value != row["local_value"]
        row["effectiveness"] = scorecard.effectiveness(is_better, row["central_disparity"])
    return row


def _last_counted(run: Run, column: str) -> pd.Series | None:
    """Returns the evaluation on validation clients until which costs count; None without a table,
    or where the target is never there.
    """
    summary = run.table("summary")
    if summary is None:
        return None
    rows = summary[(summary["run_id"] == run.run_id) & (summary["split"] == "valid")]
    rows = rows.sort_values("round")
    sign = 1.0 if run.higher_is_better else -1.0
    means = sign * rows[f"{column}_mean"]
    if FLAGS.target is not None:
        rows = rows[means >= sign * FLAGS.target]
        return None if rows.empty else rows.iloc[0]
    if FLAGS.patience is None or means.isna().all():
        return None if rows.empty else rows.iloc[-1]
    best = int(np.argmax(means.notna()))  # Nothing is greater than NaN.
    for place in range(best, len(rows)):
        if rows["round"].iloc[place] - rows["round"].iloc[best] > FLAGS.patience:
            break
        if means.iloc[place] > means.iloc[best]:
            best = place
    return rows.iloc[best]


def _cost(run: Run, column: str) -> scorecard.Cost | None:
    """Returns what a run took as far as it counts; None if the target is never there."""
    rounds, last = run.table("rounds"), _last_counted(run, column)
    if rounds is None or run.table("summary") is None:
        raise UserError(f"{run.path} has no rounds, which costs are counted in; leave it out")
    if last is None:
        return None
    counted = rounds[rounds["round"] <= last["round"]]
    # The summary's totals know of a warm start as well.
    sent = [last.get(f"bytes_{way}_total", counted[f"bytes_{way}"].sum()) for way in ("down", "up")]
    return scorecard.Cost(len(counted), float(sum(sent)), _seconds(run, counted))


def _seconds(run: Run, rounds: pd.DataFrame) -> float:
    if FLAGS.time == "wall":
        return float(rounds["seconds"].sum())
    needed = ["largest_bytes_down", "largest_bytes_up", "slowest_client_seconds", "server_seconds"]
    for name in needed:
        if name not in rounds or rounds[name].isna().any():
            raise UserError(
                f"{run.path / 'rounds.csv'} has no {name}, which --time=federated needs; train "
                "with --backend=sequential, or give --time=wall"
            )
    network = scorecard.Network(*(FLAGS[name].value for name in _NETWORK))
    of_rounds = rounds[needed].itertuples(index=False)
    return sum(scorecard.federated_seconds(*numbers, network) for numbers in of_rounds)


def _value(run: Run, column: str) -> float:
    """Returns the test clients' mean at the reported round, or, with --patience, at the best."""
    best = None if FLAGS.patience is None else _last_counted(run, column)
    then = run if best is None else run.at(int(best["round"]))
    ids = [set(of.values.client_ids) for of in (then, run)]
    if ids[0] != ids[1]:
        raise UserError(
            f"{run.path}: found {len(ids[0])} test clients in round {then.round}, the best, "
            f"expected the {len(ids[1])} of round {run.round}; train with "
            f"--test_clients_per_evaluation={len(ids[0] | ids[1])}"
        )
    values = getattr(then.values, column)
    missing = int(np.isnan(values).sum())
    if missing or not len(values):
        raise UserError(
            f"{run.path}: {missing} of {len(values)} test clients have no "
            f"{column} {run.metric}; if training has diverged, lower the learning rates"
        )
    return float(values.mean())


def _print(rows: Sequence[Mapping[str, Any]], metric: str, attacked: Sequence[str]) -> None:
    """Prints the scores, the metric without and with attacks, and what each axis lacks."""
    lines = [("0 to 5", *scorecard.AXES, metric, *attacked)]
    for row in rows:
        pairs = ((row.get(axis), ".2f") for axis in scorecard.AXES)
        pairs = (*pairs, *((row.get(name), ".5g") for name in ("value", *attacked)))
        cells = ("not measured" if value is None else f"{value:{form}}" for value, form in pairs)
        lines.append((row["method"], *cells))
    print("\n".join(text_tables.aligned(lines)))
    for axis, needed in _NEEDS.items():
        if missing := [row["method"] for row in rows if row.get(axis) is None]:
            print(f"{axis} of {', '.join(missing)} is not measured: it takes {needed}")


run = functools.partial(commandline.run_main, main, ("RUN...",))

if __name__ == "__main__":
    run()
