"""An evaluation with all that it may look at: distribution shift, smaller sets, acceptance.

Each of these scores the same global model on the same clients once more, with other `parts` of
their data.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.backends.base import Backend
from motley_tff.core import options
from motley_tff.core.algorithm import Personalization
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task
from motley_tff.evaluation import acceptance, parts, tables
from motley_tff.evaluation.batches import BatchScorer
from motley_tff.evaluation.client_scores import ClientScores, values_at
from motley_tff.evaluation.config import EvaluationConfig
from motley_tff.evaluation.evaluate import Accept, choose
from motley_tff.evaluation.saved_scores import SavedScores
from motley_tff.metrics import hurt
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
        self._names = {f: f"fraction_{f}" if i else "main" for i, f in enumerate(fractions)}
        tasks = {
            name: parts.smaller_personalization_sets(task, fraction, seed)
            for fraction, name in self._names.items()
        }
        for rule in self._rules:
            if rule.validates and (share := rule.value) is not None:
                tasks[f"holdout_{share}"] = parts.held_out_part(tasks["main"], share, seed)
        if config.ood_examples:
            tasks["main"] = parts.distribution_shift(tasks["main"], config.ood_examples, seed)
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
        times: int = 1,
    ) -> tuple[Scores, dict[str, Iterable[dict[str, Any]]]]:
        """Returns the scores of the tables, and `{table: rows}` without the keys of the run.

        The arguments are those of `BatchScorer.score`.
        """
        scores = {
            name: scorer.score(weights, client_states, client_ids, key, on_client, saved, times)
            for name, scorer in self._scorers.items()
        }
        main = scores["main"]
        accepts = [functools.partial(self._accepts, rule, scores) for rule in self._rules]
        rows = tables.rows(
            self._task, self._labels, main, *self._config.choice(), accepts[0],
            self._config.hurt_margin,
        )  # fmt: skip
        rows["sizes"] = [
            row | {"personalization_fraction": fraction}
            for fraction, name in self._names.items()
            if len(self._names) > 1
            for row in self._summary_rows("sizes", scores[name])
        ]
        rows["acceptance"] = [
            row | {"rule": rule.text}
            for rule, accept in zip(self._rules, accepts, strict=True)
            if self._config.acceptance != ("always",)
            for row in self._summary_rows("acceptance", main, accept)
        ]
        return main, rows

    def _accepts(
        self, rule: acceptance.Rule, scores: Mapping[str, Scores], split: str, chosen: np.ndarray
    ) -> np.ndarray:
        """Returns which clients accept their candidate; evaluation sets have no say in it."""
        held_out = None
        if rule.validates and self._is_silo:
            held_out = {split: scores["main"]["valid"]}
        elif rule.validates:
            of_rule = scores[f"holdout_{rule.value}"]
            held_out = {s: of_rule[s].on(parts.HOLDOUT) for s in parts.SPLITS}
        sizes = scores["main"][split].num_personalization_examples
        values = held_out[split].values if held_out else None
        return acceptance.accepts(rule, self._task.tuning_metric, sizes, values, chosen)

    def _summary_rows(
        self, table: str, scores: Scores, accept: Accept | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yields the cells that a table has of each split's summary; who accepts is counted."""
        task, choice = self._task, self._config.choice()
        chosen, accepted = choose(task, scores, *choice), choose(task, scores, *choice, accept)
        for split in parts.SPLITS:
            of_split = scores[split], accepted[split]
            values = values_at(task, *of_split)
            if accept is not None and split == "test":
                values = hurt.with_margin(values, self._config.hurt_margin)
            row = tables.summary_row(task, self._labels, split, *of_split, values)
            if accept is not None:
                row["num_accepted"] = int(np.sum(accept(split, chosen[split])))
            yield {name: row[name] for name in columns.names(table) if name in row}
