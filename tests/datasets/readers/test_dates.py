"""Dates become days since 1970, in the order that is named, or are refused with what helps."""

import datetime

import numpy as np
import pandas as pd
import pytest

from datasets.options import DataOptions, check_date_format
from datasets.readers import dates
from tests.errors import refused


def _days(*cells, form="day_first", words=("na",)):
    return dates.days(pd.Series(cells, name="when"), words, form)


def _since_1970(*date):
    return (datetime.datetime(*date) - datetime.datetime(1970, 1, 1)).total_seconds() / 86400


@pytest.mark.parametrize(
    ("form", "cell"),
    [
        ("day_first", "2.1.1970"), ("day_first", "02/01/1970"), ("day_first", "2-1-70"),
        ("month_first", "1/2/1970"), ("year_first", "1970-01-02"), ("%d %B %Y", "2 January 1970"),
        # A year of four digits in front is told from a day.
        ("day_first", "1970-01-02"), ("month_first", "1970/1/2"),
    ],
)  # fmt: skip
def test_the_second_day_is_1(form, cell):
    assert _days(cell, cell, form=form).tolist() == [1.0, 1.0]


def test_times_years_and_gaps():
    found = _days("31.3.2024 6:00", "31.3.2024 18:00:00Z", "", "NA", "31.12.68", "1.1.69")
    expected = [
        _since_1970(2024, 3, 31, 6), _since_1970(2024, 3, 31, 18), np.nan, np.nan,
        _since_1970(2068, 12, 31), _since_1970(1969, 1, 1),
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected)
    zoned = _days("31.3.2024 6:00+02:00")
    assert zoned.tolist() == [pytest.approx(_since_1970(2024, 3, 31, 4))]


def test_other_columns_have_no_dates():
    assert _days("red", "blue") is None and _days("", "na") is None
    assert _days("1.2", "3.4") is None


def test_what_is_no_date_among_dates():
    cells = [f"{i}.1.2021" for i in range(1, 20)]
    with refused("column 'when'", "'31.2.2021' in row 21", "day_first", advice="mend it"):
        _days(*cells, "31.2.2021")
    with refused("column 'when'", "'1/13/2021' in row 3", advice="month_first"):
        _days("1/12/2021", "1/13/2021")
    with refused("date_format", "%Q"):
        _days("1/12/2021", form="%Q")


def test_in_which_orders_dates_are_dates():
    assert dates.orders(pd.Series(["31/03/2021"])) == ["day_first"]
    assert dates.orders(pd.Series(["03/31/2021"])) == ["month_first"]
    assert dates.orders(pd.Series(["1/2/2021"])) == ["day_first", "month_first"]
    assert dates.orders(pd.Series(["31/03/2021", "03/31/2021"])) == []
    assert "year_first" in dates.orders(pd.Series(["2021-03-31"]))


def test_formats_are_checked():
    for form in ("day_first", "month_first", "year_first", "%d %b %y"):
        check_date_format(form)
    with refused("date_format", "dayfirst", advice="day_first"):
        check_date_format("dayfirst")
    with refused("date_format", "DD.MM.YYYY", "pattern"):
        check_date_format("DD.MM.YYYY")


def test_rows_in_the_order_of_such_dates():
    frame = pd.DataFrame({"who": ["a", "a", "a"], "when": ["1.3.2021", "30.1.2021", "15.2.2021"]})
    options = DataOptions("table", client_column="who", time_column="when")
    with refused("column 'when'", "'1.3.2021'", advice="day_first"):
        dates.of_clients(frame, options)
    options = DataOptions("table", client_column="who", time_column="when", date_format="day_first")
    assert dates.of_clients(frame, options)["a"].tolist() == [1, 2, 0]
