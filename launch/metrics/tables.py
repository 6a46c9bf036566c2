"""The tables of `motley_metrics`: rows of statistics from tables of clients and of scores."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from launch.metrics import shared_examples
from launch.metrics.output import ShownTable
from motley_tff import metrics
from motley_tff.core import candidate_labels
from motley_tff.core.errors import UserError
from motley_tff.metrics import (
    client_values,
    quantum_of_improvement as quantum_lib,
    roc_auc,
    statistics,
    true_effects,
)
from motley_tff.tables import columns as columns_lib, comparable
from motley_tff.tables.client_tables import Evaluation

if TYPE_CHECKING:
    import pandas as pd  # Takes 0.3 s.

_LISTED = 5
_GROUPED = ("cluster_ari", "cluster_purity")
# What a comparison calls the metrics of "the first run is the baseline, this one personalized".
_DIFFERENCES = {
    "difference_mean": "delta_mean",
    "difference_low": "delta_mean_low",
    "difference_high": "delta_mean_high",
    "wilcoxon_p": "wilcoxon_p",
    "pct_clients_worse": "pct_clients_hurt",
}
# What it says beside these where both runs exported scores of the same examples.
_ON_EXAMPLES = {
    "pct_worse_by_chance": "pct_hurt_by_chance",
    "pct_truly_worse": "pct_truly_hurt",
    "pct_truly_worse_low": "pct_truly_hurt_low",
    "pct_truly_worse_high": "pct_truly_hurt_high",
    "num_surely_worse": "num_surely_hurt",
}
_PARTS = {"improves": quantum_lib.improved, "decreases": quantum_lib.decreased}
_COMPARED = ("run_id", "algorithm", "round", "split")
_ROC_AUC = (
    "num_clients", "num_one_class_clients", "num_diverged", *roc_auc.RocAuc._fields,
    "negatives_statistic", "negatives_p", "positives_statistic", "positives_p", "equals_pooled",
)  # fmt: skip
SECURE = tuple(f"secure_{name}" for name in roc_auc.RocAuc._fields if name != "pooled")
_ROC_AUC_CLIENT = ("client_id", "roc_auc", "num_positives", "num_negatives")


# Evaluations of several runs, rounds and splits; and one of each run, by the run's name.
Evaluations = Sequence[Evaluation]
Runs = Mapping[str, Evaluation]
# Rows of what was asked for, and a row for each client.
Tables = tuple[ShownTable, ShownTable]


def _name(evaluation: Evaluation) -> str:
    keys = evaluation.keys
    return " ".join(str(keys[key]) for key in ("run_id", "round", "split") if key in keys)


def _present(columns: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the columns that any row has."""
    return tuple(name for name in columns if any(name in row for row in rows))


def summary(evaluations: Evaluations) -> ShownTable:
    """Returns what `summary.csv` says, computed from the clients: a row per evaluation."""
    rows = [summary_row(evaluation) for evaluation in evaluations]
    options = columns_lib.of_task("cross_silo", with_ood=True)
    columns = _present(columns_lib.names("summary", **options), rows)
    return ShownTable(columns, rows, [n for e in evaluations for n in _summary_notes(e)])


def summary_row(evaluation: Evaluation) -> dict[str, Any]:
    """Returns an evaluation's row of `summary.csv`."""
    values, rows = evaluation.values, evaluation.rows
    row: dict[str, Any] = {**evaluation.keys, **metrics.summarize(values)}
    if not evaluation.is_personalized:
        shown = {*evaluation.keys, "num_clients", *(n for n in row if n.startswith("baseline"))}
        return {name: value for name, value in row.items() if name in shown}
    row["candidate"] = _candidate(rows, "candidate")
    for column in ("reference", "ood_baseline", "ood_personalized"):
        if column in rows:
            row[f"{column}_mean"] = rows[column].mean()  # Of the cells that are not empty.
    for way in columns_lib.WAYS:
        if f"personalized_{way}" in rows:  # What silos have under one way of choosing.
            tuned = dataclasses.replace(values, personalized=rows[f"personalized_{way}"].to_numpy())
            row |= metrics.of_way(way, _candidate(rows, f"candidate_{way}"), tuned)
    return row


def _candidate(rows: "pd.DataFrame", column: str) -> str | None:
    return candidate_labels.of_clients(rows[column].unique()) if column in rows else None


def _summary_notes(evaluation: Evaluation) -> Iterable[str]:
    values, name = evaluation.values, _name(evaluation)
    if not evaluation.is_personalized:
        yield f"{name}: one model, called the baseline; no personalized values, no gains"
    elif values.clusters is not None and values.groups is None:
        yield f"{name}: {' and '.join(_GROUPED)} need a column 'group', which its clients lack"
    models: tuple[client_values.Column, ...] = ("baseline", "personalized")
    for column in models:
        if diverged := int(np.sum(values.has_diverged(column))):
            yield f"{name}: the {column} model of {diverged} clients diverged; no mean is over them"
    if unscored := int(np.sum(~values.is_scored)):
        yield f"{name}: {unscored} clients have nothing to be scored on and count nowhere"
    if evaluation.is_personalized and not np.any(values.finite("delta")):
        yield f"{name}: no client's value changes, so there is no wilcoxon_p"


def compare(evaluations: Evaluations, anyway: bool = False) -> Tables:
    """Returns runs side by side on the clients that all have, and a row for each client.

    Differences are from the first run of the same split and seed, positive where a run is better. A
    split of one run only is left out. UserError if there is one run, no split or no client is in
    several, metrics differ, a run has several rounds, or, unless they are compared `anyway`, runs
    are not scored on the same.
    """
    names = dict.fromkeys(str(e.keys["run_id"]) for e in evaluations)
    if len(names) < 2:
        raise UserError("--compare", ", ".join(names), "two runs or more")
    has_seeds = len({e.keys.get("base_random_seed") for e in evaluations}) > 1
    # Apart by their seeds, or, where no two runs have one in common, anyway together.
    for by_seed in (True, False) if has_seeds and anyway else (has_seeds,):
        splits = _by_split(evaluations, by_seed)
        if max(map(len, splits.values())) > 1:
            break
    else:
        listed = ", ".join(f"{split} of {next(iter(runs))}" for split, runs in splits.items())
        advice = "give runs of one seed, or --anyway" if has_seeds else ""
        raise UserError("--compare", listed, "a split that two runs have", advice)
    rows: list[dict[str, Any]] = []
    clients, notes = [], []
    for split, runs in splits.items():
        if absent := [name for name in names if name not in runs]:
            notes.append(f"split {split}: not in {', '.join(absent)}")
        if len(runs) < 2:
            continue
        joined, left_out = _join(split, runs, anyway)
        notes.extend(left_out)
        first = next(iter(runs))
        for name, run in runs.items():
            is_first = name == first
            row = _compared(run, joined[name], None if is_first else joined[first])
            rows.append(row if is_first else row | _on_examples(runs[first], run, joined))
            if name != first and joined[name].equals(joined[first]):
                notes.append(f"{_name(run)}: no client differs from {first}: no wilcoxon_p")
        keys = {name: runs[first].keys.get(name, "") for name in ("base_random_seed", "split")}
        clients.append((keys, joined))
    counts = ("num_clients", "num_left_out", "num_diverged")
    seeds = ("base_random_seed",) if has_seeds else ()
    columns = (*_COMPARED, *seeds, *counts, "mean", "std", *_DIFFERENCES, *_ON_EXAMPLES)
    own = ShownTable((*seeds, "split", "client_id", *names), _client_rows(clients))
    return ShownTable(_present(columns, rows), rows, notes), own


def _by_split(evaluations: Evaluations, has_seeds: bool) -> dict[str, dict[str, Evaluation]]:
    """Returns `{split: {run: evaluation}}`; those of several seeds are apart."""
    by_split: dict[str, dict[str, Evaluation]] = {}
    for evaluation in evaluations:
        split = evaluation.keys.get("split", "")
        if has_seeds:
            split = f"{split} of seed {evaluation.keys.get('base_random_seed', '')}".strip()
        runs = by_split.setdefault(split, {})
        run = str(evaluation.keys["run_id"])
        if run in runs:
            raise UserError(run, "several rounds", "one to compare", "name it by --round")
        runs[run] = evaluation
    return by_split


def _join(
    split: str,
    runs: Runs,
    anyway: bool,
    baselines: Sequence[str] = (),
) -> tuple["pd.DataFrame", list[str]]:
    """Returns a column a run of the clients that all have, and notes on the others.

    Of each run the metric under each client's own model; of those named in `baselines`, and where
    there is no other, under the baseline. UserError if no client is in all, metrics differ, or,
    unless they are compared `anyway`, runs are not scored on the same.
    """
    import pandas as pd  # Takes 0.3 s.

    kinds = {(run.metric, run.values.higher_is_better): name for name, run in runs.items()}
    if len(kinds) > 1:
        listed = ", ".join(
            f"{metric} of {name} ({'higher' if higher else 'lower'} is better)"
            for (metric, higher), name in kinds.items()
        )
        raise UserError("the runs' metrics", listed, "the same")
    columns = {}
    for name, run in runs.items():
        values, is_personal = run.values, run.is_personalized and name not in baselines
        model = values.personalized if is_personal else values.baseline
        columns[name] = pd.Series(model, pd.Index(values.client_ids, name="client_id"))
    joined = pd.concat(columns, axis=1, join="inner")
    if joined.empty:
        raise UserError(", ".join(columns), "no client that is in all", "the same clients")
    data, rows = ({n: getattr(run, part) for n, run in runs.items()} for part in ("data", "rows"))
    unlike = comparable.check(data, rows, anyway)
    joined, notes = _without_missing(split, joined, next(iter(runs.values())).values)
    return joined, unlike + notes + [
        f"{name} {split}: {len(absent)} clients are not in all runs and left out: "
        f"{', '.join(absent[:_LISTED])}{', ...' if len(absent) > _LISTED else ''}"
        for name, column in columns.items()
        if len(absent := column.index.difference(joined.index, sort=False))
    ]


def _without_missing(
    split: str, joined: "pd.DataFrame", values: client_values.ClientValues
) -> tuple["pd.DataFrame", list[str]]:
    """Returns runs' values with those of models that diverged, and notes on how many these are:
    where one run has a value of a client, another's missing one is of such a model.
    """
    is_missing = joined.isna()
    is_unscored = is_missing.all(axis=1)
    worst = -np.inf if values.higher_is_better else np.inf
    joined = joined.mask(is_missing.mul(~is_unscored, axis=0), worst)
    notes = [
        f"{' '.join(filter(None, (name, split)))}: the model of {diverged} clients diverged; no "
        "mean is over them"
        for name, column in joined.items()
        if (diverged := int(np.isinf(column).sum()))
    ]
    if unscored := int(is_unscored.sum()):
        notes.append(f"{unscored} clients have nothing to be scored on and count nowhere")
    return joined, notes


def _compared(run: Evaluation, values: "pd.Series", first: "pd.Series | None") -> dict[str, Any]:
    before, higher = values if first is None else first, run.values.higher_is_better
    arrays = (values.index.to_numpy(), before.to_numpy(), values.to_numpy())
    pair = client_values.ClientValues(*arrays, higher, None)
    row = _counted(run, values) | {
        "num_diverged": int(np.sum(pair.has_diverged("personalized"))),
        "mean": statistics.mean(pair, "personalized"),
        "std": statistics.std(pair, "personalized"),
    }
    if first is None:
        return row
    return row | {name: metrics.POPULATION[metric](pair) for name, metric in _DIFFERENCES.items()}


def _on_examples(first: Evaluation, run: Evaluation, joined: "pd.DataFrame") -> dict[str, Any]:
    """Returns who is truly worse off with a run than with the first one, of test clients."""
    if run.keys.get("split") != "test":
        return {}
    ids = joined.index.to_numpy()
    evidence = shared_examples.evidence(first, run, ids)
    if evidence is None:
        return {}
    pair = client_values.ClientValues(
        ids,
        np.zeros(len(ids)),
        evidence.delta,
        True,
        evidence.num_examples,
        delta_se=evidence.delta_se,
        num_gained=evidence.num_gained,
        num_lost=evidence.num_lost,
        hurt_margin=true_effects.MARGIN,
    )
    return {name: metrics.POPULATION[metric](pair) for name, metric in _ON_EXAMPLES.items()}


def _client_rows(
    tables: Iterable[tuple[Mapping[str, Any], "pd.DataFrame"]],
) -> Iterable[dict[str, Any]]:
    for keys, joined in tables:
        for row in joined.reset_index().to_dict("records"):
            yield {**keys, **row}


def quantum(
    evaluations: Evaluations,
    global_runs: Evaluations | None,
    local_runs: Evaluations | None,
    anyway: bool = False,
) -> Tables:
    """Returns the quantum of improvement of each evaluation, and a row for each client.

    The global models are the baselines of `global_runs`, of each evaluation without them; the local
    ones are the personalized (or only) models of `local_runs`, and are left out without them.
    UserError if one of them lacks a split, clients or metrics do not fit, or, unless they are
    compared `anyway`, runs are not scored on the same.
    """
    rows: list[dict[str, Any]] = []
    clients, notes = [], []
    for evaluation in evaluations:
        split = evaluation.keys.get("split", "")
        runs = {"personalized": evaluation, "global": evaluation}
        for model, references in (("global", global_runs), ("local", local_runs)):
            if references is not None:
                runs[model] = _of_split(model, references, evaluation.keys)
        joined, left_out = _join(split, runs, anyway, baselines=("global",))
        arrays = {name: column.to_numpy() for name, column in joined.items()}
        gains = quantum_lib.quantum(
            arrays["personalized"], arrays["global"], arrays.get("local"),
            evaluation.values.higher_is_better,
        )  # fmt: skip
        statistics_of_gains = {name: f(gains) for name, f in quantum_lib.QUANTUM.items()}
        rows.append(_counted(evaluation, gains) | statistics_of_gains)
        notes += left_out
        verbs = [verb for verb, part in _PARTS.items() if not len(part(gains))]
        nobody = "{}: nobody {}, so what is over those that do is empty"
        notes += [nobody.format(_name(evaluation), verb) for verb in verbs]
        clients.append((evaluation.keys, joined.assign(quantum=gains)))
    columns = (*_COMPARED, "num_clients", "num_left_out", *quantum_lib.QUANTUM)
    client_columns = (*_COMPARED, "client_id", "personalized", "global", "local", "quantum")
    own = ShownTable(client_columns, _client_rows(clients))
    return ShownTable(_present(columns, rows), rows, notes), own


def _of_split(flag: str, evaluations: Evaluations, keys: Mapping[str, Any]) -> Evaluation:
    """Returns the one evaluation of a split, of several seeds that of the same one; `_join` tells
    whether one of another seed is scored on the same.
    """
    split, seed = keys.get("split", ""), keys.get("base_random_seed")
    matching = [e for e in evaluations if e.keys.get("split", "") == split]
    if len(matching) > 1:
        matching = [e for e in matching if e.keys.get("base_random_seed") == seed]
    if len(matching) != 1:
        splits = ", ".join(_name(e) for e in evaluations)
        raise UserError(f"--{flag}", splits, f"one run with a split {split!r}")
    return matching[0]


def _counted(evaluation: Evaluation, clients: Sized) -> dict[str, Any]:
    """Returns an evaluation's keys, and how many of its clients count."""
    counts = {"num_clients": len(clients), "num_left_out": len(evaluation.rows) - len(clients)}
    return {**evaluation.keys, **counts}


def roc_aucs(tables: Iterable["pd.DataFrame"], is_secure: bool = False) -> Tables:
    """Returns pooled and averaged ROC-AUC of each model in scores, and a row for each client; with
    `is_secure` also the averages that TFF's secure aggregation gives.
    """
    each: list[roc_auc.ClientRocAucs] = []
    rows: list[dict[str, Any]] = []
    clients: list[dict[str, Any]] = []
    names = (*columns_lib.RUN, "class")
    for table in tables:
        for key, group in table.groupby(list(names), sort=False):
            keys = dict(zip(names, key, strict=True))
            ids, labels = group["client_id"].to_numpy(), group["label"].to_numpy()
            for model in columns_lib.MODELS:
                scores = group[f"{model}_score"].to_numpy()
                aucs = roc_auc.of_clients(ids, labels, scores)
                each.append(aucs)
                rows.append({**keys, "model": model, **_roc_auc_row(ids, labels, scores, aucs)})
                for values in zip(*aucs, strict=True):
                    own = dict(zip(_ROC_AUC_CLIENT, values, strict=True))
                    clients.append({**keys, "model": model, **own})
    if is_secure:
        for row, averages in zip(rows, secure_averages(each), strict=True):
            row |= averages
    has_classes = any(row["class"] for row in rows)
    model_keys = (*_COMPARED, *(["class"] if has_classes else []), "model")
    columns = (*model_keys, *_ROC_AUC, *(SECURE if is_secure else ()))
    notes = list(_roc_auc_notes(rows))
    return ShownTable(columns, rows, notes), ShownTable((*model_keys, *_ROC_AUC_CLIENT), clients)


def _roc_auc_row(
    ids: np.ndarray, labels: np.ndarray, scores: np.ndarray, aucs: roc_auc.ClientRocAucs
) -> dict[str, Any]:
    num_clients = len(np.unique(ids))
    row: dict[str, Any] = {
        "num_clients": num_clients,
        "num_one_class_clients": int(np.sum(aucs.num_positives * aucs.num_negatives == 0)),
        "num_diverged": num_clients - len(aucs.client_ids),
        **roc_auc.summarize(ids, labels, scores)._asdict(),
    }
    tests = roc_auc.homogeneities(ids, labels, scores)
    for name, test in zip(("negatives", "positives"), tests, strict=True):
        row |= {f"{name}_statistic": test.statistic, f"{name}_p": test.p_value}
    return row | {"equals_pooled": roc_auc.equals_pooled(aucs, *tests)}


def _roc_auc_notes(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for row in rows:
        model = " ".join(filter(None, (row[key] for key in ("run_id", "split", "class", "model"))))
        if lost := row["num_diverged"]:
            yield f"{model}: {lost} clients have scores that are not finite; no value is over them"
        if lost := row["num_one_class_clients"]:
            yield (
                f"{model}: {lost} clients have one class only; averages leave them out, the pooled "
                "value does not"
            )


def secure_averages(groups: Sequence[roc_auc.ClientRocAucs]) -> list[dict[str, float]]:
    """Returns each group's averages, by their columns, from one secure sum over all clients.

    A client sends, for every group and average, its weight as a share of the largest, and its
    ROC-AUC times that: the sums' ratio is the average. How large weights can be is agreed on
    before; here it is the largest there is. Pooled values cannot be had in this way.
    """
    if not groups:
        return []
    from motley_tff.backends.tff.secure_sum import secure_sum  # TFF takes seconds to import.

    ids = np.unique(np.concatenate([group.client_ids for group in groups]))
    sent = np.zeros((len(ids), len(groups), len(SECURE), 2), np.float64)
    for i, group in enumerate(groups):
        rows = np.searchsorted(ids, group.client_ids)
        for j, weights in enumerate(roc_auc.weights(group).values()):
            shares = weights / max(1, weights.max())
            sent[rows, i, j] = np.stack([shares * np.nan_to_num(group.roc_auc), shares], axis=1)
    warn = functools.partial(print, file=sys.stderr)
    sums = secure_sum(sent.reshape(len(ids), -1), warn).reshape(sent.shape[1:])
    with np.errstate(invalid="ignore"):  # Of no client with both classes there is no average.
        means = sums[..., 0] / sums[..., 1]
    return [dict(zip(SECURE, row.tolist(), strict=True)) for row in means]
