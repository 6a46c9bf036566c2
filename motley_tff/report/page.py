"""`report.html`: everything in one file that asks for nothing else.

Figures are inside as SVG data; a policy in the head forbids scripts and requests, so that a page
that would need any shows it.
"""

import base64
import html
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 2rem; }
figure { margin: 0; } figure img { width: 100%; max-width: 28rem; height: auto; }
figcaption, .note { font-size: .875rem; color: #444; } code { font-size: .9em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; margin: .5rem 0 1.5rem; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; }
thead th { border-bottom: 1px solid #222; } tbody tr.group { border-top: 1px solid #ccc; }
td { font-variant-numeric: tabular-nums; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Image(NamedTuple):
    """A figure on the page: `tables` says which tables and runs it is of, `files` where it is."""

    anchor: str
    title: str
    caption: str
    tables: str
    svg: bytes
    files: Sequence[pathlib.Path] = ()


class Section(NamedTuple):
    """A part of the page: HTML from the functions below, and what the contents list below it."""

    anchor: str
    title: str
    body: str
    images: Sequence[Image] = ()


def page(title: str, sections: Sequence[Section]) -> str:
    """Returns the whole page."""
    body = "\n".join(
        f'<section id="{_text(s.anchor)}">\n<h2>{_text(s.title)}</h2>\n{s.body}\n</section>'
        for s in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_text(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Without one, browsers ask the server for a favicon.
        '<link rel="icon" href="data:,">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_text(title)}</h1>\n{_contents(sections)}\n{body}\n</body>\n</html>\n"
    )


def _contents(sections: Sequence[Section]) -> str:
    items = []
    for section in sections:
        below = "".join(_link(image.anchor, image.title) for image in section.images)
        items.append(_link(section.anchor, section.title, f"<ul>{below}</ul>" if below else ""))
    return f'<nav aria-label="Contents">\n<ul>{"".join(items)}</ul>\n</nav>'


def _link(anchor: str, title: str, inner: str = "") -> str:
    return f'<li><a href="#{_text(anchor)}">{_text(title)}</a>{inner}</li>'


def figures(images: Iterable[Image]) -> str:
    """Returns figures side by side, each with its caption."""
    return f'<div class="figures">\n{"".join(map(_figure, images))}</div>'


def _figure(image: Image) -> str:
    data = base64.b64encode(image.svg).decode()
    source = f"From {image.tables}. Files: {', '.join(path.name for path in image.files)}."
    return (
        f'<figure id="{_text(image.anchor)}">\n<h3>{_text(image.title)}</h3>\n'
        f'<img alt="{_text(image.title)}" src="data:image/svg+xml;base64,{data}">\n'
        f"<figcaption>{_text(image.caption)}<br>{_text(source)}</figcaption>\n</figure>\n"
    )


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
    return (
        f'<div class="wide"><table>\n<caption>{_text(title)}</caption>\n<thead><tr>{head}</tr>'
        f"</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def paragraph(text: str) -> str:
    """Returns a paragraph of plain text."""
    return f'<p class="note">{_text(text)}</p>'


def items(texts: Iterable[str]) -> str:
    """Returns a list of plain texts."""
    return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>"


def _text(text: str) -> str:
    return html.escape(text, quote=True)
