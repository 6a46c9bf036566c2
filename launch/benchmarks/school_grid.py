"""A grid of learning rates by seeds of FedAvg on School, as a sweep trains them.

Runs that differ in rates and seeds only are trained in one compiled call; every seed has its own
split of every school.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from launch.benchmarks import school_fedavg
from launch.benchmarks.measuring import Contender, Plan, Sizes
from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, run_groups, vectorized
from motley_tff.core import algorithm, random_streams
from motley_tff.core import task as task_lib

# The paper's grids for School (Appendix F.3.2).
_CLIENT_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
_SERVER_RATES = (0.1, 0.3, 1.0, 3.0, 10.0)


@contextlib.contextmanager
def contenders(sizes: Sizes, threads: int) -> Iterator[Plan]:
    """Yields what to measure."""
    del threads
    grid = [{"client": c, "server": s} for c in _CLIENT_RATES for s in _SERVER_RATES]
    seeds = [100 + 1000 * r for r in range(sizes.grid_seeds)]
    tasks = [school_fedavg.create_task(sizes, seed) for seed in seeds]
    title = (
        f"{len(grid)} pairs of rates x {len(seeds)} seeds of FedAvg on School "
        f"({tasks[0].facts['source']} data), {sizes.school_rounds} rounds each"
    )
    work = Contender(
        f"vectorized, {len(grid) * len(seeds)} runs a call",
        lambda _: _train(tasks, seeds, grid, sizes),
        once=True,
    )
    yield Plan(title, [work])


def _train(
    tasks: list[task_lib.Task], seeds: list[int], grid: list[dict[str, float]], sizes: Sizes
) -> dict[str, float]:
    (group,) = run_groups.group(grid, seeds, traced=("client", "server"))
    initial = tasks[0].model.initial_weights(0)

    def build(hparams: Mapping[str, Any]) -> algorithm.Algorithm:
        params = FedAvg(
            optimizers.OptimizerConfig("sgd", hparams["client"]),
            optimizers.OptimizerConfig("fedavgm", hparams["server"], {"momentum": 0.9}),
            train_batch_size=sizes.school_batch_size,
        )
        return params.build(tasks[0], initial)

    runs = vectorized.VectorizedRuns(tasks, vectorized.Runs(build, group.settings))
    plan = [
        tuple(
            base.Round(number, task.train.ids, random_streams.key(seed, "local_training", number))
            for task, seed in zip(tasks, seeds, strict=True)
        )
        for number in range(1, sizes.school_rounds + 1)
    ]
    losses: list[float] = []

    def on_round(_: Any, means: Sequence[Mapping[str, float]], *_rest: Any) -> None:
        losses[:] = [m["loss"] for m in means]

    runs.run(runs.initialize(), plan, on_round)
    return {"runs": float(len(losses)), "lowest training loss": float(np.min(losses))}
