"""Contenders that train rounds: the bare loop and the backends, for any task."""

from typing import Any, NamedTuple

from launch.benchmarks import ALL_THREADS, bare_loop
from launch.benchmarks.measuring import Contender
from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, sequential
from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import cores, random_streams
from motley_tff.core import task as task_lib

SEED = 0


class Training(NamedTuple):
    """FedAvg on a task, with clients' SGD; every training client takes part in every round."""

    task: task_lib.Task
    learning_rate: float
    batch_size: int

    @property
    def algorithm(self) -> algorithm_lib.Algorithm:
        """FedAvg with server SGD at rate 1, one epoch a round."""
        params = FedAvg(
            optimizers.OptimizerConfig("sgd", self.learning_rate),
            optimizers.OptimizerConfig("sgd", 1.0),
            train_batch_size=self.batch_size,
        )
        return params.build(self.task, self.task.model.initial_weights(SEED))

    def plan(self, rounds: int) -> list[base.Round]:
        """Returns rounds 1, 2, ..."""
        return [
            base.Round(r, self.task.train.ids, random_streams.key(SEED, "local_training", r))
            for r in range(1, rounds + 1)
        ]


def bare(training: Training) -> Contender:
    """Returns the bare loop over the batches of one round."""
    algorithm = training.algorithm
    (walk,), (first,) = algorithm.work.passes, training.plan(1)
    batches = bare_loop.batches(training.task.train, first.client_ids, walk, first.key)
    loop = bare_loop.build(training.task, training.learning_rate)
    return Contender(
        "bare loop", lambda _: {"loss": float(loop(algorithm.initial_weights, batches)[1])}
    )


def backend(name: str, implementation: Any, training: Training, rounds: int = 1) -> Contender:
    """Returns a backend that trains so many rounds a run from the initial weights."""
    process = implementation.training(training.task, training.algorithm)
    state, plan = process.initialize(), training.plan(rounds)

    def run(number: int) -> dict[str, float]:
        losses: list[float] = []
        end = process.run(
            state, plan[:number], lambda result, _: losses.append(result.means["loss"])
        )
        process.weights(end)
        return {"loss": float(losses[-1])}  # The vectorized backend's is NumPy's.

    return Contender(name, run, rounds)


def sequential_backend(threads: int) -> tuple[str, sequential.SequentialBackend]:
    """Returns (name, backend) as the trainers set it up with `--threads_per_client`."""
    if threads == ALL_THREADS:
        return "sequential, one client at a time", sequential.SequentialBackend(1)
    at_once = max(1, cores.usable() // threads)
    return f"sequential, {at_once} clients at once", sequential.SequentialBackend(at_once)


def sequential_only(training: Training, threads: int) -> list[Contender]:
    """Returns the bare loop and the sequential backend."""
    return [bare(training), backend(*sequential_backend(threads), training)]
