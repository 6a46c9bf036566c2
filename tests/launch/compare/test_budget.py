"""Plans for a budget, by hand."""

import pytest

from launch.compare import budget
from launch.compare.budget import Timing, Training
from motley_tff.core.errors import UserError

# Nine tasks of 10 s and 0.5 s a round; six with rates alone, two with one setting.
TASKS = {"all": 9, "rates": 6, "one": 2}
SLOW = {"a": Timing(TASKS, 10.0, 0.5)}


def test_times_are_read():
    assert [budget.parse(t) for t in ("90s", "10m", "1.5h", "45")] == [90.0, 600.0, 5400.0, 45.0]
    for text in ("", "0", "0m", "-5m", "10x", "ten", "1e3", "nan", "10 m"):
        with pytest.raises(UserError, match="a time such as 90s"):
            budget.parse(text)


def test_the_largest_grid_that_leaves_half_the_rounds():
    # Four fifths of 1,000 s are 800; 9 tasks take 90 of it, and 710 hold 157 rounds of 4.5 s.
    assert budget.fitting(SLOW, 100, 1000.0, 1) == Training(100, "all")
    assert budget.fitting(SLOW, 200, 1000.0, 1) == Training(157, "all")
    # 400 s: 52 rounds of all, (320 - 60) / 3 = 86 of rates, and one has room for 200.
    assert budget.fitting(SLOW, 170, 400.0, 1) == Training(86, "rates")
    assert budget.fitting(SLOW, 200, 400.0, 1) == Training(200, "one")
    # Two processes have twice the time.
    assert budget.fitting(SLOW, 500, 500.0, 2) == budget.fitting(SLOW, 500, 1000.0, 1)


def test_most_rounds_where_no_grid_leaves_half():
    # 30 s: (24 - 20) / 1 rounds of one setting.
    assert budget.fitting(SLOW, 100, 30.0, 1) == Training(4, "one")
    with pytest.raises(UserError) as error:
        budget.fitting(SLOW, 100, 20.0, 1)
    # Two tasks of a round are 21 s, of four fifths of the time.
    assert error.value.line(with_flags=True) == (
        "--budget=20s: expected 27s or more, for one setting of each method; give more, or fewer "
        "algorithms or seeds"
    )
    # What the timings took is gone.
    assert budget.fitting(SLOW, 100, 100.0, 1, spent=70.0) == Training(4, "one")
    # What takes no rounds, such as local training, takes time all the same.
    no_rounds = {"local": Timing(TASKS, 10.0, 0.0)}
    assert budget.fitting(no_rounds, 100, 200.0, 1) == Training(100, "all")
    assert budget.fitting(no_rounds, 100, 100.0, 1) == Training(100, "rates")
    with pytest.raises(UserError):
        budget.fitting(no_rounds, 100, 10.0, 1)


def test_a_plan_is_kept_for_the_same_request_alone(tmp_path):
    assert budget.load(tmp_path, {"seeds": 3}) is None
    path = tmp_path / "plan.json"
    path.write_text('{"request": {"seeds": 3}, "total_rounds": 12, "level": "rates"}')
    assert budget.load(tmp_path, {"seeds": 3}) == Training(12, "rates")
    assert budget.load(tmp_path, {"seeds": 4}) is None
    for text in ("{", "[]", '{"request": {"seeds": 3}, "total_rounds": 0, "level": "rates"}',
                 '{"request": {"seeds": 3}, "total_rounds": 3, "level": "x"}'):  # fmt: skip
        path.write_text(text)
        with pytest.raises(UserError, match="remove it to plan again"):
            budget.load(tmp_path, {"seeds": 3})
