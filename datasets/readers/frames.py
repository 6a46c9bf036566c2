"""Tables that are in memory already: a DataFrame, or what can become one."""

import hashlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

from datasets.readers import rows
from motley_tff.core import errors
from motley_tff.core.errors import UserError

_DATA = errors.name("data")
_EXPECTED = "a DataFrame, a dict of columns, or a dict of a DataFrame for each client"
_CLIENT_COLUMN = errors.name("client_column")


def read(data: Any, client_column: str | None) -> pd.DataFrame:
    """Returns cells as text, as `rows.read` does of a file that the data were written to.

    Args:
      data: A DataFrame of pandas or of a library with its interchange protocol; `{column: values}`;
        or `{client: DataFrame}`, to which the client's name is added.
      client_column: The name of that column.

    Raises:
      UserError: If the data are of no such kind, or no table.
    """
    with errors.at(_DATA):
        return rows.of_frame(_frame(data, client_column))


def facts(frame: pd.DataFrame) -> dict[str, Any]:
    """Returns what a task says of where it is from."""
    digest = hashlib.sha256(frame.to_csv(index=False).encode()).hexdigest()
    return {"source": "table", "data_sha256": digest}


def _frame(data: Any, client_column: str | None) -> pd.DataFrame:
    if isinstance(data, Mapping) and data:
        if all(_is_frame(value) for value in data.values()):
            return _of_clients(data, client_column)
        if len({len(values) for values in data.values() if hasattr(values, "__len__")}) > 1:
            raise UserError("", "columns of different lengths", "as many values in each")
        return pd.DataFrame(dict(data))
    if not _is_frame(data):
        raise UserError("", f"a {type(data).__name__}", _EXPECTED)
    return data if isinstance(data, pd.DataFrame) else pd.api.interchange.from_dataframe(data)


def _is_frame(data: Any) -> bool:
    return hasattr(data, "__dataframe__")


def _of_clients(data: Mapping[Any, Any], client_column: str | None) -> pd.DataFrame:
    parts = {client: _frame(part, None) for client, part in data.items()}
    name = client_column or "client"
    if client := next((c for c, part in parts.items() if name in part.columns), None):
        expected = f"no column {name!r}, which the clients' names become"
        advice = f"give another {_CLIENT_COLUMN}"
        raise UserError("", f"one in the DataFrame of {client!r}", expected, advice)
    named = [part.assign(**{name: str(client)}) for client, part in parts.items()]
    return pd.concat(named, ignore_index=True)
