"""What is odd about clients' examples, in words: constant, duplicated, shared between clients.

A data set's module may have `raw_examples(options) -> {client id: {column: values [n]}}`, its
examples as they were read; of others a task's own are looked at.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

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
    names = next(iter(clients.values()))
    table = {name: np.concatenate([c[name] for c in clients.values()]) for name in names}
    sizes = [len(next(iter(columns.values()))) for columns in clients.values()]
    owners = np.repeat(np.array(list(clients), object), sizes)
    flat = {name: values for name, values in table.items() if values.ndim == 1}
    return [*_alike_ids(clients), *_odd_columns(flat, owners, label), *_duplicates(table, owners)]


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


def _odd_columns(flat: Columns, owners: np.ndarray, label: str | None) -> Iterator[str]:
    codes = {name: pd.factorize(values)[0] for name, values in flat.items()}
    features = [name for name in flat if name != label]
    constant = [f"{name} ({flat[name][0]})" for name in features if np.ptp(codes[name]) == 0]
    if constant:
        yield f"constant, and so of no use: {listed(constant, 10)}"
    if label not in codes:
        return
    labels = codes[label]
    numbers = pd.Series(labels).groupby(owners, sort=False).nunique()
    if single := [*numbers.index[numbers == 1]]:
        yield (
            f"clients with one label only: {len(single):,} of {len(numbers):,} ({listed(single)}); "
            "a model of their own that always says it is right there"
        )
    for name in features:
        if labels.max() > 0 and np.array_equal(codes[name], labels):
            yield (
                f"column {name} tells the label outright: each of its values goes with one label; "
                "leave it out unless it will be known beforehand"
            )


def class_counts(
    clients: Mapping[str, Columns], label: str | None, names: Sequence[str] = ()
) -> list[str]:
    """Returns a line on how many examples there are of each class, and in how many clients; none
    without clients, or labels.

    Args:
      clients: As of `findings`.
      label: The column of classes.
      names: Those of classes that are numbers.
    """
    owned = {i: columns[label] for i, columns in clients.items() if label and label in columns}
    if not owned:
        return []
    cells = pd.Series(np.concatenate([*owned.values()]))
    owners = np.repeat(np.array([*owned], object), [*map(len, owned.values())])
    counts, groups = cells.value_counts(), pd.Series(owners).groupby(cells.to_numpy())
    holders = groups.nunique()
    described = [
        f"{_class_name(value, names)} {count:,} ({count / len(cells):.0%}, in {holders[value]:,})"
        for value, count in counts.items()
    ]
    return [f"examples of each class (and clients that have some): {listed(described, 20)}"]


def _class_name(value: Any, names: Sequence[str]) -> str:
    is_number = isinstance(value, int | np.integer) and 0 <= value < len(names)
    return names[value] if is_number else str(value)[:30]


def columns_to_ignore(
    clients: Mapping[str, Columns], label: str, ignored: Sequence[str] = ()
) -> list[str]:
    """Returns a line for each kind of column that a table may have and that rarely means anything
    (identifiers, numbers of a client's rows, names of clients, free text), and what leaves all out.

    Args:
      clients: `{client id: {column: text [n]}}`, as the file has it.
      label: The column to predict.
      ignored: Columns that are left out already.
    """
    frames = [pd.DataFrame(columns).assign(**{_OWNER: i}) for i, columns in clients.items()]
    table = pd.concat(frames, ignore_index=True)
    if len(table) < _FEW_ROWS:
        return []
    features = [name for name in table if name not in (label, _OWNER)]
    lines, mentioned = [], set[str]()
    for words, is_so in _KINDS_TO_IGNORE.items():
        names = [
            n for n in features if n not in mentioned and is_so(table[n].str.strip(), table[_OWNER])
        ]
        mentioned.update(names)
        if names:
            lines.append(f"{words}: {listed(names, 10)}")
    if lines:
        every = ",".join([*ignored, *(name for name in features if name in mentioned)])
        lines.append(f"if such columns mean nothing, give --ignore_columns={every}")
    return lines


def _numbers_rows_of_clients(cells: pd.Series, owners: pd.Series) -> bool:
    numbers = pd.to_numeric(cells, errors="coerce")
    steps = numbers.groupby(owners, sort=False).diff().dropna()
    return (
        len(steps) == len(cells) - owners.nunique() and len(steps) > 0 and bool((steps == 1).all())
    )


def _identifies_rows(cells: pd.Series, owners: pd.Series) -> bool:
    return cells.is_unique and bool(cells.str.fullmatch(r"[A-Za-z]*\d+").all())


def _names_clients(cells: pd.Series, owners: pd.Series) -> bool:
    first = cells.groupby(owners, sort=False)
    return owners.nunique() > 2 and first.nunique().max() == 1 and first.first().is_unique


def _is_free_text(cells: pd.Series, owners: pd.Series) -> bool:
    return cells.nunique() > len(cells) / 2 and cells.str.count(r"\s+[^\W\d]").mean() >= 1


_OWNER, _FEW_ROWS = "\0client", 20
# {what columns look like: whether one does, of its cells and their clients}
_KINDS_TO_IGNORE: Mapping[str, Callable[[pd.Series, pd.Series], bool]] = {
    "columns that number the rows, of the file or of each client": _numbers_rows_of_clients,
    "columns that look like identifiers, other in each row": _identifies_rows,
    "columns that look like names of clients, one for each": _names_clients,
    "columns that look like free text": _is_free_text,
}


def _duplicates(table: Columns, owners: np.ndarray) -> Iterator[str]:
    examples = pd.DataFrame({"row": _rows(table), "client": owners})
    within = examples[examples.duplicated()]
    if len(within):
        yield (
            f"duplicated: {len(within):,} of {len(examples):,} examples stand more than once in a "
            f"client ({listed([*within.client.value_counts().index])}), and may be in what trains "
            "and in what evaluates"
        )
    pairs = examples.drop_duplicates()
    shared = pairs[pairs.duplicated("row", keep=False)]
    if len(shared):
        count = int(examples.row.isin(shared.row).sum())
        some = [*shared[shared.row == shared.row.iloc[0]].client]
        yield (
            f"in several clients: {count:,} of {len(examples):,} examples have an equal one in "
            f"another client (such as {listed(some)}): what one trains on may test another"
        )


def _rows(table: Columns) -> np.ndarray:
    """Returns a number for each example, the same for equal ones, [n]; text counts by its hash."""
    parts = []
    for values in table.values():
        if values.dtype.kind in "OUS":
            values = pd.util.hash_array(values.astype(object))
        parts.append(np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8))
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_inverse=True)[1].ravel()
