"""StackOverflow: next words in users' questions and answers; a cross-device task.

Card
  Source: TFF's `stackoverflow` (from the Stack Overflow data on Kaggle): `stackoverflow.sqlite`,
    and `stackoverflow.word_count` or the .tar.bz2 it comes in, for the vocabulary. Or any Stack
    Exchange dump: `python -m datasets.prepare.stack_exchange` makes `stack_exchange.sqlite` of its
    `Posts.xml`. Both are looked for in --data_dir and in its folder stackoverflow or
    stack_exchange; --data_file names a file of either kind and any name that ends in .sqlite. Or
    synthetic users (`datasets.synthetic.posts`).
  Licence: CC BY-SA 3.0 (TFF's), CC BY-SA 2.5 to 4.0 (dumps, by date of the post).
  Clients: users. 342,477 train, 397 +- 1,279 sentences each; 38,758 held-out ones, valid and test;
    the largest has 194,167 sentences. At most the first 1,024 of a client count, here as in Motley.
    Synthetic: 48 users; 21 +- 6 sentences each, from 12 to 30, 188 words.
  Fields: `tokens` int32 [21]: 0 padding, 1 to 10,000 the vocabulary's words, 10,001 any other word,
    10,002 begins every sentence, 10,003 ends one of fewer than 20 words. Of longer ones the first
    20 words count. The model reads the first 20 ids and predicts the last 20. (SQLite: TFF's
    fields `tokens`, the words as one string, and `creation_date`.)
  Vocabulary: the first 10,000 words of TFF's count. Of a dump or synthetic users: the words of most
    training clients, ties to the more frequent one; fewer if they use fewer (see the task's facts),
    the ids above and the model stay as they are.
  Model: embedding 96, LSTM 670, dense 96: 4,050,748 weights. Loss: mean over tokens that are no
    padding. (TFF's baseline, which Motley trains, leaves padding out, all but one place a sentence,
    on Keras 2.10 and later; on the 2.9 of Motley's requirements padding counted.) Metrics:
    `accuracy`, as Motley reports it, over the vocabulary's words alone;
    `accuracy_with_end_of_sentence`; `accuracy_with_end_of_sentence_and_unknown_words`. (TFF's
    names: `accuracy_without_out_of_vocab_or_end_of_sentence`, `accuracy_without_out_of_vocab`,
    `accuracy`.)
  Split: TFF's training clients train; its held-out ones, permuted with seed 13, are 10,000 valid
    and the rest test (of a smaller file the same share); its test split is not used. Other
    populations: permuted with seed 13, 12% valid, 15% test, the rest train. A valid or test
    client's sentences are sorted by date, oldest first; the first half personalizes, the rest
    evaluates. Clients that cannot be halved are left out of those splits, as are those without a
    word of the vocabulary to be scored on (`next_words.with_unigram`: not of TFF's whole
    population), all named in the task's facts.
  Citation: The TensorFlow Federated Authors 2019, "TensorFlow Federated Stack Overflow dataset";
    Reddi et al. 2020, "Adaptive Federated Optimization" (https://arxiv.org/abs/2003.00295).
"""

import csv
import functools
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from datasets.kinds import next_words
from datasets.models import stackoverflow_lstm
from datasets.options import DataOptions
from datasets.partition import held_out, splits
from datasets.readers import files, sqlite_clients
from datasets.synthetic import posts as synthetic_posts
from motley_tff.core import clients as clients_lib, errors, task as task_lib
from motley_tff.core.errors import UserError

VOCABULARY_SIZE, MAX_SENTENCES = 10_000, 1024

_PATHS = (
    "stackoverflow.sqlite",
    "stackoverflow/stackoverflow.sqlite",
    "stack_exchange.sqlite",
    "stack_exchange/stack_exchange.sqlite",
)
# What TFF uses when it is given no cache folder.
_DEFAULT_DIR = "~/.tff"
_URL = "https://storage.googleapis.com/tff-datasets-public/stackoverflow.sqlite.lzma"
COUNTS_URL = "https://storage.googleapis.com/tff-datasets-public/stackoverflow.word_count.tar.bz2"
COUNTS_ARCHIVE, COUNTS_NAME = "stackoverflow.word_count.tar.bz2", "stackoverflow.word_count"
# Below a folder: Keras, which TFF fetches it with, puts it into `datasets`.
_COUNTS_FOLDERS = ("", "datasets", "stackoverflow", "stackoverflow/datasets")
_KERAS_DIR = "~/.keras"
_ADVICE = (
    f"put stackoverflow.sqlite ({_URL}, several GB, unpacked tens of GB) and "
    f"{COUNTS_ARCHIVE} ({COUNTS_URL}, a few MB) there, or stack_exchange.sqlite, made "
    "of a dump of any size by python -m datasets.prepare.stack_exchange"
)

_TRAIN, _HELD_OUT = "train", "heldout"
# The one split that datasets.prepare.stack_exchange writes.
_DUMP = "stack_exchange"
_PUBLISHED_HELD_OUT, _PUBLISHED_VALID = 38_758, 10_000
_DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? UTC"

synthesize = synthetic_posts.write


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found: synthetic users, TFF's file (by default in its own cache)
    or a prepared dump. UserError says what to put where.
    """
    if options.use_synthetic_data:
        posts, groups = synthesize(options.seed)
        facts = {"source": "synthetic", "client_groups": groups}
        return create_task_from_data(posts, facts, options)
    path = files.require(options, _PATHS, "data", _ADVICE, _DEFAULT_DIR)
    if path.suffix != ".sqlite":
        advice = "make one of a dump's Posts.xml with python -m datasets.prepare.stack_exchange"
        raise UserError(str(path), expected="a file that ends in .sqlite", advice=advice)
    with errors.at(path):
        names = sqlite_clients.split_names(path)
        if _DUMP in names:
            return _create_dump_task(path, options)
        for split, entries in held_out.entries(options).items():
            expected = f"none of this file's, whose splits {_TRAIN} and {_HELD_OUT} say who trains"
            raise UserError(errors.name(f"{split}_clients"), entries, expected, "prepare a dump")
        if not {_TRAIN, _HELD_OUT} <= set(names):
            expected = f"{_TRAIN!r} and {_HELD_OUT!r}, or {_DUMP!r} as in a prepared dump"
            raise UserError("", f"splits {names}", expected)
    counts, vocabulary = load_word_counts(path, options.data_dir, VOCABULARY_SIZE)
    with errors.at(path):
        return _create_tff_task(path, counts, vocabulary)


def create_task_from_data(
    posts: Mapping[str, synthetic_posts.Posts],
    facts: Mapping[str, Any] | None = None,
    options: DataOptions | None = None,
) -> task_lib.Task:
    """Returns the task on users' sentences in memory; `options` may name who validates and tests.
    UserError if there are too few users.
    """
    sizes = {client_id: len(written.tokens) for client_id, written in posts.items()}
    split = splits.published_or_proportional(sizes, options=options, facts=facts)
    vocabulary = next_words.most_common_words(
        (posts[i].tokens for i in split.train), VOCABULARY_SIZE
    )
    return _task(split, dict.fromkeys(splits.SPLITS, posts), sizes, vocabulary, facts or {})


def _milliseconds(dates: tf.Tensor) -> tf.Tensor:
    """Returns int64 that are ordered as dates such as `2014-01-21 20:26:05.38 UTC`; others fail."""
    digits = tf.strings.regex_replace(tf.strings.substr(dates, 0, 19), r"\D", "")
    fraction = tf.strings.regex_replace(dates, r"^[^.]*\.?(\d*).*$", r"\1")
    number = tf.strings.join([digits, tf.strings.substr(fraction + "000", 0, 3)])
    is_date = tf.strings.regex_full_match(dates, _DATE)
    return tf.strings.to_number(tf.where(is_date, number, dates), tf.int64)


def _task(
    split: splits.ClientSplit,
    sources: Mapping[str, splits.Source],
    sizes: Mapping[str, int],
    vocabulary: Sequence[str],
    facts: Mapping[str, Any],
) -> task_lib.Task:
    """Returns the task on the clients' (sentences, dates), which each split's source gives."""
    tokens = next_words.make_tokens(vocabulary, VOCABULARY_SIZE)

    def trained(posts: Sequence[tf.Tensor]) -> clients_lib.Parts:
        return {"train": tokens.encode(posts[0][:MAX_SENTENCES])}

    def halved(posts: Sequence[tf.Tensor]) -> clients_lib.Parts:
        sentences, dates = posts
        # Sentences of one post have one date: a stable order leaves them as they were.
        order = tf.argsort(_milliseconds(dates[:MAX_SENTENCES]), stable=True)
        return splits.halve(tokens.encode(tf.gather(sentences, order)), shuffle=False)

    clients = splits.make_clients(split, sources, trained, halved, "tokens and creation_date")
    all_facts = {
        **facts,
        "beyond_1024_sentences": splits.beyond(sizes, MAX_SENTENCES, "sentences_left_out"),
        "vocabulary": {"asked": VOCABULARY_SIZE, "found": len(vocabulary)},
        "clients_left_out": split.left_out,
    }
    model = next_words.model_of(stackoverflow_lstm.StackoverflowLstm, tokens)
    return next_words.next_word_task("stackoverflow", model, tokens, clients, all_facts)


def _load_posts(source: sqlite_clients.SqliteSplit, client_id: tf.Tensor) -> list[tf.Tensor]:
    return source.load_texts(client_id, "tokens", "creation_date", limit=MAX_SENTENCES)


def _create_tff_task(path: Path, counts: Path, vocabulary: Sequence[str]) -> task_lib.Task:
    trained = sqlite_clients.open_split(path, _TRAIN)
    held_out = sqlite_clients.open_split(path, _HELD_OUT)
    load = functools.partial(_load_posts, held_out)
    sources = {"train": functools.partial(_load_posts, trained), "valid": load, "test": load}
    ids = splits.permute(tuple(held_out.sizes))
    num_valid = max(1, _PUBLISHED_VALID * len(ids) // _PUBLISHED_HELD_OUT)
    parts = {"valid": ids[:num_valid], "test": ids[num_valid:]}
    sizes = {name: {i: held_out.sizes[i] for i in part} for name, part in parts.items()}
    split = splits.leave_out_small({"train": trained.sizes, **sizes})
    facts = {"source": "sqlite", "files": [str(path), str(counts)]}
    return _task(split, sources, {**trained.sizes, **held_out.sizes}, vocabulary, facts)


def load_word_counts(database: Path, data_dir: str | None, size: int) -> tuple[Path, list[str]]:
    """Returns (TFF's count of words, its first words); UserError if there is none in any folder, or
    it is broken. Its lines are `word count`, the most frequent word first.
    """
    roots = [database.parent, *([Path(os.path.expanduser(data_dir))] if data_dir else [])]
    roots.append(Path(os.path.expanduser(_KERAS_DIR)))
    folders = [root / name for root in roots for name in _COUNTS_FOLDERS]
    candidates = (folder / name for folder in folders for name in (COUNTS_NAME, COUNTS_ARCHIVE))
    path = next((p for p in candidates if p.is_file()), None)
    if path is None:
        problem = f"no {COUNTS_NAME} or {COUNTS_ARCHIVE} ({COUNTS_URL}, a few MB) beside it"
        raise UserError(str(database), problem, advice=f"put one into {database.parent}")
    with errors.at(path):
        return path, _first_words(path, size)


def _first_words(path: Path, size: int) -> list[str]:
    """Returns the words; of an archive the one member is read in memory, never unpacked to disk."""
    kind = "lines of a word and a count"
    with files.readable_as(kind, OSError, EOFError, ValueError, tarfile.TarError):
        if path.name != COUNTS_ARCHIVE:
            return _read_words(path, size, kind)
        with tarfile.open(path, "r:bz2") as archive:
            members = [m for m in archive if Path(m.name).name == COUNTS_NAME and m.isfile()]
            if not members:
                raise UserError("", f"no file {COUNTS_NAME} in it")
            return _read_words(archive.extractfile(members[0]), size, kind)


def _read_words(file: Any, size: int, kind: str) -> list[str]:
    import pandas as pd  # Takes 0.3 s.

    frame = pd.read_csv(
        file, sep=r"\s+", names=["word", "count"], nrows=size, dtype=str, quoting=csv.QUOTE_NONE,
        keep_default_na=False, index_col=False,
    )  # fmt: skip
    if (wrong := pd.to_numeric(frame["count"], errors="coerce").isna()).any():
        number = int(wrong.argmax())
        line = " ".join(frame.iloc[number].dropna()).strip()[:40]
        raise UserError(f"line {number + 1}", repr(line), kind)
    if frame.empty:
        raise UserError("", "no words", kind)
    return list(dict.fromkeys(frame["word"]))


def _create_dump_task(path: Path, options: DataOptions) -> task_lib.Task:
    source = sqlite_clients.open_split(path, _DUMP)
    split = splits.published_or_proportional(source.sizes, options=options)
    posts = sqlite_clients.texts(path, _DUMP, "tokens", set(split.train))
    vocabulary = next_words.most_common_words((texts for _, texts in posts), VOCABULARY_SIZE)
    sources = dict.fromkeys(splits.SPLITS, functools.partial(_load_posts, source))
    facts = {"source": "stack_exchange", "files": [str(path)], "prepared": _preparation(path)}
    return _task(split, sources, source.sizes, vocabulary, facts)


def _preparation(path: Path) -> dict[str, int]:
    """Returns what `datasets.prepare.stack_exchange` counted."""
    with sqlite_clients.reading(path) as connection:
        counts = connection.execute("SELECT what, count FROM preparation").fetchall()
    if not all(isinstance(name, str) and isinstance(count, int) for name, count in counts):
        raise UserError("preparation", "no counts", advice="prepare the dump again")
    return dict(counts)
