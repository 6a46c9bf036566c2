"""launch/experiments/fedeval/leakage.py on made-up digits."""

import numpy as np
import pytest
from matplotlib import image

from tests.launch import commands

_FLAGS = ("--use_synthetic_data", "--dataset_name=mnist")


@pytest.fixture(scope="module")
def leakage():
    with commands.opened("launch.experiments.fedeval.leakage") as run:
        yield run


def test_a_table_and_a_picture_of_each_attack(leakage, tmp_path):
    folder = tmp_path / "a" / "out"
    _, printed = leakage(*_FLAGS, "--pictures=2", "--iterations=60", f"--output_dir={folder}")
    rows = commands.rows(folder / "leakage.csv")
    # Normal draws, which the search starts from, are some 28 from any digit.
    farthest = {"linear 1": 1e-5, "lenet 1": 14, "lenet 10": 28}
    assert [f"{row['model']} {row['steps']}" for row in rows] == [*farthest] * 2
    assert len({row["client_id"] for row in rows}) == 2
    for row in rows:
        assert (row["is_found"] == "1") == (row["found_label"] == row["label"])
        assert row["is_found"] == "1" or row["steps"] == "10"
        assert float(row["l2_distance"]) < farthest[f"{row['model']} {row['steps']}"]
    (linear,) = (line for line in printed.splitlines() if line.startswith("linear"))
    assert linear.split()[:5] == ["linear", "1", "2", "of", "2"]
    # A row of pictures for each, on a white page: the pictures' grey is there, too.
    picture = image.imread(folder / "leakage.png")[..., :3]
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
