"""Shakespeare: next characters of what the roles of his plays say; a cross-device task.

Card
  Source: TFF's `shakespeare` (of LEAF, from Project Gutenberg): `shakespeare.sqlite`, or its older
    form `shakespeare_train.h5` with `shakespeare_test.h5` beside it, in --data_dir or its folder
    shakespeare; LEAF's own JSON, a file or a folder; else TFF's cache, else a download of 1.3 MB.
    Or synthetic roles, who speak as `datasets.synthetic.posts` writes.
  Licence: the text is in the public domain; TFF's packaging: Apache-2.0.
  Clients: 715 roles, 2,716,581 characters with the lines' ends that join their snippets, from 81 to
    80,004 a role, median 1,203. Those of fewer than --min_characters (200) are left out, 95 of
    them, named in the task's facts. Synthetic: 48 roles; 890 +- 250 characters each.
  Fields: `tokens` int32 [81]: 0 padding, 1 to 86 TFF's characters, 87 any other one (the text's two
    `}`), 88 begins a text, 89 ends a snippet. The model reads the first 80 and predicts the last
    80; of LEAF's JSON, an example of 80 characters and the next one, the last alone.
  Model: TFF's LSTM, 820,522 weights; padding has no weight in the loss. `accuracy` is over the
    text's characters; TFF's metric of that name is `accuracy_with_end_of_snippet` here.
  Split: --shakespeare_split=roles: a role's train and test snippets are joined in order, a line
    each. Roles are permuted with seed 13: 12% valid, 15% test, the rest train. A valid or test
    role's text is halved by characters: the first half personalizes, the second evaluates. A text
    is cut so that each character but the mark at its beginning is predicted once.
    --shakespeare_split=snippets, as Reddi et al. 2020 (https://arxiv.org/abs/2003.00295): all roles
    train on their train snippets, and all are tested: personalized on those, evaluated on their
    test snippets. Valid roles are the same ones, whose second half of the train snippets evaluates
    what was trained on it: good to watch, not to choose by. Snippets are cut as TFF's baseline
    does, each into pieces of 81 of which the first character is not predicted.
    LEAF's examples, one a character, are split as roles: the first half of a role's personalizes.
    `unigram_accuracy` is what a role's own most frequent character scores.
  Citation: McMahan et al. 2017 (https://arxiv.org/abs/1602.05629); Caldas et al. 2018, "LEAF: A
    Benchmark for Federated Settings" (https://arxiv.org/abs/1812.01097).
"""

import functools
import os
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets.kinds import next_words
from datasets.models import text_models
from datasets.options import DataOptions, ShakespeareSplit
from datasets.partition import splits
from datasets.readers import files, leaf_files, native_files, sqlite_clients
from datasets.synthetic import posts as synthetic_posts
from motley_tff.core import errors, functional_model, task as task_lib
from motley_tff.core.errors import UserError

# Those that TFF's baseline knows; the published text has one more, `}`.
CHARACTERS = string.digits + string.ascii_letters + "\n\r !\"#$%&'()*,-./:;?@[]_"
PAD = next_words.PAD
OOV = len(CHARACTERS) + 1
BOS, EOS = OOV + 1, OOV + 2
LENGTH = 80

_URL = "https://storage.googleapis.com/tff-datasets-public/shakespeare.sqlite.lzma"
# Of the packed file, 1,329,828 bytes, as others measured it.
_SHA256 = "d3d11fceb9e105439ac6f4d52af6efafed5a2a1e1eb24c5bd2dd54ced242f5c4"
_SQLITE, _TRAIN_HDF5, _TEST_HDF5 = (
    "shakespeare.sqlite", "shakespeare_train.h5", "shakespeare_test.h5",
)  # fmt: skip
_ADVICE = f"put {_SQLITE} (that file, unpacked) there, or {_TRAIN_HDF5} and {_TEST_HDF5}"
_DEFAULT_DIR = "~/.tff"
_FIELD = "snippets"
# What h5py raises where that is no group, not there, no text, or not UTF-8.
_NOT_SO = (AttributeError, KeyError, TypeError, ValueError)
# ids of characters below 256; what is beyond any is unknown.
_IDS = np.full(257, OOV, np.int32)
_IDS[[ord(c) for c in CHARACTERS]] = np.arange(1, OOV)

Snippets = Mapping[str, Sequence[str]]


class Plays(NamedTuple):
    """What roles say, `{role: snippets}`, as TFF splits it."""

    train: Snippets
    test: Snippets


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found: synthetic roles, SQLite (by default in TFF's cache), HDF5,
    a download. UserError says what to put where.
    """
    rule, fewest = options.shakespeare_split, options.min_characters
    if options.use_synthetic_data:
        plays, groups = synthesize(options.seed)
        facts = {"source": "synthetic", "client_groups": groups}
        return create_task_from_data(plays, rule, fewest, facts, options)
    path = _find(options)
    if leaf_files.is_leaf(path):
        return _create_leaf_task(path, options)
    plays, facts = _read(path)
    with errors.at(path):
        return create_task_from_data(plays, rule, fewest, facts, options)


def create_task_from_data(
    plays: Plays,
    rule: ShakespeareSplit = DataOptions.shakespeare_split,
    min_characters: int = DataOptions.min_characters,
    facts: Mapping[str, Any] | None = None,
    options: DataOptions | None = None,
) -> task_lib.Task:
    """Returns the task on roles in memory, split as `--shakespeare_split` says; of roles `options`
    may name who validates and tests. UserError if there are too few.
    """
    split = functools.partial(splits.published_or_proportional, options=options, facts=facts)
    parts = _of_roles(plays, min_characters, split) if rule == "roles" else _of_snippets(plays)
    return _task(parts, facts or {}, next_words.preprocess)


def _task(
    parts: "_Split",
    facts: Mapping[str, Any],
    preprocess: Callable[..., tuple[tf.Tensor, tf.Tensor]],
) -> task_lib.Task:
    split, sources, left_out = parts
    clients = splits.make_clients(
        split,
        sources,
        lambda rows: {"train": {"tokens": rows}},
        lambda halves: {
            part: {"tokens": rows}
            for part, rows in zip(("personalization", "evaluation"), halves, strict=True)
        },
    )
    return task_lib.Task(
        dataset="shakespeare",
        setting="cross_device",
        model=functional_model.from_keras(new_model, np.zeros((1, LENGTH), np.int32)),
        loss=next_words.token_cross_entropy,
        metrics=(
            task_lib.Metric("accuracy", next_words.TokenAccuracy((PAD, OOV, EOS)), True),
            task_lib.Metric("accuracy_with_end_of_snippet", next_words.TokenAccuracy((PAD,)), True),
        ),
        preprocess=preprocess,
        facts={**facts, "clients_left_out": {**split.left_out, **left_out}},
        label_names=("", *CHARACTERS, "<oov>", "<bos>", "<eos>"),
        train=clients["train"],
        valid=clients["valid"],
        test=clients["test"],
    )


def new_model() -> text_models.TextLstm:
    """Returns TFF's next-character LSTM, whose padding is not masked here."""
    ids = EOS + 1
    return text_models.TextLstm(ids, ids, (8, 256, 256), kernel_initializer="he_normal")


def synthesize(seed: int) -> tuple[Plays, dict[str, str]]:
    """Returns (synthetic roles, planted group by role): of five sentences the last one tests."""
    posts, groups = synthetic_posts.write(seed)
    said = {role: written.tokens for role, written in posts.items()}
    cuts = {role: max(1, 4 * len(written) // 5) for role, written in said.items()}
    train = {role: written[: cuts[role]] for role, written in said.items()}
    return Plays(train, {role: written[cuts[role] :] for role, written in said.items()}), groups


def encode(text: str) -> np.ndarray:
    """Returns the ids int32 [n] of a text's n characters."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _IDS[np.minimum(codes, len(_IDS) - 1)]


def cut_text(ids: np.ndarray) -> np.ndarray:
    """Returns a text's ids [n] as rows int32 [m, 81] of which each begins with the last id of the
    one before: a mark first, then each character is predicted once; padding ends the last row.
    """
    rows = max(1, -(-len(ids) // LENGTH))
    padded = np.full(rows * LENGTH + 1, PAD, np.int32)
    padded[0], padded[1 : len(ids) + 1] = BOS, ids
    return np.lib.stride_tricks.sliding_window_view(padded, LENGTH + 1)[::LENGTH].copy()


def cut_snippets(snippets: Sequence[np.ndarray]) -> np.ndarray:
    """Returns snippets' ids as rows int32 [m, 81], as TFF's baseline: each with marks at both ends,
    padded to whole rows.
    """
    rows = [np.empty((0, LENGTH + 1), np.int32)]
    for ids in snippets:
        marked = np.concatenate([[BOS], ids, [EOS]])
        padding = np.full(-len(marked) % (LENGTH + 1), PAD)
        rows.append(np.concatenate([marked, padding]).astype(np.int32).reshape(-1, LENGTH + 1))
    return np.concatenate(rows)


_SplitClients = Callable[[Mapping[str, int]], splits.ClientSplit]
_Split = tuple[splits.ClientSplit, Mapping[str, splits.Source], dict[str, list[str]]]


def _of_roles(plays: Plays, min_characters: int, split: _SplitClients) -> _Split:
    """Returns (who is in which split, rows by split and role, who says too little)."""
    roles = sorted({*plays.train, *plays.test})
    said = {role: [*plays.train.get(role, ()), *plays.test.get(role, ())] for role in roles}
    texts = {role: encode("\n".join(filter(None, snippets))) for role, snippets in said.items()}
    return _halved(texts, cut_text, min_characters, split)


def _halved(
    texts: Mapping[str, np.ndarray],
    rows: Callable[[np.ndarray], np.ndarray],
    min_characters: int,
    split_clients: _SplitClients,
) -> _Split:
    """Returns the same of what is said, of which each half becomes rows by itself."""
    short = [role for role, ids in texts.items() if len(ids) < min_characters]
    sizes = {role: len(ids) for role, ids in texts.items() if len(ids) >= min_characters}
    if len(sizes) < 3:
        expected = f"few enough that 3 of {len(texts)} roles say as much, not {len(sizes)}"
        raise UserError(errors.name("min_characters"), min_characters, expected)
    split = split_clients(sizes)
    halves = {
        role: (rows(texts[role][: n // 2]), rows(texts[role][n // 2 :]))
        for role, n in sizes.items()
    }
    sources: dict[str, splits.Source] = {
        "train": {role: rows(texts[role]) for role in split.train},
        "valid": halves,
        "test": halves,
    }
    return split, sources, {f"fewer than {min_characters} characters": short} if short else {}


def _create_leaf_task(path: Path, options: DataOptions) -> task_lib.Task:
    if options.shakespeare_split == "snippets":
        expected = "roles, as LEAF's JSON has no snippets"
        raise UserError(errors.name("shakespeare_split"), options.shakespeare_split, expected)
    users = {user: rows["tokens"] for user, rows in sorted(leaf_files.read(path, _of_leaf).items())}
    with errors.at(path):
        split = functools.partial(splits.published_or_proportional, options=options)
        parts = _halved(users, lambda rows: rows, options.min_characters, split)
        return _task(parts, leaf_files.facts(path), _preprocess_leaf)


def _of_leaf(x: list[Any], y: list[Any]) -> dict[str, np.ndarray]:
    """Returns LEAF's examples as rows uint8 [n, 81]: a role has as many as characters."""
    for texts, length in ((x, LENGTH), (y, 1)):
        wrong = [t for t in texts if not isinstance(t, str) or len(t) != length]
        if wrong:
            problem = repr(str(wrong[0])[:30])
            raise UserError("", problem, f"texts of {length} characters")
    ids = np.stack([encode(before + after) for before, after in zip(x, y, strict=True)])
    return {"tokens": ids.astype(np.uint8)}


def _preprocess_leaf(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (80 characters' ids, which of the next ones is predicted: the last) int32."""
    x, y = next_words.preprocess(examples, training, key)
    is_last = tf.range(LENGTH) == LENGTH - 1
    return tf.cast(x, tf.int32), tf.where(is_last, tf.cast(y, tf.int32), PAD)


def _of_snippets(plays: Plays) -> _Split:
    """Returns the same of all roles, which train and are tested on other snippets."""
    train, test = (
        {role: cut_snippets([encode(text) for text in texts]) for role, texts in snippets.items()}
        for snippets in plays
    )
    both = {role: (rows, test[role]) for role, rows in train.items() if role in test}
    sizes = {role: len(rows) for role, rows in train.items()}
    tested = {role: min(len(texts) for texts in halves) for role, halves in both.items()}
    # Whoever has one row to train on, or to test, still has both.
    at_least_2 = {role: 2 * (n > 0) for role, n in tested.items()}
    split = splits.leave_out_small({"train": sizes, "valid": sizes, "test": at_least_2})
    valid = {role: (rows[: len(rows) // 2], rows[len(rows) // 2 :]) for role, rows in train.items()}
    return split, {"train": train, "valid": valid, "test": both}, {}


def _find(options: DataOptions) -> Path:
    """Returns the file of the train snippets, after a download if there is none."""
    names = (_SQLITE, _TRAIN_HDF5)
    paths = [os.path.join(folder, name) for name in names for folder in ("", "shakespeare")]
    path = files.find(options, paths, _DEFAULT_DIR)
    if path is not None:
        return path
    folder = Path(os.path.expanduser(options.data_dir or _DEFAULT_DIR))
    if (leaf := leaf_files.find_in(folder, ("", "shakespeare"))) is not None:
        return leaf
    with files.or_by_hand("shakespeare", folder, _ADVICE):
        files.download(_URL, folder / _SQLITE, _SHA256)
    return folder / _SQLITE


def _read(path: Path) -> tuple[Plays, dict[str, Any]]:
    if path.suffix == ".sqlite":
        said = []
        with errors.at(path):
            for split_name in ("train", "test"):
                sqlite_clients.check_split(path, split_name)
                said.append(dict(sqlite_clients.texts(path, split_name, _FIELD)))
        return Plays(*said), {"source": "sqlite", "files": [str(path)]}
    if path.suffix != ".h5":
        raise UserError(str(path), expected=f"TFF's {_SQLITE} or {_TRAIN_HDF5}, or LEAF's .json")
    beside = path.with_name(path.name.replace("train", "test"))
    if beside == path or not beside.is_file():
        raise UserError(str(path), f"no {_TEST_HDF5} beside it", "both of TFF's files")
    facts = {"source": "hdf5", "files": [str(path), str(beside)]}
    return Plays(_of_hdf5(path), _of_hdf5(beside)), facts


def _of_hdf5(path: Path) -> dict[str, list[str]]:
    """Returns `{role: snippets}` of TFF's older form: `examples/<role>/snippets`, strings [n]."""
    import h5py  # Takes 0.1 s.

    said = {}
    with errors.at(path), files.readable_as("HDF5 with a group examples", OSError, KeyError):
        native_files.read("HDF5", path)
        with h5py.File(path) as file:
            for role, group in file["examples"].items():
                kind = f"{_FIELD}, text in UTF-8 [n], of a role named in UTF-8"
                with errors.at(f"role {role}"), files.readable_as(kind, *_NOT_SO):
                    field = group[_FIELD]
                    if field.ndim != 1:
                        raise UserError("", f"{field.dtype}, shape {field.shape}", kind)
                    # h5py has names that are not UTF-8 as bytes, which have no `encode`.
                    said[role.encode().decode()] = list(field.asstr()[()])
    return dict(sorted(said.items()))
