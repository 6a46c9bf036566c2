"""Scores every candidate on every client.

The same code serves every personalization and both settings: a personalization only says how one
client's candidates are scored. Clients are scored in blocks, so that a population of any size needs
little more than the numbers of its scores; `rows` makes tables of them.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.backends.base import Backend, ClientCall
from motley_tff.core.algorithm import Personalization
from motley_tff.core.task import Task
from motley_tff.experiment import client_scores
from motley_tff.experiment.client_scores import SPLITS, Scores
from motley_tff.experiment.score_blocks import ScoreBlocks

# Clients that are scored together, and kept together for a run that is cut; fewer of them once so
# many seconds have passed, for clients may take minutes each.
BLOCK, SECONDS = 256, 60.0


class Evaluator:
    """Runs one personalization on one backend; its name tells its blocks from those of others."""

    def __init__(
        self, backend: Backend, task: Task, personalization: Personalization, name: str = "main"
    ):
        self._backend, self._task, self._name = backend, task, name
        if task.setting == "cross_silo":
            # The same silos on both splits: personalize once, score on both parts.
            train = ("train",) if personalization.scores_train else ()
            groups: tuple[tuple[str, ...], ...] = ((*SPLITS, *train),)
        else:
            groups = tuple((split,) for split in SPLITS)
        # Splits of devices have the same parts: one work for both is traced once.
        work = functools.cache(personalization.work)
        self._work = {}
        for group in groups:
            scored = dict.fromkeys(p for split in group for p in client_scores.parts(task, split))
            personalized_on = task.personalization_part(group[0])
            self._work[group] = work(tuple(scored), personalized_on)

    def score(
        self,
        weights: Any,
        client_states: Mapping[str, Any] | None,
        client_ids: Mapping[str, Sequence[str]],
        key: np.ndarray,
        on_client: Callable[[], None] = lambda: None,
        blocks: ScoreBlocks | None = None,
    ) -> dict[str, Scores]:
        """Returns each split's scores, those on training parts (`train`) last.

        Args:
          weights: The global model; the server's weights for a stateful personalization.
          client_states: `{client id: state}` for a stateful personalization, else None.
          client_ids: `{split: clients to score}`; the same for both splits of a silo task.
          key: int32 [2], the random key of this evaluation.
          blocks: Has blocks that an earlier process scored, and keeps new ones.
        """
        scores = {}
        for group in self._work:
            ids = tuple(client_ids[group[0]])
            scored: list[dict[str, Scores]] = []
            done = 0
            while done < len(ids):
                next_ids = ids[done : done + BLOCK]
                kept = blocks.load(self._block_name(group, done), next_ids) if blocks else None
                if kept is not None:
                    scored.append(kept)
                    done += _num_clients(kept)
                    for _ in range(_num_clients(kept)):
                        on_client()
                    continue
                for block, took_long in self._score(
                    group, weights, client_states, next_ids, key, on_client
                ):
                    size = _num_clients(block)
                    if blocks and (took_long or size == BLOCK):  # Others are soon scored again.
                        blocks.save(self._block_name(group, done), block)
                    scored.append(block)
                    done += size
            for split in group:
                scores[split] = client_scores.join([block[split] for block in scored])
        return scores

    def _block_name(self, group: tuple[str, ...], first: int) -> str:
        return f"{self._name}.{group[0]}.{first:09d}"

    def _score(
        self,
        group: tuple[str, ...],
        weights: Any,
        client_states: Mapping[str, Any] | None,
        ids: tuple[str, ...],
        key: np.ndarray,
        on_client: Callable[[], None],
    ) -> Iterator[tuple[dict[str, Scores], bool]]:
        """Yields (the scores of clients on all splits of a group, whether they took long); in
        several blocks where that is so and changes no number.
        """
        states = None if client_states is None else [client_states[i] for i in ids]
        # Of silos those of the split that has all parts of the group.
        clients = self._task.splits["test" if "test" in group else group[0]]
        call = ClientCall(self._task, self._work[group], weights, clients, ids, key, states)
        outputs: list[Any] = []
        start = time.monotonic()
        for number, (_, metrics) in enumerate(self._backend.map_clients(call), 1):
            outputs.append(metrics)
            on_client()
            took_long = time.monotonic() - start > SECONDS
            if (took_long and self._backend.one_by_one) or number == len(ids):
                of = ids[number - len(outputs) : number]
                block = {s: client_scores.collect(self._task, s, of, outputs) for s in group}
                yield block, took_long
                outputs, start = [], time.monotonic()


def _num_clients(block: Mapping[str, Scores]) -> int:
    return len(next(iter(block.values())).client_ids)
