r"""Turns TED talks in many languages (TSV) into English and Spanish clients in TFF's SQLite form.

    python -m datasets.prepare.ted_multi --output=DATA/ted_multi \
        --talks_tsv=all_talks_train.tsv,all_talks_dev.tsv,all_talks_test.tsv

Reads columns `talk_name`, `en` and `es` of the TSV files of ted_talks.tar.gz
(https://github.com/neulab/word-embeddings-for-nmt), a line at a time. Writes into --output

    ted_multi.sqlite           splits train, valid, test; a client is a talk in one language, its id
                               `en-<talk>` or `es-<talk>`; an example is a sentence, its feature
                               `tokens` the words, a space between them; in the order of the talk
    ted_multi_vocabulary.csv   `word,num_clients`: the model's words, those of most clients first
    ted_multi_report.json      what was read, kept and left out, and why; also printed

Words as in the code that Motley published: ASCII letters to lower case, `<br />` to a space, ASCII
punctuation removed, split on ASCII spaces. Entities keep their letters: `it &apos;s` becomes
`it aposs`. The vocabulary counts training clients, as the published code says of its own; also
those too small to be kept: the paper builds it first, then drops clients. What TFF's SQL cannot
hold in an id is replaced by `_`.
"""

import collections
import contextlib
import glob
import itertools
import json
import os
import pathlib
import re
import sqlite3
import string
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import flags

from datasets.prepare import client_database
from datasets.prepare.client_database import Unusable
from motley_tff import commandline
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

FLAGS = flags.FLAGS
_TALKS = errors.name("talks_tsv")

DATABASE, VOCABULARY = "ted_multi.sqlite", "ted_multi_vocabulary.csv"
REPORT = "ted_multi_report.json"
# The database last: with it, the others are there too.
_NAMES = (VOCABULARY, REPORT, DATABASE)
SPLITS = ("train", "valid", "test")
LANGUAGES = ("en", "es")
_TALK = "talk_name"
_SPLIT_OF = {"train": "train", "dev": "valid", "valid": "valid", "val": "valid", "test": "test"}
# As the source marks a sentence that nobody translated; once more after a tokenizer.
_UNTRANSLATED = re.compile(r"_ ?_ ?NULL ?_ ?_")
_BREAK = "<br />"
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACES = re.compile(r"[ \t\r\f\v]+")
# What stands for bytes that are no UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_NOT_IN_IDS = re.compile(r"[^\w.-]+")


class Thresholds(NamedTuple):
    """Words of fewer training clients are not in the vocabulary; smaller clients are left out."""

    min_clients_per_word: int = 20
    min_examples_per_client: int = 20


def define_flags() -> None:
    """Declares the command's flags; not at import, which tests and other commands do."""
    flags.DEFINE_list(
        "talks_tsv",
        None,
        "TSV files or globs, separated by commas; the word train, dev (or valid) or test in a "
        "file's name says its split.",
        required=True,
    )
    flags.DEFINE_string("output", None, "Folder that the files are written to.", required=True)
    for name, kind in (
        ("min_clients_per_word", "words that appear in at least so many training clients"),
        ("min_examples_per_client", "clients with at least so many sentences"),
    ):
        default = Thresholds._field_defaults[name]
        flags.DEFINE_integer(name, default, f"Keep {kind}.", lower_bound=1)


def main() -> None:
    """Prepares what the flags name and prints the report."""
    settings = Thresholds(FLAGS.min_clients_per_word, FLAGS.min_examples_per_client)
    report = prepare(find_files(FLAGS.talks_tsv), pathlib.Path(FLAGS.output), settings)
    print(json.dumps(report, indent=2))
    print(f"written: {', '.join(str(pathlib.Path(FLAGS.output) / n) for n in _NAMES)}")


def prepare(
    paths: Sequence[tuple[str, pathlib.Path]], output: pathlib.Path, settings: Thresholds
) -> dict[str, Any]:
    """Writes the three files, whole or not at all, the database last, and returns the report.
    UserError if a file cannot be read or written, or nothing is left to write.
    """
    with client_database.writing(output):
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output, prefix=".ted_multi.") as scratch:
            report = _write_all(paths, pathlib.Path(scratch), settings)
            # From here to the last rename an old database would meet a new vocabulary.
            (output / DATABASE).unlink(missing_ok=True)
            for name in _NAMES:
                os.replace(pathlib.Path(scratch) / name, output / name)
    return report


def find_files(patterns: Iterable[str]) -> list[tuple[str, pathlib.Path]]:
    """Returns (split, file), train, valid, then test; UserError if one of them has no file."""
    files: dict[pathlib.Path, str] = {}
    for pattern in patterns:
        matches = sorted(glob.glob(os.path.expanduser(pattern)))
        if not matches:
            raise UserError(_TALKS, pattern, "a file that is there", "give the TSV files' paths")
        for path in map(pathlib.Path, matches):
            splits = {
                _SPLIT_OF[w] for w in re.split(r"[^a-z]+", path.name.lower()) if w in _SPLIT_OF
            }
            if len(splits) != 1:
                expected = "one of train, dev, test in a file's name, such as all_talks_train.tsv"
                raise UserError(_TALKS, str(path), expected)
            files[path] = splits.pop()
    missing = [split for split in SPLITS if split not in files.values()]
    if missing:
        expected = f"also a file for {' and '.join(missing)} (train, dev and test in their names)"
        raise UserError(_TALKS, [path.name for path in files], expected)
    return sorted(((s, p) for p, s in files.items()), key=lambda pair: SPLITS.index(pair[0]))


class _TalkReader:
    """Reads TSV files into sentences, and counts rows by split and what is left out by reason."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = dict.fromkeys(SPLITS, 0)
        self.skipped = client_database.Skipped()
        self._talks: dict[str, tuple[str, str]] = {}  # {name: (split, its half of a client id)}
        self._ids: set[str] = set()

    def sentences(self, split: str, path: pathlib.Path) -> Iterator[tuple[str, str, str]]:
        """Yields (split, client id, words) of the sentences of one file."""
        try:
            with (
                errors.at(path),
                path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file,
            ):
                columns = _columns(file.readline())
                for line in file:
                    self.rows[split] += 1
                    for client_id, words in self._row(split, columns, line):
                        yield split, client_id, words
        except OSError as error:
            raise UserError(_TALKS, str(path), f"what can be read ({error.strerror})") from error

    def _row(self, split: str, columns: Sequence[str], line: str) -> Iterator[tuple[str, str]]:
        with self._counting():
            cells = _cells(line)
            if len(cells) != len(columns):
                which = "missing" if len(cells) < len(columns) else "too many"
                raise Unusable(f"rows with {which} columns")
            row = dict(zip(columns, cells, strict=True))
            talk = self._talk(split, row[_TALK])
            for language in LANGUAGES:
                with self._counting():
                    yield f"{language}-{talk}", _words(language, row[language])

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except Unusable as reason:
            self.skipped[str(reason)] += 1

    def _talk(self, split: str, name: str) -> str:
        """Returns the talk's half of a client id: safe inside SQL, and no other talk's."""
        if _NOT_UTF8.search(name):
            raise Unusable("rows with talk names that are not UTF-8")
        if not name or _UNTRANSLATED.fullmatch(name):
            raise Unusable("rows without a talk_name")
        if name not in self._talks:
            plain = _NOT_IN_IDS.sub("_", name)
            candidates = itertools.chain([plain], (f"{plain}_{i}" for i in itertools.count(2)))
            self._talks[name] = split, next(c for c in candidates if c not in self._ids)
            self._ids.add(self._talks[name][1])
        if self._talks[name][0] != split:
            raise Unusable("rows of a talk that another split has")
        return self._talks[name][1]


def _words(language: str, cell: str) -> str:
    words = normalize(cell)
    for reason, is_so in (
        ("not UTF-8", _NOT_UTF8.search(cell)),
        ("__NULL__", _UNTRANSLATED.fullmatch(cell)),
        ("empty", not cell),
        ("punctuation only", not words),
    ):
        if is_so:
            raise Unusable(f"{language} cells that are {reason}")
    return words


def _columns(line: str) -> list[str]:
    """Returns the names in a file's header."""
    columns = _cells(line)
    missing = {_TALK, *LANGUAGES} - set(columns)
    if _NOT_UTF8.search(line) or missing:
        problem = f"columns {', '.join(columns)[:80]!r}" if line.strip() else "nothing"
        expected = f"{', '.join(sorted(missing))} among them, UTF-8 separated by tabs"
        raise UserError("line 1", problem, expected, "unpack the archive and give its TSV files")
    return columns


def _cells(line: str) -> list[str]:
    """Returns a line's cells; the source quotes nothing."""
    return [cell.strip() for cell in line.rstrip("\r\n").split("\t")]


def normalize(text: str) -> str:
    """Returns a sentence's words with one space between them; the module says what words are."""
    text = text.translate(_LOWER).replace(_BREAK, " ").translate(_NO_PUNCTUATION)
    return _SPACES.sub(" ", text.replace("\n", " ")).strip(" ")


def _write_all(
    paths: Sequence[tuple[str, pathlib.Path]], folder: pathlib.Path, settings: Thresholds
) -> dict[str, Any]:
    """Writes the three files into `folder` and returns the report."""
    reader = _TalkReader()
    with client_database.create(folder / DATABASE) as database:
        # Rows of a talk may lie anywhere in the files, and memory should not hold them all.
        database.execute("CREATE TABLE scratch.sentences (split TEXT, client TEXT, words TEXT)")
        for split, path in paths:
            sentences = reader.sentences(split, path)
            database.executemany("INSERT INTO scratch.sentences VALUES (?, ?, ?)", sentences)
        counts, report = _write_clients(database, settings)
    words = [pair for pair in counts.items() if pair[1] >= settings.min_clients_per_word]
    vocabulary = sorted(words, key=lambda pair: (-pair[1], pair[0]))
    report = {
        "settings": settings._asdict(),
        "rows": reader.rows,
        **report,
        "words": {"kept": len(vocabulary), "in too few clients": len(counts) - len(vocabulary)},
        "skipped": dict(sorted(reader.skipped.items())),
    }
    _check_enough(report)
    rows = ({"word": word, "num_clients": count} for word, count in vocabulary)
    csv_files.write(folder / VOCABULARY, ("word", "num_clients"), rows)
    (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def _write_clients(
    database: sqlite3.Connection, settings: Thresholds
) -> tuple[collections.Counter[str], dict[str, Any]]:
    """Writes large clients; returns each word's number of training clients, and counts by split."""
    counts: collections.Counter[str] = collections.Counter()
    large, small = ({s: {"clients": 0, "examples": 0} for s in SPLITS} for _ in range(2))
    ordered = database.execute(
        "SELECT split, client, words FROM scratch.sentences ORDER BY split, client, rowid"
    )
    for (split, client_id), group in itertools.groupby(ordered, key=lambda row: row[:2]):
        sentences = [words for _, _, words in group]
        if split == "train":
            counts.update({word for sentence in sentences for word in sentence.split(" ")})
        is_large = len(sentences) >= settings.min_examples_per_client
        tally = (large if is_large else small)[split]
        tally["clients"] += 1
        tally["examples"] += len(sentences)
        if is_large:
            examples = ({"tokens": sentence} for sentence in sentences)
            client_database.insert(database, split, client_id, examples)
    client_database.finish(database)
    return counts, {"kept": large, "too small": small}


def _check_enough(report: dict[str, Any]) -> None:
    skipped = client_database.listed(report["skipped"])
    for split in SPLITS:
        if not report["kept"][split]["clients"]:
            expected = f"some clients in {report['rows'][split]} rows of {split}"
            raise _too_high(report, "min_examples_per_client", f"{expected} (skipped: {skipped})")
    if not report["words"]["kept"]:
        expected = f"some of {report['words']['in too few clients']} words"
        raise _too_high(report, "min_clients_per_word", expected)


def _too_high(report: dict[str, Any], field: str, expected: str) -> UserError:
    value, advice = report["settings"][field], "lower it or give more talks"
    return UserError(errors.name(field), value, f"{expected} to be left", advice)


if __name__ == "__main__":
    define_flags()
    commandline.run_main(main)
