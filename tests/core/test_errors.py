"""One line of an error's parts."""

import pytest

from motley_tff.core import errors
from motley_tff.core.errors import UserError

RATE = errors.name("learning_rate", "client_learning_rate")


def test_a_message_is_one_line_and_moves_no_cursor():
    error = UserError("client \x1b[2Ja\rb", "nothing;\nno rows", "some", "give\n  data")
    assert str(error) == "client  [2Ja b: found nothing; no rows, expected some; give data"


@pytest.mark.parametrize(
    ("parts", "field", "flag"),
    [
        ((RATE, 0.0, "a number above 0"), "learning_rate: found 0.0, expected a number above 0",
         "--client_learning_rate=0: expected a number above 0"),
        ((RATE, (1, 2.5)), "learning_rate: found (1, 2.5)", "--client_learning_rate=1,2.5"),
        ((RATE, None, "a number", f"give {RATE}=1"),
         "learning_rate: expected a number; give learning_rate=1",
         "--client_learning_rate: expected a number; give --client_learning_rate=1"),
        (("a.csv line 3", "no digit"), "a.csv line 3: found no digit", None),
        (("", None, "a file"), "expected a file", None),
        (("the disk is full",), "the disk is full", None),
    ],
)  # fmt: skip
def test_a_line_of_parts_by_the_names_of_either_door(parts, field, flag):
    error = UserError(*parts)
    assert (error.line(), error.line(with_flags=True)) == (field, flag or field)


def test_a_place_is_put_before_that_of_an_error_but_not_before_a_name():
    with pytest.raises(UserError) as in_file, errors.at("a.csv"), errors.at("line 3"):
        raise UserError("", "no digit")
    assert str(in_file.value) == "a.csv line 3: found no digit"
    with pytest.raises(UserError) as named, errors.at("a.csv"):
        raise UserError(RATE, 0)
    assert named.value.where == RATE
