"""motley_roc_auc: when an average over devices is the ROC-AUC of all examples pooled.

    motley_roc_auc --seeds=200 --output_dir=results/roc_auc

Draws the four cases of the article (motley_tff.metrics.roc_auc_cases says which) under many seeds
and prints what they come to beside the exact values. --output_dir gets a row for each seed and
case, roc_auc_cases.csv, and the first seed's scores, which motley_report draws: densities by
device, ROC curves, and the pooled value beside the averages.
"""

import errno
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from motley_tff.metrics import roc_auc, roc_auc_cases
from motley_tff.tables import columns

FLAGS = flags.FLAGS

flags.DEFINE_integer("seeds", 200, "How many draws, of the seeds 0, 1, ...", lower_bound=2)
flags.DEFINE_string("output_dir", None, "Directory that gets tables and scores.")

_AVERAGES = ("pooled", "mean_over_clients", "weighted_by_positives", "weighted_by_negatives")
# Standard errors of a mean over seeds, of many; of few as many as are as rare.
_MOST_ERRORS = 4.0

Rows = list[dict[str, Any]]


def main() -> int:
    """Draws, prints, and writes; returns 1 if a mean is not within its error of the exact value."""
    folder = None if FLAGS.output_dir is None else _made(FLAGS.output_dir)
    rows, first = _draw(FLAGS.seeds)
    if folder is not None:
        _write(folder, rows, first)
    return _print(rows)


def _made(name: str) -> pathlib.Path:
    """Makes the directory, and one for each case; UserError if that cannot be."""
    folder = pathlib.Path(os.path.expanduser(name))
    try:
        if not name:
            raise FileNotFoundError(errno.ENOENT, "found no name")
        for case in roc_auc_cases.CASES:
            (folder / f"case_{case}").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--output_dir={name}: {error.strerror}; expected a directory or a name for one"
        ) from error
    return folder


def _draw(num_seeds: int) -> tuple[Rows, Mapping[str, roc_auc_cases.Scores]]:
    """Returns a row for each seed and case, and the first seed's scores."""
    rows: Rows = []
    first: Mapping[str, roc_auc_cases.Scores] = {}
    for seed in range(num_seeds):
        commandline.raise_if_ended()
        drawn = roc_auc_cases.draw(np.random.default_rng(seed))
        first = first or drawn
        for case, scores in drawn.items():
            found, own = roc_auc.summarize(*scores), roc_auc.of_clients(*scores)
            devices = {f"device_{m}": value for m, value in enumerate(own.roc_auc.tolist(), 1)}
            verdict = roc_auc.equals_pooled(own, *roc_auc.homogeneities(*scores))
            kept = {name: getattr(found, name) for name in _AVERAGES}
            rows.append({"base_random_seed": seed, "case": case, **kept, **devices,
                         "equals_pooled": verdict})  # fmt: skip
    return rows, first


def _write(folder: pathlib.Path, rows: Rows, first: Mapping[str, roc_auc_cases.Scores]) -> None:
    csv_files.write(folder / "roc_auc_cases.csv", list(rows[0]), rows)
    for case, (ids, labels, scores) in first.items():
        path = folder / f"case_{case}"
        keys = {
            "run_id": path.name, "dataset": "normal", "algorithm": "none", "base_random_seed": 0,
            "round": 0, "split": "test", "class": None,
        }  # fmt: skip
        examples = zip(ids.tolist(), labels.tolist(), scores.tolist(), strict=True)
        csv_files.write(path / "scores.csv", columns.names("scores"), (
            {**keys, "client_id": device, "label": label, "baseline_score": score,
             "personalized_score": score}
            for device, label, score in examples
        ))  # fmt: skip
        print(path / "scores.csv")
    print(folder / "roc_auc_cases.csv", end="\n\n")


def _print(rows: Sequence[Mapping[str, Any]]) -> int:
    from scipy import stats  # Takes 0.4 s.

    devices = [f"device_{m}" for m in range(1, roc_auc_cases.NUM_DEVICES + 1)]
    shown = ("pooled", "mean_over_clients", *devices)
    lines: list[Sequence[str]] = [("case", "", *shown)]
    beyond = 0
    limit = stats.t.isf(stats.norm.sf(_MOST_ERRORS), len(rows) // len(roc_auc_cases.CASES) - 1)
    for case in roc_auc_cases.CASES:
        own = [row for row in rows if row["case"] == case]
        exact = roc_auc_cases.exact(case)
        truth = (exact.pooled, exact.mean, *exact.devices)
        values = np.array([[row[name] for name in shown] for row in own])
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        apart = np.abs(mean - truth) * np.sqrt(len(own))
        # A device that is always right has no deviation.
        errors = np.divide(apart, deviation, out=np.zeros_like(apart), where=deviation > 0)
        beyond += int((errors > limit).sum())
        cells = (f"{m:.4f} ± {d:.4f}" for m, d in zip(mean, deviation, strict=True))
        lines.append((case, "mean ± std", *cells))
        lines.append(("", "exact", *(f"{value:.4f}" for value in truth)))
        lines.append(("", "off by, std errors", *(f"{error:.1f}" for error in errors)))
        verdicts = [row["equals_pooled"] or "unknown" for row in own]
        most = max(set(verdicts), key=verdicts.count)
        share = 100.0 * verdicts.count(most) / len(verdicts)
        lines.append(("", "tests say", f"{most} ({share:.0f}%)", *[""] * (len(shown) - 1)))
    print("\n".join(text_tables.aligned(lines)))
    if beyond:
        print(f"{beyond} means are more than {limit:.3g} standard errors off")
    return int(beyond > 0)


run = functools.partial(commandline.run_main, main)

if __name__ == "__main__":
    run()
