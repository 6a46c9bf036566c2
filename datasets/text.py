"""Your texts: a table with a column of texts and one that says whose; next words, or classes.

Card
  Source: the file of --data_file (as `datasets.readers.users_table` says), --client_column,
    --text_column, and optionally --label_column and --time_column. Or synthetic users' posts.
  Licence: your own.
  Clients: as the column says; with --setting=cross_silo silos, else devices.
    Synthetic: 48 users, 21 +- 6 texts each, in four planted groups.
  Fields: words are lower-case runs of letters and digits, or one of . , ; : ? !. Next words:
    `tokens` int32 [21] as in StackOverflow; a text of more than 20 words is cut into pieces of 20;
    the first 256 pieces of a text count, and a client's first texts of 1,024 pieces. Classes:
    `tokens` int32 [64], a text's first 64 words, and `label` int32, -1 of one that no training part
    has, which counts as wrong and not in the loss.
  Vocabulary: at most 10,000 words that two or more training clients (or silos' training parts) use,
    those of most clients first; another word is unknown.
  Model: next words: an LSTM (embedding 96, 256 units); `accuracy` over the vocabulary's words, as
    StackOverflow's. Classes: --model=linear, the mean of embeddings (96) and a dense layer, or
    lstm; `accuracy`, and of two classes `roc_auc`.
  Split: as `table`'s, by whole texts. Of next words, who has no word to be scored on is left out.
  Citation: your own.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from datasets import packages
from datasets.kinds import classification, next_words
from datasets.models import choice, text_models
from datasets.options import DataOptions
from datasets.partition import assignment
from datasets.readers import dates, rows as rows_lib, users_table
from datasets.synthetic import posts as synthetic_posts
from motley_tff.core import errors, task as task_lib
from motley_tff.core.errors import UserError

_VOCABULARY_SIZE, _MAX_PIECES, _CLASSIFIED_WORDS = 10_000, 1024, 64
# Of a text; whoever has long ones, books, keeps four, which can be split into all parts.
_MAX_PIECES_OF_TEXT = _MAX_PIECES // 4
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[.,;:?!]")


def _lstm(classifies: bool) -> choice.Architecture:
    return choice.Architecture(
        lambda facts, sizes: text_models.TextLstm(
            facts.num_ids or 0, facts.num_outputs, sizes, classifies
        ),
        "the embedding's width and the LSTM's units",
        2,
    )


_NEXT_WORD_MODELS: Mapping[str, choice.Architecture] = {"lstm": _lstm(classifies=False)}
_CLASS_MODELS: Mapping[str, choice.Architecture] = {
    "linear": choice.Architecture(
        lambda facts, sizes: text_models.BagOfWords(facts.num_ids or 0, facts.num_outputs, sizes),
        "the embedding's width",
        1,
    ),
    "lstm": _lstm(classifies=True),
}


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on a file's texts, or synthetic ones; UserError says what is wrong."""
    if options.use_synthetic_data:
        frame, groups = synthesize(options.seed)
        facts = {"source": "synthetic", "client_groups": groups}
        own = dataclasses.replace(
            options, client_column="user", text_column="text", time_column="date",
            label_column="topic" if options.label_column else None, group_column=None,
        )  # fmt: skip
        return create_task_from_data(frame, own, facts)
    path = users_table.find(options.data_file)
    frame = users_table.read(path, options.delimiter)
    facts = users_table.facts(path)
    with errors.at(path):
        return create_task_from_data(frame, options, facts)


def raw_examples(options: DataOptions) -> dict[str, dict[str, np.ndarray]]:
    """Returns each client's texts, and labels if there are some, as they stand in the file."""
    path = users_table.find(options.data_file)
    frame = users_table.read(path, options.delimiter)
    rows_lib.check_columns(frame.columns, options, "client_column", "text_column")
    with errors.at(path):
        names = filter(None, (options.text_column, options.label_column))
        return rows_lib.examples(frame, options, names)


def create_task_from_data(
    frame: pd.DataFrame, options: DataOptions, facts: Mapping[str, Any] | None = None
) -> task_lib.Task:
    """Returns the task on a table's cells, all text; `options` say what columns are, the setting,
    the seed, shares and the model. UserError if columns are missing, no words are shared, or too
    few clients are left.
    """
    rows_lib.check_columns(frame.columns, options, "client_column", "text_column")
    texts, label = frame[options.text_column], options.label_column
    words = [_WORD.findall(text.lower()) for text in texts]
    is_used = np.array([bool(of_text) for of_text in words])
    is_used &= ~rows_lib.is_missing(texts, options.missing_labels).to_numpy()
    counts = {"texts_without_words_left_out": int((~is_used).sum())}
    if label is not None:
        is_labelled = ~rows_lib.is_missing(frame[label], options.missing_labels).to_numpy()
        counts["texts_without_label_left_out"] = int((is_used & ~is_labelled).sum())
        is_used &= is_labelled
    if not is_used.any():
        needed = "" if label is None else f" with a label in column {label!r}"
        raise rows_lib.column_error(texts, f"no words{needed}", advice="give others")
    frame = frame[is_used].reset_index(drop=True)
    words = list(itertools.compress(words, is_used))
    by_client = dates.of_clients(frame, options)
    if label is None:
        length = _MAX_PIECES_OF_TEXT * next_words.SENTENCE_LENGTH
        counts["texts_cut_after_256_pieces"] = sum(len(of_text) > length for of_text in words)
        words = [of_text[:length] for of_text in words]
        by_client, counts["texts_left_out_beyond_1024_pieces"] = _cut(by_client, words)
    facts = {**(facts or {}), **rows_lib.group_facts(frame, options)}
    strata = None if label is None else frame[label].str.strip().to_numpy()
    rows = assignment.assign(by_client, options, options.time_column is not None, strata, facts)
    vocabulary = _vocabulary(words, rows)
    tokens = next_words.make_tokens(vocabulary)
    all_facts: dict[str, Any] = {
        **facts,
        "texts": len(frame),
        "vocabulary": len(vocabulary),
        **{name: count for name, count in counts.items() if count},
    }
    if label is None:
        return _next_word_task(words, rows, tokens, options, all_facts)
    labels = frame[label].str.strip()
    if options.missing_values is None and (notes := rows_lib.label_notes(labels)):
        all_facts["notes"] = notes
    return _class_task(words, labels, rows, tokens, options, all_facts)


def _cut(
    by_client: Mapping[str, np.ndarray], words: Sequence[Sequence[str]]
) -> tuple[dict[str, np.ndarray], int]:
    """Returns clients' first texts of at most 1,024 pieces, and how many texts are left out."""
    pieces = _num_pieces(words)
    kept = {}
    for client_id, rows in by_client.items():
        kept[client_id] = rows[np.cumsum(pieces[rows]) <= _MAX_PIECES]
    return kept, sum(map(len, by_client.values())) - sum(map(len, kept.values()))


def _num_pieces(words: Sequence[Sequence[str]]) -> np.ndarray:
    lengths = np.array([len(of_text) for of_text in words])
    return -(-lengths // next_words.SENTENCE_LENGTH)


def _vocabulary(words: Sequence[Sequence[str]], rows: assignment.Assignment) -> list[str]:
    """Returns the words that two or more clients use in what they train on."""
    trained = (parts["train"] for parts in rows.clients.values() if "train" in parts)
    users = ([" ".join(words[row]) for row in of_client] for of_client in trained)
    vocabulary = next_words.most_common_words(users, _VOCABULARY_SIZE, min_users=2)
    if not vocabulary:
        raise UserError("", "no word that two training clients share", "some")
    return vocabulary


def _next_word_task(
    words: Sequence[Sequence[str]],
    rows: assignment.Assignment,
    tokens: next_words.Tokens,
    options: DataOptions,
    facts: Mapping[str, Any],
) -> task_lib.Task:
    length = next_words.SENTENCE_LENGTH
    pieces = [
        " ".join(of_text[start : start + length])
        for of_text in words
        for start in range(0, len(of_text), length)
    ]
    encoded = {name: ids.numpy() for name, ids in tokens.encode(tf.constant(pieces)).items()}
    clients, client_facts = rows.repeated(_num_pieces(words)).clients_with(encoded)
    model_facts = choice.ModelFacts(tokens.eos + 1, (length,), num_ids=tokens.eos + 1)
    example = np.zeros((1, length), np.int32)
    return next_words.next_word_task(
        "text",
        choice.build(options, _NEXT_WORD_MODELS, model_facts, example),
        tokens,
        clients,
        {**facts, **client_facts},
        setting=packages.setting("text", options.setting),
    )


def _class_task(
    words: Sequence[Sequence[str]],
    labels: pd.Series,
    rows: assignment.Assignment,
    tokens: next_words.Tokens,
    options: DataOptions,
    facts: Mapping[str, Any],
) -> task_lib.Task:
    known = classification.classes_in(f"column {labels.name!r}", labels.iloc[rows.train])
    values = pd.Categorical(labels, known).codes.astype(np.int32)
    texts = tf.constant([" ".join(of_text[:_CLASSIFIED_WORDS]) for of_text in words])
    bos = tokens.words.oov + 1
    # Without the id that begins every text.
    ids = next_words.encode(texts, tokens.words, _CLASSIFIED_WORDS, bos, tokens.eos)[:, 1:].numpy()
    clients, client_facts = rows.clients_with({"tokens": ids, "label": values})
    model_facts = choice.ModelFacts(len(known), (_CLASSIFIED_WORDS,), num_ids=tokens.eos + 1)
    example = np.zeros((1, _CLASSIFIED_WORDS), np.int32)
    unknown = int((values == -1).sum())
    return task_lib.Task(
        dataset="text",
        setting=packages.setting("text", options.setting),
        model=choice.build(options, _CLASS_MODELS, model_facts, example),
        preprocess=classification.hand_on("tokens", "label"),
        facts={
            **facts,
            "num_classes": len(known),
            **({"texts_with_a_label_of_no_training_part": unknown} if unknown else {}),
            **client_facts,
        },
        **classification.fields(known, clients),
    )


def synthesize(seed: int) -> tuple[pd.DataFrame, dict[str, str]]:
    """Returns users' posts, columns `user`, `text`, `date` and `topic`, and their planted groups.

    A post's topic is the one that has most of its words, so users' topics differ.
    """
    posts, groups = synthetic_posts.write(seed)
    frames = [
        pd.DataFrame({
            "user": user, "text": of_user.tokens, "topic": [*map(_topic, of_user.tokens)],
            "date": [date.removesuffix(" UTC") for date in of_user.creation_dates],
        })
        for user, of_user in posts.items()
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True), groups


def _topic(text: str) -> str:
    """Returns the topic that has most of a text's words; of several, and of none, the first."""
    used = set(text.split())
    return max(
        synthetic_posts.TOPICS,
        key=lambda topic: sum(
            len(used & set(words)) for words in synthetic_posts.TOPICS[topic].words.values()
        ),
    )
