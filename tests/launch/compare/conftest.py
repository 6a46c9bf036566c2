"""Slurm for the test that wants it."""

from tests.launch.sweeps.conftest import cluster

__all__ = ["cluster"]
