"""An evaluation and what else it may look at: shift, smaller personalization sets, acceptance.

Everything here scores the same global model on the same clients once more, with other parts of
their data (`experiment.held_out`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.backends import base
from motley_tff.core import candidates, options
from motley_tff.core.algorithm import Personalization
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task
from motley_tff.experiment import acceptance, client_scores, held_out, rows as rows_lib, scoring
from motley_tff.experiment.config import EvaluationConfig
from motley_tff.experiment.score_blocks import ScoreBlocks
from motley_tff.tables import columns

Scores = dict[str, client_scores.Scores]


class Studies:
    """Evaluates one personalization on one backend; a UserError if the settings do not fit it."""

    def __init__(
        self,
        config: EvaluationConfig,
        backend: base.Backend,
        task: Task,
        personalization: Personalization,
        seed: int,
    ):
        self._config, self._task = config, task
        self._labels = personalization.candidates
        self._is_silo = task.setting == "cross_silo"
        self._rules = [acceptance.parse(text, self._is_silo) for text in config.acceptance]
        fractions = config.personalization_fractions
        # Only models that are personalized while the rounds run are scored on their training part.
        if personalization.scores_train and fractions != (1.0,):
            expected = "1, as these models are personalized while the rounds run, not after"
            name = options.name_of(config, "personalization_fractions")
            raise UserError(name, fractions, expected, "leave it out")
        sized = {f: held_out.with_fraction(task, f, seed) for f in fractions}
        main = sized[fractions[0]]
        if config.ood_examples:
            main = held_out.with_ood(main, config.ood_examples, seed)

        def evaluator(scored_task: Task, name: str) -> scoring.Evaluator:
            return scoring.Evaluator(backend, scored_task, personalization, name)

        self._main = evaluator(main, "main")
        self._sizes = {f: evaluator(sized[f], f"fraction_{f}") for f in fractions[1:]}
        # A value is the share that is held out.
        shares = [rule.value for rule in self._rules if rule.validates and rule.value is not None]
        self._holdouts = {
            v: evaluator(held_out.with_holdout(sized[fractions[0]], v, seed), f"holdout_{v}")
            for v in shares
        }

    @property
    def num_evaluations(self) -> int:
        """How often every client is scored."""
        return 1 + len(self._sizes) + len(self._holdouts)

    def evaluate(
        self,
        weights: Any,
        client_states: Mapping[str, Any] | None,
        client_ids: Mapping[str, Sequence[str]],
        key: np.ndarray,
        on_client: Callable[[], None],
        blocks: ScoreBlocks | None = None,
    ) -> tuple[Scores, dict[str, Iterable[dict[str, Any]]]]:
        """Returns the scores of the tables, and `{table: rows}` without the keys of the run.

        The arguments are those of `scoring.Evaluator.score`.
        """

        def score(evaluator: scoring.Evaluator) -> Scores:
            return evaluator.score(weights, client_states, client_ids, key, on_client, blocks)

        scores = score(self._main)
        held = {fraction: score(evaluator) for fraction, evaluator in self._holdouts.items()}
        config = self._config
        report = rows_lib.report(
            self._task,
            self._labels,
            scores,
            *config.choice(),
            self._accept(self._rules[0], scores, held),
        )
        sizes = {fraction: score(evaluator) for fraction, evaluator in self._sizes.items()}
        tables = {
            **vars(report),
            "sizes": self._size_rows({config.personalization_fractions[0]: scores, **sizes}),
            "acceptance": self._acceptance_rows(scores, held),
        }
        return scores, tables

    def _accept(self, rule, scores, held) -> rows_lib.Accept:
        return lambda split, chosen: acceptance.accepts(
            rule, self._evidence(rule, scores, held, split, chosen)
        )

    def _evidence(self, rule, scores, held, split, chosen) -> acceptance.Evidence:
        """Returns what clients know of their candidates without their evaluation sets."""
        sizes = scores[split].num_personalization_examples
        if not rule.validates:
            return acceptance.Evidence(sizes, {}, {})
        if self._is_silo:
            on = scores["valid"]
        else:
            on = held[rule.value][split].beside[held_out.HOLDOUT]
        sign = -1.0 if self._task.metric.higher_is_better else 1.0
        values = {"loss": on.values["loss"], "metric": sign * on.values[self._task.metric.name]}
        return acceptance.Evidence(
            sizes,
            {name: v[:, 0] for name, v in values.items()},
            {name: candidates.take(v, chosen) for name, v in values.items()},
        )

    def _size_rows(self, sizes: Mapping[float, Scores]) -> list[dict[str, Any]]:
        """Returns a row per fraction and split; none if there is one fraction only."""
        if len(sizes) < 2:
            return []
        rows: list[dict[str, Any]] = []
        for fraction, scores in sizes.items():
            # Everybody takes the model: rules of acceptance have a table of their own.
            chosen = self._choose(scores, None)
            extra = {"personalization_fraction": fraction}
            rows.extend(
                self._summary("sizes", s, scores, chosen, extra) for s in client_scores.SPLITS
            )
        return rows

    def _acceptance_rows(self, scores, held):
        """Returns a row per rule and split; none if everybody always accepts."""
        if [rule.kind for rule in self._rules] == ["always"]:
            return []
        rows = []
        for rule in self._rules:
            accept = self._accept(rule, scores, held)
            chosen, whole = self._choose(scores, accept), self._choose(scores, None)
            for split in client_scores.SPLITS:
                accepted = int(np.sum(accept(split, whole[split])))
                extra = {"rule": rule.text, "num_accepted": accepted}
                rows.append(self._summary("acceptance", split, scores, chosen, extra))
        return rows

    def _choose(self, scores: Scores, accept: rows_lib.Accept | None) -> dict[str, np.ndarray]:
        return rows_lib.choose(self._task, scores, *self._config.choice(), accept)

    def _summary(self, table, split, scores, chosen, extra):
        """Returns the cells that a table has of a split's summary, and the extra ones."""
        row = rows_lib.summarize(self._task, self._labels, split, scores[split], chosen[split])
        names = columns.names(table)
        return {**{name: cell for name, cell in row.items() if name in names}, **extra}
