"""TensorBoard scalars beside the CSVs, through TFF's own release manager."""

import asyncio
import pathlib
from collections.abc import Callable, Mapping

from motley_tff.core.lazy import tff

# (values by name, round)
Release = Callable[[Mapping[str, float], int], None]


def writer(directory: pathlib.Path) -> Release:
    """Returns a function that writes one round's scalars for TensorBoard into a directory."""
    manager = tff.program.TensorBoardReleaseManager(directory)

    def release(values: Mapping[str, float], round_number: int) -> None:
        asyncio.run(manager.release(dict(values), round_number))

    return release
