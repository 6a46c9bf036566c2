"""When something happens in a run, and to whom: by the seed and the round alone, and where a run
ends early by its evaluations before.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from motley_tff.backends import base
from motley_tff.core import candidates, random_streams
from motley_tff.core.task import Task
from motley_tff.evaluation.parts import SPLITS
from motley_tff.experiment.config import LoopConfig


def is_checkpoint_due(config: LoopConfig, done: int) -> bool:
    """Returns whether the state is saved after a round."""
    return done == config.total_rounds or done % config.rounds_per_checkpoint == 0


def is_evaluation_due(config: LoopConfig, done: int) -> bool:
    """Returns whether clients are evaluated after a round; an untrained model is as the last."""
    is_period = done > 0 and done % config.rounds_per_evaluation == 0
    return done == config.total_rounds or is_period


def is_over(config: LoopConfig, task: Task, rows: Sequence[Mapping[str, str]]) -> bool:
    """Returns whether a run ends early by its rows of `summary.csv` so far."""
    if config.stop_after is None:
        return False
    least, chosen_by = config.min_improvement, task.chosen_by
    return candidates.evaluations_since_better(rows, *chosen_by, least) >= config.stop_after


def evaluations(config: LoopConfig, done: int) -> int:
    """Returns how many evaluations a run has after a round, that after it included; at least 1."""
    return max(1, -(-done // config.rounds_per_evaluation))


def next_rounds(
    config: LoopConfig, task: Task, done: int, rounds_per_call: int
) -> list[base.Round]:
    """Returns the rounds to train next: those of one cohort until something else is due, and no
    more than the backend runs in one call.
    """
    periods = (config.rounds_per_evaluation, config.rounds_per_checkpoint)
    stop = min(config.total_rounds, *((done // period + 1) * period for period in periods))
    rounds = (round_of(config, task, number) for number in range(done + 1, stop + 1))
    return next(base.by_call(rounds, rounds_per_call))


def round_of(config: LoopConfig, task: Task, number: int) -> base.Round:
    """Returns a training round: its cohort, without those who drop out, and its key."""
    seed = config.base_random_seed
    stream = random_streams.generator(seed, "cohort_faults", number)
    staying = remaining(cohort(config, task, number), config.dropout_rate, stream)
    return base.Round(number, staying, random_streams.key(seed, "local_training", number))


def cohort(config: LoopConfig, task: Task, number: int) -> tuple[str, ...]:
    """Returns the clients that get the model in a training round."""
    stream = random_streams.generator(config.base_random_seed, "client_sampling", number)
    return sample(task.train.ids, config.clients_per_train_round, stream)


def sample(
    ids: tuple[str, ...], size: int | None, stream: np.random.Generator, in_order: bool = False
) -> tuple[str, ...]:
    """Returns so many random clients, or all if there are no more or `size` is None."""
    if size is None or size >= len(ids):
        return ids
    positions = stream.choice(len(ids), size, replace=False)
    return tuple(ids[i] for i in (np.sort(positions) if in_order else positions))


def remaining(
    client_ids: tuple[str, ...], dropout_rate: float, stream: np.random.Generator
) -> tuple[str, ...]:
    """Returns those of a cohort who do not drop out; at least one stays.

    The rate, in [0, 1), is the probability that a client gets the model and sends nothing back;
    without one nothing is drawn from the stream.
    """
    if not dropout_rate:
        return client_ids
    drawn = stream.random(len(client_ids))
    stay = drawn >= min(dropout_rate, drawn.max())
    return tuple(client_id for client_id, stays in zip(client_ids, stay, strict=True) if stays)


def evaluated(config: LoopConfig, task: Task, split: str, number: int) -> tuple[str, ...]:
    """Returns the clients of a split to evaluate: a sample while training, all at the end.

    Where training may stop early it is one sample, as the best round is a choice between
    evaluations: another sample would be better or worse by chance.
    """
    size: int | None = getattr(config, f"{split}_clients_per_evaluation")
    if config.stop_after is not None:
        number = 0
    elif number == config.total_rounds:
        size = config.final_evaluation_clients or None
    if task.setting == "cross_silo":
        size = None
    stream = random_streams.generator(
        config.base_random_seed, "evaluation_sampling", number, SPLITS.index(split)
    )
    return sample(task.splits[split].ids, size, stream, in_order=True)
