"""A real Slurm of one node for the tests that want one."""

import pathlib
import tempfile

import pytest

from tests.launch.sweeps import one_node_slurm
from tests.trainers import programs


@pytest.fixture(scope="module")
def cluster():
    """The environment in which its commands find it, and programs this checkout."""
    reason = one_node_slurm.why_not()
    if reason:
        pytest.skip(f"no Slurm here: {reason}")
    # Short: sockets' paths are, and Slurm's settings know no spaces.
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        one_node_slurm.running(pathlib.Path(folder)) as environment,
    ):
        yield {**environment, "PYTHONPATH": str(programs.ROOT)}
