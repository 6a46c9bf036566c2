"""The page for a browser: the comparison's tables before what `motley_report` draws of its runs."""

import pathlib
from collections.abc import Mapping, Sequence

from launch.compare import tables
from launch.compare.tables import ComparedMethods
from launch.report import building, page
from motley_tff import commandline


def draw(
    directory: pathlib.Path,
    comparison: ComparedMethods,
    seconds: Mapping[str, float],
    sweeps: Sequence[pathlib.Path],
) -> pathlib.Path:
    """Draws the page of a comparison and its sweeps; returns its path."""
    header, *rows = tables.method_cells(comparison, seconds)
    parts = [page.paragraph(tables.sentence(comparison)), page.table("Methods", header, rows)]
    if comparison.pairs:
        header, *rows = tables.pair_cells(comparison)
        parts.append(page.table(tables.pairs_title(comparison), header, rows))
    parts.append(page.items(tables.notes(comparison)))
    section = page.Section("comparison", "Comparison", "\n".join(parts))
    paths = [str(path) for path in sweeps]
    built = building.build(
        paths, directory / "report", "svg", lambda name: commandline.raise_if_ended(), True,
        [section],
    )  # fmt: skip
    return built.page
