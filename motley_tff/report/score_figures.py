"""Figures of scores of examples: their densities by client, ROC curves, and what averages make of
them ("ROC-AUC in the federated learning mode", polypoly 2022).

Of many clients the eight with the most examples are drawn; all count in the averages.
"""

import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from motley_tff.metrics import roc_auc
from motley_tff.report import style
from motley_tff.report.style import Drawn
from motley_tff.tables import client_tables, columns

if TYPE_CHECKING:
    import pandas as pd

_MOST_CLIENTS = 8
_POINTS = 200
_AVERAGES = {
    "pooled": "pooled",
    "mean_over_clients": "mean over clients",
    "weighted_by_positives": "weighted by positives",
    "weighted_by_negatives": "weighted by negatives",
}
_VERDICTS = {
    "any": "tests find both classes alike: any average may be trusted",
    "weighted_by_positives": "tests find the negatives alike: the mean weighted by positives may "
    "be trusted",
    "weighted_by_negatives": "tests find the positives alike: the mean weighted by negatives may "
    "be trusted",
    "none": "tests find neither class alike: no average may be trusted",
    "left_out": "tests find the {} alike, but clients of one class are left out: no average may "
    "be trusted",
    "": "too few examples to tell which average may be trusted",
}

_LIKENESS = {True: "look alike", False: "differ", None: "are too few to compare"}


class _Examples(NamedTuple):
    """Finite scores, [num_examples] each."""

    ids: np.ndarray
    labels: np.ndarray
    scores: np.ndarray

    def of(self, client: str) -> "_Examples":
        return _Examples(*(values[self.ids == client] for values in self))

    @property
    def largest(self) -> list[str]:
        ids, counts = np.unique(self.ids, return_counts=True)
        return sorted(ids[np.argsort(-counts, kind="stable")][:_MOST_CLIENTS])


def draw(path: pathlib.Path, number: int | None = None) -> Iterator[Drawn]:
    """Yields the figures of a scores.csv, of a round's test clients; UserError if it is none.
    Within `style.settings`.

    Args:
      number: The round; without it, or where it has no scores, the last.
    """
    table = client_tables.read_scores(path)
    which: int | Literal["last"] = "last"
    if number is not None and number in set(table["round"]):
        which = number
    table = client_tables.choose(table, which, ["test"])
    is_known = np.isfinite(table[[f"{model}_score" for model in columns.MODELS]]).all(axis=1)
    lost, table = int((~is_known).sum()), table[is_known]
    by_class = {name: _models(rows) for name, rows in table.groupby("class", sort=False)}
    if not by_class:
        return
    name = ""
    if len(by_class) > 1:
        aucs = {name: roc_auc.summarize(*of["baseline"]) for name, of in by_class.items()}
        name = max(aucs, key=lambda c: np.nan_to_num(_gap(aucs[c]), nan=-1.0))
        yield _classes(aucs, name)
    notes = f" Class {name} against the rest." if name else ""
    if lost:
        notes += f" Left out: {lost:,} scores that are not finite."
    models = by_class.get(name) or next(iter(by_class.values()))
    for drawn in (
        _densities(models["baseline"]), _curves(models["baseline"]), _averages(models)
    ):  # fmt: skip
        yield drawn._replace(caption=drawn.caption + notes)


def _models(table: "pd.DataFrame") -> dict[str, "_Examples"]:
    """Returns the examples under each model, under one where both score alike."""
    examples = {model: _examples(table, model) for model in columns.MODELS}
    if np.array_equal(examples["baseline"].scores, examples["personalized"].scores):
        del examples["personalized"]
    return examples


def _gap(found: roc_auc.RocAuc) -> float:
    return abs(found.pooled - found.mean_over_clients)


def _classes(aucs: dict[str, roc_auc.RocAuc], widest: str) -> Drawn:
    """Draws each class's pooled value and averages; `widest` is the class of the largest gap."""
    figure, [[ax]] = style.panels(1, height=0.8 + 0.16 * len(aucs))
    places = np.arange(len(aucs))
    for name, look in style.styles(list(_AVERAGES)).items():
        values = [getattr(found, name) for found in aucs.values()]
        ax.scatter(values, places, s=12, color=look.colour, marker=look.marker,
                   label=_AVERAGES[name])  # fmt: skip
    ax.set_yticks(places, list(aucs), parse_math=False)
    ax.invert_yaxis()
    ax.set(xlabel="ROC-AUC, global model", ylabel="class")
    style.legend_below(figure, ax)
    found = aucs[widest]
    caption = (
        f"Each class against the rest. Class {widest} has the largest gap: pooled "
        f"{found.pooled:.4f}, mean over clients {found.mean_over_clients:.4f}."
    )
    return Drawn("classes", "ROC-AUC by class", figure, caption)


def _examples(table: "pd.DataFrame", model: str) -> _Examples:
    return _Examples(
        table["client_id"].to_numpy(str), table["label"].to_numpy(int),
        table[f"{model}_score"].to_numpy(float),
    )  # fmt: skip


def _densities(examples: _Examples) -> Drawn:
    figure, axes = style.panels(2, sharex=True)
    looks = style.styles(examples.largest)
    low, high = np.quantile(examples.scores, [0.001, 0.999])
    points = np.linspace(low, high, _POINTS)
    for ax, label, name in zip((row[0] for row in axes), (0, 1), ("negatives", "positives"),
                               strict=True):  # fmt: skip
        for client, look in looks.items():
            own = examples.of(client)
            density = _density(own.scores[own.labels == label], points)
            if density is not None:
                ax.plot(points, density, label=client, markevery=40, **look.options)
        ax.set_ylabel(f"density, {name}")
    axes[-1][0].set_xlabel("score")
    _legend(figure, looks, axes[0][0])
    negatives, positives = (_LIKENESS[of.is_alike] for of in roc_auc.homogeneities(*examples))
    caption = (
        f"The global model's scores: among clients negatives {negatives}, positives {positives} "
        f"(tested at 5%). {_shown(examples)}"
    )
    return Drawn("densities", "Densities of scores by client", figure, caption)


def _legend(figure: Figure, looks: dict[str, style.Style], ax: Axes) -> None:
    entries = {name: ax.plot([], [], **look.options)[0] for name, look in looks.items()}
    style.legend_of(figure, entries)


def _density(scores: np.ndarray, points: np.ndarray) -> np.ndarray | None:
    """Returns a smoothed density; None of too few scores, or all the same."""
    if len(scores) < 3 or np.ptp(scores) == 0:
        return None
    from scipy import stats  # Takes 0.4 s.

    return stats.gaussian_kde(scores)(points)


def _curves(examples: _Examples) -> Drawn:
    figure, [[ax]] = style.panels(1, height=2.6)
    looks = style.styles(examples.largest)
    for client, look in looks.items():
        own = examples.of(client)
        if 0 < own.labels.sum() < len(own.labels):
            ax.plot(*_curve(own), color=look.colour, linestyle=look.dashes, label=client)
    ax.plot(*_curve(examples), color=style.BLACK, linewidth=2.0, label="pooled")
    ax.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.6)
    ax.set(xlabel="false positive rate", ylabel="true positive rate")
    style.legend_below(figure, ax)
    pooled = roc_auc.roc_auc(examples.labels, examples.scores)
    caption = (
        f"ROC curves of the global model; the area under the pooled one is {pooled:.4f}. "
        f"{_shown(examples)}"
    )
    return Drawn("roc_curves", "ROC curves by client", figure, caption)


def _curve(examples: _Examples) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rates (false positives, true positives) at every threshold, highest first."""
    order = np.argsort(-examples.scores, kind="stable")
    scores, labels = examples.scores[order], examples.labels[order]
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    positives = np.cumsum(labels)[ends]
    negatives = ends + 1 - positives
    rates = (np.append(0, counts) / max(1, counts[-1]) for counts in (negatives, positives))
    return next(rates), next(rates)


def _averages(examples: dict[str, _Examples]) -> Drawn:
    figure, [[ax]] = style.panels(1, height=1.8)
    looks = style.styles(list(examples))
    width = 0.8 / len(examples)
    places = np.arange(len(_AVERAGES))
    for i, (model, of) in enumerate(examples.items()):
        found = roc_auc.summarize(*of)
        values = [getattr(found, name) for name in _AVERAGES]
        look = looks[model]
        bars = ax.barh(places + i * width, values, width * 0.9, color=look.colour,
                       hatch=look.hatch, edgecolor="white", label=model)  # fmt: skip
        ax.bar_label(bars, [f"{value:.4f}" for value in values], padding=2, fontsize=6.5)
    ax.set_yticks(places + width * (len(examples) - 1) / 2, list(_AVERAGES.values()))
    ax.invert_yaxis()
    ax.set(xlabel="ROC-AUC", xlim=(0.0, 1.2), xticks=np.linspace(0.0, 1.0, 6))
    if len(examples) > 1:
        style.legend_below(figure, ax)
    caption = "; ".join(f"{model}: {_verdict(of)}" for model, of in examples.items())
    return Drawn("averages", "Pooled ROC-AUC and averages over clients", figure, f"{caption}.")


def _verdict(examples: _Examples) -> str:
    negatives, positives = roc_auc.homogeneities(*examples)
    found = roc_auc.equals_pooled(roc_auc.of_clients(*examples), negatives, positives)
    if found == "none" and (negatives.is_alike or positives.is_alike):
        return _VERDICTS["left_out"].format("negatives" if negatives.is_alike else "positives")
    return _VERDICTS[found]


def _shown(examples: _Examples) -> str:
    number = len(np.unique(examples.ids))
    if number <= _MOST_CLIENTS:
        return f"{number} clients."
    return f"The {_MOST_CLIENTS} largest of {number} clients."
