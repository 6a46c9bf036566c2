"""Reads the rows of a Stack Exchange dump, a chunk of the file at a time."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from motley_tff.core import errors
from motley_tff.core.errors import UserError

# Stands for bytes that are not UTF-8: XML allows this character, Unicode keeps it out of texts.
BROKEN = "\ufdd0"

_CHUNK_BYTES = 2**20
# Stack Exchange lets a post have 30,000 characters. A row this long is no dump's, and would have to
# be in memory as a whole.
_MAX_ROW_BYTES = 2**25
# Characters that XML does not have, as they are or as hexadecimal or decimal references: real dumps
# contain some. Halves of surrogate pairs, U+D800 to U+DFFF, are there as references only.
_NOT_XML = re.compile(
    r"&#(?:x0*(?:[0-8bcef]|1[0-9a-f]|d[89a-f][0-9a-f]{2}|fff[ef])|"
    r"0*(?:[0-8]|1[124-9]|2\d|3[01]|5529[6-9]|55[3-9]\d\d|56\d{3}|57[0-2]\d\d|573[0-3]\d|5734[0-3]|"
    r"6553[45]));"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]",
    re.IGNORECASE,
)
_UNFINISHED_REFERENCE = re.compile(r"&[#0-9a-zA-Z]{0,11}\Z")


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yields each row of a `Posts.xml` as `{attribute: text}`. Bytes that are not UTF-8 become
    `BROKEN`, so that their row alone is lost; characters that XML does not have become spaces.
    UserError, maybe after some rows, if it is no well-formed XML, does not begin with <posts>, has
    a row of more than 32 MiB, declares another encoding, or a document type (entities can explode).
    """
    rows: list[dict[str, str]] = []
    parser = _parser(rows)
    fed = 0
    with errors.at(path), path.open("rb") as file:
        for data, is_last in _mended(file):
            fed += len(data)
            try:
                parser.Parse(data, is_last)
            except expat.ExpatError as error:
                found, place = expat.ErrorString(error.code), f"line {error.lineno}"
                raise UserError(place, found, "well-formed XML", "unpack the file again") from error
            if fed - parser.CurrentByteIndex > _MAX_ROW_BYTES:
                place = f"line {parser.CurrentLineNumber}"
                found = f"a row of more than {_MAX_ROW_BYTES:,} bytes"
                raise UserError(place, found, "posts of 30,000 characters")
            yield from rows
            rows.clear()


def _mended(file: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yields (piece of UTF-8 as `read_rows` says, is it the last), no reference cut in two."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    remainder, is_last = "", False
    while not is_last:
        chunk = file.read(_CHUNK_BYTES)
        is_last = not chunk
        text = remainder + decoder.decode(chunk, is_last)
        unfinished = None if is_last else _UNFINISHED_REFERENCE.search(text, len(text) - 12)
        end = unfinished.start() if unfinished else len(text)
        text, remainder = _NOT_XML.sub(" ", text[:end]), text[end:]
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = re.sub("[\udc80-\udcff]+", BROKEN, text).encode()
        yield data, is_last


def _parser(rows: list[dict[str, str]]) -> Any:
    """Returns a parser that appends to `rows`."""
    parser = expat.ParserCreate("UTF-8")
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        if depth == 0 and name != "posts":
            raise UserError("", f"<{name}> as the first element", "<posts>")
        if depth == 1 and name == "row":
            rows.append(attributes)
        depth += 1

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: Any) -> None:
        raise UserError("", "a document type", "none, as in every dump")

    def declare(version: str, encoding: str | None, standalone: int) -> None:
        if encoding and encoding.lower() not in ("utf-8", "utf8", "us-ascii"):
            raise UserError("", f"the encoding {encoding!r}", "UTF-8")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.XmlDeclHandler = declare
    return parser
