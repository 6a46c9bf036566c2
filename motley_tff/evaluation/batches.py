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
from motley_tff.evaluation.client_scores import ClientScores
from motley_tff.evaluation.parts import SPLITS
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
        self._splits: list[tuple[str, ...]] = [(split,) for split in SPLITS]
        if task.setting == "cross_silo":  # Silos are in all splits, and are personalized once.
            self._splits = [(*SPLITS, "train") if personalization.scores_train else SPLITS]

    def score(
        self,
        weights: Any,
        client_states: Mapping[str, Any] | None,
        client_ids: Mapping[str, Sequence[str]],
        key: np.ndarray,
        on_client: Callable[[], None] = lambda: None,
        saved: SavedScores | None = None,
        times: int = 1,
    ) -> dict[str, ClientScores]:
        """Returns each split's scores, those on training parts (`train`) last.

        Args other than those of `evaluate.score_clients`:
          client_ids: `{split: clients to score}`; the same for both splits of a silo task.
          saved: Has the batches that an earlier process scored, and keeps new ones.
        """
        scores: dict[str, ClientScores] = {}
        for splits in self._splits:
            ids = tuple(client_ids[splits[0]])
            score = functools.partial(
                evaluate.score_clients, self._backend, self._task, self._personalization, splits,
                weights, client_states, key, times=times,
            )  # fmt: skip
            batches = []
            for first in range(0, len(ids), BATCH_SIZE):
                name = f"{self._name}.{splits[0]}.{first:09d}"
                batch_ids = ids[first : first + BATCH_SIZE]
                batches.append(self._score_batch(name, batch_ids, score, on_client, saved))
            arrays = client_scores.join(batches)
            scores |= {s: client_scores.of_split(self._task, s, ids, arrays) for s in splits}
        return scores

    def _score_batch(
        self,
        name: str,
        ids: tuple[str, ...],
        score: Callable[[tuple[str, ...]], Iterator[Any]],
        on_client: Callable[[], None],
        saved: SavedScores | None,
    ) -> dict[str, np.ndarray]:
        """Returns the clients' scores; those of the first clients may be saved ones."""
        num_done, batch = saved.load(name, ids) if saved else (0, {})
        for _ in range(num_done):
            on_client()
        start, outputs = time.monotonic(), []
        for output in score(ids[num_done:]) if num_done < len(ids) else ():
            outputs.append(output)
            num_done += 1
            on_client()
            takes_long = time.monotonic() - start > SECONDS
            if (takes_long and self._backend.yields_each_client) or num_done == len(ids):
                new = client_scores.arrays_of(self._task, outputs)
                batch = client_scores.join([batch, new]) if batch else new
                # Those that took little time are soon scored again.
                if saved and (takes_long or num_done == BATCH_SIZE):
                    saved.save(name, ids[:num_done], batch)
                start, outputs = time.monotonic(), []
        return batch
