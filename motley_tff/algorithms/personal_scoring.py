"""Scores the models that a stateful algorithm trained for each silo; nothing is trained.

Candidate `0` is the algorithm's global model, candidate `personal` the silo's own.
"""

from typing import NamedTuple

from motley_tff.algorithms import scoring
from motley_tff.core import candidate_labels
from motley_tff.core.algorithm import Algorithm, Personalization
from motley_tff.core.learning import Weights
from motley_tff.core.task import Task


class Carry(NamedTuple):
    """The model that is being scored, the one that comes next, the scores."""

    current: Weights
    personal: Weights
    board: scoring.Board


def build(task: Task, training: Algorithm) -> Personalization:
    """Returns the scoring of `training`'s personal models."""
    personal_model = training.personal_model
    if personal_model is None:
        raise ValueError(f"{training.name!r} trains no personal models.")

    def work(evaluation_parts, personalization_part):
        del personalization_part

        def init(broadcast, client_state, client):
            return Carry(
                current=tuple(training.global_model(broadcast)),
                personal=tuple(personal_model(broadcast, client_state)),
                board=scoring.start(task, evaluation_parts, len(candidate_labels.PERSONAL), client),
            )

        return scoring.two_candidates(task, evaluation_parts, init, lambda carry: carry.personal)

    return Personalization(
        "personal", candidate_labels.PERSONAL, work, wants_server_weights=True, scores_train=True
    )
