"""Who owns which examples: pooled and dealt to other clients, and cut to fewer.

`--partition` says how: `natural` leaves a data set's own clients; `iid` deals at random; the others
by labels (`datasets.label_partition`). What is dealt to new clients is split as a user's own data
are: devices into train, valid and test clients, silos each into three parts. With
`--evaluation_partition=iid` what they are scored on is then dealt at random.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets import label_partition, packages
from datasets.options import DataOptions
from datasets.partition import assignment, splits
from motley_tff import commandline
from motley_tff.core import clients as clients_lib, errors, partition, random_streams
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task

Examples = Mapping[str, np.ndarray]
# What a device's two halves need.
_LEAST_DEVICE = 2
# `run.json` keeps the table of clients and classes if it has no more cells.
_MAX_CELLS = 10_000
_TABLE = "class_counts"
_OF_OWN_CLIENTS = ("client_groups", "clients_left_out", "clients_not_evaluable")
_MAX_CLIENTS = errors.name("max_clients")


@dataclasses.dataclass(frozen=True)
class Dealt:
    """The clients of each split, and what is known of them."""

    clients: Mapping[str, clients_lib.Clients]
    facts: Mapping[str, Any]


def apply(task: Task, options: DataOptions) -> Task:
    """Returns a task with its examples dealt and cut as options say.

    Raises:
      UserError: If examples have no classes to deal by, do not fit into memory, or are too few.
    """
    memory, on_client = options.memory_limit_gb * 1e9, commandline.raise_if_ended
    if "partition_sha256" not in task.facts:  # Else dealt already, having had no clients before.
        task = _dealt(task, options, memory, on_client)
    if options.evaluation_partition == "iid":
        task = partition.deal_evaluation(task, options.seed, memory, on_client)
    return cut(task, options)


def _dealt(task: Task, options: DataOptions, memory: float, on_client: Callable[[], None]) -> Task:
    """Returns a task with its examples dealt as `--partition` says."""
    if options.partition == "iid" and options.num_clients is None:
        task = partition.deal(task, options.seed, memory, on_client)
    elif options.partition != "natural":
        if options.partition != "iid" and task.label_field is None:
            expected = f"iid, as the examples of {task.dataset} have no classes to deal by"
            raise UserError(errors.name("partition"), options.partition, expected)
        num_clients = options.num_clients or len({i for c in task.splits.values() for i in c.ids})
        pooled, without = _with_classes(task, partition.pool(task, memory, on_client))
        dealt = deal(pooled, task.label_field, options, num_clients, task.label_names)
        # What was known of its own clients holds no more.
        facts = {name: fact for name, fact in task.facts.items() if name not in _OF_OWN_CLIENTS}
        facts |= dealt.facts
        if without:
            facts["examples_left_out_of_no_known_class"] = without
        changes: dict[str, Any] = {**dealt.clients, "facts": facts, "reference": {}}
        task = dataclasses.replace(task, **changes)
    return task


def _with_classes(task: Task, examples: Examples) -> tuple[Examples, int]:
    """Returns the examples that have a class, and how many have none: -1, which no model tells."""
    labels = examples[task.label_field] if task.label_field else np.zeros(0, np.int32)
    if not np.issubdtype(labels.dtype, np.integer) or not (labels < 0).any():
        return examples, 0
    kept = labels >= 0
    return {field: values[kept] for field, values in examples.items()}, int((~kept).sum())


def deal(
    examples: Examples,
    label_field: str | None,
    options: DataOptions,
    num_clients: int,
    label_names: Sequence[str] = (),
) -> Dealt:
    """Deals examples, `{field: [n, ...]}`, to new clients under the seed, and splits those.

    Args:
      label_names: What whole labels are called in the record.

    Raises:
      UserError: If clients would be too few or too small.
    """
    setting = packages.setting(options.dataset_name, options.setting)
    needed = _LEAST_DEVICE if setting == "cross_device" else splits.least_silo(options.silo_shares)
    least = max(options.min_examples or 0, needed)
    stream = random_streams.generator(options.seed, "partition", 0)
    counts = None
    if options.partition == "iid":
        hands = _deal_evenly(len(next(iter(examples.values()))), num_clients, least, stream)
    else:
        values, labels = np.unique(examples[label_field or ""], return_inverse=True)
        counts = label_partition.draw(
            label_partition.parse(options.partition),
            np.bincount(labels),
            num_clients,
            stream,
            least,
            can_be_lower=least > needed,
        )
        hands = label_partition.deal(counts, labels, stream)
    digest = _digest(hands)
    # Another draw's clients are others, with whom nothing may be joined by their ids.
    width, suffix = len(str(num_clients - 1)), digest[:6]
    ids = [f"client_{i:0{width}}_{suffix}" for i in range(num_clients)]
    table: dict[str, Any] = {}
    if counts is not None and counts.size <= _MAX_CELLS:
        named = bool(label_names) and np.issubdtype(values.dtype, np.integer)
        table["classes"] = [label_names[v] if named else str(v) for v in values]
        table[_TABLE] = dict(zip(ids, counts.tolist(), strict=True))
    by_client = dict(zip(ids, hands, strict=True))
    strata = examples.get(label_field or "")
    rows = assignment.assign(by_client, options, by_time=False, labels=strata)
    clients, facts = rows.clients_with(examples)
    dealt = {"partition": options.partition, "partition_sha256": digest, **table}
    return Dealt(clients, {**facts, **dealt})


def _deal_evenly(
    total: int, num_clients: int, least: int, stream: np.random.Generator
) -> list[np.ndarray]:
    if total < least * num_clients:
        expected = f"at most {total // least:,}: of {total:,} examples each gets at least {least}"
        raise UserError(errors.name("num_clients"), num_clients, expected)
    return np.array_split(stream.permutation(total), num_clients)


def _digest(hands: Sequence[np.ndarray]) -> str:
    """Returns what tells who owns which rows apart."""
    digest = hashlib.sha256()
    for rows in hands:
        digest.update(np.asarray(rows, "<i8").tobytes() + b"|")
    return digest.hexdigest()


def cut(task: Task, options: DataOptions) -> Task:
    """Returns a task with fewer clients, or with fewer examples a client.

    Of a data set's own clients the same ones stay under every seed: the first of each split in the
    order of Motley's permutation, in proportion to the splits (silos: the first of all), and of a
    client's examples a sample that keeps the proportions of its parts and their order.

    Raises:
      UserError: If no client that could be evaluated would stay.
    """
    if options.max_clients is not None:
        task = _with_clients(task, _first_clients(task, options.max_clients))
    if (limit := options.max_examples_per_client) is not None:
        cut_clients = {id(c): _fewer_examples(c, limit) for c in task.splits.values()}
        task = _with_clients(task, {name: cut_clients[id(c)] for name, c in task.splits.items()})
        facts = {name: fact for name, fact in task.facts.items() if name != _TABLE}
        task = dataclasses.replace(task, reference={}, facts=facts)  # Which were of all examples.
    return task


def _with_clients(task: Task, clients: Mapping[str, clients_lib.Clients]) -> Task:
    kept = {client_id for of_split in clients.values() for client_id in of_split.ids}
    by_client = {
        name: {i: fact for i, fact in task.facts[name].items() if i in kept}
        for name in ("client_groups", _TABLE)
        if task.facts.get(name)
    }
    reference = {i: value for i, value in task.reference.items() if i in kept}
    changes: dict[str, Any] = {**clients, "facts": {**task.facts, **by_client}}
    return dataclasses.replace(task, **changes, reference=reference)


def _first_clients(task: Task, limit: int) -> dict[str, clients_lib.Clients]:
    sources = task.splits
    if task.setting == "cross_silo" or not {*task.train.ids}.isdisjoint(task.test.ids):
        # Whoever trains is tested, too.
        first = set(splits.permute(task.train.ids)[:limit])
        chosen = {name: [i for i in c.ids if i in first] for name, c in sources.items()}
    else:
        if limit < len(sources):
            expected = "3 or more: one to train, to validate and to test"
            raise UserError(_MAX_CLIENTS, limit, expected)
        share = min(1.0, limit / sum(map(len, sources.values())))
        counts = {name: max(1, int(share * len(c))) for name, c in sources.items()}
        chosen = {name: list(splits.permute(c.ids)[: counts[name]]) for name, c in sources.items()}
    if not all(chosen.values()):
        raise UserError(_MAX_CLIENTS, limit, "more, as none of those clients can be evaluated")
    subsets = {id(c): clients_lib.subset(c, chosen[name]) for name, c in sources.items()}
    return {name: subsets[id(c)] for name, c in sources.items()}


def _fewer_examples(clients: clients_lib.Clients, limit: int) -> clients_lib.Clients:
    """Returns the clients with at most so many examples each, drawn from a client's id."""

    def change(parts: clients_lib.Parts, client_id: tf.Tensor) -> clients_lib.Parts:
        sizes = {part: clients_lib.num_rows_in_graph(fields) for part, fields in parts.items()}
        total = tf.add_n(list(sizes.values()))
        seed = tf.bitcast(tf.strings.to_hash_bucket_fast(client_id, 2**62), tf.int32)
        return {
            part: _some_rows(fields, sizes[part], total, limit, seed + number)
            for number, (part, fields) in enumerate(parts.items())
        }

    derived = clients_lib.DerivedClients(clients, change)
    if clients.in_graph:
        return derived
    return clients_lib.InMemoryClients(
        {i: tf.nest.map_structure(np.asarray, derived.fetch(i)) for i in clients.ids}
    )


def _some_rows(
    fields: clients_lib.Examples, size: tf.Tensor, total: tf.Tensor, limit: int, seed: tf.Tensor
) -> clients_lib.Examples:
    wide = tf.cast(size, tf.int64) * limit // tf.maximum(tf.cast(total, tf.int64), 1)
    share = tf.maximum(tf.cast(wide, tf.int32), tf.minimum(size, 1))
    draws = tf.random.stateless_uniform([size], seed, dtype=tf.float64)
    rows = tf.sort(tf.argsort(draws)[: tf.where(total <= limit, size, share)])
    return {field: tf.gather(values, rows) for field, values in fields.items()}
