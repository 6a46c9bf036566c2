"""Tables as text: for a terminal and for Markdown, whose table can be read as text, too."""

from collections.abc import Iterator, Sequence

from motley_tff.core.errors import printable


def aligned(table: Sequence[Sequence[str]], gap: str = "  ") -> Iterator[str]:
    """Yields the lines of rows of cells, the header first: numbers are aligned to the right."""
    safe = [[printable(cell) for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    for row in safe:
        yield gap.join(_padded(row, widths)).rstrip()


def markdown(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a Markdown table of rows of cells, the header first."""
    safe = [[printable(cell).replace("|", r"\|") for cell in row] for row in table]
    widths = [max(3, *map(len, column)) for column in zip(*safe, strict=True)]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    for row in (safe[0], rule, *safe[1:]):
        yield "| " + " | ".join(_padded(row, widths)) + " |"


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Returns cells of the columns' widths: the first is a name, the others are numbers."""
    first, *numbers = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in numbers)]
