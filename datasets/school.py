"""School: exam scores of students by school; a cross-silo task, linear regression.

Card
  Source: `school.mat`, the School data set of the Inner London Education Authority in the form of
    MALSAR (cell arrays `X` and `Y`, each (1, 139)). Or synthetic schools.
  Licence: none stated by its owner; copies come with MIT and GPL-2 licensed code.
  Clients: 139 schools; 15,362 students; 111 +- 56 a school, from 22 to 251.
    Synthetic: 60 schools; 22 to 250 students each, in three planted groups.
  Fields: `features` float32 [28], standardized; `target` float32, the exam score (1 to 70)
    mapped to [0, 1] by the minimum and maximum over all schools.
  Model: linear, zero initial weights; loss and reported metric are half the squared error, which
    is what the "mse" of Motley's tables is.
  Split: each school's students 70% train, 15% valid, 15% test by the run's seed; features scaled
    by the mean and deviation of the school's own training part. Training drops an epoch's short
    last batch.
  Citation: Nuttall et al. 1989; Zhou, Chen, Ye 2012 (MALSAR); Wu et al. 2022, "Motley"
    (https://arxiv.org/abs/2206.09262).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datasets.kinds import silos
from datasets.options import PUBLISHED_SHARES, DataOptions, SiloShares
from motley_tff.core import random_streams, task as task_lib
from motley_tff.core.errors import UserError

FILE = silos.SiloFile(
    ("school.mat", "school/school.mat"), "45 kB", "school", "students", is_row=True, width=28
)
_SILO_ID = "school_{:03d}"
_SYNTHETIC_SCHOOLS = 60
_NUM_FEATURES = 28


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on `school.mat` or on synthetic schools; see `silos.create_task`."""
    return silos.create_task(options, FILE, synthesize, create_task_from_data)


def create_task_from_data(
    features: Sequence[np.ndarray],
    scores: Sequence[np.ndarray],
    seed: int,
    facts: Mapping[str, Any] | None = None,
    shares: SiloShares = PUBLISHED_SHARES,
) -> task_lib.Task:
    """Returns the task on features float64 [students, dim] and scores float64 [students], an array
    each a school; the seed decides the split inside each. UserError if all scores are the same, or
    no school is large enough to be split.
    """
    low, high = (f(np.concatenate(scores)) for f in (np.min, np.max))
    if low == high:
        raise UserError("", f"{low:g} as every student's score", "scores that differ")
    scaled = [(y - low) / (high - low) for y in scores]
    return silos.linear_task(
        features,
        scaled,
        _SILO_ID.format,
        seed,
        shares,
        {**(facts or {}), "score_range": [float(low), float(high)]},
        dataset="school",
        loss=silos.half_squared_error,
        metrics=(
            task_lib.Metric("half_squared_error", silos.half_squared_error, higher_is_better=False),
            task_lib.Metric("squared_error", silos.squared_error, higher_is_better=False),
        ),
        neighbours="regression",
        prediction=silos.predicted_number,
        label_unit=float(high - low),
    )


def synthesize(seed: int, num_schools: int = _SYNTHETIC_SCHOOLS) -> silos.Arrays:
    """Returns synthetic schools whose coefficients share a covariance, in three planted groups.

    A school's coefficients are the population's, plus its group's offset, plus a deviation drawn
    from a covariance of rank four that all schools share; scores add noise and are rounded.
    """
    shared = random_streams.generator(seed, "synthetic_data", 0)
    common = shared.normal(0.0, 1.5, _NUM_FEATURES)
    offsets = shared.normal(0.0, 1.5, (3, _NUM_FEATURES))
    levels = np.array([26.0, 32.0, 38.0])
    factors = shared.normal(0.0, 0.4, (_NUM_FEATURES, 4))
    features, scores, groups = [], [], {}
    for i in range(num_schools):
        rng = random_streams.generator(seed, "synthetic_data", 1, i)
        group = int(rng.choice(3, p=(0.45, 0.35, 0.20)))
        weights = common + offsets[group] + factors @ rng.normal(size=4)
        x, standard = _students(rng)
        noise = rng.normal(0.0, 6.0, len(x))
        score = levels[group] + rng.normal(0.0, 2.0) + standard @ weights + noise
        features.append(x)
        scores.append(np.clip(np.rint(score), 1, 70))
        groups[_SILO_ID.format(i)] = f"group_{group}"
    return silos.Arrays(features, scores, groups)


def _students(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns (raw features [students, 28], like the file's; the same around 0, of unit spread)."""
    n = int(np.clip(rng.normal(111, 56), 22, 250))
    measured = rng.normal(size=(n, 10))
    shares = rng.uniform(0.2, 0.8, 17)
    answers = (rng.random((n, 17)) < shares).astype(np.float64)
    raw = np.concatenate([30 + 10 * measured, answers, np.ones((n, 1))], axis=1)
    standard = np.concatenate([measured, 2 * answers - 1, np.zeros((n, 1))], axis=1)
    return raw, standard
