"""Figures of scores of examples: their densities by client, ROC curves, and what averages make of
them ("ROC-AUC in the federated learning mode", polypoly 2022).

Of many clients the eight with the most examples are drawn; all count in the averages.
"""

import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from launch.report import style
from launch.report.style import Drawn
from motley_tff.metrics import roc_auc
from motley_tff.tables import client_tables, columns

if TYPE_CHECKING:
    import pandas as pd

_MOST_CLIENTS = 8
_AVERAGES = ("pooled", "mean_over_clients", "weighted_by_positives", "weighted_by_negatives")
_TITLES = [name.replace("_", " ") for name in _AVERAGES]
_LIKENESS = {True: "alike", False: "differ", None: "too few to compare"}


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
    by_class = {name: _models(rows) for name, rows in table[is_known].groupby("class", sort=False)}
    if not by_class:
        return
    name = next(iter(by_class))
    if len(by_class) > 1:
        aucs = {name: roc_auc.summarize(*models["baseline"]) for name, models in by_class.items()}
        gaps = {name: abs(auc.pooled - auc.mean_over_clients) for name, auc in aucs.items()}
        name = max(gaps, key=lambda c: np.nan_to_num(gaps[c], nan=-1.0))
        yield _classes(aucs)
    facts: dict[str, Any] = {"class, against the rest": name} if len(by_class) > 1 else {}
    if lost := int((~is_known).sum()):
        facts["left out, not finite"] = lost
    global_model = by_class[name]["baseline"]
    yield _densities(global_model, facts)
    yield _curves(global_model)
    yield _averages(by_class[name])


def _models(table: "pd.DataFrame") -> dict[str, _Examples]:
    """Returns the examples under each model, under one where both score alike."""
    ids, labels = table["client_id"].to_numpy(str), table["label"].to_numpy(int)
    examples = {
        model: _Examples(ids, labels, table[f"{model}_score"].to_numpy(float))
        for model in columns.MODELS
    }
    if np.array_equal(examples["baseline"].scores, examples["personalized"].scores):
        del examples["personalized"]
    return examples


def _classes(aucs: dict[Any, roc_auc.RocAuc]) -> Drawn:
    """Draws each class's pooled value and averages."""
    figure, [[ax]] = style.panels(1, height=0.8 + 0.16 * len(aucs))
    places = np.arange(len(aucs))
    for name, look in style.styles(_AVERAGES).items():
        values = [getattr(auc, name) for auc in aucs.values()]
        label = name.replace("_", " ")
        ax.scatter(values, places, s=12, color=look.colour, marker=look.marker, label=label)
    ax.set_yticks(places, list(aucs), parse_math=False)
    ax.invert_yaxis()
    ax.set(xlabel="ROC-AUC, global model", ylabel="class")
    style.legend_below(figure, ax)
    return Drawn("classes", figure, [{"class": name, **_numbers(aucs[name])} for name in aucs])


def _numbers(auc: roc_auc.RocAuc) -> dict[str, float]:
    return dict(zip(_TITLES, (getattr(auc, name) for name in _AVERAGES), strict=True))


def _densities(examples: _Examples, facts: dict[str, Any]) -> Drawn:
    figure, axes = style.panels(2, sharex=True)
    looks = style.styles(examples.largest)
    low, high = np.quantile(examples.scores, [0.001, 0.999])
    for [ax], label, name in zip(axes, (0, 1), ("negatives", "positives"), strict=True):
        for client, look in looks.items():
            own = examples.of(client)
            style.density(ax, client, own.scores[own.labels == label], (low, high), look)
        ax.set_ylabel(f"density, {name}")
    axes[-1][0].set_xlabel("score")
    lines = {name: axes[0][0].plot([], [], **look.options)[0] for name, look in looks.items()}
    style.legend_of(figure, lines)
    negatives, positives = (_LIKENESS[test.is_alike] for test in roc_auc.homogeneities(*examples))
    row = {"clients": len(np.unique(examples.ids)), "negatives": negatives, "positives": positives}
    return Drawn("densities", figure, [{**row, **facts}])


def _curves(examples: _Examples) -> Drawn:
    from sklearn import metrics  # Takes 0.5 s.

    figure, [[ax]] = style.panels(1, height=2.6)
    pooled = style.Style(style.BLACK, "", "", "-")
    rows = []
    for client, look in [*style.styles(examples.largest).items(), ("pooled", pooled)]:
        own = examples if look is pooled else examples.of(client)
        if 0 < own.labels.sum() < len(own.labels):
            rates = metrics.roc_curve(own.labels, own.scores, drop_intermediate=False)[:2]
            width = 2.0 if look is pooled else 1.2
            ax.plot(*rates, color=look.colour, linestyle=look.dashes, linewidth=width, label=client)
            rows.append({"client": client, "ROC-AUC": roc_auc.roc_auc(own.labels, own.scores)})
    ax.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.6)
    ax.set(xlabel="false positive rate", ylabel="true positive rate")
    style.legend_below(figure, ax)
    return Drawn("roc_curves", figure, rows)


def _averages(examples: dict[str, _Examples]) -> Drawn:
    figure, [[ax]] = style.panels(1, height=1.8)
    width = 0.8 / len(examples)
    places, rows = np.arange(len(_AVERAGES)), []
    for i, (model, look) in enumerate(style.styles(list(examples)).items()):
        values = [*_numbers(roc_auc.summarize(*examples[model])).values()]
        bars = ax.barh(places + i * width, values, width * 0.9, label=model, **look.filled)
        ax.bar_label(bars, [f"{value:.4f}" for value in values], padding=2, fontsize=6.5)
        rows.append({"model": model, **_trust(examples[model])})
    ax.set_yticks(places + width * (len(examples) - 1) / 2, _TITLES)
    ax.invert_yaxis()
    ax.set(xlabel="ROC-AUC", xlim=(0.0, 1.2), xticks=np.linspace(0.0, 1.0, 6))
    if len(examples) > 1:
        style.legend_below(figure, ax)
    return Drawn("averages", figure, rows)


def _trust(examples: _Examples) -> dict[str, Any]:
    """Returns which average may be trusted, and what that rests on."""
    tests, clients = roc_auc.homogeneities(*examples), roc_auc.of_clients(*examples)
    trusted = roc_auc.equals_pooled(clients, *tests)
    return {
        "negatives": _LIKENESS[tests[0].is_alike],
        "positives": _LIKENESS[tests[1].is_alike],
        "clients of one class": int(np.isnan(clients.roc_auc).sum()),
        "average to trust": trusted.replace("_", " ") or "not known",
    }
