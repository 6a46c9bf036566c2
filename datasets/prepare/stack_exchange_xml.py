"""Reads the rows of a Stack Exchange dump, which has one a line."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

import defusedxml
from defusedxml import ElementTree as safe_xml

from datasets.readers import files
from motley_tff.core import errors
from motley_tff.core.errors import UserError

# Stands for bytes that are not UTF-8: XML allows this character, Unicode keeps it out of texts.
BROKEN = "\ufdd0"
codecs.register_error("motley_broken", lambda error: (BROKEN, error.end))  # type: ignore[attr-defined]

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
# The lines of a dump that are no rows: the declaration, and where its only element begins and ends.
_FRAME = re.compile(r"<\?xml[^<>]*\?>|</?\w+>")


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yields each row of a `Posts.xml` as `{attribute: text}`. Bytes that are not UTF-8 become
    `BROKEN`, so that their row alone is lost; characters that XML does not have become spaces.
    UserError, maybe after some rows, if a line is no whole row, of 32 million characters at most,
    or the file ends too early.
    """
    line = ""
    with errors.at(path), path.open(encoding="utf-8-sig", errors="motley_broken") as file:
        for number, read in enumerate(iter(lambda: file.readline(_MAX_ROW), ""), 1):
            line = _NOT_XML.sub(" ", read).strip()
            try:
                if line and not _FRAME.fullmatch(line):
                    row = safe_xml.fromstring(line)
                    yield dict(row.attrib)
            except (safe_xml.ParseError, defusedxml.DefusedXmlException) as error:
                expected = "a whole <row .../> a line, as in every dump"
                raise UserError(
                    f"line {number}", files.one_line(error), expected, "unpack the file again"
                ) from error
        if not line.startswith("</"):
            raise UserError("", "no end of the posts", "</posts>", "unpack the file again")
