"""TedMulti-EnEs: sentences of TED talks in English and Spanish; a cross-device task.

Card
  Source: TedMultiTranslate, `all_talks_{train,dev,test}.tsv` of ted_talks.tar.gz (352 MB; 60
    languages, https://github.com/neulab/word-embeddings-for-nmt), made into `ted_multi.sqlite` and
    `ted_multi_vocabulary.csv` by `python -m datasets.prepare.ted_multi`. Or synthetic talks
    (`datasets.synthetic.talks`).
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
    synthetic clients are permuted with seed 13, 12% valid and 15% test. If
    --test_clients or --valid_clients name some, the other split keeps its own, and all others
    train. Training takes the first 512 sentences of a client. A valid or test client's first half,
    in the order of the talk, personalizes, the rest evaluates. One with a single sentence cannot be
    halved, one without a word of the vocabulary in its second half cannot be scored: both are left
    out of those splits, named in the task's facts.
  Citation: Ye et al. 2018, "When and Why are Pre-trained Word Embeddings Useful for Neural Machine
    Translation?" (https://arxiv.org/abs/1804.06323); Wu et al. 2022, "Motley"
    (https://arxiv.org/abs/2206.09262).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from datasets.kinds import classification, next_words
from datasets.models import ted_transformer
from datasets.options import DataOptions
from datasets.partition import held_out, splits
from datasets.readers import files, sqlite_clients
from datasets.synthetic import talks as synthetic_talks
from motley_tff.core import clients as clients_lib, errors, task as task_lib
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

_PATHS = ("ted_multi.sqlite", "ted_multi/ted_multi.sqlite")
_ADVICE = (
    "make it with python -m datasets.prepare.ted_multi from all_talks_{train,dev,test}.tsv "
    "(ted_talks.tar.gz, 352 MB, of github.com/neulab/word-embeddings-for-nmt)"
)
_MAX_TRAINING_EXAMPLES = 512

synthesize = synthetic_talks.speak


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on synthetic or prepared talks; UserError if they are missing or broken."""
    if options.use_synthetic_data:
        task = _create_synthetic_task(options)
    else:
        path = files.require(options, _PATHS, "ted_multi.sqlite (120 MB)", _ADVICE)
        task = _create_sqlite_task(path, options)
    if options.mask_padding:
        task = dataclasses.replace(task, loss=next_words.token_cross_entropy)
    return task


def create_task_from_data(
    sentences: Mapping[str, Mapping[str, Sequence[str]]],
    vocabulary: Sequence[str],
    facts: Mapping[str, Any] | None = None,
    options: DataOptions | None = None,
) -> task_lib.Task:
    """Returns the task on `{train, valid, test: {client id: sentences}}` in memory, lower-case
    words separated by one space, ids beginning with the language; the vocabulary's words, all
    different, get an id; `options` may name who validates and tests. UserError if a split has no
    client that can be used.
    """
    sizes = {s: {i: len(clients[i]) for i in clients} for s, clients in sentences.items()}
    return _task(sentences, sizes, vocabulary, facts or {}, options)


def _task(
    sources: Mapping[str, splits.Source],
    sizes: Mapping[str, Mapping[str, int]],
    vocabulary: Sequence[str],
    facts: Mapping[str, Any],
    options: DataOptions | None,
) -> task_lib.Task:
    """Returns the task on each client's sentences; the first two arguments are by split."""
    tokens, split = next_words.make_tokens(vocabulary), splits.leave_out_small(sizes)
    every = {i: size for of_split in sizes.values() for i, size in of_split.items()}
    # By how ids begin, as the published code tells languages.
    if named := held_out.named(options, every, {i: i[:2] for i in every}):
        split = splits.split_named(every, named, sizes)
        sources = dict.fromkeys(splits.SPLITS, splits.joined(sources, sizes))

    def trained(sentences: Sequence[str] | tf.Tensor) -> clients_lib.Parts:
        return {"train": tokens.encode(sentences[:_MAX_TRAINING_EXAMPLES])}

    def halved(sentences: Sequence[str] | tf.Tensor) -> clients_lib.Parts:
        return splits.halve(tokens.encode(sentences), shuffle=False)

    expected = "a string tokens, as datasets.prepare.ted_multi writes them"
    clients = splits.make_clients(split, sources, trained, halved, expected)
    all_facts = {
        **facts,
        "vocabulary_size": len(vocabulary),
        "training_examples_beyond_512": splits.beyond(
            split.sizes["train"], _MAX_TRAINING_EXAMPLES, "examples"
        ),
        "client_groups": {i: i[:2] for part in clients.values() for i in part.ids},
        "clients_left_out": split.left_out,
    }
    return next_words.next_word_task(
        "ted_multi",
        next_words.model_of(ted_transformer.TedTransformer, tokens),
        tokens,
        clients,
        all_facts,
        classification.cross_entropy,  # Padding is a word to predict.
    )


def _create_synthetic_task(options: DataOptions) -> task_lib.Task:
    talks = synthesize(options.seed)
    ids = tuple(talks.sentences)
    chosen = splits.split_clients(ids, *splits.proportional_counts(len(ids)))
    sentences = {
        name: {i: talks.sentences[i] for i in members}
        for name, members in zip(splits.SPLITS, chosen, strict=True)
    }
    return create_task_from_data(sentences, talks.vocabulary, {"source": "synthetic"}, options)


def _create_sqlite_task(path: Path, options: DataOptions) -> task_lib.Task:
    # What the preparation wrote beside NAME.sqlite.
    paths = [path.with_name(f"{path.stem}_{name}") for name in ("vocabulary.csv", "report.json")]
    vocabulary = _read_vocabulary(paths[0])
    with errors.at(path):
        databases = {name: sqlite_clients.open_split(path, name) for name in splits.SPLITS}
    sources = {name: _loader(database) for name, database in databases.items()}
    sizes = {name: database.sizes for name, database in databases.items()}
    facts = {
        "source": "sqlite",
        "files": [str(path), str(paths[0])],
        "prepared": _read_report(paths[1]),
    }
    with errors.at(path):
        return _task(sources, sizes, vocabulary, facts, options)


def _loader(database: sqlite_clients.SqliteSplit) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda client_id: database.load_texts(client_id, "tokens")[0]


def _read_vocabulary(path: Path) -> list[str]:
    """Returns the prepared words; UserError if the file is missing, has none, or has one twice."""
    if not path.is_file():
        expected = "the vocabulary (300 kB) beside the SQLite file"
        advice = "run python -m datasets.prepare.ted_multi again"
        raise UserError(str(path), "no file", expected, advice)
    rows = list(csv_files.read(path))
    words = [row.get("word", "") for row in rows]
    if not words or not all(words) or len(set(words)) < len(words):
        problem = f"{len(words)} rows with {len(set(words) - {''})} words"
        raise UserError(str(path), problem, "a column word with a different one in each row")
    return words


def _read_report(path: Path) -> Any:
    """Returns what the preparation counted, or None if its report is gone."""
    try:
        return files.parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
