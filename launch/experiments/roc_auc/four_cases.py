"""Draws the four cases of "ROC-AUC in the federated learning mode" (polypoly, 2022).

    ./launch/run python launch/experiments/roc_auc/four_cases.py --output_dir=DIR

Four devices have 500 negatives and 500 positives each. Scores of negatives are normal with mean -16
and deviation 20, those of positives with mean 16 and deviation 10: pooled, the ROC-AUC is
Phi(32 / sqrt(500)) = 0.9238. The article's 0.919 is one draw, and so are its devices' values.

| case | negatives | positives | what equals the pooled value |
|---|---|---|---|
| 1 | alike | alike | each device's own |
| 2.1 | alike | sorted | the mean weighted by positives |
| 2.2 | sorted | alike | the mean weighted by negatives (the article's last lines say positives) |
| 2.3 | sorted | sorted | nothing: the mean is 0.985 |

*Sorted* deals the same scores in order: the lowest quarter goes to the first device, and so on. In
the limit of many examples a device has a quarter of the distribution.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from motley_tff import commandline
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from motley_tff.metrics import roc_auc
from motley_tff.tables import columns

FLAGS = flags.FLAGS
NUM_DEVICES, NUM_EACH = 4, 500
_NEGATIVES, _POSITIVES = (-16.0, 20.0), (16.0, 10.0)
# Which class is dealt in order: (negatives, positives).
CASES = {"1": (False, False), "2.1": (False, True), "2.2": (True, False), "2.3": (True, True)}
_AVERAGES = ("pooled", "mean_over_clients", "weighted_by_positives", "weighted_by_negatives")
_DEVICES = [f"device_{m}" for m in range(1, NUM_DEVICES + 1)]
_SHOWN = ("pooled", "mean_over_clients", *_DEVICES)
# Devices, labels and scores of all examples, [num_examples] each.
Examples = tuple[np.ndarray, np.ndarray, np.ndarray]

flags.DEFINE_integer("seeds", 200, "How many draws, of the seeds 0, 1, ...", lower_bound=2)
flags.DEFINE_string("output_dir", None, "Directory of tables and figures.", required=True)
flags.register_validator("output_dir", lambda name: name != "", "expected a directory's name")


def main() -> int:
    """Draws, writes, and prints; returns 1 if a mean is not within its error of the exact value."""
    folder, rows = pathlib.Path(os.path.expanduser(FLAGS.output_dir)), []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        expected = f"a directory, or the name of one to make ({error.strerror})"
        raise UserError(errors.name("output_dir"), str(folder), expected) from error
    for seed in range(FLAGS.seeds):
        commandline.raise_if_ended()
        for case, examples in draw(np.random.default_rng(seed)).items():
            rows.append({"base_random_seed": seed, "case": case, **_scored(examples)})
    csv_files.write(folder / "roc_auc_cases.csv", list(rows[0]), rows)
    print(folder / "roc_auc_cases.csv")
    for case, examples in draw(np.random.default_rng(0)).items():
        _show(folder / f"case_{case}", examples)
    return _print(rows)


def draw(rng: np.random.Generator) -> dict[str, Examples]:
    """Returns the examples of every case: the same scores, dealt in four ways."""
    num = NUM_DEVICES * NUM_EACH
    classes = [rng.normal(*moments, num) for moments in (_NEGATIVES, _POSITIVES)]
    devices = np.tile(np.repeat([name.replace("_", " ") for name in _DEVICES], NUM_EACH), 2)
    dealt = {
        case: [np.sort(s) if is_sorted[label] else s for label, s in enumerate(classes)]
        for case, is_sorted in CASES.items()
    }
    labels = np.repeat([0, 1], num)
    return {case: (devices, labels, np.concatenate(scores)) for case, scores in dealt.items()}


def exact(case: str) -> list[float]:
    """Returns a case's ROC-AUC in the limit of many examples, by quadrature, to 1e-7: pooled, the
    mean over devices, and each device's. Devices have as many of both, so all averages are equal.
    """
    from scipy import stats  # Takes 0.4 s.

    sorted_negatives, sorted_positives = CASES[case]
    quantiles = (np.arange(200_000) + 0.5) / 200_000
    # How many of all negatives are below a positive of each quantile.
    below = stats.norm(*_NEGATIVES).cdf(stats.norm(*_POSITIVES).ppf(quantiles))
    devices = []
    for m in range(NUM_DEVICES):
        own = np.clip(NUM_DEVICES * below - m, 0.0, 1.0) if sorted_negatives else below
        own = np.split(own, NUM_DEVICES)[m] if sorted_positives else own
        devices.append(float(own.mean()))
    return [float(below.mean()), float(np.mean(devices)), *devices]


def _scored(examples: Examples) -> dict[str, Any]:
    """Returns the averages, each device's ROC-AUC, and which averages tests say may be trusted."""
    auc, own = roc_auc.summarize(*examples), roc_auc.of_clients(*examples)
    return {
        **{name: getattr(auc, name) for name in _AVERAGES},
        **dict(zip(_DEVICES, own.roc_auc.tolist(), strict=True)),
        "equals_pooled": roc_auc.equals_pooled(own, *roc_auc.homogeneities(*examples)),
    }


def _show(folder: pathlib.Path, examples: Examples) -> None:
    """Writes a case's scores.csv, as runs leave it, and the figures that the report draws of it."""
    from launch.report import score_figures, style  # Matplotlib takes 0.5 s.

    folder.mkdir(exist_ok=True)
    keys = {"run_id": folder.name, "dataset": "normal", "algorithm": "none", "base_random_seed": 0,
            "round": 0, "split": "test", "class": None}  # fmt: skip
    each = zip(*(values.tolist() for values in examples), strict=True)
    csv_files.write(folder / "scores.csv", columns.names("scores"), (
        {**keys, "client_id": device, "label": label, "baseline_score": score,
         "personalized_score": score}
        for device, label, score in each
    ))  # fmt: skip
    with style.settings():
        for drawn in score_figures.draw(folder / "scores.csv"):
            style.save(drawn.figure, folder, drawn.name, "svg")
    print(folder)


def _print(rows: Sequence[Mapping[str, Any]]) -> int:
    """Prints what the cases come to; returns 1 if a mean is too far off the exact value."""
    from scipy import stats

    lines: list[Sequence[str]] = [("case", "", *_SHOWN)]
    beyond, num = 0, len(rows) // len(CASES)
    # What means of many seeds are off by as rarely as by 4 standard errors.
    limit = stats.t.isf(stats.norm.sf(4.0), num - 1)
    for case in CASES:
        own = [row for row in rows if row["case"] == case]
        truth, values = exact(case), np.array([[row[name] for name in _SHOWN] for row in own])
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        apart = np.abs(mean - truth) * np.sqrt(num)
        # A device that is always right has no deviation.
        errors = np.divide(apart, deviation, out=np.zeros_like(apart), where=deviation > 0)
        beyond += int((errors > limit).sum())
        cells = (f"{m:.4f} ± {d:.4f}" for m, d in zip(mean, deviation, strict=True))
        lines.append((case, "mean ± std", *cells))
        lines.append(("", "exact", *(f"{value:.4f}" for value in truth)))
        lines.append(("", "off by, std errors", *(f"{error:.1f}" for error in errors)))
        verdicts = [row["equals_pooled"] or "unknown" for row in own]
        most = max(set(verdicts), key=verdicts.count)
        share = f"{most} ({100.0 * verdicts.count(most) / num:.0f}%)"
        lines.append(("", "tests say", share, *[""] * (len(_SHOWN) - 1)))
    print("", *text_tables.aligned(lines), sep="\n")
    if beyond:
        print(f"{beyond} means are more than {limit:.3g} standard errors off")
    return int(beyond > 0)


if __name__ == "__main__":
    commandline.run_main(main)
