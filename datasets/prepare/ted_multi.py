r"""Turns TED talks in many languages (TSV) into English and Spanish clients in TFF's SQLite form.

    python -m datasets.prepare.ted_multi --output=DATA/ted_multi \
        --talks_tsv=all_talks_train.tsv,all_talks_dev.tsv,all_talks_test.tsv

Reads columns `talk_name`, `en` and `es` of the TSV files of ted_talks.tar.gz
(https://github.com/neulab/word-embeddings-for-nmt). Writes into --output

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
import glob
import itertools
import json
import os
import pathlib
import re
import string
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from absl import flags

from datasets.prepare import client_database
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
_COLUMNS = (_TALK, *LANGUAGES)
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


def _read(split: str, path: pathlib.Path) -> Iterator[tuple[Any, ...]]:
    """Yields a file's rows: the split, by how many cells a row is too long, and the cells of
    `_COLUMNS`, empty ones for those that it lacks.
    """
    try:
        with (
            errors.at(path),
            path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file,
        ):
            columns = _columns(file.readline())
            places = [columns.index(name) for name in _COLUMNS]
            for line in file:
                cells = _cells(line)
                padded = [*cells, *[""] * len(columns)]
                yield split, len(cells) - len(columns), *(padded[place] for place in places)
    except OSError as error:
        raise UserError(_TALKS, str(path), f"what can be read ({error.strerror})") from error


def _sentences(rows: pd.DataFrame, skipped: collections.Counter[str]) -> pd.DataFrame:
    """Returns the sentences that can be used, columns `split`, `client` and `words`, in the order
    of the files; counts the others by reason.
    """
    names = rows[_TALK]
    rows = _usable(rows, skipped, {
        "rows with missing columns": rows.surplus < 0,
        "rows with too many columns": rows.surplus > 0,
        "rows with talk names that are not UTF-8": names.str.contains(_NOT_UTF8),
        "rows without a talk_name": (names == "") | names.str.fullmatch(_UNTRANSLATED),
    })  # fmt: skip
    first = rows.groupby(_TALK).split.transform("first")
    rows = _usable(rows, skipped, {"rows of a talk that another split has": rows.split != first})
    clients = rows[_TALK].map(_ids(rows[_TALK].unique()))
    sentences = []
    for language in LANGUAGES:
        cells = rows[language]
        columns = {"split": rows.split, "client": f"{language}-" + clients}
        said = pd.DataFrame({**columns, "words": cells.map(normalize)})
        sentences.append(_usable(said, skipped, {
            f"{language} cells that are not UTF-8": cells.str.contains(_NOT_UTF8),
            f"{language} cells that are __NULL__": cells.str.fullmatch(_UNTRANSLATED),
            f"{language} cells that are empty": cells == "",
            f"{language} cells that are punctuation only": said.words == "",
        }))  # fmt: skip
    return pd.concat(sentences)


def _usable(
    rows: pd.DataFrame, skipped: collections.Counter[str], reasons: Mapping[str, pd.Series]
) -> pd.DataFrame:
    """Returns the rows that no reason excludes, and counts the others by their first reason."""
    first = pd.Series(None, rows.index, object)
    for reason, holds in reasons.items():
        first[holds & first.isna()] = reason
    skipped.update(first.dropna())
    return rows[first.isna()]


def _ids(names: Iterable[str]) -> dict[str, str]:
    """Returns each talk's half of a client id: safe inside SQL, and no other talk's."""
    owners: dict[str, str] = {}
    for name in names:
        plain = _NOT_IN_IDS.sub("_", name)
        candidates = itertools.chain([plain], (f"{plain}_{i}" for i in itertools.count(2)))
        owners[next(c for c in candidates if c not in owners)] = name
    return {name: of_talk for of_talk, name in owners.items()}


def _columns(line: str) -> list[str]:
    """Returns the names in a file's header."""
    columns = _cells(line)
    missing = set(_COLUMNS) - set(columns)
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
    read = itertools.chain.from_iterable(_read(*named) for named in paths)
    rows = pd.DataFrame(read, columns=["split", "surplus", *_COLUMNS])
    skipped: collections.Counter[str] = collections.Counter()
    sentences = _sentences(rows, skipped)
    counts: collections.Counter[str] = collections.Counter()
    for _, said in sentences[sentences.split == "train"].groupby("client").words:
        counts.update(set(" ".join(said).split(" ")))
    vocabulary = [pair for pair in counts.items() if pair[1] >= settings.min_clients_per_word]
    by_client = ["split", "client"]
    sizes = sentences.groupby(by_client).words.transform("size")
    is_large = sizes >= settings.min_examples_per_client
    report = {
        "settings": settings._asdict(),
        "rows": {split: int((rows.split == split).sum()) for split in SPLITS},
        "kept": _by_split(sentences[is_large]),
        "too small": _by_split(sentences[~is_large]),
        "words": {"kept": len(vocabulary), "in too few clients": len(counts) - len(vocabulary)},
        "skipped": dict(sorted(skipped.items())),
    }
    _check_enough(report)
    with client_database.create(folder / DATABASE) as database:
        for (split, client_id), said in sentences[is_large].groupby(by_client).words:
            examples = ({"tokens": words} for words in said)
            client_database.insert(database, split, client_id, examples)
        client_database.finish(database)
    vocabulary.sort(key=lambda pair: (-pair[1], pair[0]))
    named = ({"word": word, "num_clients": count} for word, count in vocabulary)
    csv_files.write(folder / VOCABULARY, ("word", "num_clients"), named)
    (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def _by_split(sentences: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Returns how many clients and examples each split has."""
    parts = {split: sentences[sentences.split == split] for split in SPLITS}
    return {
        split: {"clients": int(part.client.nunique()), "examples": len(part)}
        for split, part in parts.items()
    }


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
