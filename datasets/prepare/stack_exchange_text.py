"""Makes sentences of tokens, as TFF's StackOverflow has them, of a post's HTML.

TFF's: lower case, HTML unescaped, only ASCII, punctuation but apostrophes and hyphens on its own,
URLs replaced by a token. Here also: typographic quotes and dashes become ASCII's first, and
markup and code blocks are dropped (inline code is not).
"""

import html
import re

_BLOCKS = frozenset(
    "address blockquote br dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p pre table tbody td th thead "
    "tr ul".split()
)
_DROPPED = frozenset(("pre", "script", "style"))
# Enough for what Stack Exchange lets through, and linear in the body's length, which Python's HTML
# parser is not.
_TAG = re.compile(r"<(?:(?P<end>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*)|[!?])[^<>]*>")
_BREAK = "\u2029"
_TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": " - ", "—": " - ", "…": "..."}
)
# After a full stop, and a closing quote or bracket, where something like a new sentence begins.
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')\]]))\s(?=[^\w\s]{0,2}[^\Wa-z_])")
_URL_END = r"[^\s\"'<>().,;:!?\]]"
_TOKEN = re.compile(rf"(?P<url>(?:(?:https?|ftp)://|www\.)\S*{_URL_END})|(?:[^\W_]|['-])+|\S")


def sentences(body: str, keep_non_ascii: bool = False) -> list[str]:
    """Returns the sentences of a post's HTML, each as `tokenize` has it; none is empty."""
    tokenized = (
        tokenize(sentence, keep_non_ascii)
        for block in text_blocks(body)
        for sentence in _SENTENCE_END.split(block)
    )
    return [sentence for sentence in tokenized if sentence]


def tokenize(text: str, keep_non_ascii: bool = False) -> str:
    """Returns the lower-case tokens of text without markup, a space between them, URLs as <URL>."""
    text = text.translate(_TYPOGRAPHY).lower()
    if not keep_non_ascii:
        text = text.encode("ascii", "ignore").decode()
    return " ".join("<URL>" if m["url"] else m[0] for m in _TOKEN.finditer(text))


def text_blocks(body: str) -> list[str]:
    """Returns the text in HTML, one string a paragraph or the like, without code blocks."""
    pieces, dropping, position = [], 0, 0
    for tag in _TAG.finditer(body):
        if not dropping:
            pieces.append(body[position : tag.start()])
        name = (tag["name"] or "").lower()
        if name in _BLOCKS:
            pieces.append(_BREAK)
        if name in _DROPPED:
            dropping = max(0, dropping + (-1 if tag["end"] else 1))
        position = tag.end()
    if not dropping:
        pieces.append(body[position:])
    blocks = (" ".join(html.unescape(b).split()) for b in "".join(pieces).split(_BREAK))
    return [block for block in blocks if block]
