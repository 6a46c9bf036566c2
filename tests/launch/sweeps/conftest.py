"""A real Slurm of one node for the tests that want one."""

import pytest

from tests.launch.sweeps import one_node_slurm
from tests.trainers import programs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The environment in which its commands find it, and programs this checkout."""
    reason = one_node_slurm.why_not()
    if reason:
        pytest.skip(f"no Slurm here: {reason}")
    with one_node_slurm.running(tmp_path_factory.mktemp("slurm")) as environment:
        yield {**environment, "PYTHONPATH": str(programs.ROOT)}
