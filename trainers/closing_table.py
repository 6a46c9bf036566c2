"""What a trainer prints at its end: a table, what its numbers mean, and where the files are."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import datasets
from motley_tff.experiment import accounting, run_directory, summaries
from motley_tff.experiment.run_directory import RunDirectory
from motley_tff.files import csv_files, text_tables
from motley_tff.tables import columns
from trainers import config, sentences

_FURTHER_HEADER = ("metric", "split", "baseline", "personalized", "clients without a value")
_HEADER = ("split", "clients", "candidate", "baseline", "personalized", "% hurt (95% interval)")


def show(directory: RunDirectory, settings: config.Config) -> None:
    """Prints the closing table of a run, of its last evaluation or the best one."""
    record = directory.record
    metric, higher_is_better = record["metric"], record["higher_is_better"]
    title, rows = metric, summaries.last(directory)
    if settings.selects_round:
        rows = summaries.selected(directory)
        title += f" after round {rows[0]['round']} (the best on validation clients)"
    if "tuning_metric" in record:
        title += f", chosen by {record['tuning_metric']}"
    title += ", mean and std over clients; backend: "
    title += f"{record['backend']} ({record['backend_reason']})"
    if (noise := record.get("dp_added_noise")) is not None:
        title += f"; noise added to a round's sum: {noise:.3g} times the clipping norm"
    constants = _constants(record, rows)
    (test,) = (row for row in rows if row["split"] == "test")
    lines = sentences.chosen_rates(record.get(run_directory.RATES, {}))
    counted = record.get(accounting.KEY, {})
    are_silos = datasets.setting(settings.data.dataset_name, settings.data.setting) == "cross_silo"
    if counted and settings.selects_round and are_silos:
        counted = {"reason": accounting.CHOSEN_ROUND}
    # Where a round is chosen, all that were trained had a say.
    spent = summaries.last(directory)[0].get("epsilon", "")
    lines += sentences.privacy(counted, "" if "reason" in counted else spent)
    lines += sentences.values_that_do_not_exist(rows)
    lines += sentences.worse_than_nothing(test, metric, higher_is_better, constants)
    lines += sentences.nothing_to_choose_by(rows, record.get("tuning_metric"))
    if (stop_after := settings.run.loop.stop_after) is not None:
        total_rounds = record["configuration"]["loop.total_rounds"]
        lines += sentences.ended_early(summaries.rounds(directory)[-1], total_rounds, stop_after)
    further = _further_metrics(rows)
    if metric == "accuracy" and not further:
        lines += sentences.rare_classes(constants)
    first = [directory.table(name) for name in ("summary", "clients", "candidates", "rounds")]
    others = sorted(set(directory.path.glob("*.csv")) - set(first))  # Of flags: sizes.csv, say.
    paths = [*first, *others, directory.path / "run.json"]
    if settings.generator is None:
        lines += _on_clients(directory, settings, rows)
    else:
        paths.append(directory.generated)
        if any(directory.generated.glob("round_*.npz")):  # None with --num_generated=0.
            paths.append(directory.figures)
            lines.append(
                f"to score its pictures, in {directory.generated.name}: motley_generative "
                f"--run={shlex.quote(str(directory.path))} --features=pca:64"
            )
    print(f"\n{title}\n", *_aligned([_HEADER, *map(_cells, rows)]), sep="\n")
    if further:
        print("", *_aligned([_FURTHER_HEADER, *further]), sep="\n")
    if constants:
        splits = [row["split"] for row in rows]
        values = [
            [name, *(f"{of_split[split]:.5g}" if split in of_split else "-" for split in splits)]
            for name, of_split in constants.items()
        ]
        print("", *_aligned([["without a model", *splits], *values]), sep="\n")
    print(*(f"\n{line}" for line in lines), "", *paths, sep="\n", flush=True)


def _further_metrics(rows: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Returns a line of each split for each metric of `--metrics` and `--tuning_metric`."""
    prefix = "num_unscored_"
    names = [name.removeprefix(prefix) for name in rows[0] if name.startswith(prefix)]
    return [
        (name, row["split"], *(_number(row[f"{model}_{name}_mean"]) for model in columns.MODELS),
         f"{row[prefix + name]} of {row['num_clients']}")
        for name in names for row in rows
    ]  # fmt: skip


def _number(cell: str) -> str:
    return f"{float(cell):.5g}" if cell else "-"


def _constants(
    record: Mapping[str, Any], rows: Sequence[Mapping[str, str]]
) -> dict[str, Mapping[str, float]]:
    """Returns `{name: {split: score}}` of what is known without a model."""
    words = {r["split"]: float(r["reference_mean"]) for r in rows if r.get("reference_mean")}
    constants = {
        sentences.ONE_CONSTANT: record.get("constant_prediction"),
        **record.get("own_constant_prediction", {}),
        sentences.FREQUENT_WORD: words,
    }
    return {name: of_split for name, of_split in constants.items() if of_split}


def _on_clients(
    directory: RunDirectory, settings: config.Config, rows: Sequence[Mapping[str, str]]
) -> list[str]:
    """Returns lines on an evaluation's clients, by its rows of `summary.csv`."""
    record, evaluation = directory.record, settings.run.loop.evaluation
    clients = summaries.test_clients(directory, rows[0]["round"])
    # Earlier versions did not write down what was tried.
    labels, reason, tried = record.get("candidates", []), "", []
    valid = next(row for row in rows if row["split"] == "valid")
    if labels and valid["personalized_mean"]:  # Without a score nothing is the best.
        tried = sentences.last_tried(clients, labels)
        if sentences.nobody_changed(clients):
            reason = sentences.unchanged(clients, labels, evaluation.acceptance[0])
    if (path := directory.table("rounds")).exists():
        losses = [float(row["train_loss"] or "nan") for row in csv_files.read(path)]
        tried += sentences.still_falling(losses)
    if settings.selects_round:
        tried += sentences.last_round(summaries.rounds(directory), rows[0]["round"])
    num_clusters = getattr(settings.run.algorithm, "num_clusters", 1)
    collapse = sentences.mode_collapse(clients, num_clusters)
    (test,) = (row for row in rows if row["split"] == "test")
    chance = [] if reason else sentences.truly_hurt(test, clients)
    return [*collapse, *sentences.hurt_clients(clients, reason), *chance, *tried]


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    return [f"  {line}" for line in text_tables.aligned(cells, gap="   ")]


def _cells(row: Mapping[str, str]) -> tuple[str, ...]:
    means = ([row[f"{model}_{which}"] for which in ("mean", "std")] for model in _HEADER[3:5])
    models = (f"{float(m):.5g} ± {float(s):.3g}" if m and s else "-" for m, s in means)
    hurt = f"{float(row['pct_clients_hurt']):.1f}" if row["pct_clients_hurt"] else "-"
    ends = [row.get(f"pct_clients_hurt_{end}") for end in ("low", "high")]
    if all(ends):  # Earlier versions wrote none.
        hurt += " ({:.1f} to {:.1f})".format(*map(float, filter(None, ends)))
    return (row["split"], row["num_clients"], row["candidate"], *models, hurt)
