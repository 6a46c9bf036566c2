"""How clients and examples are split: Motley's published rules as pure functions.

Cross-device: the clients are permuted by `RandomState(13)` and cut into valid, test and train; a
valid or test client's examples are halved into personalization and evaluation. Cross-silo: every
silo's examples are cut by a seed, 70/15/15 unless told otherwise, and features are scaled by the
silo's training part.
"""

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets.options import PUBLISHED_SHARES, DataOptions, SiloShares
from datasets.partition import held_out
from motley_tff.core import clients as clients_lib, errors
from motley_tff.core.errors import UserError

SPLITS = ("train", "valid", "test")
SPLITTABLE = "a silo of 3 examples or more"
SPLIT_SEED = 13
# Where the client count is not the published one: EMNIST's 400 and 500 of 3,400 clients, rounded.
VALID_PROPORTION, TEST_PROPORTION = 0.12, 0.15
# Why a client with no example, and with one, is left out.
_TOO_SMALL = ("no examples", "fewer than 2 examples: cannot be halved")
_NEEDED = {"train": 1, "valid": 2, "test": 2}
# What TensorFlow pairs an op's seed with when no global seed is set; given to the kernel outright,
# so that the halves stay the same whatever a caller does to the global seed.
_DEFAULT_GRAPH_SEED = 87654321
# Smallest silo that leaves at least one example in each of its three parts.
FEWEST_OF_A_SILO = 3

# Examples by client id, or a function of an id that loads them in a graph.
Source = Mapping[str, Any] | Callable[[tf.Tensor], Any]
# A silo's: {part: {field: array}}, whose parts have the names of the splits.
Parts = dict[str, dict[str, np.ndarray]]


class ClientSplit(NamedTuple):
    """Client ids of each split, and who is in none: `{reason: [ids]}`.

    `sizes` has `{split: {client id: number of examples}}`.
    """

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    left_out: dict[str, list[str]]
    sizes: Mapping[str, Mapping[str, int]]


class Silos(NamedTuple):
    """A task's clients: all, those with examples to test on, and as facts why others have none."""

    train: clients_lib.Clients
    evaluated: clients_lib.Clients
    facts: dict[str, Any]


def split_clients(
    ids: Sequence[str], num_valid: int, num_test: int
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns (train, valid, test) ids, permuted with seed 13; UserError if none would train."""
    if len(ids) <= num_valid + num_test:
        parts = f"{num_valid} to validate, {num_test} to test and at least one to train"
        raise UserError("", f"{len(ids)} clients", f"more than {num_valid + num_test}: {parts}")
    permuted, end = permute(ids), num_valid + num_test
    return permuted[end:], permuted[:num_valid], permuted[num_valid:end]


def permute(ids: Sequence[str]) -> tuple[str, ...]:
    """Returns ids in the order of Motley's permutation."""
    return tuple(ids[i] for i in np.random.RandomState(SPLIT_SEED).permutation(len(ids)))


def proportional_counts(num_clients: int) -> tuple[int, int]:
    """Returns (valid, test) counts: 12% and 15% rounded down, at least one each."""
    # In whole percents: 0.15 * n in floats can fall just below a whole number.
    valid, test = (round(100 * p) * num_clients // 100 for p in (VALID_PROPORTION, TEST_PROPORTION))
    return max(1, valid), max(1, test)


def published_or_proportional(
    sizes: Mapping[str, int],
    published: tuple[int, int, int] | None = None,
    options: DataOptions | None = None,
    facts: Mapping[str, Any] | None = None,
) -> ClientSplit:
    """Splits `{client id: number of examples}`, in the source's order.

    Args:
      published: (clients there are, valid ones, test ones): a population of that size is split so,
        any other by shares.
      options: May name who validates and tests. If one of these is named, the other is the first
        of the remaining clients, permuted, in its share of them.
      facts: May have clients' groups, which options may name.

    Raises:
      UserError: If a split would have no client, or options name no such clients.
    """
    if named := held_out.named(options, sizes, (facts or {}).get("client_groups", {})):
        return split_named(sizes, named)
    if published and len(sizes) == published[0]:
        return split_population(sizes, *published[1:])
    return split_population(sizes, *proportional_counts(len(sizes)))


def split_named(
    sizes: Mapping[str, int],
    named: Mapping[str, Sequence[str]],
    published: Mapping[str, Collection[str]] | None = None,
) -> ClientSplit:
    """Splits clients of whom those of `valid`, of `test` or of both are named: of the others, where
    a split is not named, those stay in it that are `published` there, else its share of them is,
    the first of the permutation. All remaining clients train. UserError if a split has no client.
    """
    taken = set().union(*named.values())
    rest = [i for i in (sizes if published else permute(tuple(sizes))) if i not in taken]
    members: dict[str, Sequence[str]] = dict(named)
    for split, count in zip(held_out.SPLITS, proportional_counts(len(rest)), strict=True):
        if split not in named:
            before = set(rest[:count] if published is None else published[split])
            members[split] = [i for i in rest if i in before]
            if not members[split]:
                problem = f"none of the {len(before)} published {split} clients left"
                raise UserError("", problem, advice=f"give {errors.name(f'{split}_clients')}, too")
    taken.update(*members.values())
    members["train"] = [i for i in rest if i not in taken]
    return leave_out_small({s: {i: sizes[i] for i in members[s]} for s in SPLITS})


def split_population(sizes: Mapping[str, int], num_valid: int, num_test: int) -> ClientSplit:
    """Splits clients by `split_clients`, then leaves out those that `leave_out_small` does."""
    ids = split_clients(tuple(sizes), num_valid, num_test)
    return leave_out_small(
        {s: {i: sizes[i] for i in part} for s, part in zip(SPLITS, ids, strict=True)}
    )


def leave_out_small(sizes: Mapping[str, Mapping[str, int]]) -> ClientSplit:
    """Leaves out of `{split: {client id: number of examples}}` clients that have nothing to train
    on or cannot be halved; UserError if a split would have no client.
    """
    ids = {s: tuple(i for i, n in part.items() if n >= _NEEDED[s]) for s, part in sizes.items()}
    for name, remaining in ids.items():
        if not remaining:
            needed = f"{_NEEDED[name]} examples or more"
            problem = f"no {name} client of {len(sizes[name])} with {needed}"
            raise UserError("", problem, advice="add clients or examples")
    left_out = {
        reason: sorted(i for s, part in sizes.items() for i in part if part[i] == n < _NEEDED[s])
        for n, reason in enumerate(_TOO_SMALL)
    }
    return ClientSplit(**ids, left_out={r: i for r, i in left_out.items() if i}, sizes=sizes)


def make_clients(
    split: ClientSplit,
    sources: Mapping[str, Source],
    trained: Callable[[Any], clients_lib.Parts] = lambda examples: {"train": examples},
    evaluated: Callable[[Any], clients_lib.Parts] | None = None,
    expected: str | None = None,
) -> dict[str, clients_lib.Clients]:
    """Returns the clients of each split: `trained` makes a training client's parts of its source's
    examples, `evaluated` another's. A client of each is read if `expected` says what examples
    should have, so that a database of another task's fails here, with a UserError.
    """
    parts = {"train": trained, "valid": evaluated or halve, "test": evaluated or halve}
    clients_of = {
        name: _clients(getattr(split, name), sources[name], parts[name], split.sizes[name])
        for name in SPLITS
    }
    for clients in clients_of.values() if expected else ():
        try:
            clients.fetch(clients.ids[0])
        except UserError as error:
            raise UserError(error.where, error.finding, f"examples with {expected}") from error
    return clients_of


def _clients(
    ids: Sequence[str],
    source: Source,
    parts: Callable[[Any], clients_lib.Parts],
    sizes: Mapping[str, int],
) -> clients_lib.Clients:
    if isinstance(source, Mapping):
        data = {i: parts(source[i]) for i in ids}
        return clients_lib.InMemoryClients(tf.nest.map_structure(np.asarray, data))
    return clients_lib.InGraphClients(ids, lambda client_id: parts(source(client_id)), sizes)


def joined(sources: Mapping[str, Source], members: Mapping[str, Collection[str]]) -> Source:
    """Returns one source of all splits' clients, of whom each is in one split's `members`."""
    if all(isinstance(source, Mapping) for source in sources.values()):
        return {i: source[i] for source in sources.values() for i in source}  # type: ignore[union-attr, index]

    def load(client_id: tf.Tensor) -> Any:
        ids = [tf.constant([*members[split]], tf.string) for split in sources]
        owns = tf.stack([tf.reduce_any(client_id == of_split) for of_split in ids])
        loads = [functools.partial(source, client_id) for source in sources.values()]  # type: ignore[arg-type]
        return tf.switch_case(tf.argmax(owns, output_type=tf.int32), loads)

    return load


def beyond(sizes: Mapping[str, int], limit: int, name: str) -> dict[str, int]:
    """Returns how many clients have more examples than a limit, and how many more, as facts."""
    over = [size - limit for size in sizes.values() if size > limit]
    return {"clients": len(over), name: sum(over)}


def shuffled_order(num_examples: tf.Tensor | int) -> tf.Tensor:
    """Returns the order of Motley's shuffle before halving so many examples, int64 [n].

    Equal to `tf.data.Dataset.range(n).shuffle(n, seed=13, reshuffle_each_iteration=False)` where no
    global seed is set, in eager code and in a graph alike. That order depends on n alone.
    """
    n = tf.cast(num_examples, tf.int64)
    size = tf.maximum(n, 1)
    spec = {"output_types": [tf.int64], "output_shapes": [[]]}
    zero, step = tf.constant(0, tf.int64), tf.constant(1, tf.int64)
    rows = tf.raw_ops.RangeDataset(start=zero, stop=n, step=step, **spec)
    rows = tf.raw_ops.ShuffleDataset(
        input_dataset=rows,
        buffer_size=size,
        seed=_DEFAULT_GRAPH_SEED,
        seed2=SPLIT_SEED,
        reshuffle_each_iteration=False,
        **spec,
    )
    spec["output_shapes"] = [[None]]
    rows = tf.raw_ops.BatchDatasetV2(
        input_dataset=rows, batch_size=size, drop_remainder=False, **spec
    )
    return tf.raw_ops.DatasetToSingleElement(dataset=rows, **spec)[0]


@functools.lru_cache(maxsize=4096)
def _shuffled_order_array(num_examples: int) -> np.ndarray:
    return shuffled_order(num_examples).numpy()


def halve(
    examples: clients_lib.Examples, shuffle: bool = True, labels: np.ndarray | None = None
) -> dict[str, clients_lib.Examples]:
    """Splits examples `{field: [n, ...]}`, arrays or tensors, n at least 2, into `personalization`,
    the first floor(n / 2), and `evaluation`; shuffled before (EMNIST, Landmarks) or in their order.
    Of arrays with `labels` [n] both have each label in its share, see `keep_shares`.
    """
    first = next(iter(examples.values()))
    if isinstance(first, np.ndarray):
        n, gather = len(first), np.take
        order = _shuffled_order_array(n) if shuffle else np.arange(n)
        order = order if labels is None else keep_shares(order, labels, n // 2)
    else:
        n, gather = tf.shape(first, tf.int64)[0], tf.gather
        order = shuffled_order(n) if shuffle else tf.range(n)
    halves = {"personalization": order[: n // 2], "evaluation": order[n // 2 :]}
    return {
        part: {field: gather(values, rows, axis=0) for field, values in examples.items()}
        for part, rows in halves.items()
    }


def keep_shares(order: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Returns an order of rows, int64 [n], changed so that the first `count` have each label in its
    share of all, rounded down, and one more of those with the largest remainders (Hamilton's rule;
    of equal ones the labels that come first). Rows of a label stay in their order.
    """
    _, first, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    by_place = np.argsort(first)
    wholes, remainders = np.divmod(sizes[by_place] * count, len(order))
    wholes[np.argsort(-remainders, kind="stable")[: count - wholes.sum()]] += 1
    is_first = np.zeros(len(order), bool)
    for label, number in zip(labels[order][first[by_place]], wholes, strict=True):
        is_first[np.flatnonzero(labels[order] == label)[:number]] = True
    return np.concatenate([order[is_first], order[~is_first]])


def split_silo(
    num_examples: int,
    seed: int,
    shares: SiloShares = PUBLISHED_SHARES,
    is_shuffled: bool = True,
    labels: np.ndarray | None = None,
) -> dict[str, np.ndarray] | None:
    """Cuts a silo's rows into `{train, valid, test: row numbers}`, shuffled by a seed, or as they
    stand: the first train, the last test. None if it is too small to have all three parts.

    The rows are those of scikit-learn's `train_test_split`, used twice with one seed, as in the
    published silo code; run r of Motley's experiments used 100 + 1000 r. The shares that validate
    and test are rounded up; UserError if they leave a silo of three examples or more nothing to
    train on. With `labels` [n] each part that is shuffled has each label in its share, see
    `keep_shares`: first the rows that test of all, then those that validate of the rest.
    """
    if num_examples < FEWEST_OF_A_SILO:
        return None
    if labels is not None:
        return _split_silo(num_examples, seed, shares, is_shuffled, labels)
    return dict(_split_silo_once(num_examples, seed, shares, is_shuffled))


def _split_silo(
    num_examples: int,
    seed: int,
    shares: SiloShares,
    is_shuffled: bool,
    labels: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    try:
        rest, test = _cut(np.arange(num_examples), shares.test, seed, is_shuffled, labels)
        share = shares.valid / (1 - shares.test)
        train, valid = _cut(rest, share, seed, is_shuffled, labels)
    except ValueError as error:
        names = errors.name("val_split"), errors.name("test_split")
        stated = " and ".join(f"{n}={share:g}" for n, share in zip(names, shares, strict=True))
        expected = f"one to train on beside {stated}"
        problem, advice = f"a silo of {num_examples} examples", "give smaller shares"
        raise UserError("", problem, expected, advice) from error
    return {"train": train, "valid": valid, "test": test}


_split_silo_once = functools.lru_cache(maxsize=1024)(_split_silo)


def _cut(
    rows: np.ndarray, share: float, seed: int, is_shuffled: bool, labels: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (what is left, a share of the rows); ValueError if nothing is left.

    A shuffled share comes first, as scikit-learn's, which takes 0.4 s to import; else it is last.
    """
    num_taken = math.ceil(share * len(rows))
    if num_taken >= len(rows):
        raise ValueError("nothing is left")
    if not is_shuffled:
        return rows[:-num_taken], rows[-num_taken:]
    order = np.random.RandomState(seed).permutation(len(rows))
    order = order if labels is None else keep_shares(order, labels[rows], num_taken)
    return rows[order[num_taken:]], rows[order[:num_taken]]


def least_silo(shares: SiloShares = PUBLISHED_SHARES) -> int:
    """Returns a size from which on `split_silo` leaves none of a silo's parts empty."""
    train = 1.0 - shares.valid - shares.test
    # What trains is less than one example below its share of the rest, which is less than one
    # below its own.
    return max(FEWEST_OF_A_SILO, math.ceil(1.0 / train + 1.0 / (1.0 - shares.test) - 1e-9))


def with_evaluated(
    data: Mapping[str, Parts], reason: str, expected: str, field: str = "target"
) -> Silos:
    """Returns silos, `{id: parts}`, of which those without test examples only train, and `reason`
    says why; `field` is one that examples have. UserError, which says what silo is `expected`, if
    none has any.
    """
    whole = {i: parts for i, parts in data.items() if len(parts["test"][field])}
    if not whole:
        raise UserError("", f"{len(data)} silos that cannot be split", expected)
    evaluated = clients_lib.InMemoryClients(whole)
    small = [i for i in data if i not in whole]
    train = clients_lib.InMemoryClients(data) if small else evaluated
    return Silos(train, evaluated, {"clients_not_evaluable": {reason: small} if small else {}})


def train_only(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns `{part: rows}` that leave nothing to validate and test on."""
    return {"train": rows, "valid": rows[:0], "test": rows[:0]}
