"""Synthetic tasks, each made once in a process: they are frozen, and some take seconds."""

import functools

import datasets
from datasets.options import DataOptions


@functools.cache
def task(name, **options):
    """Returns a data set's synthetic task."""
    return datasets.create_task(DataOptions(name, use_synthetic_data=True, **options))
