"""Reads columns of dates as numbers: days since 1970, of which a part is the time of day."""

import contextlib
from collections.abc import Collection

import numpy as np
import pandas as pd

from datasets.options import DATE_ORDERS, DataOptions
from datasets.readers import rows as rows_lib
from motley_tff.core import errors
from motley_tff.core.errors import UserError

_NAME = errors.name("date_format")
_DATE = (
    r"(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})"
    r"(?:[ T]+(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)\s*(Z|[+-]\d{2}:?\d{2})?)?"
)
_LIKE_A_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?"
# Years of two digits are of 1969 to 2068, as in C and Python.
_FIRST_OF_CENTURY = 69
_MOST = 0.8  # Of a column's values are dates where it is one of dates.
_DAY_NS = 86_400e9
# {order: where a date has its year, month and day}
_PLACES = {"day_first": (2, 1, 0), "month_first": (2, 0, 1), "year_first": (0, 1, 2)}


def days(column: pd.Series, words: Collection[str], form: str) -> np.ndarray | None:
    """Returns when each row was, in days since 1970 (UTC), float64 [n], not-a-number where missing,
    as `rows.is_missing` says by `words`; None of a column that has no dates.

    Args:
      form: A value of `--date_format`.

    Raises:
      UserError: If most cells are dates and some are not.
    """
    codes, distinct = pd.factorize(column)
    texts = pd.Series(distinct, dtype=str).str.strip()
    missing = rows_lib.is_missing(texts, words)
    parsed = _parsed(texts, form)
    are_dates = parsed[~missing].notna().mean() > _MOST or looks_like_dates(texts[~missing])
    if missing.all() or not are_dates:
        return None
    if (odd := parsed.isna() & ~missing).any():
        row = rows_lib.row_number(pd.Series(odd.to_numpy()[codes]))
        expected = f"a date of {_NAME}={form}"
        better = advice(texts[~missing])
        what_to_do = f"give {better}" if better else "mend it, or leave the cell empty"
        problem = f"{texts[odd].iloc[0][:30]!r} in row {row}"
        raise rows_lib.column_error(column, problem, expected, what_to_do)
    values = parsed.astype("int64").to_numpy(np.float64) / _DAY_NS
    return np.where(missing, np.nan, values)[codes]


def of_clients(frame: pd.DataFrame, options: DataOptions) -> dict[str, np.ndarray]:
    """Returns each client's rows as `by_client` does, by time if options name a column of it."""
    words, time = options.missing_cells, options.time_column
    ids = rows_lib.client_ids(frame, options.client_column or "", words)
    order = (
        None if time is None else times(frame[time], words, options.decimal, options.date_format)
    )
    return dict(rows_lib.by_client(ids, order))


def times(
    column: pd.Series,
    words: Collection[str],
    decimal: str | None = None,
    form: str | None = None,
) -> np.ndarray:
    """Returns when each row was, float64 that sorts by time, of numbers, ISO dates, or dates of a
    form; UserError where one is another, or is missing, as `is_missing` says by `words`.
    """
    if (missing := rows_lib.is_missing(column, words)).any():
        what_to_do = f"fill it, or leave {errors.name('time_column')} out"
        raise rows_lib.column_error(
            column, f"no time in {rows_lib.counted(missing)}", advice=what_to_do
        )
    values = None
    with contextlib.suppress(UserError):
        values = rows_lib.numbers(column, words, decimal)
    if values is None and form is not None:
        values = days(column, words, form)
    if values is None:
        parsed = pd.to_datetime(column.str.strip(), format="ISO8601", errors="coerce", utc=True)
        if (bad := parsed.isna()).any():
            problem = f"{column[bad].iloc[0][:40]!r} in row {rows_lib.row_number(bad)}"
            expected = "numbers, or dates such as 2024-03-31 or 2024-03-31T12:00:00"
            better = advice(column.str.strip())
            what_to_do = f"give {better}" if better else ""
            raise rows_lib.column_error(column, problem, expected, what_to_do)
        values = parsed.astype("int64").to_numpy(np.float64)
    return values


def orders(texts: pd.Series) -> list[str]:
    """Returns the orders of day, month and year in which all texts are dates."""
    return [order for order in DATE_ORDERS if len(texts) and _parsed(texts, order).notna().all()]


def advice(texts: pd.Series) -> str:
    """Returns what to give so that these texts are read as dates, or nothing if nothing helps."""
    return " or ".join(f"{_NAME}={order}" for order in orders(texts))


def looks_like_dates(column: pd.Series) -> bool:
    """Returns whether most of a column's first different values read as dates."""
    texts = column.drop_duplicates().head(50).str.strip()
    return bool(len(texts) and texts.str.fullmatch(_LIKE_A_DATE).mean() > _MOST)


def _parsed(texts: pd.Series, form: str) -> pd.Series:
    """Returns times in UTC, NaT of what is no date of this form; a year of four digits may be first
    in any order.
    """
    if form not in DATE_ORDERS:
        try:
            return pd.to_datetime(texts, format=form, errors="coerce", utc=True)
        except ValueError as error:
            raise UserError(_NAME, form, "a pattern as of Python's strptime") from error
    parts = texts.str.extract(f"^{_DATE}$")
    year, month, day = (parts[place] for place in _PLACES[form])
    number = pd.to_numeric(year)
    is_short = year.str.len() == 2
    century = np.where(number < _FIRST_OF_CENTURY, 2000, 1900)
    is_year = (year.str.len() == 4) | (is_short & (form != "year_first"))
    iso = (
        number.where(~is_short, number + century).astype("Int64").astype(str).str.zfill(4)
        + "-" + month.str.zfill(2) + "-" + day.str.zfill(2)
        + "T" + parts[3].fillna("00:00").str.replace(r"^(\d):", r"0\1:", regex=True)
        + parts[4].fillna("Z")
    )  # fmt: skip
    parsed = pd.to_datetime(iso.where(is_year), format="ISO8601", errors="coerce", utc=True)
    return parsed if form == "year_first" else parsed.fillna(_parsed(texts, "year_first"))
