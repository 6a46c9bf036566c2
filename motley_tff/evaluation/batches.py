"""Scores clients in batches, which are saved for a run that is cut in the middle of an evaluation.

A population of any size needs little more memory than its scores.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.backends.base import Backend
from motley_tff.core.algorithm import Personalization
from motley_tff.core.task import Task
from motley_tff.evaluation import client_scores, evaluate
from motley_tff.evaluation.client_scores import SPLITS, ClientScores
from motley_tff.evaluation.saved_scores import SavedScores

# Clients of a batch. A batch that takes longer than so many seconds is also saved in between, as
# clients may take minutes each.
BATCH_SIZE, SECONDS = 256, 60.0


class BatchScorer:
    """Scores a task's clients by one personalization; its name tells its batches from others."""

    def __init__(
        self, backend: Backend, task: Task, personalization: Personalization, name: str = "main"
    ):
        self._backend, self._task, self._name = backend, task, name
        # Splits of devices have the same parts: one work for both is traced once.
        work = functools.cache(personalization.work)
        self._personalization = dataclasses.replace(personalization, work=work)
        if task.setting == "cross_silo":  # Silos are in all splits, and are personalized once.
            self._splits = [(*SPLITS, "train") if personalization.scores_train else SPLITS]
        else:
            self._splits = [(split,) for split in SPLITS]

    def score(
        self,
        weights: Any,
        client_states: Mapping[str, Any] | None,
        client_ids: Mapping[str, Sequence[str]],
        key: np.ndarray,
        on_client: Callable[[], None] = lambda: None,
        saved: SavedScores | None = None,
    ) -> dict[str, ClientScores]:
        """Returns each split's scores, those on training parts (`train`) last.

        Args:
          weights: The global model; the server's weights for a stateful personalization.
          client_states: `{client id: state}` for a stateful personalization, else None.
          client_ids: `{split: clients to score}`; the same for both splits of a silo task.
          key: int32 [2], the random key of this evaluation.
          saved: Has the batches that an earlier process scored, and keeps new ones.
        """
        scores = {}
        for splits in self._splits:
            ids = tuple(client_ids[splits[0]])
            score = functools.partial(self._score_clients, splits, weights, client_states, key)
            batches = []
            for first in range(0, len(ids), BATCH_SIZE):
                name, batch_ids = f"{splits[0]}.{first:09d}", ids[first : first + BATCH_SIZE]
                batches.append(self._score_batch(name, splits, batch_ids, score, on_client, saved))
            for split in splits:
                scores[split] = client_scores.join([batch[split] for batch in batches])
        return scores

    def _score_clients(self, splits, weights, client_states, key, ids) -> Iterator[Any]:
        states = None if client_states is None else [client_states[i] for i in ids]
        return evaluate.score_clients(
            self._backend, self._task, self._personalization, splits, weights, ids, key, states
        )

    def _score_batch(
        self,
        name: str,
        splits: Sequence[str],
        ids: tuple[str, ...],
        score: Callable[[tuple[str, ...]], Iterator[Any]],
        on_client: Callable[[], None],
        saved: SavedScores | None,
    ) -> dict[str, ClientScores]:
        """Returns each split's scores of some clients; those of the first ones may be saved."""
        name = f"{self._name}.{name}"
        first = saved.load(name, ids) if saved else None
        num_saved = len(first[splits[0]].client_ids) if first else 0
        for _ in range(num_saved):
            on_client()
        if first and num_saved == len(ids):
            return first
        outputs: list[Any] = []

        def scores_so_far() -> dict[str, ClientScores]:
            done = ids[num_saved : num_saved + len(outputs)]
            new = {s: client_scores.collect(self._task, s, done, outputs) for s in splits}
            return {s: client_scores.join([first[s], new[s]]) for s in splits} if first else new

        last_save, takes_long = time.monotonic(), False
        for output in score(ids[num_saved:]):
            outputs.append(output)
            on_client()
            if time.monotonic() - last_save > SECONDS:
                takes_long = True
                if saved and self._backend.one_by_one:
                    saved.save(name, scores_so_far())
                    last_save = time.monotonic()
        scores = scores_so_far()
        if saved and (takes_long or len(ids) == BATCH_SIZE):  # Others are soon scored again.
            saved.save(name, scores)
        return scores
