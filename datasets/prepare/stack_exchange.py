"""Turns any Stack Exchange dump into the SQLite form of TFF's StackOverflow.

    python -m datasets.prepare.stack_exchange --posts_xml=Posts.xml --output=stack_exchange.sqlite

Dumps are at https://archive.org/details/stackexchange, one 7z archive a site with a `Posts.xml` in
it. A client is a user, an example one sentence of a question or an answer, in TFF's fields:
`tokens` (lower case, separated by spaces, punctuation on its own, URLs as <URL>; without markup,
code blocks and what is not ASCII; typographic quotes and dashes become ASCII's first),
`creation_date` in UTC, the post's `score`, its `type`, and its question's `title` and `tags`. Posts
that cannot be used are counted by reason. The dump is read once, in memory that does not grow with
it, and the output appears whole or not at all.
"""

import datetime
import html
import re
import sqlite3
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from absl import flags

from datasets.prepare import client_database, stack_exchange_xml
from datasets.prepare.client_database import Unusable
from datasets.readers import files
from motley_tff import commandline
from motley_tff.core import errors
from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS

# The one split of a prepared file; the loader splits the users.
SPLIT = "stack_exchange"

_QUESTION, _ANSWER = "1", "2"
_TYPES = {_QUESTION: "question", _ANSWER: "answer"}
# Stack Exchange lets a post have 30,000 characters, before they become HTML.
_MAX_BODY_CHARACTERS = 500_000
_TOO_LONG = f"a body of more than {_MAX_BODY_CHARACTERS:,} characters"
_POSTS_PER_LINE = 1_000_000
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


class Post(NamedTuple):
    """What becomes examples."""

    client_id: str  # The owner.
    fields: dict[str, str | int]  # Of all sentences: creation_date, score, tags, title, type.
    sentences: list[str]  # Tokens separated by spaces, at least one.


def define_flags() -> None:
    """Declares the command's flags; not at import, which tests and other commands do."""
    flags.DEFINE_string("posts_xml", None, "The dump's Posts.xml.", required=True)
    flags.DEFINE_string("output", None, "The file to write; ends in .sqlite.", required=True)
    flags.DEFINE_bool("keep_non_ascii", False, "Keep all letters; TFF's data have ASCII alone.")


def main() -> None:
    """Prepares one dump and prints what was kept and what was not."""
    report = prepare(Path(FLAGS.posts_xml), Path(FLAGS.output), FLAGS.keep_non_ascii)
    print(f"{FLAGS.output}:")
    for kind, count in report.items():
        print(f"{count:>12,} {kind}")


def prepare(posts_xml: Path, output: Path, keep_non_ascii: bool = False) -> dict[str, int]:
    """Writes or replaces TFF's form of a dump, and returns `{words: how many}` of what was kept and
    what was not; UserError if it is no dump or has nothing to use.
    """
    files.existing("posts_xml", posts_xml, "a dump's Posts.xml")
    with posts_xml.open("rb") as file:
        if file.read(4) == b"7z\xbc\xaf":
            expected, advice = "XML, and this is a 7z archive", "unpack it first"
            raise UserError(errors.name("posts_xml"), str(posts_xml), expected, advice)
    client_database.check_output(output, ".sqlite")
    with client_database.writing(output), files.appearing(output) as temporary:
        with client_database.create(temporary) as connection:
            report = _write(connection, stack_exchange_xml.read_rows(posts_xml), keep_non_ascii)
        if not report["posts kept"]:
            skipped = client_database.listed({k: n for k, n in report.items() if n})
            problem = f"no post that can be used ({skipped})"
            raise UserError(str(posts_xml), problem, "questions and answers with an owner")
    return report


def parse_post(row: Mapping[str, str], keep_non_ascii: bool = False) -> Post:
    """Returns a row as a post, or raises Unusable; an answer's title and tags are still empty."""
    kind, owner = row.get("PostTypeId", ""), row.get("OwnerUserId", "").strip()
    date, score, body = (row.get(name, "") for name in ("CreationDate", "Score", "Body"))
    for reason, is_so in (
        ("neither a question nor an answer", kind not in _TYPES),
        ("bytes that are not UTF-8", stack_exchange_xml.BROKEN in "".join(row.values())),
        ("no owner", not owner),
        ("a date that does not parse", not (utc := _utc(date))),
        ("a score that is no number", not re.fullmatch(r"[+-]?[0-9]{1,18}", score)),
        ("an empty body", not body.strip()),
        (_TOO_LONG, len(body) > _MAX_BODY_CHARACTERS),
    ):
        if is_so:
            raise Unusable(reason)
    sentences = split_sentences(body, keep_non_ascii)
    if not sentences:
        raise Unusable("no words outside of code blocks")
    heading = _heading(row, keep_non_ascii)
    own: dict[str, str | int] = {"creation_date": utc, "score": int(score), "type": _TYPES[kind]}
    # The id becomes part of a query in TFF: no quotes or the like, and still one id a user.
    return Post(urllib.parse.quote(owner, safe=""), {**own, **heading}, sentences)


def _utc(date: str) -> str:
    """Returns `2014-01-21T20:26:05.380` as TFF writes it, `2014-01-21 20:26:05.38 UTC`; "" of
    what is no date.
    """
    try:
        time = datetime.datetime.fromisoformat(date)
        if time.tzinfo is not None:
            time = time.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return ""
    return time.isoformat(" ", "microseconds").rstrip("0").rstrip(".") + " UTC"


def _heading(row: Mapping[str, str], keep_non_ascii: bool) -> dict[str, str]:
    """Returns title and tags: those of a question; an answer has none of its own."""
    # <one><two> in older dumps, |one|two| in newer ones.
    title, *tags = (
        tokenize(text.replace(stack_exchange_xml.BROKEN, ""), keep_non_ascii)
        for text in (row.get("Title", ""), *re.split(r"[<>|]+", row.get("Tags", "")))
    )
    return {"title": title, "tags": "|".join(tag for tag in tags if tag)}


def split_sentences(body: str, keep_non_ascii: bool = False) -> list[str]:
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


def _write(
    connection: sqlite3.Connection, rows: Iterable[Mapping[str, str]], keep_non_ascii: bool
) -> dict[str, int]:
    connection.execute(
        "CREATE TABLE scratch.questions (id TEXT PRIMARY KEY, title TEXT, tags TEXT) WITHOUT ROWID"
    )
    report = {"posts kept": 0, "answers without their question": 0}
    skipped, sentences = client_database.Skipped(), 0
    for number, row in enumerate(rows, 1):
        if number % _POSTS_PER_LINE == 0:
            print(f"{number:,} posts read", flush=True)
        if row.get("PostTypeId") == _QUESTION:
            question = row.get("Id", ""), *_heading(row, keep_non_ascii).values()
            connection.execute(
                "INSERT OR REPLACE INTO scratch.questions VALUES (?, ?, ?)", question
            )
        try:
            post = parse_post(row, keep_non_ascii)
        except Unusable as reason:
            skipped[f"posts skipped: {reason}"] += 1
            continue
        if row["PostTypeId"] == _ANSWER:
            heading = connection.execute(
                "SELECT title, tags FROM scratch.questions WHERE id = ?", (row.get("ParentId", ""),)
            ).fetchone()
            if heading is None:
                report["answers without their question"] += 1
            else:
                post.fields.update(title=heading[0], tags=heading[1])
        examples = ({**post.fields, "tokens": sentence} for sentence in post.sentences)
        client_database.insert(connection, SPLIT, post.client_id, examples)
        report["posts kept"] += 1
        sentences += len(post.sentences)
    client_database.finish(connection)
    report.update(skipped.most_common())
    connection.execute("CREATE TABLE preparation (what TEXT NOT NULL, count INTEGER NOT NULL)")
    connection.executemany("INSERT INTO preparation VALUES (?, ?)", report.items())
    (users,) = connection.execute("SELECT COUNT(*) FROM client_metadata").fetchone()
    return {"users": users, "sentences": sentences, **report}


if __name__ == "__main__":
    define_flags()
    commandline.run_main(main)
