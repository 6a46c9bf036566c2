import dataclasses

import numpy as np
import pytest

from motley_tff.core import client_scores, evaluation
from motley_tff.tables import schema
from tests import toy


def _report(task):
    def scores(ids):
        values = {
            name: np.zeros((len(ids), 2), np.float32)
            for name in ("loss", *(m.name for m in task.metrics))
        }
        sizes = np.ones(len(ids), np.int64)
        return client_scores.Scores(tuple(ids), values, sizes, sizes)

    by_split = {name: scores(task.splits[name].ids) for name in client_scores.SPLITS}
    return evaluation.report(task, ("0", "1"), by_split, "global", True)


def test_the_reference_stands_beside_the_accuracy():
    task = toy.classifier_task()
    ids = task.test.ids
    task = dataclasses.replace(task, reference={ids[0]: 0.25, ids[1]: 0.5})
    report = _report(task)
    cells = {row["client_id"]: row["reference"] for row in report.clients}
    assert cells[evaluation.client_cell(task, ids[0])] == 0.25
    means = {row["split"]: row["reference_mean"] for row in report.summary}
    assert means["test"] == pytest.approx(0.375)
    assert "reference" in schema.clients("x") and "reference_mean" in schema.summary("x")


def test_without_a_reference_the_cells_are_empty():
    report = _report(toy.classifier_task())
    assert {row["reference"] for row in report.clients} == {None}
    assert [row["reference_mean"] for row in report.summary] == [None, None]
