"""What the closing table's numbers mean, in sentences: of rows of the tables, as text.

Cells of clients that are unscored, or whose model diverged, are empty (`metrics.client_values`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from motley_tff.core import candidate_labels

_Rows = Sequence[Mapping[str, str]]

# From here on one cluster has, as good as, all clients.
_COLLAPSED_PCT = 95.0
# With which probability clients that choose at random may all choose alike without a word.
_CHANCE = 0.01
# {what is tried in steps: (its name, what is beyond the last one)}
_STEPS: Mapping[candidate_labels.Kind, tuple[str, str]] = {
    "epoch": ("epoch", "more epochs"),
    "neighbors": ("number of neighbours", "more neighbours"),
    "coefficient": ("coefficient", "larger ones"),
    "rate": ("learning rate", "rates beyond it"),
}


def mode_collapse(clients: _Rows, num_clusters: int) -> list[str]:
    """Returns a warning where one of several clusters has, as good as, all test clients, of their
    rows of `clients.csv`.

    There is none of clients of one known group, who belong together, nor of so few that k clusters
    of equal size would often have them all in one: the probability is k^(1 - clients).
    """
    scored = [row for row in clients if row.get("cluster_id") and row["personalized"]]
    groups = {row.get("group") or "" for row in scored}
    if not scored or (len(groups) == 1 and "" not in groups):
        return []
    largest = max(Counter(row["cluster_id"] for row in scored).values())
    pct = 100.0 * largest / len(scored)
    if pct < _COLLAPSED_PCT or num_clusters ** (1.0 - len(scored)) > _CHANCE:
        return []
    return [
        f"{pct:.0f}% of the test clients are in one cluster (mode collapse); see "
        "--num_warmstart_fedavg_rounds, --cluster_initialization=updates and --balance"
    ]


def last_tried(clients: _Rows, labels: Sequence[str]) -> list[str]:
    """Returns a sentence for each step that is the best for most test clients, of their rows of
    `clients.csv`, and the last one of those tried, whose candidates have these labels.
    """
    scored, sentences = [row for row in clients if row["is_hurt"]], []
    for kind, (name, beyond) in _STEPS.items():
        values = [candidate_labels.value(row["candidate"], kind) for row in scored]
        own = Counter(value for value in values if value is not None)
        best, count = own.most_common(1)[0] if own else (None, 0)
        if best in _ends(kind, labels) and 2 * count > own.total():
            whose = "" if count == len(scored) else f" for {count} of {len(scored)} test clients"
            sentences.append(
                f"the best {name}{whose}, {best:g}, is the last one tried: {beyond} may be better"
            )
    return sentences


def _ends(kind: candidate_labels.Kind, labels: Sequence[str]) -> set[float]:
    """Returns the steps beyond which there are others; one rate alone was not chosen."""
    tried = {v for label in labels if (v := candidate_labels.value(label, kind)) is not None}
    if kind == "rate":
        return {min(tried), max(tried)} if len(tried) > 1 else set()
    return {max(tried)} - ({1.0} if kind == "coefficient" else set()) if tried else set()


def last_round(evaluated: Sequence[str], best: str) -> list[str]:
    """Returns a sentence where, of several rounds, the best is the last one."""
    if len(evaluated) < 2 or best != evaluated[-1]:
        return []
    return [f"the best round, {best}, is the last one: more may be better (--total_rounds)"]


def unchanged(
    clients: _Rows, labels: Sequence[str], metric: str, diverged: Sequence[str], rule: str
) -> str:
    """Returns why no test client's value changed, of their rows of `clients.csv`.

    Args:
      labels: Those of all candidates; the first is the global model.
      diverged: Those that diverged for a validation client.
      rule: The first of `--acceptance`.
    """
    chosen = {row["candidate"] for row in clients}
    others = [label for label in labels if label != candidate_labels.BASELINE]
    if not others:
        return "there is no other candidate than the global model"
    if set(others) <= set(diverged) and chosen == {candidate_labels.BASELINE}:
        return "all other candidates diverged for a validation client"
    if chosen == {candidate_labels.BASELINE}:
        reason = f"none of the {len(others)} other candidates was better on validation data"
        return reason if rule == "always" else f"{reason}, or nobody accepts it ({rule})"
    if set(labels) == set(candidate_labels.CLUSTER):
        is_first = {row["cluster_id"] for row in clients} == {"1"}
        return (
            "their clusters' models score alike"
            if not is_first
            else ("they all take the first cluster's model, which is the baseline")
        )
    is_same = all(row["baseline_loss"] == row["personalized_loss"] for row in clients)
    return (
        f"candidate {', '.join(sorted(chosen))} was chosen, which does not change "
        f"{'even the loss' if is_same else f'{metric}, though it changes the loss'}"
    )
