"""Reads the rows of a Stack Exchange dump, a chunk of the file at a time."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from xml.parsers import expat

from motley_tff.core import errors
from motley_tff.core.errors import UserError

# Stands for bytes that are not UTF-8: XML allows this character, Unicode keeps it out of texts.
BROKEN = "\ufdd0"
codecs.register_error("motley_broken", lambda error: (BROKEN, error.end))  # type: ignore[attr-defined]

_CHUNK = 2**20
# Stack Exchange lets a post have 30,000 characters. A row this long is no dump's, and would have to
# be in memory as a whole.
_MAX_ROW = 2**25
# Characters that XML does not have, as they are or as hexadecimal or decimal references: real dumps
# contain some. Halves of surrogate pairs, U+D800 to U+DFFF, are there as references only.
_NOT_XML = re.compile(
    r"&#(?:x0*(?:[0-8bcef]|1[0-9a-f]|d[89a-f][0-9a-f]{2}|fff[ef])|"
    r"0*(?:[0-8]|1[124-9]|2\d|3[01]|5529[6-9]|55[3-9]\d\d|56\d{3}|57[0-2]\d\d|573[0-3]\d|5734[0-3]|"
    r"6553[45]));"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]",
    re.IGNORECASE,
)
_LONGEST_REFERENCE = 12


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yields each row of a `Posts.xml` as `{attribute: text}`. Bytes that are not UTF-8 become
    `BROKEN`, so that their row alone is lost; characters that XML does not have become spaces.
    UserError, maybe after some rows, if it is no well-formed XML, has a row of more than 32 million
    characters, or a document type (entities can explode).
    """
    rows: list[dict[str, str]] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "row":
            rows.append(attributes)

    def refuse(*_: object) -> None:
        raise UserError("", "a document type", "none, as in every dump")

    parser = expat.ParserCreate("UTF-8")
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = start, refuse
    pending = 0
    with errors.at(path), path.open(encoding="utf-8", errors="motley_broken", newline="") as file:
        for text, is_last in _mended(file):
            try:
                parser.Parse(text, is_last)
            except expat.ExpatError as error:
                place, advice = f"line {error.lineno}", "unpack the file again"
                problem = expat.ErrorString(error.code)
                raise UserError(place, problem, "well-formed XML", advice) from error
            pending = 0 if rows else pending + len(text)
            if pending > _MAX_ROW:
                problem = f"a row of more than {_MAX_ROW:,} characters"
                raise UserError(f"line {parser.CurrentLineNumber}", problem, "posts of 30,000")
            yield from rows
            rows.clear()


def _mended(file: IO[str]) -> Iterator[tuple[str, bool]]:
    """Yields (text of what XML has, is it the last), no reference cut in two."""
    rest, is_last = "", False
    while not is_last:
        chunk = file.read(_CHUNK)
        is_last = not chunk
        text = rest + chunk
        begun = -1 if is_last else text.rfind("&", -_LONGEST_REFERENCE)
        end = len(text) if begun < 0 else begun
        rest = text[end:]
        yield _NOT_XML.sub(" ", text[:end]), is_last
