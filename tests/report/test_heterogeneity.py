"""Label shares: drawn with their numbers beside them, and read back for a report."""

import numpy as np
import pytest

from motley_tff.core.errors import UserError
from motley_tff.report import heterogeneity


def test_the_table_beside_the_picture_says_the_same(tmp_path):
    path = tmp_path / "heterogeneity_toy.png"
    # Neither clients nor labels are in the order of their names.
    shares = np.array([[0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])
    heterogeneity.save(path, "toy", ["b", "'a"], ["10", "9", "=x"], shares)
    assert path.read_bytes().startswith(b"\x89PNG")
    clients, labels, found = heterogeneity.read(path.with_suffix(".csv"))
    assert (clients, labels) == (["b", "'a"], ["10", "9", "=x"])
    assert np.array_equal(found, shares)
    assert "b,'=x,0" in path.with_suffix(".csv").read_text().splitlines()


def test_another_table_is_refused(tmp_path):
    path = tmp_path / "heterogeneity_toy.csv"
    path.write_text("client_id,share\na,1\n")
    with pytest.raises(UserError, match="lacks columns label"):
        heterogeneity.read(path)


def test_sizes_are_drawn_and_written(tmp_path):
    path = tmp_path / "sizes_toy.png"
    heterogeneity.save_sizes(path, "toy", {"train": {"a": 3, "=b": 9}, "test": {"c": 1}})
    assert path.read_bytes().startswith(b"\x89PNG")
    lines = path.with_suffix(".csv").read_text().splitlines()
    assert lines == ["split,client_id,num_examples", "train,a,3", "train,'=b,9", "test,c,1"]
