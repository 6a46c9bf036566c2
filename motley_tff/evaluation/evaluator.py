"""An evaluation with all that it may look at: distribution shift, smaller sets, acceptance.

Each of these scores the same global model on the same clients once more, with other `parts` of
their data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.backends.base import Backend
from motley_tff.core import options
from motley_tff.core.algorithm import Personalization
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task
from motley_tff.evaluation import acceptance, parts, summary, tables
from motley_tff.evaluation.batches import BatchScorer
from motley_tff.evaluation.client_scores import SPLITS, ClientScores
from motley_tff.evaluation.config import EvaluationConfig
from motley_tff.evaluation.evaluate import Accept, choose
from motley_tff.evaluation.saved_scores import SavedScores
from motley_tff.tables import columns

# {split: scores}
Scores = dict[str, ClientScores]


class Evaluator:
    """Evaluates one personalization on one backend; a UserError if the settings do not fit it."""

    def __init__(
        self,
        config: EvaluationConfig,
        backend: Backend,
        task: Task,
        personalization: Personalization,
        seed: int,
    ):
        self._config, self._task, self._labels = config, task, personalization.candidates
        self._is_silo = task.setting == "cross_silo"
        self._rules = [acceptance.parse(text, self._is_silo) for text in config.acceptance]
        fractions = config.personalization_fractions
        # Only models that are personalized while the rounds run are scored on their training part.
        if personalization.scores_train and fractions != (1.0,):
            expected = "1, as these models are personalized while the rounds run, not after"
            name = options.name_of(config, "personalization_fractions")
            raise UserError(name, fractions, expected, "leave it out")
        main, *smaller = (parts.smaller_personalization_sets(task, f, seed) for f in fractions)
        tasks = {"main": main}
        if config.ood_examples:
            tasks["main"] = parts.distribution_shift(main, config.ood_examples, seed)
        for rule in self._rules:
            if rule.validates and rule.value is not None:  # It is the share that is held out.
                tasks[f"holdout_{rule.value}"] = parts.held_out_part(main, rule.value, seed)
        tasks |= {f"fraction_{f}": t for f, t in zip(fractions[1:], smaller, strict=True)}
        self._scorers = {n: BatchScorer(backend, t, personalization, n) for n, t in tasks.items()}

    @property
    def num_evaluations(self) -> int:
        """How often every client is scored."""
        return len(self._scorers)

    def evaluate(
        self,
        weights: Any,
        client_states: Mapping[str, Any] | None,
        client_ids: Mapping[str, Sequence[str]],
        key: np.ndarray,
        on_client: Callable[[], None],
        saved: SavedScores | None = None,
    ) -> tuple[Scores, dict[str, Iterable[dict[str, Any]]]]:
        """Returns the scores of the tables, and `{table: rows}` without the keys of the run.

        The arguments are those of `BatchScorer.score`.
        """
        scores = {
            name: scorer.score(weights, client_states, client_ids, key, on_client, saved)
            for name, scorer in self._scorers.items()
        }
        accept = self._accept(self._rules[0], scores)
        rows = tables.rows(self._task, self._labels, scores["main"], *self._config.choice(), accept)
        rows["sizes"], rows["acceptance"] = self._size_rows(scores), self._acceptance_rows(scores)
        return scores["main"], rows

    def _accept(self, rule: acceptance.Rule, scores: Mapping[str, Scores]) -> Accept:
        """Returns who accepts by a rule; clients' evaluation sets say nothing on it."""

        def accept(split: str, chosen: np.ndarray) -> np.ndarray:
            held_out = None
            if rule.validates and self._is_silo:
                held_out = scores["main"]["valid"]
            elif rule.validates:
                held_out = scores[f"holdout_{rule.value}"][split].further[parts.HOLDOUT]
            sizes = scores["main"][split].num_personalization_examples
            return acceptance.accepts(rule, self._task.metric, sizes, held_out, chosen)

        return accept

    def _size_rows(self, scores: Mapping[str, Scores]) -> list[dict[str, Any]]:
        """Returns a row per fraction and split; none if there is one fraction only."""
        first, *smaller = self._config.personalization_fractions
        if not smaller:
            return []
        names = {first: "main", **{fraction: f"fraction_{fraction}" for fraction in smaller}}
        # Everybody takes the model: rules of acceptance have a table of their own.
        return [
            {**row, "personalization_fraction": fraction}
            for fraction, name in names.items()
            for row in self._summary_rows("sizes", scores[name])
        ]

    def _acceptance_rows(self, scores: Mapping[str, Scores]) -> list[dict[str, Any]]:
        """Returns a row per rule and split; none if everybody always accepts."""
        if [rule.kind for rule in self._rules] == ["always"]:
            return []
        rows = []
        chosen = choose(self._task, scores["main"], *self._config.choice())
        for rule in self._rules:
            accept = self._accept(rule, scores)
            for row in self._summary_rows("acceptance", scores["main"], accept):
                num_accepted = int(np.sum(accept(row["split"], chosen[row["split"]])))
                rows.append({**row, "rule": rule.text, "num_accepted": num_accepted})
        return rows

    def _summary_rows(
        self, table: str, scores: Scores, accept: Accept | None = None
    ) -> list[dict[str, Any]]:
        """Returns the cells that a table has of each split's summary."""
        chosen = choose(self._task, scores, *self._config.choice(), accept)
        rows = [
            summary.summary_row(self._task, self._labels, s, scores[s], chosen[s]) for s in SPLITS
        ]
        names = columns.names(table)
        return [{name: row[name] for name in names if name in row} for row in rows]
