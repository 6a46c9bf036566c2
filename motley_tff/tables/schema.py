"""Columns of the files a run writes; the order here is the order in the files."""

from motley_tff import metrics

RUN = ("run_id", "dataset", "algorithm", "base_random_seed", "round", "split")

# What an evaluation writes, in this order: the summary comes last and vouches for the others.
EVALUATION_TABLES = (
    "candidates", "clients", "clusters", "sizes", "acceptance", "scores", "summary"
)  # fmt: skip

CLIENTS = (
    *RUN,
    "client_id",
    "cluster_id",
    "candidate",
    "num_personalization_examples",
    "num_evaluation_examples",
    "metric",
    "higher_is_better",
    "baseline",
    "personalized",
    "delta",
    "is_hurt",
    "baseline_loss",
    "personalized_loss",
    "reference",
    "group",
)

CANDIDATES = (
    "run_id", "round", "split", "client_id", "candidate", "metric", "value", "loss",
)  # fmt: skip

# With --evaluate_ood only; a column each of `clients.csv`, `candidates.csv` and `summary.csv`.
OOD_CLIENTS = ("ood_baseline", "ood_personalized")
OOD_CANDIDATES = ("ood_value",)
OOD_SUMMARY = ("ood_baseline_mean", "ood_personalized_mean")

# What a row may leave out: validation clients are not scored on others' examples.
OPTIONAL = frozenset({*OOD_CLIENTS, *OOD_CANDIDATES, *OOD_SUMMARY})

# With --export_scores only: a row per example; label 1 is positive, as are higher scores.
SCORES = (*RUN, "client_id", "label", "baseline_score", "personalized_score")

# With several --personalization_fraction only.
SIZES = (
    *RUN, "personalization_fraction", "num_clients", "candidate", "baseline_mean", "baseline_std",
    "personalized_mean", "personalized_std", "pct_clients_hurt",
)  # fmt: skip

# With an --acceptance other than always only.
ACCEPTANCE = (
    *RUN, "rule", "num_clients", "num_accepted", "personalized_mean", "personalized_std",
    "pct_clients_hurt",
)  # fmt: skip

# Of algorithms that put clients into clusters only.
CLUSTERS = ("run_id", "round", "split", "cluster_id", "group", "num_clients")


# All that was communicated up to an evaluation, warm starts included.
_BYTES = ("bytes_down_total", "bytes_up_total")


def rounds(metric: str, shares: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns the columns of `rounds.csv` for a task's metric and an algorithm's shares."""
    return (
        "run_id", "round", "num_clients", "train_loss", f"train_{metric}", "seconds",
        "bytes_down", "bytes_up", *shares,
    )  # fmt: skip


def clients(setting: str, extra_metrics: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns the columns of `clients.csv`.

    Args:
      setting: `cross_device` or `cross_silo`; silos have both ways of choosing a candidate.
      extra_metrics: Further metrics, which come last, in pairs.
    """
    pairs = ((f"baseline_{name}", f"personalized_{name}") for name in extra_metrics)
    columns = ("candidate", "personalized", "is_hurt")
    return (*CLIENTS, *_both_ways(setting, columns), *(c for pair in pairs for c in pair))


def summary(setting: str) -> tuple[str, ...]:
    """Returns the columns of `summary.csv`, with every registered population metric."""
    own = ("num_clients", "candidate", "baseline_mean", "baseline_std")
    columns = ("candidate", "personalized_mean", "personalized_std", "pct_clients_hurt")
    whole = (*RUN, *own, "personalized_mean", "personalized_std", *metrics.POPULATION)
    return (*whole, "reference_mean", *_BYTES, *_both_ways(setting, columns))


def _both_ways(setting: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    if setting != "cross_silo":
        return ()
    return tuple(f"{column}_{how}" for how in ("global", "per_client") for column in columns)
