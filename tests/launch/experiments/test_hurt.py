"""Hurt by chance: the simulation finds what it drew, and random signs show what chance should."""

import numpy as np
import pandas as pd
import pytest

from launch.experiments.hurt import null, simulation


@pytest.mark.parametrize("kind", ["accuracies", "errors"])
def test_a_population_whose_truth_is_known(kind):
    looks, chance, bias, error, _, covered, width, false = simulation.cell(kind, 0.15, 100, 0.3, 2)
    assert looks > 5 and chance > 35  # Far more look hurt than are.
    assert error < 5 and abs(bias) <= error
    assert covered == 100 and width < 20 and false < 30


def test_a_normal_distribution_without_a_spread():
    evidence = simulation.errors(np.random.default_rng(0), np.full(50, -0.5), 30)
    assert simulation.normal_share(evidence) == pytest.approx(1)


def test_random_signs_of_the_examples_that_changed(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"split": "test", "round": 3, "num_evaluation_examples": 20}
    table = pd.DataFrame({"num_gained": rng.integers(0, 4, 80), "num_lost": rng.integers(0, 9, 80)})
    table.assign(**rows).to_csv(tmp_path / "clients.csv")
    drawn, chance = null.of_counts(str(tmp_path / "clients.csv"))
    assert drawn == pytest.approx(chance, abs=1)
