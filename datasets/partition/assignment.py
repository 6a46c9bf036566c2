"""Which of a user's rows train, personalize, validate and test, for devices and splits."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datasets import packages
from datasets.options import EITHER_SETTING, DataOptions
from datasets.partition import held_out, splits
from motley_tff.core import clients as clients_lib, errors
from motley_tff.core.errors import UserError

_SETTING = errors.name("setting")
# {split: its clients}
Clients = dict[str, clients_lib.Clients]


@dataclasses.dataclass(frozen=True)
class Assignment:
    """Where rows belong, by their numbers, int64.

    Attributes:
      clients: `{client id: {part: rows}}`; a device that trains has the part `train` alone.
      fitted: Groups of (rows that means and deviations come from, rows that they scale).
      train: All rows of training parts.
      split: Of devices who is in which split; None of splits.
    """

    clients: Mapping[str, Mapping[str, np.ndarray]]
    fitted: Sequence[tuple[np.ndarray, np.ndarray]]
    train: np.ndarray
    split: splits.ClientSplit | None = None

    def clients_with(self, fields: Mapping[str, np.ndarray]) -> tuple[Clients, dict[str, Any]]:
        """Returns the clients of each split with `{field: values of all rows}`, and as facts who is
        in none, or only trains.
        """
        data = {
            client_id: {
                part: {field: values[rows] for field, values in fields.items()}
                for part, rows in parts.items()
            }
            for client_id, parts in self.clients.items()
        }
        if self.split is not None:
            clients: Clients = {
                name: clients_lib.InMemoryClients({i: data[i] for i in getattr(self.split, name)})
                for name in splits.SPLITS
            }
            return clients, {"clients_left_out": self.split.left_out}
        reason = "fewer than 3 examples: cannot be split"
        of_all = splits.with_evaluated(data, reason, splits.SPLITTABLE, field=next(iter(fields)))
        evaluated = of_all.evaluated
        return {"train": of_all.train, "valid": evaluated, "test": evaluated}, of_all.facts

    def repeated(self, counts: np.ndarray) -> "Assignment":
        """Returns where pieces of rows belong, which stay with their row; `counts` says how many a
        row has, at least 1, int64 [rows].
        """
        starts = np.cumsum(counts) - counts

        def pieces(rows: np.ndarray) -> np.ndarray:
            first = np.cumsum(counts[rows]) - counts[rows]
            return np.repeat(starts[rows] - first, counts[rows]) + np.arange(counts[rows].sum())

        clients = {
            i: {part: pieces(rows) for part, rows in parts.items()}
            for i, parts in self.clients.items()
        }
        fitted = [(pieces(train), pieces(used)) for train, used in self.fitted]
        return Assignment(clients, fitted, pieces(self.train), self.split)


def by_owner(owners: np.ndarray) -> dict[str, np.ndarray]:
    """Returns `{owner: its rows}` of each row's owner, integers or text [n], owners sorted."""
    ids, places, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(places, kind="stable"), np.cumsum(sizes)[:-1])
    return {str(i): of_owner for i, of_owner in zip(ids, rows, strict=True)}


def assign(
    by_client: Mapping[str, np.ndarray],
    options: DataOptions,
    by_time: bool,
    labels: np.ndarray | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Assignment:
    """Returns where rows belong.

    Args:
      by_client: `{client id: its rows}`; clients in the order they are permuted from.
      options: The setting, the seed, silos' shares, and which devices validate and test.
      by_time: Rows are in the order of time: the first personalize, or train, the last evaluate.
        Else they are shuffled.
      labels: The class of each row, text or integers [n], which options may have stratified; None
        if there are no classes.
      facts: May have clients' groups, which options may name.

    Raises:
      UserError: If there is one client only, a split would have none, or rows that are in the order
        of time or have no classes should be stratified.
    """
    if options.stratify and (by_time or labels is None):
        expected = "rows that are not in the order of time" if by_time else "labels of classes"
        raise UserError(errors.name("stratify"), True, expected, "leave it out")
    labels = labels if options.stratify else None
    if len(by_client) < 2:
        advice = "name another column, or sort into other folders"
        raise UserError("", f"{len(by_client)} client", "several", advice)
    if packages.setting(options.dataset_name, options.setting) == "cross_silo":
        return _silos(by_client, options, by_time, labels)
    try:
        return _devices(by_client, options, by_time, labels, facts)
    except UserError as error:  # Too few clients, or too few examples of one that is not trained.
        can_be_silos = options.dataset_name in EITHER_SETTING and not held_out.entries(options)
        if not can_be_silos or max(map(len, by_client.values())) < splits.FEWEST_OF_A_SILO:
            raise
        advice = f"give {_SETTING}=cross_silo, which splits each client's examples, or add clients"
        raise UserError(error.where, error.finding, error.expected, advice) from error


def _devices(
    by_client: Mapping[str, np.ndarray],
    options: DataOptions,
    by_time: bool,
    labels: Any,
    facts: Any,
) -> Assignment:
    sizes = {i: len(rows) for i, rows in by_client.items()}
    split = splits.published_or_proportional(sizes, options=options, facts=facts)
    clients: dict[str, dict[str, np.ndarray]] = {i: {"train": by_client[i]} for i in split.train}
    for client_id in (*split.valid, *split.test):
        rows = by_client[client_id]
        own = labels if labels is None else labels[rows]
        halves = splits.halve({"rows": rows}, shuffle=not by_time, labels=own)
        clients[client_id] = {part: np.asarray(half["rows"]) for part, half in halves.items()}
    train = np.concatenate([by_client[i] for i in split.train])
    used = np.concatenate([rows for parts in clients.values() for rows in parts.values()])
    return Assignment(clients, [(train, used)], train, split)


def _silos(
    by_client: Mapping[str, np.ndarray], options: DataOptions, by_time: bool, labels: Any
) -> Assignment:
    clients = {}
    for client_id, rows in by_client.items():
        own = labels if labels is None else labels[rows]
        parts = splits.split_silo(len(rows), options.seed, options.silo_shares, not by_time, own)
        parts = parts or splits.train_only(np.arange(len(rows)))
        clients[client_id] = {part: rows[places] for part, places in parts.items()}
    fitted = [(parts["train"], by_client[i]) for i, parts in clients.items()]
    return Assignment(clients, fitted, np.concatenate([train for train, _ in fitted]))
