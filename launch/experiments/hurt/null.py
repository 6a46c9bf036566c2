"""Nothing has changed, on real data: how many clients look hurt when signs are random?

    ./launch/run python -m launch.experiments.hurt.null RUN/clients.csv   # examples right or wrong
    ./launch/run python -m launch.experiments.hurt.null school --data_dir=DIR

Every example keeps how much it changed, and gets a random sign: no model is truly better. Of a
table of clients the examples that were gained or lost are these; of School the squared errors of a
ridge regression on all schools against one on each school. Over 200 draws, the mean share of
clients that looks hurt is what `pct_hurt_by_chance` says.
"""

import sys

import numpy as np
import pandas as pd

from datasets import options, school
from motley_tff.metrics import true_effects
from motley_tff.metrics.true_effects import Evidence

_DRAWS, _PENALTY = 200, 1.0


def of_counts(path: str) -> tuple[float, float]:
    """Returns (share that looks hurt in the mean of the draws, by chance) of a run's test clients,
    in percent.
    """
    table = pd.read_csv(path)
    rows = table[(table["split"] == "test") & (table["round"] == table["round"].max())]
    gained, lost, sizes = (
        rows[name].to_numpy(np.int64)
        for name in ("num_gained", "num_lost", "num_evaluation_examples")
    )
    changed = gained + lost
    drawn = np.random.default_rng(0).binomial(changed, 0.5, [_DRAWS, len(changed)])
    unknown = np.full(len(changed), np.nan)
    chance = true_effects.hurt_by_chance(
        Evidence((gained - lost) / sizes, unknown, sizes, gained, lost)
    )
    return 100.0 * float(np.mean(2 * drawn < changed)), 100.0 * float(np.mean(chance))


def of_school(data_dir: str) -> tuple[float, float]:
    """Returns the same of School's squared errors, in percent."""
    task = school.create_task(options.DataOptions("school", data_dir=data_dir))
    data = {name: task.test.fetch(name) for name in task.test.ids}
    train = [_arrays(parts["train"]) for parts in data.values()]
    pooled = _ridge(*(np.concatenate(arrays) for arrays in zip(*train, strict=True)))
    changes = []
    for (x, y), parts in zip(train, data.values(), strict=True):
        of_test, target = _arrays(parts["test"])
        before, after = ((of_test @ w - target) ** 2 for w in (pooled, _ridge(x, y)))
        changes.append(before - after)
    rng = np.random.default_rng(0)
    signs = [rng.choice([-1.0, 1.0], [_DRAWS, len(change)]) for change in changes]
    hurt = [(sign @ change) < 0 for sign, change in zip(signs, changes, strict=True)]
    delta = np.array([change.mean() for change in changes])
    sizes = np.array([len(change) for change in changes])
    chance = true_effects.hurt_by_chance(Evidence(delta, np.ones(len(delta)), sizes))
    return 100.0 * float(np.mean(hurt)), 100.0 * float(np.mean(chance))


def _arrays(examples) -> tuple[np.ndarray, np.ndarray]:
    features, target = (np.asarray(examples[n], np.float64) for n in ("features", "target"))
    return np.concatenate([features, np.ones([len(features), 1])], axis=1), target


def _ridge(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.linalg.solve(x.T @ x + _PENALTY * np.eye(x.shape[1]), x.T @ y)


if __name__ == "__main__":
    source, *flags = sys.argv[1:]
    shares = of_counts(source) if source != "school" else of_school(flags[0].partition("=")[2])
    print("looks hurt under random signs: {:.2f}%; by chance: {:.2f}%".format(*shares))
