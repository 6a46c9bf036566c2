"""`report.html`: everything in one file that asks for nothing else.

Figures are inside as SVG data; a policy in the head forbids requests, and all scripts but ours,
which it knows by their hashes, so that a page that would need any shows it.
"""

import base64
import hashlib
import html
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
.figures { display: grid; gap: 2rem;
           grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)); }
figure { margin: 0; } figure img { width: 100%; max-width: 28rem; height: auto; }
figcaption, .note { font-size: .875rem; color: #444; } code { font-size: .9em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; margin: .5rem 0 1.5rem; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; }
thead th { border-bottom: 1px solid #222; } tbody tr.group { border-top: 1px solid #ccc; }
td { font-variant-numeric: tabular-nums; } tr[aria-current] { font-weight: 600; }
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: end; }
.controls label { font-size: .875rem; display: flex; flex-direction: column; }
.controls label, .controls select { max-width: 100%; }
.controls input[type=number] { width: 7rem; } canvas { max-width: 100%; touch-action: none; }
#explorer .wide { max-height: 24rem; overflow: auto; }
#explorer thead th { position: sticky; top: 0; background: #fff; }
@media print { #explorer { display: none; } }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# What would end a script element, begin a comment, or end a line of JavaScript.
_ESCAPED = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


class Image(NamedTuple):
    """A figure on the page: `tables` says which tables and runs it is of, `files` where it is."""

    anchor: str
    title: str
    caption: str
    tables: str
    svg: bytes
    files: Sequence[pathlib.Path] = ()


class App(NamedTuple):
    """What a section does: a script, and the data that it finds as JSON in `#ANCHOR-data`; it draws
    into `#ANCHOR-app`.
    """

    data: Any
    script: str


class Section(NamedTuple):
    """A part of the page: HTML from the functions below, what the contents list below it, and what
    it does.
    """

    anchor: str
    title: str
    body: str
    images: Sequence[Image] = ()
    app: App | None = None


def page(title: str, sections: Sequence[Section]) -> str:
    """Returns the whole page."""
    body = "\n".join(map(_section, sections))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_text(_policy(sections))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Without one, browsers ask the server for a favicon.
        '<link rel="icon" href="data:,">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_text(title)}</h1>\n{_contents(sections)}\n{body}\n</body>\n</html>\n"
    )


def _policy(sections: Iterable[Section]) -> str:
    scripts = [section.app.script for section in sections if section.app]
    if not scripts:
        return _POLICY
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"{_POLICY}; script-src {sources}"


def _section(section: Section) -> str:
    anchor, title = _text(section.anchor), _text(section.title)
    inner = f"<h2>{title}</h2>\n{section.body}\n{_app(section)}"
    return f'<section id="{anchor}">\n{inner}</section>'


def _app(section: Section) -> str:
    if section.app is None:
        return ""
    anchor = _text(section.anchor)
    return (
        f'<div id="{anchor}-app"><noscript>This part needs a script; the figures and tables below '
        f"do not.</noscript></div>\n"
        f'<script type="application/json" id="{anchor}-data">'
        f"{data_text(section.app.data)}</script>\n"
        f"<script>{section.app.script}</script>\n"
    )


def data_text(data: Any) -> str:
    """Returns an app's data as the JSON that stands in the page."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


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
