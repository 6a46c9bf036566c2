"""Who is hurt: does it go with the size of a client's data, its labels, or its known group?

A row of the table is an algorithm and a property: how much more probable it is, in percentage
points, that a client is truly hurt (`probability_hurt`) in the third of the clients with most
examples than in the third with fewest, and in one group than in the others. Intervals are Welch's
(1947) of 95%; one that has 0 inside is no evidence. Clients are means over seeds.

How unlike the others' a client's labels are is the total variation distance of its shares of labels
and those of all test clients' examples, known where scores were exported. It is larger of fewer
examples, by chance.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import special

from launch.report import deltas, style
from launch.report.comparisons import Comparison, Series
from launch.report.runs import ReportedRun
from motley_tff.tables import client_tables

_SIZES = {
    "num_personalization_examples": "most personalization examples",
    "num_evaluation_examples": "most evaluation examples",
    "label_distance": "labels least like all clients'",
}
_DIFFERENCE, _LOW, _HIGH = "more probably hurt (points)", "from", "to"
# A larger number of groups would be a number of tests of which some succeed by chance.
_MOST_GROUPS, _FEWEST_CLIENTS = 6, 4


def data(comparison: Comparison) -> pd.DataFrame:
    """Returns the table, empty where no run has probabilities."""
    rows = [row for series in comparison.series for row in _rows(series)]
    return pd.DataFrame(rows)


def _rows(series: Series) -> Iterator[dict[str, Any]]:
    clients = _clients(series)
    for name, (first, second) in _pairs(clients).items():
        row = _difference(100.0 * first.to_numpy(), 100.0 * second.to_numpy())
        if row is not None:
            yield {"algorithm": series.label, "clients with": name, **row}


def _clients(series: Series) -> pd.DataFrame:
    """Returns the test clients that have a probability, a row each: the mean over seeds."""
    runs = [run for run in series.runs if "probability_hurt" in run.rows]
    if not runs:
        return pd.DataFrame()
    rows = pd.concat([run.rows.assign(label_distance=_label_distances(run)) for run in runs])
    names = ["probability_hurt", *(name for name in _SIZES if name in rows)]
    by_client = rows.dropna(subset="probability_hurt").groupby("client_id", sort=False)
    means = by_client[names].mean()
    return means.assign(group=by_client["group"].first() if "group" in rows else "")


def _label_distances(run: ReportedRun) -> np.ndarray | float:
    """Returns the distance of each test client's labels, see above; not-a-number if not known."""
    path = run.evaluations["test"].scores_path
    if path is None:
        return float("nan")
    table = client_tables.choose(client_tables.read_scores(path), run.round, ["test"])
    labels = table.groupby(["client_id", "class"], sort=False)["label"].mean().unstack()
    distance = (labels - table.groupby("class")["label"].mean()).abs().sum(axis=1)
    # The shares of two classes are one share and the rest.
    return distance.div(min(2, labels.shape[1])).reindex(run.rows["client_id"]).to_numpy()


def _pairs(clients: pd.DataFrame) -> Mapping[str, tuple[pd.Series, pd.Series]]:
    """Returns `{property: (probabilities of clients that have it, of those to compare with)}`."""
    pairs: dict[str, tuple[pd.Series, pd.Series]] = {}
    if clients.empty:
        return pairs
    probability = clients["probability_hurt"]
    for name, words in _SIZES.items():
        ends = deltas.thirds(clients[name].to_numpy(float)) if name in clients else None
        if ends is not None:
            pairs[words] = (probability[ends[1]], probability[ends[0]])
    groups = clients["group"].fillna("")
    names = sorted(set(groups) - {""})
    if 2 <= len(names) <= _MOST_GROUPS:
        for name in names:
            pairs[f"group {name}"] = (probability[groups == name], probability[groups != name])
    return pairs


def _difference(first: np.ndarray, second: np.ndarray) -> dict[str, Any] | None:
    """Returns the difference of two means with its interval, None of too few clients."""
    if min(len(first), len(second)) < _FEWEST_CLIENTS:
        return None
    difference = float(np.mean(first) - np.mean(second))
    variances = [np.var(values, ddof=1) / len(values) for values in (first, second)]
    # Welch and Satterthwaite's degrees of freedom.
    parts = [v**2 / (len(x) - 1) for v, x in zip(variances, (first, second), strict=True)]
    freedom = sum(variances) ** 2 / sum(parts) if sum(parts) else 1.0
    half = float(special.stdtrit(freedom, 0.975) * np.sqrt(sum(variances)))
    evidence = "yes" if abs(difference) > half > 0.0 else "no evidence"
    ends = {_LOW: difference - half, _HIGH: difference + half}
    return {_DIFFERENCE: difference, **ends, "evidence": evidence}


def draw(table: pd.DataFrame, comparison: Comparison, styles: style.Styles) -> Figure:
    """Draws a dot with its interval for each algorithm beside each property, and a line at 0."""
    properties = list(dict.fromkeys(table["clients with"]))
    labels = list(dict.fromkeys(table["algorithm"]))
    figure, [[ax]] = style.panels(1, height=0.7 + (0.12 + 0.08 * len(labels)) * len(properties))
    for row in table.to_dict("records"):
        number = labels.index(row["algorithm"])
        place = properties.index(row["clients with"]) + 0.7 * (number + 0.5) / len(labels) - 0.35
        half = (row[_HIGH] - row[_LOW]) / 2
        look = styles[row["algorithm"]]
        style.point(ax, row[_DIFFERENCE], place, look, row["algorithm"], xerr=half)
    ax.set_yticks(range(len(properties)), [style.plain(name) for name in properties], fontsize=7)
    ax.set_ylim(len(properties) - 0.5, -0.5)
    ax.axvline(0.0, color="black", linewidth=0.7, linestyle="--")
    ax.set_xlabel(_DIFFERENCE)
    style.legend_below(figure, ax)
    return figure
