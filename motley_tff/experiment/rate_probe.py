"""Rates of training for data that nobody has published any for: short trainings try some.

At most 40 training clients and 2,400 of their examples, drawn once, are the sample; a quarter of a
client's examples is held out. A rate is tried by up to 20 rounds of FedAvg (FedSGD, if that is what
trains) from the run's first weights, each with five clients of the sample, under the run's
optimizers, epochs and batches. Its loss is the mean over the sample's clients of that on their
held-out examples. For an algorithm with a model for each client, or for clients that are alike,
eight clients of the sample train alone instead, in 20 rounds each, and are scored on their own.

Rates are tried a decade apart, and on while the best is the first or the last one; then those
half a decade to its left and right. Of these the best is taken, or the next smaller one where that
is within a standard error of it (over clients, of the paired difference), as a run's more numerous
rounds get further with it. An adaptive server's rate is chosen after the clients', for which the
server takes the mean of their models.

All of it is a function of the data, the settings and the seed, whatever the backend; validation and
test clients are not looked at.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from motley_tff import commandline
from motley_tff.algorithms import FedAvg, OptimizerConfig
from motley_tff.backends import base, sequential
from motley_tff.core import cores, random_streams
from motley_tff.core.algorithm import Algorithm
from motley_tff.core.clients import InMemoryClients
from motley_tff.core.task import Task
from motley_tff.experiment.config import RunConfig
from motley_tff.experiment.progress import Progress

Nest = Any
_CLIENTS, _EXAMPLES, _HELD_OUT = 40, 2400, 0.25
_ROUNDS, _COHORT, _ALONE = 20, 5, 8
# Where it begins, in powers of ten, and how many more decades it may go to either side.
_START, _ADAPTIVE_START, _MORE_DECADES = (-2, -1, 0), (-3, -2, -1), 2
_BATCH_SIZE = 256  # Bounds memory only.
_PLAIN_MEAN = OptimizerConfig("sgd", 1.0)


def rate_free(config: RunConfig) -> list[str]:
    """Returns the fields of a resolved configuration's training optimizers without a rate."""
    names = config.algorithm.tried_optimizers if config.algorithm.tries_rates else ()
    return [name for name in names if getattr(config.algorithm, name).learning_rate is None]


def with_rates(algorithm: FedAvg, rates: Mapping[str, Any]) -> FedAvg:
    """Returns the algorithm with the rates that `choose` chose, or a `run.json` has of it."""
    optimizers = {
        name: getattr(algorithm, name).at(float(tried["chosen"])) for name, tried in rates.items()
    }
    return dataclasses.replace(algorithm, **optimizers)


def choose(task: Task, config: RunConfig, progress: Progress) -> dict[str, dict[str, Any]]:
    """Returns `{field of an optimizer: what was tried and chosen}` for `rate_free` ones.

    What was tried is `{"chosen": rate, "best": that of the least loss, "tried": [[rate, mean loss
    or None where it diverged], ...] from the smallest rate on, "rounds", "clients"}`. Empty where
    no training client has two examples.
    """
    names, seed = rate_free(config), config.loop.base_random_seed
    sample = _sample(task, seed) if names else None
    if sample is None:
        return {}
    task = dataclasses.replace(task, train=sample, drop_remainder=False, max_train_examples=None)
    algorithm, results = config.algorithm.probe(), dict[str, dict[str, Any]]()
    for name in names:
        optimizer = getattr(algorithm, name)
        is_adaptive = optimizer.at(1.0).total_gain is None
        is_alone = config.algorithm.tries_alone
        trainings = _Trainings(task, algorithm, name, is_alone, seed)
        losses = _search(trainings.losses, is_adaptive, progress)
        best, chosen = _choice(losses)
        if chosen is None:  # All diverged: the run will say so of the default.
            continue
        algorithm = dataclasses.replace(algorithm, **{name: optimizer.at(chosen)})
        means = {rate: float(np.mean(of_clients)) for rate, of_clients in sorted(losses.items())}
        results[name] = {
            "chosen": chosen,
            "best": best,
            "tried": [[r, mean if math.isfinite(mean) else None] for r, mean in means.items()],
            "rounds": _ROUNDS,
            "clients": len(losses[chosen]),
        }
    return results


def _sample(task: Task, seed: int) -> InMemoryClients | None:
    """Returns some training clients with some of their examples, as `train` and `held_out`; None if
    there are none with two.
    """
    stream = random_streams.generator(seed, "rate_probe", 0)
    ids = [task.train.ids[i] for i in stream.permutation(len(task.train))[:_CLIENTS]]
    data = {}
    for client_id in ids:
        examples = {n: np.asarray(v) for n, v in task.train.fetch(client_id)["train"].items()}
        size = len(next(iter(examples.values())))
        order = stream.permutation(size)[: _EXAMPLES // len(ids)]
        number = math.ceil(_HELD_OUT * len(order))
        if 0 < number < len(order):
            places = {"train": order[number:], "held_out": order[:number]}
            data[client_id] = {
                part: {name: values[where] for name, values in examples.items()}
                for part, where in places.items()
            }
    return InMemoryClients(data) if data else None


def _search(
    losses_of: Callable[[float], np.ndarray], is_adaptive: bool, progress: Progress
) -> dict[float, np.ndarray]:
    """Returns `{rate: the losses of the sample's clients}` of the rates that are tried."""
    losses: dict[float, np.ndarray] = {}
    tens = _ADAPTIVE_START if is_adaptive else _START
    decades = [*tens]

    def try_(rate: float) -> None:
        losses[rate] = losses_of(rate)
        progress.advance()

    progress.start("try learning rates", len(tens) + 2)
    for ten in tens:
        try_(_rate(ten))
    while True:
        best = min(decades, key=lambda ten: float(np.mean(losses[_rate(ten)])))
        beyond = {decades[0]: decades[0] - 1, decades[-1]: decades[-1] + 1}.get(best)
        if beyond is None or not tens[0] - _MORE_DECADES <= beyond <= tens[-1] + _MORE_DECADES:
            break
        decades = sorted([*decades, beyond])
        progress.finish()
        progress.start("try learning rates", len(decades) + 2, len(losses))
        try_(_rate(beyond))
    for ten in (best - 1, best):  # Half a decade to either side.
        try_(_rate(ten, 3))
    progress.finish()
    return losses


def _rate(ten: int, times: int = 1) -> float:
    return float(f"{times}e{ten}")


def _choice(losses: Mapping[float, np.ndarray]) -> tuple[float, float | None]:
    """Returns (the rate of the least mean loss, the chosen one or None if all diverged)."""
    rates = sorted(losses)
    best = min(rates, key=lambda rate: float(np.mean(losses[rate])))
    if not np.isfinite(losses[best]).all():
        return best, None
    smaller = rates[max(0, rates.index(best) - 1)]
    if not np.isfinite(losses[smaller]).all():
        return best, best
    worse = losses[smaller] - losses[best]
    error = float(np.std(worse, ddof=1)) / math.sqrt(len(worse)) if len(worse) > 1 else 0.0
    return best, smaller if float(np.mean(worse)) <= error else best


class _Trainings:
    """Short trainings that differ in one rate, which is traced: they are compiled once."""

    def __init__(self, task: Task, algorithm: FedAvg, name: str, is_alone: bool, seed: int):
        self._task, self._is_client = task, name == "client_optimizer"
        self._is_alone, self._seed = is_alone, seed
        optimizers = {name: getattr(algorithm, name).at(1.0)}
        if self._is_client and algorithm.server_optimizer.learning_rate is None:
            optimizers["server_optimizer"] = _PLAIN_MEAN
        built = dataclasses.replace(algorithm, **optimizers).build(
            task, task.model.initial_weights(seed)
        )
        backend = sequential.SequentialBackend(cores.num_available())
        self._process = backend.training(task, _with_rate(built) if self._is_client else built)
        self._entry_losses = tf.function(self._losses_in_graph, reduce_retracing=True)

    def losses(self, rate: float) -> np.ndarray:
        """Returns each client's held-out loss after a training, float64 [clients]; infinite ones
        where it diverged.
        """
        ids = self._task.train.ids
        if self._is_alone:
            return np.concatenate([self._trained(rate, [[i]] * _ROUNDS, [i]) for i in ids[:_ALONE]])
        streams = (
            random_streams.generator(self._seed, "rate_probe", 1, number)
            for number in range(_ROUNDS)
        )
        cohorts = [[ids[i] for i in s.permutation(len(ids))[:_COHORT]] for s in streams]
        return self._trained(rate, cohorts, ids)

    def _trained(
        self, rate: float, cohorts: Sequence[Sequence[str]], scored: Sequence[str]
    ) -> np.ndarray:
        """Returns the held-out losses of some clients after a round of each cohort."""
        weights, optimizer, states = self._process.initialize()
        if self._is_client:
            state = (*weights[:-1], tf.constant(rate, tf.float32)), optimizer, states
        else:
            state = weights, _scaled(optimizer, rate), states
        for number, cohort in enumerate(cohorts, 1):
            key = random_streams.key(self._seed, "rate_probe", 2, number)
            try:
                state, _ = self._process.next(state, [base.Round(number, tuple(cohort), key)])
            except base.DivergedError:
                return np.full(len(scored), np.inf)
            commandline.raise_if_ended()
        return self._held_out(state[0][:-1] if self._is_client else state[0], scored)

    def _held_out(self, weights: Nest, ids: Sequence[str]) -> np.ndarray:
        parts = [self._task.train.fetch(client_id)["held_out"] for client_id in ids]
        sizes = [len(next(iter(part.values()))) for part in parts]
        pooled = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        outputs = [
            self._entry_losses(weights, {n: v[i : i + _BATCH_SIZE] for n, v in pooled.items()})
            for i in range(0, sum(sizes), _BATCH_SIZE)
        ]
        sums, counts = (np.concatenate(of_batches) for of_batches in zip(*outputs, strict=True))
        owners = np.repeat(np.arange(len(sizes)), sizes)
        totals = np.bincount(owners, sums.astype(np.float64))
        numbers = np.bincount(owners, counts.astype(np.float64))
        losses = np.divide(totals, numbers, out=np.zeros(len(ids)), where=numbers > 0)
        return np.where(np.isfinite(losses), losses, np.inf)

    def _losses_in_graph(self, weights: Nest, examples: Nest) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns each example's sum of losses and of their weights."""
        key = tf.zeros([2], tf.int32)
        x, y = self._task.preprocess(examples, False, key)
        values, counts = self._task.loss(y, self._task.model.predict(weights, x, False, key))
        values = tf.where(counts > 0.0, values, 0.0) * counts
        return tuple(
            tf.reduce_sum(tf.reshape(entries, [tf.shape(entries)[0], -1]), axis=1)
            for entries in (values, counts)
        )


def _with_rate(built: Algorithm) -> Algorithm:
    """Returns FedAvg whose last weight is the clients' rate, which nothing changes."""
    work = built.work
    (steps,) = work.passes

    def init(broadcast, client_state, client):
        inner = work.init(broadcast[:-1], client_state, client)
        optimizer = _scaled(inner.learner.optimizer_state, broadcast[-1])
        return inner._replace(learner=inner.learner._replace(optimizer_state=optimizer)), broadcast

    def step(carry, batch):
        return steps.step(carry[0], batch), carry[1]

    def finish(carry):
        output = work.finish(carry[0])
        return output._replace(update=(*output.update, tf.zeros([])))

    passes = (dataclasses.replace(steps, step=step, changes=()),)
    return dataclasses.replace(
        built,
        initial_weights=(*built.initial_weights, np.float32(1.0)),
        work=dataclasses.replace(work, init=init, passes=passes, finish=finish, takes_rows=False),
    )


def _scaled(optimizer_state: Any, factor: Any) -> Any:
    """Returns an optimizer's state with its learning rate times a factor."""
    rate = optimizer_state["learning_rate"] * factor
    return type(optimizer_state)(optimizer_state, learning_rate=rate)
