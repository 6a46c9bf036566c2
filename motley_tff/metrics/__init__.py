"""Population metrics: pure NumPy functions of the per-client table, computable from the CSV.

`POPULATION` is the registry: every entry becomes a column of `summary.csv`. A new metric is one
file with its equation and source, and one line here.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from motley_tff.metrics import client_values, clusters, hurt, improvement, statistics

# Of the baseline and of the personalized models alike.
_OF_A_COLUMN: Mapping[str, Callable[..., float]] = {
    "variance": statistics.variance,
    "min": functools.partial(statistics.quantile, fraction=0.0),
    "lower_quartile": functools.partial(statistics.quantile, fraction=0.25),
    "median": functools.partial(statistics.quantile, fraction=0.5),
    "upper_quartile": functools.partial(statistics.quantile, fraction=0.75),
    "max": functools.partial(statistics.quantile, fraction=1.0),
    "worst_10pct_mean": statistics.worst_10pct_mean,
    "best_10pct_mean": statistics.best_10pct_mean,
    "example_weighted_mean": statistics.example_weighted_mean,
}

POPULATION: Mapping[str, Callable[[client_values.ClientValues], float]] = {
    "pct_clients_hurt": hurt.pct_clients_hurt,
    "pct_clients_hurt_low": hurt.pct_clients_hurt_low,
    "pct_clients_hurt_high": hurt.pct_clients_hurt_high,
    "pct_hurt_by_chance": hurt.pct_hurt_by_chance,
    "pct_truly_hurt": hurt.pct_truly_hurt,
    "pct_truly_hurt_low": hurt.pct_truly_hurt_low,
    "pct_truly_hurt_high": hurt.pct_truly_hurt_high,
    "num_surely_hurt": hurt.num_surely_hurt,
    "hurt_margin": hurt.hurt_margin,
    "delta_mean": improvement.delta_mean,
    "delta_mean_low": improvement.delta_mean_low,
    "delta_mean_high": improvement.delta_mean_high,
    "wilcoxon_p": improvement.wilcoxon_p,
    **{
        f"{column}_{name}": functools.partial(function, column=column)
        for name, function in _OF_A_COLUMN.items()
        for column in ("baseline", "personalized")
    },
    "largest_cluster_pct": clusters.largest_cluster_pct,
    "cluster_ari": clusters.cluster_ari,
    "cluster_purity": clusters.cluster_purity,
}


def meaning(name: str) -> str:
    """Returns what a registered metric is, in words: the first line of its docstring."""
    function = POPULATION[name]
    settings = {k: v for k, v in getattr(function, "keywords", {}).items() if k != "column"}
    text = (inspect.getdoc(getattr(function, "func", function)) or "").splitlines()[0]
    text = text.removeprefix("Returns ").rstrip(".").replace(" of a column", " over clients")
    return text + "".join(f" ({name} {value:g})" for name, value in settings.items())


def summarize(values: client_values.ClientValues) -> dict[str, float]:
    """Returns what `summary.csv` says of some clients: every registered metric and more."""
    return {
        "num_clients": len(values.client_ids),
        "num_unscored": int(np.sum(~values.is_scored)),
        "baseline_num_diverged": int(np.sum(values.has_diverged("baseline"))),
        "num_diverged": int(np.sum(values.has_diverged("personalized"))),
        "baseline_mean": statistics.mean(values, "baseline"),
        "baseline_std": statistics.std(values, "baseline"),
        "personalized_mean": statistics.mean(values, "personalized"),
        "personalized_std": statistics.std(values, "personalized"),
        **{name: function(values) for name, function in POPULATION.items()},
    }


def of_further(name: str, values: client_values.ClientValues) -> dict[str, float]:
    """Returns what `summary.csv` says of a further metric: means, and who is in none."""
    return {
        f"num_unscored_{name}": int(np.sum(~values.is_scored)),
        f"baseline_num_diverged_{name}": int(np.sum(values.has_diverged("baseline"))),
        f"num_diverged_{name}": int(np.sum(values.has_diverged("personalized"))),
        f"baseline_{name}_mean": statistics.mean(values, "baseline"),
        f"personalized_{name}_mean": statistics.mean(values, "personalized"),
    }


def of_way(way: str, label: str | None, values: client_values.ClientValues) -> dict[str, Any]:
    """Returns what `summary.csv` says of silos' values under one way to choose candidates."""
    return {
        f"candidate_{way}": label,
        f"personalized_mean_{way}": statistics.mean(values, "personalized"),
        f"personalized_std_{way}": statistics.std(values, "personalized"),
        f"pct_clients_hurt_{way}": hurt.pct_clients_hurt(values),
    }
