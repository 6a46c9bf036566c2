"""Synthetic tasks, each made once in a process: they are frozen, and some take seconds."""

import functools

import datasets
from datasets.options import DataOptions


def options_of(name, **options):
    """Returns what to load of a data set's synthetic twin, by labels where there are no owners."""
    if name in datasets.DEALT:
        options = {"partition": "dirichlet:1", **options}
    return DataOptions(name, use_synthetic_data=True, **options)


@functools.cache
def task(name, **options):
    """Returns a data set's synthetic task."""
    return datasets.create_task(options_of(name, **options))
