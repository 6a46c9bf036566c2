"""`report.html`: everything in one file that asks for nothing else.

Figures are inside as SVG data; a policy in the head forbids requests, and all scripts but ours,
which it knows by their hashes, so that a page that would need any shows it.
"""

import base64
import hashlib
import html
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_STYLE = pathlib.Path(__file__).with_name("report.css").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# What would end a script element, begin a comment, or end a line of JavaScript.
_ESCAPED = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


class Image(NamedTuple):
    """A figure on the page: `source` says which tables and runs it is of, `numbers` are rows of a
    table below it, and `files` say where it is.
    """

    anchor: str
    title: str
    caption: str
    source: str
    svg: bytes
    numbers: Sequence[Mapping[str, Any]] = ()
    files: Sequence[pathlib.Path] = ()


class Section(NamedTuple):
    """A part of the page: HTML from the functions below, and what the contents list below it. A
    script finds its data as JSON in `#ANCHOR-data`, and draws into `#ANCHOR-app`.
    """

    anchor: str
    title: str
    body: str
    images: Sequence[Image] = ()
    script: str = ""
    data: Any = None


def page(title: str, sections: Sequence[Section]) -> str:
    """Returns the whole page."""
    body = "\n".join(map(_section, sections))
    digests = [hashlib.sha256(s.script.encode()).digest() for s in sections if s.script]
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = f"{_POLICY}; script-src {sources}" if digests else _POLICY
    contents = []
    for section in sections:
        below = "".join(_link(image.anchor, image.title) for image in section.images)
        inner = f"<ul>{below}</ul>" if below else ""
        contents.append(_link(section.anchor, section.title, inner))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_text(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Without one, browsers ask the server for a favicon.
        '<link rel="icon" href="data:,">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{_text(title)}</h1>\n<nav aria-label="Contents">\n<ul>{"".join(contents)}</ul>\n'
        f"</nav>\n{body}\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    anchor, title = _text(section.anchor), _text(section.title)
    app = (
        f'<div id="{anchor}-app"><noscript>This part needs a script; the figures and tables below '
        f"do not.</noscript></div>\n"
        f'<script type="application/json" id="{anchor}-data">{data_text(section.data)}</script>\n'
        f"<script>{section.script}</script>\n"
    )
    inner = f"<h2>{title}</h2>\n{section.body}\n{app if section.script else ''}"
    return f'<section id="{anchor}">\n{inner}</section>'


def data_text(data: Any) -> str:
    """Returns a script's data as the JSON that stands in the page."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _link(anchor: str, title: str, inner: str = "") -> str:
    return f'<li><a href="#{_text(anchor)}">{_text(title)}</a>{inner}</li>'


def figures(images: Iterable[Image]) -> str:
    """Returns figures side by side, each with its caption."""
    return f'<div class="figures">\n{"".join(map(_figure, images))}</div>'


def _figure(image: Image) -> str:
    data = base64.b64encode(image.svg).decode()
    source = f"From {image.source}. Files: {', '.join(path.name for path in image.files)}."
    return (
        f'<figure id="{_text(image.anchor)}">\n<h3>{_text(image.title)}</h3>\n'
        f'<img alt="{_text(image.title)}" src="data:image/svg+xml;base64,{data}">\n'
        f"<figcaption>{_text(image.caption)}<br>{_text(source)}</figcaption>\n"
        f"{records('', image.numbers) if image.numbers else ''}</figure>\n"
    )


def records(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table of rows, with a column for each key that any of them has."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    return table(title, header, [[number(row.get(name)) for name in header] for row in rows])


def number(value: Any) -> str:
    """Returns a cell: of numbers four digits, nothing where one is not known."""
    if value is None or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], grouped: bool = False
) -> str:
    """Returns a table; if it is grouped, a first cell that repeats the one above is left empty."""
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in header)
    lines, last = [], None
    for first, *values in rows:
        is_new = not grouped or first != last
        last = first
        cells = "".join(f"<td>{_text(cell)}</td>" for cell in [first if is_new else "", *values])
        kind = ' class="group"' if is_new and grouped else ""
        lines.append(f"<tr{kind}>{cells}</tr>")
    body = "\n".join(lines)
    caption = f"<caption>{_text(title)}</caption>\n" if title else ""
    return (
        f'<div class="wide"><table>\n{caption}<thead><tr>{head}</tr>'
        f"</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def paragraph(text: str) -> str:
    """Returns a paragraph of plain text."""
    return f'<p class="note">{_text(text)}</p>'


def items(texts: Iterable[str]) -> str:
    """Returns a list of plain texts."""
    return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>"


def listed(texts: Sequence[str], most: int = 8) -> str:
    """Returns the first few texts, and how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def _text(text: str) -> str:
    return html.escape(text, quote=True)
