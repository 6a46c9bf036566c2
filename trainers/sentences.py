"""What the closing table's numbers mean, in lines: of rows of the tables, as text.

Cells of clients that are unscored, or whose model diverged, are empty (`metrics.client_values`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core import candidate_labels
from motley_tff.metrics import true_effects

_Rows = Sequence[Mapping[str, str]]

# From here on one cluster has, as good as, all clients.
_COLLAPSED_PCT = 95.0
# With which probability clients that choose at random may all choose alike without a word.
_CHANCE = 0.01
# An interval wider than so many percentage points tells nothing.
_UNTOLD_POINTS = 50
# {what is tried in steps: (its name, what is beyond the last one)}
_STEPS: Mapping[candidate_labels.Kind, tuple[str, str]] = {
    "epoch": ("epoch", "more epochs"),
    "neighbors": ("number of neighbours", "more neighbours"),
    "coefficient": ("coefficient", "larger ones"),
    "rate": ("learning rate", "rates beyond it"),
}
# {column of summary.csv: what its count says, with other columns}
_COUNTS = {
    "num_unscored": "{num_unscored} of {num_clients} {split} clients have nothing to be scored on; "
    "they are in no mean, no choice and no share (num_unscored)",
    "baseline_num_diverged": "the global model diverged for {baseline_num_diverged} of "
    "{num_clients} {split} clients; the mean is over the others (baseline_num_diverged). Lower the "
    "learning rates",
    "num_diverged": "the own model diverged for {num_diverged} of {num_clients} {split} clients; "
    "the mean is over the others (num_diverged). Lower the learning rates",
}
ONE_CONSTANT, FREQUENT_WORD = "one constant", "own frequent word"
# {what every model is compared with: in words}; any other constant is compared with clients' own.
_OF_ALL = {
    ONE_CONSTANT: "one constant for every example",
    FREQUENT_WORD: "a client's own most frequent word",
}
# From this share of the examples on one class hides the others.
_MOST = 0.8
_NO_ERROR = 1e-6  # Cells have nine digits.
# When a training loss still falls: over so many rounds, by such a share, and so many errors.
_FEWEST_ROUNDS, _NOTABLE_FALL, _ERRORS = 4, 0.05, 2.0
# How many of the clients that are worse off the closing sentence names.
_NAMED_CLIENTS = 5


def chosen_rates(chosen: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each learning rate that a run chose itself, and one where the best is
    at the edge of what was tried; see `experiment.rate_probe.choose`.
    """
    lines = []
    for field, probe in chosen.items():
        name = f"{field.removesuffix('_optimizer')} learning rate"
        tried = [f"{rate:g}: {'diverged' if loss is None else f'{loss:.4g}'}"
                 for rate, loss in probe["tried"]]  # fmt: skip
        lines.append(
            f"{name} {probe['chosen']:g}, chosen on {probe['clients']} training clients by the "
            f"loss on held-out examples after {probe['rounds']} rounds ({', '.join(tried)})"
        )
        first, *_, last = (rate for rate, _ in probe["tried"])
        if probe["best"] in (first, last):
            lines.append(
                f"the best {name}, {probe['best']:g}, is the last one tried: rates beyond it may "
                f"be better (--{name.replace(' ', '_')})"
            )
    return lines


def privacy(counted: Mapping[str, Any], number: str) -> list[str]:
    """Returns a sentence on the epsilon of a run with a private mean, by `run.json`'s account and
    the cell of `summary.csv`; see `core.privacy`.
    """
    if not counted:
        return []
    if not number:
        return [f"no epsilon, as {counted['reason']}"]
    return [
        f"epsilon {float(number):.4g} at delta {counted['delta']:.3g}, {counted['relation']} of "
        f"{counted['clients']:,}: of the global models of all rounds ({counted['sampling']}; noise "
        f"worth {counted['noise_multiplier']:.4g} times the clipping norm, "
        f"{counted['noise_per_replacement']:.4g} times what a replacement changes; "
        f"{counted['accountant']}). Losses and scores in the tables have no noise"
    ]


def values_that_do_not_exist(rows: _Rows) -> list[str]:
    """Returns a warning for clients without a score, and for models that diverged, of each row of
    `summary.csv` that has some.
    """
    lines = []
    for row in rows:
        lines += [text.format_map(row) for n, text in _COUNTS.items() if int(row.get(n) or 0)]
        if row["split"] == "valid" and row.get("diverged_candidates"):
            labels = row["diverged_candidates"].replace(" ", ", ")
            lines.append(f"candidates that diverged for some validation client: {labels}; they are "
                         "not chosen for all while another is left")  # fmt: skip
    return [f"warning: {line}" for line in lines]


def worse_than_nothing(
    row: Mapping[str, str],
    metric: str,
    higher_is_better: bool,
    constants: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """Returns a warning for each model that is no better on test clients than predicting nothing.

    Args:
      row: That of test clients in `summary.csv`.
      constants: `{name: {split: score}}` of `experiment.constant_prediction`.
    """
    nothing = {name: scores["test"] for name, scores in constants.items() if "test" in scores}
    of_all = [(nothing[name], words) for name, words in _OF_ALL.items() if name in nothing]
    own = [(v, f"each client's {name}") for name, v in nothing.items() if name not in _OF_ALL]
    models = [("global", "baseline", of_all), ("personalized", "personalized", of_all + own)]
    if row.get("round") == "0" and row.get("algorithm") == "local":
        del models[0]  # Nobody expects anything of an untrained model.
    lines = []
    for model, column, scores in models:
        if scores:
            best, words = (max if higher_is_better else min)(scores)
            value = float(row[f"{column}_mean"] or "nan")  # An empty cell: it is not finite.
            if not _is_better(value, best, higher_is_better):
                lines.append(
                    f"warning: the {model} model ({metric} {value:.4g}) is no better than "
                    f"predicting nothing ({best:.4g}: {words}); try other learning rates or more "
                    "rounds"
                )
    return lines


def nothing_to_choose_by(rows: _Rows, metric: str | None) -> list[str]:
    """Returns a warning where no validation client has a value of the metric that chooses, if it is
    not the reported one, of rows of `summary.csv`.
    """
    (valid,) = (row for row in rows if row["split"] == "valid")
    if metric is None or valid[f"personalized_{metric}_mean"]:
        return []
    first = valid["candidate"]
    return [
        f"warning: no validation client has a value of {metric}, and it chose nothing: {first} is "
        "the first candidate; give another --tuning_metric"
    ]


def rare_classes(constants: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns a sentence where one class has most examples, and accuracy hides the others, by
    the `constants` of `worse_than_nothing`.
    """
    share = constants.get(ONE_CONSTANT, {}).get("test", 0.0)
    if share < _MOST:
        return []
    return [f"one class has {100 * share:.0f}% of a test client's examples, and accuracy says "
            "little of the others: --metrics=balanced_accuracy,macro_f1 says more"]  # fmt: skip


def _is_better(value: float, nothing: float, higher_is_better: bool) -> bool:
    """Returns whether a value is above that of predicting nothing by more than rounding; also of a
    model without an error, where nothing is as good.
    """
    if nothing == float(higher_is_better) and abs(value - nothing) < _NO_ERROR:
        return True
    gain = value - nothing if higher_is_better else nothing - value
    return gain > _NO_ERROR * abs(nothing)


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
    pct = 100.0 * max(Counter(row["cluster_id"] for row in scored).values()) / len(scored)
    if pct < _COLLAPSED_PCT or num_clusters ** (1.0 - len(scored)) > _CHANCE:
        return []
    return [
        f"warning: {pct:.0f}% of the test clients are in one cluster (mode collapse); see "
        "--num_warmstart_fedavg_rounds, --cluster_initialization=updates and --balance"
    ]


def hurt_clients(clients: _Rows, reason: str = "") -> list[str]:
    """Returns a sentence on who is worse off with their own model, of test clients' rows of
    `clients.csv`: the share, and the clients that lose most; or, where nobody's value changed, that
    and the reason. Nothing if no client is scored.
    """
    scored = [row for row in clients if row["is_hurt"]]
    if not scored:
        return []
    if nobody_changed(scored):
        return [f"no test client's value changed (of {len(scored)}): with their own model they are "
                f"where they are with the global one{reason and f'; {reason}'}"]  # fmt: skip
    scored.sort(key=lambda row: float(row["delta"] or "-inf"))  # Empty: their own model diverged.
    names = [row["client_id"].partition(":")[2] for row in scored if row["is_hurt"] == "1"]
    who = f", those that lose most first: {_listed(names)}; is_hurt in clients.csv has all"
    return [f"{100 * len(names) / len(scored):.1f}% of the test clients ({len(names)} of "
            f"{len(scored)}) are worse off with their own model{who if names else ''}"]  # fmt: skip


def truly_hurt(test: Mapping[str, str], clients: _Rows) -> list[str]:
    """Returns a sentence on who is worse off beyond chance, of the test clients' row of
    `summary.csv` and their rows of `clients.csv`; none where that is not estimated.
    """
    if not test.get("pct_truly_hurt"):
        return []
    low, high = (round(float(test[f"pct_truly_hurt_{end}"])) for end in ("low", "high"))
    probabilities = np.array([float(row["probability_hurt"] or "nan") for row in clients])
    sure = np.flatnonzero(true_effects.surely_hurt(probabilities))
    order = sure[np.argsort(-probabilities[sure], kind="stable")]
    names = [clients[i]["client_id"].partition(":")[2] for i in order]
    surely = f"{len(names)} surely: {_listed(names)}" if names else "none surely"
    untold = "; so few examples cannot tell" if high - low > _UNTOLD_POINTS else ""
    return [f"chance alone would show {float(test['pct_hurt_by_chance']):.0f}%; we estimate that "
            f"{low} to {high}% truly are, by more than {float(test['hurt_margin']):.2g}; "
            f"{surely}{untold}"]  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_CLIENTS
    return ", ".join(names[:_NAMED_CLIENTS]) + (f" and {more} more" if more > 0 else "")


def nobody_changed(clients: _Rows) -> bool:
    """Returns whether all clients that are scored have the same value under both models."""
    return all(row["baseline"] == row["personalized"] != "" for row in clients if row["is_hurt"])


def unchanged(clients: _Rows, labels: Sequence[str], rule: str) -> str:
    """Returns why no test client's value changed, of their rows of `clients.csv`.

    Args:
      labels: Those of all candidates; the first is the global model.
      rule: The first of `--acceptance`.
    """
    chosen, num_others = {row["candidate"] for row in clients}, len(labels) - 1
    if not num_others:
        return "there is no other candidate than the global model"
    if chosen == {candidate_labels.BASELINE}:
        accepted = f"was better on validation data and accepted (--acceptance={rule})"
        return f"none of the {num_others} other candidates {accepted}"
    names = ", ".join(sorted(chosen))
    return f"candidate {names} was chosen, whose value is the same; the loss is in clients.csv"


def last_tried(clients: _Rows, labels: Sequence[str]) -> list[str]:
    """Returns a sentence for each step that is the best for most test clients, of their rows of
    `clients.csv`, and the last one of those tried, whose candidates have these labels.
    """
    scored, lines = [row["candidate"] for row in clients if row["is_hurt"]], []
    for kind, (name, beyond) in _STEPS.items():
        own = Counter(_steps(scored, kind))
        best, count = own.most_common(1)[0] if own else (None, 0)
        if best in _ends(_steps(labels, kind), kind) and 2 * count > own.total():
            whose = "" if count == len(scored) else f" for {count} of {len(scored)} test clients"
            lines.append(
                f"the best {name}{whose}, {best:g}, is the last one tried: {beyond} may be better"
            )
    return lines


def _steps(labels: Sequence[str], kind: candidate_labels.Kind) -> list[float]:
    return [v for label in labels if (v := candidate_labels.value(label, kind)) is not None]


def _ends(tried: Sequence[float], kind: candidate_labels.Kind) -> set[float]:
    """Returns the steps beyond which there are others; one rate alone was not chosen."""
    if kind == "rate":
        return {min(tried), max(tried)} if len({*tried}) > 1 else set()
    return {max(tried)} - ({1.0} if kind == "coefficient" else set()) if tried else set()


def still_falling(losses: Sequence[float]) -> list[str]:
    """Returns a sentence where the training loss, of all rounds in order, fell over the last fifth
    of the rounds, from that before, by more than a twentieth and more than chance.
    """
    size = len(losses) // 5
    if size < _FEWEST_ROUNDS:
        return []
    before, last = np.array(losses[-2 * size : -size]), np.array(losses[-size:])
    fall, error = before.mean() - last.mean(), np.sqrt((before.var() + last.var()) / size)
    if not fall > max(_NOTABLE_FALL * abs(before.mean()), _ERRORS * error):
        return []
    percent = 100 * fall / before.mean()
    return [f"the training loss still fell by {percent:.0f}% over the last fifth of the rounds: "
            "more may be better (--total_rounds)"]  # fmt: skip


def ended_early(last: str, total_rounds: int, stop_after: int) -> list[str]:
    """Returns a sentence where training ended before the last of its rounds."""
    if int(last) >= total_rounds:
        return []
    times = "one evaluation" if stop_after == 1 else f"{stop_after} evaluations in a row"
    return [
        f"training ended after round {last} of {total_rounds}, as {times} brought no better mean "
        "over validation clients (--stop_after); the models are those of the best round"
    ]


def last_round(evaluated: Sequence[str], best: str) -> list[str]:
    """Returns a sentence where, of several rounds, the best is the last one."""
    if len(evaluated) < 2 or best != evaluated[-1]:
        return []
    return [f"the best round, {best}, is the last one: more may be better (--total_rounds)"]
