"""Scores every candidate on every client.

The same code serves every personalization and both settings: a personalization only says how one
client's candidates are scored. Clients are scored in blocks, so that a population of any size needs
little more than the numbers of its scores; `rows` makes tables of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.backends.base import Backend, ClientCall
from motley_tff.core.algorithm import Personalization
from motley_tff.core.task import Task
from motley_tff.experiment import client_scores
from motley_tff.experiment.client_scores import SPLITS, Scores
from motley_tff.experiment.score_blocks import ScoreBlocks

# Clients that are scored together, and kept together for a run that is cut.
BLOCK = 256


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
        self._work = {}
        for group in groups:
            scored = dict.fromkeys(p for split in group for p in client_scores.parts(task, split))
            personalized_on = task.personalization_part(group[0])
            self._work[group] = personalization.work(tuple(scored), personalized_on)

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
          blocks: Has blocks that an earlier process scored, and keeps whole ones.
        """
        scores = {}
        for group in self._work:
            ids = tuple(client_ids[group[0]])
            scored = []
            for first in range(0, len(ids), BLOCK):
                name = f"{self._name}.{group[0]}.{first:09d}"
                block_ids = ids[first : first + BLOCK]
                block = blocks.load(name, block_ids) if blocks else None
                if block is None:
                    block = self._score(group, weights, client_states, block_ids, key, on_client)
                    if blocks and len(block_ids) == BLOCK:  # What is short is soon scored again.
                        blocks.save(name, block)
                else:
                    for _ in block_ids:
                        on_client()
                scored.append(block)
            for split in group:
                scores[split] = client_scores.join([block[split] for block in scored])
        return scores

    def _score(
        self,
        group: tuple[str, ...],
        weights: Any,
        client_states: Mapping[str, Any] | None,
        ids: tuple[str, ...],
        key: np.ndarray,
        on_client: Callable[[], None],
    ) -> dict[str, Scores]:
        """Returns the scores of a block of clients on all splits of a group."""
        outputs = []
        states = None if client_states is None else [client_states[i] for i in ids]
        # Of silos those of the split that has all parts of the group.
        clients = self._task.splits["test" if "test" in group else group[0]]
        call = ClientCall(self._task, self._work[group], weights, clients, ids, key, states)
        for _, metrics in self._backend.map_clients(call):
            outputs.append(metrics)
            on_client()
        return {split: client_scores.collect(self._task, split, ids, outputs) for split in group}
