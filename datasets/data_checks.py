"""What is odd about clients' examples, in words: constant, duplicated, shared between clients.

A data set's module may have `raw_examples(options) -> {client id: {column: values [n]}}`, its
examples as they were read; of others a task's own are looked at.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from motley_tff.core import task as task_lib

Columns = Mapping[str, np.ndarray]

_MAX_BYTES = 500_000_000
_NAMED = 3


def task_examples(task: task_lib.Task) -> dict[str, Columns]:
    """Returns the examples of a task's clients, all parts together; none that are not in memory, or
    take more than 500 MB.
    """
    sets = {id(clients): clients for clients in task.splits.values()}.values()
    if any(clients.nbytes is None or clients.in_graph for clients in sets):
        return {}
    if sum(clients.nbytes or 0 for clients in sets) > _MAX_BYTES:
        return {}
    examples: dict[str, Columns] = {}
    for clients in sets:
        for client_id in clients.ids:
            parts = [p for p in clients.fetch(client_id).values() if len(next(iter(p.values())))]
            examples[client_id] = {
                field: np.concatenate([np.asarray(part[field]) for part in parts])
                for field in parts[0]
            }
    return examples


def findings(clients: Mapping[str, Columns], label: str | None = None) -> list[str]:
    """Returns a line for each thing that is odd, none if nothing is.

    Args:
      clients: `{client id: {column: values [n, ...]}}`, text or numbers.
      label: The column to predict; one that is not there is not looked at.
    """
    if not clients:
        return []
    label = label if label in next(iter(clients.values())) else None
    return [
        *_alike_ids(clients),
        *_constant_columns(clients, label),
        *_single_labels(clients, label),
        *_label_in_a_column(clients, label),
        *_duplicates(clients),
    ]


def listed(names: Sequence[str], limit: int = _NAMED) -> str:
    """Returns `a, b, c and 4 more`."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _alike_ids(client_ids: Iterable[str]) -> Iterator[str]:
    """Ids that differ only in case, blanks or leading zeros are often one client's."""
    groups = collections.defaultdict(list)
    for client_id in client_ids:
        plain = " ".join(client_id.casefold().split())
        groups[plain.lstrip("0") or plain].append(client_id)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if alike:
        yield (
            "client ids that differ only in case, blanks or leading zeros, and count as different "
            f"clients: {listed(alike)}"
        )


def _constant_columns(clients: Mapping[str, Columns], label: str | None) -> Iterator[str]:
    names = []
    for column in next(iter(clients.values())):
        values = _together(clients, column)
        if values.ndim == 1 and column != label and len(pd.unique(values)) == 1:
            names.append(f"{column} ({values[0]})")
    if names:
        yield f"constant, and so of no use: {listed(names, 10)}"


def _single_labels(clients: Mapping[str, Columns], label: str | None) -> Iterator[str]:
    if label is None or _together(clients, label).ndim != 1:
        return
    single = [i for i, columns in clients.items() if len(pd.unique(columns[label])) == 1]
    if single:
        yield (
            f"clients with one label only: {len(single):,} of {len(clients):,} ({listed(single)}); "
            "a model of their own that always says it is right there"
        )


def _label_in_a_column(clients: Mapping[str, Columns], label: str | None) -> Iterator[str]:
    if label is None:
        return
    labels = pd.factorize(_together(clients, label))[0]
    for column in next(iter(clients.values())):
        values = _together(clients, column)
        if column == label or values.ndim != 1 or labels.ndim != 1:
            continue
        codes = pd.factorize(values)[0]
        if codes.max() == labels.max() > 0 and np.array_equal(codes, labels):
            yield (
                f"column {column} tells the label outright: each of its values goes with one "
                "label; leave it out unless it will be known beforehand"
            )


def _duplicates(clients: Mapping[str, Columns]) -> Iterator[str]:
    rows = np.concatenate([_rows(columns) for columns in clients.values()])
    sizes = [len(next(iter(columns.values()))) for columns in clients.values()]
    table = pd.DataFrame({
        "row": np.unique(rows, return_inverse=True)[1].ravel(),
        "client": np.repeat(np.arange(len(clients)), sizes),
    })  # fmt: skip
    ids = list(clients)
    within = table[table.duplicated()]
    if len(within):
        most = [ids[i] for i in within.client.value_counts().index]
        yield (
            f"duplicated: {len(within):,} of {len(table):,} examples stand more than once in a "
            f"client ({listed(most)}), and may be in what trains and in what evaluates"
        )
    pairs = table.drop_duplicates()
    shared = pairs[pairs.duplicated("row", keep=False)]
    if len(shared):
        count = int(table.row.isin(shared.row).sum())
        which = [ids[i] for i in sorted(shared[shared.row == shared.row.iloc[0]].client)]
        yield (
            f"in several clients: {count:,} of {len(table):,} examples have an equal one in "
            f"another client (such as {listed(which)}): what one trains on may test another"
        )


def _rows(columns: Columns) -> np.ndarray:
    """Returns each example's bytes as one value, [n]; of text its hash."""
    parts = []
    for values in columns.values():
        if values.dtype.kind in "OUS":
            values = pd.util.hash_array(values.astype(object))
        parts.append(np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8))
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return rows.view(np.dtype((np.void, rows.shape[1]))).ravel()


def _together(clients: Mapping[str, Columns], column: str) -> np.ndarray:
    return np.concatenate([columns[column] for columns in clients.values()])
