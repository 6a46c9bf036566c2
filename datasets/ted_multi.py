"""TedMulti-EnEs: sentences of TED talks in English and Spanish; a cross-device task.

Card
  Source: TedMultiTranslate, `all_talks_{train,dev,test}.tsv` of ted_talks.tar.gz (352 MB; 60
    languages, https://github.com/neulab/word-embeddings-for-nmt), made into `ted_multi.sqlite` and
    `ted_multi_vocabulary.csv` by `python -m datasets.prepare.ted_multi`. Or synthetic talks
    (`datasets.synthetic_talks`).
  Licence: the talks: TED's usage policy (CC BY-NC-ND 4.0); the collection states none.
  Clients: a client is a talk in one language, its id `en-<talk>` or `es-<talk>`; published: 4,184
    clients with 20 sentences or more; 113 +- 56 sentences a client.
    Synthetic: 90 clients, 58 of them English; 14 +- 4 sentences, from 8 to 20.
  Fields: `tokens` int32 [21], a sentence's word ids: 0 padding; 1 to V the vocabulary's words, V =
    15,814 as published (those of 20 training clients or more); V+1 any other word; V+2 begins every
    sentence; V+3 ends one of fewer than 20 words. Of longer ones the first 20 words count. The
    model reads the first 20 ids and predicts the last 20. (SQLite: `tokens`, the words as text.)
  Model: a Transformer of one layer with tied embeddings, 4,769,824 weights for 15,814 words. Loss:
    the mean over all 20 places, padding too, as published: Keras's plain cross entropy behind a
    layer that hands on no mask; `--mask_padding` leaves padding out. Accuracy over tokens but
    padding, words outside the vocabulary and ends of sentences, as Motley reports it (and as for
    StackOverflow).
  Groups: the language, the first two letters of a client's id.
  Split: the source's own train, dev (valid) and test talks, published as 3,969, 98 and 117 clients;
    synthetic clients are permuted with seed 13, 12% valid and 15% test. Training takes the first
    512 sentences of a client. A valid or test client's first half, in the order of the talk,
    personalizes, the rest evaluates. One with a single sentence cannot be halved, one without a
    word of the vocabulary in its second half cannot be scored: both are left out of those splits,
    named in the task's facts.
  Citation: Ye et al. 2018, "When and Why are Pre-trained Word Embeddings Useful for Neural Machine
    Translation?" (https://arxiv.org/abs/1804.06323); Wu et al. 2022, "Motley"
    (https://arxiv.org/abs/2206.09262).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets import files, splits, sqlite_clients, synthetic_talks, text
from datasets.models import ted_transformer
from datasets.options import DataOptions
from motley_tff.core import clients as clients_lib
from motley_tff.core import functional_model
from motley_tff.core import task as task_lib
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

_PATHS = ("ted_multi.sqlite", "ted_multi/ted_multi.sqlite")
_TSV = "all_talks_{train,dev,test}.tsv"
_NUM_WORDS = 20
_MAX_TRAINING_EXAMPLES = 512
_SPLITS = ("train", "valid", "test")
# What stands beside NAME.sqlite, as NAME_vocabulary.csv and NAME_report.json.
_BESIDE = ("vocabulary.csv", "report.json")
# Reasons in the words of `datasets.splits`.
_EMPTY, _TOO_SMALL_TO_HALVE = "no examples", "fewer than 2 examples: cannot be halved"
_UNSCORABLE = "no word of the vocabulary in the half that evaluates"
# Chosen by time: ten rounds and an evaluation of every valid and test client, twenty epochs of
# fine-tuning each, take about a minute on two cores.
_SYNTHETIC_CLIENTS = 90


class Tokens(NamedTuple):
    """What ids mean.

    Attributes:
      words: Ids of the vocabulary's words; `words.oov` is that of every other word.
      bos: Id that begins a sentence.
      eos: Id that ends one.
      names: Of each id, for people.
    """

    words: text.WordTable
    bos: int
    eos: int
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many ids there are, padding's included."""
        return self.eos + 1

    def encode(self, sentences: tf.Tensor) -> tf.Tensor:
        """Returns ids int32 [n, 21] of sentences: strings [n], words separated by one space."""
        return text.encode(sentences, self.words, _NUM_WORDS, self.bos, self.eos)


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on synthetic talks or on what `datasets.prepare.ted_multi` has written.

    Args:
      options: `data_file` may name the SQLite file.

    Raises:
      UserError: If there are no data or they are broken; says what to put where.
    """
    task = _create_task(options)
    if options.mask_padding:
        task = dataclasses.replace(task, loss=text.token_cross_entropy)
    return task


def _create_task(options: DataOptions) -> task_lib.Task:
    if options.use_synthetic_data:
        return _create_synthetic_task(options)
    path = files.find(options, _PATHS)
    if path is None:
        raise UserError(
            f"ted_multi: found no ted_multi.sqlite (120 MB) in "
            f"{options.data_dir or 'any --data_dir'}; make it with python -m "
            f"datasets.prepare.ted_multi from {_TSV} (ted_talks.tar.gz, 352 MB, of "
            "github.com/neulab/word-embeddings-for-nmt), or pass --data_file or "
            "--use_synthetic_data"
        )
    return _create_sqlite_task(path)


def create_task_from_data(
    sentences: Mapping[str, Mapping[str, Sequence[str]]],
    vocabulary: Sequence[str],
    facts: Mapping[str, Any] | None = None,
) -> task_lib.Task:
    """Returns the task on talks in memory.

    Args:
      sentences: `{train, valid, test: {client id: sentences}}`, lower-case words separated by one
        space; ids begin with the language.
      vocabulary: The words that get an id, all different.
      facts: Added to the task's facts.

    Raises:
      UserError: If a split has no client that can be used.
    """
    tokens = _tokens(vocabulary)
    sizes = {s: {c: len(said) for c, said in sentences[s].items()} for s in _SPLITS}
    split = _split(sizes)

    def load(split_name: str, client_id: str) -> dict[str, np.ndarray]:
        said = tf.constant(list(sentences[split_name][client_id]), tf.string)
        return {"tokens": tokens.encode(said).numpy()}

    def clients(split_name: str, ids: Sequence[str]) -> clients_lib.Clients:
        parts = _parts_of(split_name)
        return clients_lib.InMemoryClients({i: parts(load(split_name, i)) for i in ids})

    return _task(tokens, split, sizes, clients, facts or {})


def synthesize(seed: int, num_clients: int = _SYNTHETIC_CLIENTS) -> synthetic_talks.Talks:
    """Returns synthetic talks, with the language planted in each client.

    Args:
      seed: Non-negative; the same seed gives the same words.
      num_clients: How many talks.
    """
    return synthetic_talks.speak(seed, num_clients)


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (ids that are read int32 [batch, 20], ids that follow them int32 [batch, 20])."""
    del training, key
    tokens = examples["tokens"]
    return tokens[:, :-1], tokens[:, 1:]


def _tokens(vocabulary: Sequence[str]) -> Tokens:
    oov = len(vocabulary) + 1
    names = text.token_names(vocabulary, len(vocabulary))
    return Tokens(text.word_table(vocabulary, oov), oov + 1, oov + 2, names)


def _split(sizes: Mapping[str, Mapping[str, int]]) -> splits.ClientSplit:
    """Returns the source's split without the clients that cannot be used.

    Raises:
      UserError: If a split would have no client.
    """
    small = [i for s in ("valid", "test") for i, n in sizes[s].items() if n == 1]
    empty = [i for s in _SPLITS for i, n in sizes[s].items() if n == 0]
    reasons = {_EMPTY: sorted(empty), _TOO_SMALL_TO_HALVE: sorted(small)}
    gone = {*small, *empty}
    kept = {s: tuple(i for i in sizes[s] if i not in gone) for s in _SPLITS}
    for name, ids in kept.items():
        if not ids:
            raise UserError(
                f"no {name} client is left of {len(sizes[name])}: each has fewer sentences than "
                "needed; give more talks"
            )
    return splits.ClientSplit(**kept, left_out={r: ids for r, ids in reasons.items() if ids})


def _parts_of(split_name: str) -> Callable[[clients_lib.Examples], clients_lib.Parts]:
    """Returns how a client's examples become its parts."""
    if split_name == "train":
        return lambda e: {"train": {f: v[:_MAX_TRAINING_EXAMPLES] for f, v in e.items()}}
    return functools.partial(splits.halve, shuffle=False)


def _task(
    tokens: Tokens,
    split: splits.ClientSplit,
    sizes: Mapping[str, Mapping[str, int]],
    clients: Callable[[str, Sequence[str]], clients_lib.Clients],
    facts: Mapping[str, Any],
) -> task_lib.Task:
    model = functional_model.from_keras(
        functools.partial(ted_transformer.TedTransformer, tokens.size),
        np.zeros((1, _NUM_WORDS), np.int32),
    )
    oov, eos = tokens.words.oov, tokens.eos
    metrics = {
        "accuracy": text.token_accuracy(oov, eos),
        "accuracy_with_end_of_sentence": text.token_accuracy(oov),
        "accuracy_with_end_of_sentence_and_unknown_words": text.token_accuracy(),
    }
    task = task_lib.Task(
        dataset="ted_multi",
        setting="cross_device",
        model=model,
        loss=text.token_cross_entropy_with_padding,
        counts=text.token_cross_entropy,
        metrics=tuple(task_lib.Metric(name, f, True) for name, f in metrics.items()),
        preprocess=preprocess,
        train=clients("train", split.train),
        valid=clients("valid", split.valid),
        test=clients("test", split.test),
        facts={
            **facts,
            **_counts(tokens, sizes),
            "client_groups": _languages(split),
            "clients_left_out": split.left_out,
        },
        label_names=tokens.names,
    )
    return _with_unigram(task)


def _languages(split: splits.ClientSplit) -> dict[str, str]:
    """Returns `{client id: language}`: how ids begin, by which the published code tells them."""
    return {i: i[:2] for ids in (split.train, split.valid, split.test) for i in ids}


def _counts(tokens: Tokens, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Returns what a reader of `run.json` wants to know of the source."""
    over = [n - _MAX_TRAINING_EXAMPLES for n in sizes["train"].values()]
    over = [n for n in over if n > 0]
    return {
        "vocabulary_size": len(tokens.words.ids),
        "training_examples_beyond_512": {"clients": len(over), "examples": sum(over)},
    }


def _with_unigram(task: task_lib.Task) -> task_lib.Task:
    """Returns the task without clients that cannot be scored; its facts gain what is to be beaten.

    Raises:
      UserError: If none of a split can be scored.
    """
    scores = {name: text.unigram_accuracy(task, name) for name in ("valid", "test")}
    left_out = dict(task.facts["clients_left_out"])
    if gone := {*task.valid.ids, *task.test.ids} - {*scores["valid"], *scores["test"]}:
        left_out[_UNSCORABLE] = sorted(gone)
    valid = _subset("valid", task.valid, tuple(scores["valid"]))
    test = _subset("test", task.test, tuple(scores["test"]))
    sets = {"train": task.train, "valid": valid, "test": test}
    facts = {
        **task.facts,
        "clients_left_out": left_out,
        "clients_by_language": {name: _by_language(c.ids) for name, c in sets.items()},
        "unigram_accuracy": {name: float(np.mean([*of.values()])) for name, of in scores.items()},
    }
    reference = {**scores["valid"], **scores["test"]}
    return dataclasses.replace(task, valid=valid, test=test, facts=facts, reference=reference)


def _subset(name: str, clients: clients_lib.Clients, ids: Sequence[str]) -> clients_lib.Clients:
    if not ids:
        raise UserError(
            f"found no word of the vocabulary in the evaluation half of any {name} client; "
            "prepare the data again with a lower --min_clients_per_word"
        )
    return clients if len(ids) == len(clients) else clients_lib.subset(clients, ids)


def _by_language(ids: Sequence[str]) -> dict[str, int]:
    return {code: sum(i.startswith(code) for i in ids) for code in synthetic_talks.LANGUAGES}


def _create_synthetic_task(options: DataOptions) -> task_lib.Task:
    talks = synthesize(options.base_random_seed)
    ids = tuple(talks.sentences)
    chosen = splits.split_clients(ids, *splits.proportional_counts(len(ids)))
    sentences = {
        name: {i: talks.sentences[i] for i in of} for name, of in zip(_SPLITS, chosen, strict=True)
    }
    facts = {"source": "synthetic"}
    return create_task_from_data(sentences, talks.vocabulary, facts)


def _create_sqlite_task(path: Path) -> task_lib.Task:
    beside = {what: path.with_name(f"{path.stem}_{what}") for what in _BESIDE}
    tokens = _tokens(_read_vocabulary(beside["vocabulary.csv"]))
    sources = {name: sqlite_clients.open_split(path, name) for name in _SPLITS}
    sizes = {name: source.sizes for name, source in sources.items()}
    try:
        split = _split(sizes)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error

    def clients(split_name: str, ids: Sequence[str]) -> clients_lib.Clients:
        load, parts = sources[split_name].load_serialized, _parts_of(split_name)
        return clients_lib.InGraphClients(ids, lambda i: parts(_parse(load(i), tokens)))

    facts = {
        "source": "sqlite",
        "files": [str(path), str(beside["vocabulary.csv"])],
        "prepared": _read_report(beside["report.json"]),
    }
    for name, ids in (("train", split.train), ("valid", split.valid), ("test", split.test)):
        _check_readable(path, clients(name, ids[:1]))
    try:
        return _task(tokens, split, sizes, clients, facts)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _parse(serialized: tf.Tensor, tokens: Tokens) -> dict[str, tf.Tensor]:
    features = {"tokens": tf.io.FixedLenFeature([], tf.string)}
    return {"tokens": tokens.encode(tf.io.parse_example(serialized, features)["tokens"])}


def _check_readable(path: Path, clients: clients_lib.Clients) -> None:
    """Reads one client, so that a database of another task's examples fails here and by name."""
    try:
        clients.fetch(clients.ids[0])
    except UserError as error:
        raise UserError(
            f"{path}: expected examples with a string tokens, as datasets.prepare.ted_multi "
            f"writes them; {error}"[:400]
        ) from error


def _read_vocabulary(path: Path) -> list[str]:
    """Returns the words of the prepared vocabulary.

    Raises:
      UserError: If the file is missing, no such table, or has a word twice or none.
    """
    if not path.is_file():
        raise UserError(
            f"{path}: found no such file, expected the vocabulary (300 kB) beside the SQLite file; "
            "run python -m datasets.prepare.ted_multi again"
        )
    rows = list(csv_files.read(path))
    words = [row.get("word", "") for row in rows]
    if not words or not all(words) or len(set(words)) < len(words):
        raise UserError(
            f"{path}: found {len(words)} rows with {len(set(words) - {''})} words, expected a "
            "column word with a different one in each row"
        )
    return words


def _read_report(path: Path) -> Any:
    """Returns what the preparation counted, or None if its report is gone."""
    try:
        return files.parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
