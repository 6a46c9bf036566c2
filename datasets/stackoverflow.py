"""StackOverflow: next words in users' questions and answers; a cross-device task.

Card
  Source: TFF's `stackoverflow` (from the Stack Overflow data on Kaggle): `stackoverflow.sqlite`,
    and `stackoverflow.word_count` or the .tar.bz2 it comes in, for the vocabulary. Or any Stack
    Exchange dump: `python -m datasets.prepare.stack_exchange` makes `stack_exchange.sqlite` of its
    `Posts.xml`. Both are looked for in --data_dir and in its folder stackoverflow or
    stack_exchange; --data_file names a file of either kind and any name that ends in .sqlite. Or
    synthetic users (`datasets.synthetic_posts`).
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
    padding. (TFF's baseline, which Motley trains, takes Keras's cross entropy of an output with a
    mask: on Keras 2.10 and later that leaves padding out, all but one place a sentence; the Keras
    2.9 that Motley's requirements name ignored the mask, so that padding counted.) Metrics:
    `accuracy`, as Motley reports it, over the vocabulary's words alone;
    `accuracy_with_end_of_sentence`; `accuracy_with_end_of_sentence_and_unknown_words`. (TFF's
    baselines name them `accuracy_without_out_of_vocab_or_end_of_sentence`,
    `accuracy_without_out_of_vocab` and `accuracy`.)
  Split: TFF's training clients train; its held-out ones, permuted with seed 13, are 10,000 valid
    and the rest test (of a smaller file the same share); its test split is not used. Other
    populations: permuted with seed 13, 12% valid, 15% test, the rest train. A valid or test
    client's sentences are sorted by date, oldest first; the first half personalizes, the rest
    evaluates. Clients that cannot be halved are left out of those splits, and in other populations
    than TFF's whole one those without a word of the vocabulary to be scored on, all named in the
    task's facts; so is `unigram_accuracy` there: what a client's own most frequent word scores.
  Citation: The TensorFlow Federated Authors 2019, "TensorFlow Federated Stack Overflow dataset";
    Reddi et al. 2020, "Adaptive Federated Optimization" (https://arxiv.org/abs/2003.00295).
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets import files, splits, sqlite_clients, synthetic_posts, text, word_counts
from datasets.models import stackoverflow_lstm
from datasets.options import DataOptions
from motley_tff.core import clients as clients_lib
from motley_tff.core import functional_model
from motley_tff.core import task as task_lib
from motley_tff.core.errors import UserError

VOCABULARY_SIZE, SENTENCE_LENGTH, MAX_SENTENCES = 10_000, 20, 1024
OOV, BOS, EOS, NUM_IDS = (VOCABULARY_SIZE + i for i in (1, 2, 3, 4))

_PATHS = (
    "stackoverflow.sqlite",
    "stackoverflow/stackoverflow.sqlite",
    "stack_exchange.sqlite",
    "stack_exchange/stack_exchange.sqlite",
)
# What TFF uses when it is given no cache folder.
_DEFAULT_DIR = "~/.tff"
_URL = "https://storage.googleapis.com/tff-datasets-public/stackoverflow.sqlite.lzma"
_HELP = (
    f"put stackoverflow.sqlite ({_URL}, several GB, unpacked tens of GB) and "
    f"{word_counts.ARCHIVE} ({word_counts.URL}, a few MB) there, or stack_exchange.sqlite, made "
    "of a dump of any size by python -m datasets.prepare.stack_exchange, or pass --data_file or "
    "--use_synthetic_data"
)

_TRAIN, _HELD_OUT = "train", "heldout"
# The one split that datasets.prepare.stack_exchange writes.
_DUMP = "stack_exchange"
_PUBLISHED_HELD_OUT, _PUBLISHED_VALID = 38_758, 10_000
_DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? UTC"
_UNSCORABLE = "no word of the vocabulary in the half that evaluates"
# Chosen by time: ten rounds and an evaluation of every valid and test user, twenty epochs of
# fine-tuning each, take well under two minutes on two cores.
_SYNTHETIC_USERS = 48


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found: synthetic users, TFF's file or a prepared dump.

    Args:
      options: With no `data_dir`, TFF's own cache folder is used.

    Raises:
      UserError: If there are no data or they are broken; says what to put where.
    """
    if options.use_synthetic_data:
        posts, groups = synthesize(options.base_random_seed)
        return create_task_from_data(posts, {"source": "synthetic", "client_groups": groups})
    path = _find(options)
    names = _split_names(path)
    if _DUMP in names:
        return _create_dump_task(path)
    if not {_TRAIN, _HELD_OUT} <= names:
        raise UserError(
            f"{path}: found splits {sorted(names)}, expected {_TRAIN!r} and {_HELD_OUT!r} as in "
            f"TFF's stackoverflow.sqlite, or {_DUMP!r} as in a prepared dump"
        )
    return _create_tff_task(path, options)


def create_task_from_data(
    posts: Mapping[str, synthetic_posts.Posts], facts: Mapping[str, Any] | None = None
) -> task_lib.Task:
    """Returns the task on sentences in memory.

    Args:
      posts: By user, in the source's order; at least one sentence each.
      facts: Added to the task's facts.

    Raises:
      UserError: If there are too few users.
    """
    sizes = {client_id: len(mine.tokens) for client_id, mine in posts.items()}
    split = splits.split_population(sizes, *splits.proportional_counts(len(sizes)))
    vocabulary = most_common_words((posts[i].tokens for i in split.train), VOCABULARY_SIZE)
    encoder = _Encoder(vocabulary)

    def clients(ids, parts):
        data = {i: parts(*(tf.constant(column) for column in posts[i])) for i in ids}
        return clients_lib.InMemoryClients(
            tf.nest.map_structure(lambda tensor: tensor.numpy(), data)
        )

    sets = {
        "train": clients(split.train, encoder.trained),
        "valid": clients(split.valid, encoder.halved),
        "test": clients(split.test, encoder.halved),
    }
    return _scored_task(sets, split, vocabulary, {**(facts or {}), **_capped(sizes)})


def synthesize(
    seed: int, num_users: int = _SYNTHETIC_USERS
) -> tuple[dict[str, synthetic_posts.Posts], dict[str, str]]:
    """Returns what synthetic users wrote, and the topic planted in each.

    Args:
      seed: Non-negative; the same seed gives the same posts.
      num_users: How many users.
    """
    return synthetic_posts.write(seed, num_users)


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (ids that are read, ids that follow), int32 [batch, 20] each."""
    del training, key
    return examples["tokens"][:, :-1], examples["tokens"][:, 1:]


def most_common_words(users: Iterable[Iterable[str]], size: int) -> list[str]:
    """Returns the words that most users have used, as TFF counts them.

    Args:
      users: Sentences of each.
      size: How many words at most; ties go to the more frequent word, then to the first one of the
        alphabet.

    Raises:
      UserError: If there are no words.
    """
    num_users: collections.Counter[str] = collections.Counter()
    uses: collections.Counter[str] = collections.Counter()
    for sentences in users:
        mine = collections.Counter(word for s in sentences for word in s.split(" ") if word)
        num_users.update(mine.keys())
        uses.update(mine)
    if not uses:
        raise UserError("found no words in what training clients wrote, expected some")
    return sorted(num_users, key=lambda word: (-num_users[word], -uses[word], word))[:size]


class _Encoder:
    """Makes a client's parts of its sentences and their dates; in graphs and out of them."""

    def __init__(self, vocabulary: Sequence[str]):
        self._table = text.word_table(vocabulary, oov=OOV)

    def trained(self, sentences: tf.Tensor, dates: tf.Tensor) -> clients_lib.Parts:
        """Returns the part `train`."""
        del dates
        return {"train": self._encode(sentences[:MAX_SENTENCES])}

    def halved(self, sentences: tf.Tensor, dates: tf.Tensor) -> clients_lib.Parts:
        """Returns the older half `personalization` and the newer one `evaluation`."""
        # Sentences of one post have one date: a stable order leaves them as they were.
        order = tf.argsort(_milliseconds(dates[:MAX_SENTENCES]), stable=True)
        return splits.halve(self._encode(tf.gather(sentences, order)), shuffle=False)

    def _encode(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"tokens": text.encode(sentences, self._table, SENTENCE_LENGTH, BOS, EOS)}


def _milliseconds(dates: tf.Tensor) -> tf.Tensor:
    """Returns int64 that are ordered as dates such as `2014-01-21 20:26:05.38 UTC`.

    A string of another form fails as one that is no number.
    """
    digits = tf.strings.regex_replace(tf.strings.substr(dates, 0, 19), r"\D", "")
    fraction = tf.strings.regex_replace(dates, r"^[^.]*\.?(\d*).*$", r"\1")
    number = tf.strings.join([digits, tf.strings.substr(fraction + "000", 0, 3)])
    is_date = tf.strings.regex_full_match(dates, _DATE)
    return tf.strings.to_number(tf.where(is_date, number, dates), tf.int64)


# --- tasks ----------------------------------------------------------------------------------------


def _task(
    sets: Mapping[str, clients_lib.Clients], vocabulary: Sequence[str], facts: Mapping[str, Any]
) -> task_lib.Task:
    model = functional_model.from_keras(
        stackoverflow_lstm.StackoverflowLstm, np.zeros((1, SENTENCE_LENGTH), np.int32)
    )
    accuracies = {
        "accuracy": text.token_accuracy(OOV, EOS),
        "accuracy_with_end_of_sentence": text.token_accuracy(OOV),
        "accuracy_with_end_of_sentence_and_unknown_words": text.token_accuracy(),
    }
    return task_lib.Task(
        dataset="stackoverflow",
        setting="cross_device",
        model=model,
        loss=text.token_cross_entropy,
        metrics=tuple(task_lib.Metric(name, f, True) for name, f in accuracies.items()),
        preprocess=preprocess,
        train=sets["train"],
        valid=sets["valid"],
        test=sets["test"],
        facts=facts,
        label_names=text.token_names(vocabulary, VOCABULARY_SIZE),
    )


def _scored_task(sets, split, vocabulary, facts) -> task_lib.Task:
    """Returns the task without clients that cannot be scored, with the unigram's accuracy.

    Reads every valid and test client.
    """
    task = _task(sets, vocabulary, {})
    unigram = {name: text.unigram_accuracy(task, name) for name in ("valid", "test")}
    left_out = dict(split.left_out)
    if gone := sorted({*task.valid.ids, *task.test.ids} - {*unigram["valid"], *unigram["test"]}):
        left_out[_UNSCORABLE] = gone
    facts = {
        **facts,
        **_word_facts(vocabulary),
        "clients_left_out": left_out,
        "unigram_accuracy": {
            name: float(np.mean(list(scores.values() or [0.0]))) for name, scores in unigram.items()
        },
    }
    kept = {name: _subset(name, sets[name], tuple(scores)) for name, scores in unigram.items()}
    reference = {**unigram["valid"], **unigram["test"]}
    return dataclasses.replace(
        task, facts=facts, reference=reference, valid=kept["valid"], test=kept["test"]
    )


def _subset(name: str, clients: clients_lib.Clients, ids: Sequence[str]) -> clients_lib.Clients:
    if not ids:
        raise UserError(
            f"found no word that training clients use in any of {len(clients)} {name} clients, "
            "expected posts in one language"
        )
    return clients if len(ids) == len(clients) else clients_lib.subset(clients, ids)


def _word_facts(vocabulary: Sequence[str]) -> dict[str, Any]:
    return {"vocabulary": {"asked": VOCABULARY_SIZE, "found": len(vocabulary)}}


def _capped(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Returns what the limit leaves out, as facts."""
    over = [size - MAX_SENTENCES for size in sizes.values() if size > MAX_SENTENCES]
    return {"beyond_1024_sentences": {"clients": len(over), "sentences_left_out": sum(over)}}


# --- files ----------------------------------------------------------------------------------------


def _find(options: DataOptions) -> Path:
    folder = Path(os.path.expanduser(options.data_dir or _DEFAULT_DIR))
    if options.data_dir is None and folder.is_dir():
        options = dataclasses.replace(options, data_dir=str(folder))
    found = files.find(options, _PATHS)
    if found is None:
        raise UserError(f"stackoverflow: found no data in {folder}; {_HELP}")
    if found.suffix != ".sqlite":
        raise UserError(
            f"{found}: expected a file that ends in .sqlite; python -m "
            "datasets.prepare.stack_exchange makes one of a dump's Posts.xml"
        )
    return found


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database read-only; SQLite's errors become one line."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        with contextlib.closing(connection):
            yield connection
    except sqlite3.Error as error:
        raise UserError(f"{path}: cannot be read ({files.one_line(error)})") from error


def _split_names(path: Path) -> set[str]:
    sqlite_clients.check_whole(path)
    with _reading(path) as connection:
        rows = connection.execute("SELECT DISTINCT split_name FROM client_metadata")
        return {name for (name,) in rows if isinstance(name, str)}


class _Loaders(NamedTuple):
    """Functions of a client's id that return its parts, in a graph."""

    train: Callable[[tf.Tensor], clients_lib.Parts]
    evaluated: Callable[[tf.Tensor], clients_lib.Parts]


def _loaders(
    trained: sqlite_clients.SqliteSplit,
    evaluated: sqlite_clients.SqliteSplit,
    vocabulary: Sequence[str],
) -> _Loaders:
    encoder = _Encoder(vocabulary)

    def columns(source, client_id):
        spec = {name: tf.io.FixedLenFeature([], tf.string) for name in ("tokens", "creation_date")}
        parsed = tf.io.parse_example(source.load_serialized(client_id)[:MAX_SENTENCES], spec)
        return parsed["tokens"], parsed["creation_date"]

    return _Loaders(
        lambda client_id: encoder.trained(*columns(trained, client_id)),
        lambda client_id: encoder.halved(*columns(evaluated, client_id)),
    )


def _sets(split: splits.ClientSplit, loaders: _Loaders) -> dict[str, clients_lib.Clients]:
    return {
        "train": clients_lib.InGraphClients(split.train, loaders.train),
        "valid": clients_lib.InGraphClients(split.valid, loaders.evaluated),
        "test": clients_lib.InGraphClients(split.test, loaders.evaluated),
    }


def _create_tff_task(path: Path, options: DataOptions) -> task_lib.Task:
    counts, vocabulary = word_counts.load(path, options.data_dir, VOCABULARY_SIZE)
    trained = sqlite_clients.open_split(path, _TRAIN)
    held_out = sqlite_clients.open_split(path, _HELD_OUT)
    split = _split_tff(path, trained.sizes, held_out.sizes)
    sets = _sets(split, _loaders(trained, held_out, vocabulary))
    for clients in sets.values():
        _check_readable(path, clients)
    facts = {
        "source": "sqlite",
        "files": [str(path), str(counts)],
        **_capped({**trained.sizes, **held_out.sizes}),
    }
    if len(held_out.sizes) != _PUBLISHED_HELD_OUT:
        return _scored_task(sets, split, vocabulary, facts)
    # Each has a hundred sentences or more: there is no need to read them all now.
    facts = {**facts, **_word_facts(vocabulary), "clients_left_out": split.left_out}
    return _task(sets, vocabulary, facts)


def _split_tff(
    path: Path, trained: Mapping[str, int], held_out: Mapping[str, int]
) -> splits.ClientSplit:
    order = np.random.RandomState(splits.SPLIT_SEED).permutation(len(held_out))
    ids = tuple(held_out)
    permuted = [ids[i] for i in order]
    num_valid = max(1, _PUBLISHED_VALID * len(ids) // _PUBLISHED_HELD_OUT)
    valid = tuple(i for i in permuted[:num_valid] if held_out[i] > 1)
    test = tuple(i for i in permuted[num_valid:] if held_out[i] > 1)
    train = tuple(i for i in trained if trained[i])
    for name, kept in (("train", train), ("valid", valid), ("test", test)):
        if not kept:
            raise UserError(
                f"{path}: found no client to {name} with: {len(trained)} in {_TRAIN!r}, "
                f"{len(held_out)} in {_HELD_OUT!r}, expected sentences of some to train and two or "
                "more of two to evaluate"
            )
    left_out = {
        "no examples": [i for i in trained if not trained[i]],
        "fewer than 2 examples: cannot be halved": [i for i in held_out if held_out[i] < 2],
    }
    return splits.ClientSplit(train, valid, test, {r: i for r, i in left_out.items() if i})


def _create_dump_task(path: Path) -> task_lib.Task:
    source = sqlite_clients.open_split(path, _DUMP)
    facts = {"source": "stack_exchange", "files": [str(path)], "prepared": _preparation(path)}
    try:
        split = splits.split_population(
            source.sizes, *splits.proportional_counts(len(source.sizes))
        )
        vocabulary = most_common_words(_sentences_by_user(path, set(split.train)), VOCABULARY_SIZE)
        sets = _sets(split, _loaders(source, source, vocabulary))
        return _scored_task(sets, split, vocabulary, {**facts, **_capped(source.sizes)})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _sentences_by_user(path: Path, user_ids: set[str]) -> Iterator[list[str]]:
    """Yields the sentences of each of some users of a prepared dump."""
    with _reading(path) as connection:
        rows = connection.execute(
            "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? "
            "ORDER BY client_id",
            (_DUMP,),
        )
        for client_id, group in itertools.groupby(rows, key=lambda row: row[0]):
            if client_id in user_ids:
                yield [_tokens(serialized) for _, serialized in group]


def _tokens(serialized: bytes) -> str:
    try:
        example = tf.train.Example.FromString(serialized)
        return example.features.feature["tokens"].bytes_list.value[0].decode()
    except Exception as error:  # protobuf's own, and what a missing or broken string raises
        raise UserError(
            f"found an example that is broken or has no tokens ({files.one_line(error)})"
        ) from error


def _preparation(path: Path) -> dict[str, int]:
    """Returns what `datasets.prepare.stack_exchange` counted."""
    with _reading(path) as connection:
        counts = connection.execute("SELECT what, count FROM preparation").fetchall()
    if not all(isinstance(what, str) and isinstance(count, int) for what, count in counts):
        raise UserError(f"{path}: found no counts in preparation; prepare the dump again")
    return dict(counts)


def _check_readable(path: Path, clients: clients_lib.Clients) -> None:
    """Reads one client, so that a database of another task's examples fails here and by name."""
    try:
        clients.fetch(clients.ids[0])
    except UserError as error:
        raise UserError(
            f"{path}: {error}; expected examples with tokens and creation_date"
        ) from error
