"""Synthetic tasks, each made once in a process: they are frozen, and some take seconds."""

import functools

import datasets
from datasets.options import DataOptions


@functools.cache
def task(name, **options):
    """Returns a data set's synthetic task; of one without owners it is dealt by labels."""
    if name in datasets.DEALT:
        options = {"partition": "dirichlet:1", **options}
    return datasets.create_task(DataOptions(name, use_synthetic_data=True, **options))
