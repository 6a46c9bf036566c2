"""Columns of the files a run writes; the order here is the order in the files."""

from motley_tff import metrics

RUN = ("run_id", "dataset", "algorithm", "base_random_seed", "round", "split")

# What an evaluation writes, in this order: the summary comes last and vouches for the others.
EVALUATION_TABLES = ("candidates", "clients", "summary")

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
)

CANDIDATES = (
    "run_id", "round", "split", "client_id", "candidate", "metric", "value", "loss",
)  # fmt: skip


def rounds(metric: str) -> tuple[str, ...]:
    """Returns the columns of `rounds.csv` for a task's metric."""
    return (
        "run_id", "round", "num_clients", "train_loss", f"train_{metric}", "seconds",
        "bytes_down", "bytes_up",
    )  # fmt: skip


def clients(extra_metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the columns of `clients.csv`; further metrics come last, in pairs."""
    pairs = ((f"baseline_{name}", f"personalized_{name}") for name in extra_metrics)
    return (*CLIENTS, *(column for pair in pairs for column in pair))


def summary() -> tuple[str, ...]:
    """Returns the columns of `summary.csv`, every registered population metric among them."""
    own = ("num_clients", "candidate", "baseline_mean", "baseline_std")
    personalized = ("personalized_mean", "personalized_std")
    return (*RUN, *own, *personalized, *metrics.POPULATION, "reference_mean")
