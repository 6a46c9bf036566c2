"""What next-word tasks share: token ids inside graphs, losses, accuracies, a unigram baseline.

Id 0 is padding. Labels are token ids [batch, time], outputs logits [batch, time, ids].
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets.kinds import classification
from datasets.options import Setting
from motley_tff.core import clients as clients_lib, functional_model, task as task_lib
from motley_tff.core.errors import UserError

PAD = 0
# How many words of a sentence are read and predicted.
SENTENCE_LENGTH = 20
# Of 64-bit fingerprints; a word outside a vocabulary of 10,000 meets one of it once in 10^15.
_NUM_HASHES = 2**63 - 1
# StackOverflow's 38,758 have a hundred sentences or more each, and take minutes to read.
_MOST_READ = 20_000
_UNSCORABLE = "no word of the vocabulary in the half that evaluates"


@dataclasses.dataclass(frozen=True)
class WordTable:
    """Word ids by binary search over fingerprints.

    Arrays and no table resource: those must be made and initialized outside of what TFF and
    `tf.function` trace, and cannot be sent to a remote worker.
    """

    fingerprints: np.ndarray  # int64 [words], ascending.
    ids: np.ndarray  # int32 [words], the id of each.
    oov: int  # The id of every other word.

    def lookup(self, words: tf.Tensor) -> tf.Tensor:
        """Returns int32 ids of string words, in their shape."""
        fingerprints = tf.strings.to_hash_bucket_fast(words, _NUM_HASHES)
        flat = tf.reshape(fingerprints, [-1])
        place = tf.minimum(tf.searchsorted(self.fingerprints, flat), len(self.ids) - 1)
        known = tf.equal(tf.gather(self.fingerprints, place), flat)
        ids = tf.where(known, tf.gather(self.ids, place), self.oov)
        return tf.reshape(ids, tf.shape(fingerprints))


def word_table(words: Sequence[str] | Sequence[bytes], oov: int, first_id: int = 1) -> WordTable:
    """Returns the table of one or more different words; to be called outside of graphs.

    The first has id `first_id`, the next one more; words that are not among them have id `oov`.
    ValueError if there are none, or two have the same fingerprint.
    """
    if not words:
        raise ValueError("Expected at least one word, found none.")
    fingerprints = tf.strings.to_hash_bucket_fast(tf.constant(words), _NUM_HASHES).numpy()
    order = np.argsort(fingerprints)
    if (np.diff(fingerprints[order]) == 0).any():
        raise ValueError("Expected words that differ, found two with the same fingerprint.")
    return WordTable(fingerprints[order], (first_id + order).astype(np.int32), oov)


class Tokens(NamedTuple):
    """What token ids mean."""

    words: WordTable  # `words.oov` is every other word's id; those that begin and end follow it.
    names: tuple[str, ...]  # The word of each id, for people; "" of padding and unused ids.

    @property
    def eos(self) -> int:
        """The id that ends a sentence, the last one."""
        return self.words.oov + 2

    def encode(self, sentences: tf.Tensor | Sequence[str]) -> dict[str, tf.Tensor]:
        """Returns examples with the field `tokens`, int32 [n, 21], of sentences; see `encode`."""
        bos = self.words.oov + 1
        return {"tokens": encode(sentences, self.words, SENTENCE_LENGTH, bos, self.eos)}


def make_tokens(vocabulary: Sequence[str], num_words: int | None = None) -> Tokens:
    """Returns the ids of a vocabulary of different words, from 1; `num_words` reserves more."""
    num_words = num_words or len(vocabulary)
    unused = [""] * (num_words - len(vocabulary))
    names = ("", *vocabulary, *unused, "<oov>", "<bos>", "<eos>")
    return Tokens(word_table(vocabulary, num_words + 1), names)


def most_common_words(users: Iterable[Iterable[str]], size: int, min_users: int = 1) -> list[str]:
    """Returns at most `size` words that most users have used in their sentences, as TFF counts
    them, and `min_users` of them at least; ties go to the more frequent word, then to the first one
    of the alphabet. UserError if nobody has used any.
    """
    num_users: collections.Counter[str] = collections.Counter()
    uses: collections.Counter[str] = collections.Counter()
    for sentences in users:
        of_user = collections.Counter(word for s in sentences for word in s.split(" ") if word)
        num_users.update(of_user.keys())
        uses.update(of_user)
    if not uses:
        raise UserError("", "no words in what training clients wrote", "some")
    words = (word for word, number in num_users.items() if number >= min_users)
    return sorted(words, key=lambda word: (-num_users[word], -uses[word], word))[:size]


def encode(
    sentences: tf.Tensor | Sequence[str], table: WordTable, length: int, bos: int, eos: int
) -> tf.Tensor:
    """Returns sentences [n] of words, one space between them, as ids int32 [n, length + 1].

    As TFF's baselines have it: `bos`, then at most `length` words; `eos` after them if they are
    fewer; then padding. A model reads `[:, :-1]`, and `[:, 1:]` follows.
    """
    words = tf.strings.split(sentences, sep=" ")[:, :length]
    ids = tf.ragged.map_flat_values(table.lookup, words).to_tensor(PAD, shape=[None, length])
    # Out of range, and so nowhere, where the sentence leaves no room.
    ids += tf.one_hot(words.row_lengths(), length, on_value=eos, off_value=0, dtype=tf.int32)
    return tf.pad(ids, [[0, 0], [1, 0]], constant_values=bos)


def token_cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (softmax cross entropy, 1.0 where a label is no padding), [batch, time] each."""
    losses, _ = classification.cross_entropy(labels, logits)
    return losses, _weights(labels, (PAD,))


def is_token(labels: tf.Tensor) -> tf.Tensor:
    """Returns whether labels are no padding."""
    return tf.not_equal(labels, PAD)


@dataclasses.dataclass(frozen=True)
class TokenAccuracy:
    """Entry function: whether a token's largest logit is its label's; ignored ones do not count."""

    ignored: tuple[int, ...]

    def __call__(self, labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns (1.0 where right, 0.0 where ignored and 1.0 elsewhere), [batch, time] each."""
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        return tf.cast(correct, tf.float32), _weights(labels, self.ignored)


def _weights(labels: tf.Tensor, ignored: Sequence[int]) -> tf.Tensor:
    counts = [tf.ones_like(labels, tf.bool), *(tf.not_equal(labels, token) for token in ignored)]
    return tf.cast(tf.reduce_all(counts, axis=0), tf.float32)


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (ids that are read, ids that follow them), int32 [batch, time] each."""
    del training, key
    return examples["tokens"][:, :-1], examples["tokens"][:, 1:]


def next_word_task(
    dataset: str,
    model: functional_model.FunctionalModel,
    tokens: Tokens,
    clients: Mapping[str, clients_lib.Clients],
    facts: Mapping[str, Any],
    loss: task_lib.EntryFunction = token_cross_entropy,
    setting: Setting = "cross_device",
) -> task_lib.Task:
    """Returns a task of predicting the next words of clients with the field `tokens`. The loss may
    count padding; metrics and weights of entries never do.
    """
    accuracies = {
        "accuracy": TokenAccuracy((PAD, tokens.words.oov, tokens.eos)),
        "accuracy_with_end_of_sentence": TokenAccuracy((PAD, tokens.words.oov)),
        "accuracy_with_end_of_sentence_and_unknown_words": TokenAccuracy((PAD,)),
    }
    return task_lib.Task(
        dataset=dataset,
        setting=setting,
        model=model,
        loss=loss,
        counts=token_cross_entropy,
        is_real=is_token if loss is token_cross_entropy else None,
        metrics=tuple(task_lib.Metric(name, f, True) for name, f in accuracies.items()),
        preprocess=preprocess,
        facts=facts,
        label_names=tokens.names,
        train=clients["train"],
        valid=clients["valid"],
        test=clients["test"],
    )


def model_of(
    architecture: Callable[[int], tf.keras.Model], tokens: Tokens
) -> functional_model.FunctionalModel:
    """Returns the model that an architecture makes of the number of ids."""
    return functional_model.from_keras(
        functools.partial(architecture, tokens.eos + 1), np.zeros((1, SENTENCE_LENGTH), np.int32)
    )


def with_unigram(task: task_lib.Task) -> task_lib.Task:
    """Returns a task without clients that cannot be scored, and with what is to be beaten, after
    reading every valid and test client; to be called when nothing takes examples away any more.

    Of silos, whose parts differ, what is to be beaten is a fact and no reference. Tasks of other
    metrics, and those of more clients than are soon read, stay as they are. UserError if no client
    of a split can be scored.
    """
    function: object = task.metric.function
    num_read = len(task.valid) + len(task.test)
    if not isinstance(function, TokenAccuracy) or num_read > _MOST_READ:
        return task
    is_silos = task.setting == "cross_silo"
    accuracies = {name: unigram_accuracy(task, name) for name in ("valid", "test")}
    if is_silos:  # The same ones are in both.
        both = set(accuracies["valid"]) & set(accuracies["test"])
        accuracies = {s: {i: a[i] for i in a if i in both} for s, a in accuracies.items()}
    scored: dict[str, clients_lib.Clients] = {}
    unscorable: set[str] = set()
    for name, by_client in accuracies.items():
        clients = task.splits[name]
        if not by_client:
            place = f"the evaluation half of any of {len(clients)} {name} clients"
            problem = f"no word of the vocabulary in {place}"
            raise UserError("", problem, advice="give longer texts in one language")
        unscorable |= set(clients.ids) - set(by_client)
        is_whole = len(by_client) == len(clients)
        scored[name] = clients if is_whole else clients_lib.subset(clients, tuple(by_client))
    left_out = {_UNSCORABLE: sorted(unscorable)} if unscorable else {}
    facts = {
        **task.facts,
        "clients_left_out": {**task.facts.get("clients_left_out", {}), **left_out},
        "unigram_accuracy": {
            name: float(np.mean([*by_client.values()])) for name, by_client in accuracies.items()
        },
    }
    reference = {} if is_silos else {**accuracies["valid"], **accuracies["test"]}
    return dataclasses.replace(
        task, facts=facts, reference=reference, valid=scored["valid"], test=scored["test"]
    )


def unigram_accuracy(task: task_lib.Task, split: str) -> dict[str, float]:
    """Returns the accuracy of always saying a client's own most frequent word, by client of `valid`
    or `test`.

    What a language model has to beat: the word is the most frequent one of the personalization
    part, the accuracy is the task's metric, a `TokenAccuracy`, on the evaluation part. A client
    without a word in its personalization part scores 0; one without a word in its
    evaluation part is left out.
    """
    metric: Any = task.metric.function
    clients = task.splits[split]
    parts = task.personalization_part(split), task.evaluation_part(split)

    def words(examples: clients_lib.Examples) -> np.ndarray:
        raw = {field: tf.convert_to_tensor(values) for field, values in examples.items()}
        labels = task.preprocess(raw, False, tf.zeros([2], tf.int32))[1].numpy()
        return labels[~np.isin(labels, metric.ignored)]

    result = {}
    for client_id in clients.ids:
        data = clients.fetch(client_id)
        known, scored = (words(data[part]) for part in parts)
        if len(scored):
            # Of several words that are as frequent, the first.
            word = np.bincount(known).argmax() if len(known) else PAD
            result[client_id] = float(np.mean(scored == word))
    return result
