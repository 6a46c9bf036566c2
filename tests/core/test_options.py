"""What an option takes, by hand, from texts and from Python."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
from typing import Literal

import numpy as np
import pytest

from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.core.options import ABOVE_0, BELOW_1, option
from tests.errors import refused


def _port(text):
    if not text.isdigit():
        raise UserError(errors.name("file_or_port"), text, "digits")
    return complex(text)


@dataclasses.dataclass(frozen=True)
class _Part:
    epochs: int = option(1, "How many", lower=1, upper=1000)


@dataclasses.dataclass(frozen=True)
class _Config:
    """An option of each kind."""

    rounds: int = option(3, "How many", "total_rounds", argument="num_rounds")
    seed: int | None = option(None, "Which", upper=2**32 - 1)
    rate: float = option(0.1, "How fast", {"one": "rate_a", "two": "rate_b"}, ABOVE_0, 1e30)
    share: float = option(0.5, "Of how many", upper=BELOW_1, owners=("some",))
    limit: float = option(4.0, "At most")
    is_on: bool = option(False, "Whether", trainers=("one",))
    name: str | None = option(None, "A text")
    file: str | None = option(None, "A text that is parsed", parse=_port)
    port: complex | None = option(None, "A value that is parsed", parse=_port)
    kind: Literal["mean", "median"] = option("mean", "Which")
    word: str = option("last", "Which", choices=("last", "best"), owners=("some", "other"))
    sizes: tuple[int, ...] = option((1,), "Several", lower=1)
    rates: tuple[float, ...] | None = option(None, "Several", upper=1)
    texts: tuple[str, ...] = option((), "Several or none", may_repeat=True)
    part: _Part = _Part()
    other: _Part | None = None
    plain: int = 7


_OPTIONS = {o.field: o for o in options.options(_Config)}


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("rounds", "12", 12), ("rounds", None, None), ("seed", "4294967295", 2**32 - 1),
        ("rate", "1e-3", 0.001), ("rate", "1", 1.0), ("share", "0", 0.0), ("name", "7", "7"),
        ("file", "7", "7"), ("port", "7", 7 + 0j), ("kind", "median", "median"),
        ("word", "best", "best"), ("sizes", ["2", "1"], (2, 1)), ("rates", ["0.5", "1"], (0.5, 1)),
        ("texts", ["a", "a"], ("a", "a")), ("texts", [], ()), ("is_on", True, True),
    ],
)  # fmt: skip
def test_texts_that_are_read(field, text, value):
    parsed = _OPTIONS[field].read(text)
    assert parsed == value and type(parsed) is type(value)
    if value is not None and field != "port":
        assert _OPTIONS[field].check(value) == value


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        ("rounds", "1.5", "a whole number of at least 0"), ("rounds", "9" * 5000, "whole"),
        ("seed", "4294967296", "4,294,967,295"), ("rate", "x", "above 0"), ("rate", "0", "above 0"),
        ("rate", "1e31", "at most 1e+30"), ("rate", "nan", "above 0"), ("share", "1", "below 1"),
        ("limit", "inf", "a number of at least 0"), ("limit", "-0.1", "at least 0"),
        ("name", "", "text"), ("file", "x", "digits"), ("port", "x", "digits"),
        ("kind", "max", "mean, median"), ("word", "", "last, best"), ("sizes", ["0"], "at least 1"),
        ("sizes", ["1", "1"], "different"), ("sizes", [], "at least one"),
        ("rates", ["0.5", "x"], "at most 1"), ("rates", ["0.1", "0.10"], "different"),
        ("texts", ["a", ""], "text"),
    ],
)  # fmt: skip
def test_texts_that_are_no_such_values(field, text, expected):
    with refused(_OPTIONS[field].name.field, text, expected):
        _OPTIONS[field].read(text)


@pytest.mark.parametrize(
    ("field", "raw", "value"),
    [
        ("rounds", np.int64(2), 2), ("rounds", np.array(2), 2), ("rate", 1, 1.0),
        ("rate", np.float32(0.5), 0.5), ("rate", np.int8(1), 1.0), ("is_on", np.True_, True),
        ("name", np.str_("a"), "a"), ("name", pathlib.Path("a/b"), "a/b"), ("name", None, None),
        ("kind", np.str_("mean"), "mean"), ("sizes", np.array([1, 2]), (1, 2)),
        ("sizes", range(1, 3), (1, 2)), ("rates", [1, np.float64(0.5)], (1.0, 0.5)),
        ("rates", None, None), ("texts", [pathlib.Path("a")], ("a",)),
    ],
)  # fmt: skip
def test_values_become_pythons(field, raw, value):
    checked = _OPTIONS[field].check(raw)
    assert checked == value and type(checked) is type(value)
    if isinstance(value, tuple):
        assert [*map(type, checked)] == [*map(type, value)]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("rounds", None, "whole"), ("rounds", True, "whole"), ("rounds", np.False_, "whole"),
        ("rounds", 2.0, "whole"), ("rounds", "2", "whole"), ("rounds", 2**63, "whole"),
        ("rounds", 10**400, "whole"), ("rounds", math.inf, "whole"), ("rounds", math.nan, "whole"),
        ("seed", -1, "at least 0"), ("rate", True, "a number"), ("rate", "0.1", "a number"),
        ("rate", 10**400, "at most"), ("rate", math.nan, "above 0"), ("rate", 1j, "a number"),
        ("rate", [0.1], "a number"), ("limit", math.inf, "least 0"), ("limit", 10**400, "least 0"),
        ("share", np.float64(1), "below 1"), ("is_on", 1, "True or False"),
        ("is_on", "true", "True or False"), ("name", 7, "text"), ("name", b"a", "text"),
        ("file", "x", "digits"), ("kind", None, "mean"), ("kind", ["mean"], "mean"),
        ("kind", np.array(["mean"]), "mean"), ("sizes", 1, "several"),
        ("sizes", np.array(1), "several"),
        ("sizes", "12", "several"), ("sizes", None, "several"), ("sizes", (1, True), "at least 1"),
        ("sizes", (2, np.int64(2)), "different"), ("rates", (), "at least one"),
        ("rates", (math.nan,), "at most 1"), ("texts", ("a", None), "text"),
    ],
)  # fmt: skip
def test_values_that_are_no_such(field, value, expected):
    with refused(_OPTIONS[field].name.field, expected=expected) as caught:
        _OPTIONS[field].check(value)
    assert caught.value.finding is value


def test_bounds_belong_to_the_values():
    for field, border in (("rate", ABOVE_0), ("rate", 1e30), ("share", BELOW_1), ("limit", 1e308)):
        assert _OPTIONS[field].check(border) == border
    assert _OPTIONS["rounds"].check(2**63 - 1) == 2**63 - 1
    for field, above, most in (("rounds", 2**63, "9.22"), ("limit", math.inf, "1.79")):
        with refused(finding=above, advice=f"at most {most}"):
            _OPTIONS[field].check(above)
    half = dataclasses.replace(_OPTIONS["share"], upper=math.nextafter(0.5, 0.0))
    with refused(finding=0.5, expected="below 0.5"):
        half.check(0.5)


def test_what_a_wrong_word_may_mean():
    choice = dataclasses.replace(_OPTIONS["word"], elsewhere=(("first", "see the other"),))
    for word, advice in (("first", "see the other"), ("besst", "best"), (["first"], "")):
        with refused("word", word, "last, best", advice):
            choice.check(word)


def test_names_flags_and_trainers():
    names = {o.name.flag: o.name.field for o in options.options(_Config, "two")}
    assert names["total_rounds"] == "num_rounds" and names["rate_b"] == "rate"
    assert not {"is_on", "rate_a"} & set(names)
    assert {"is_on", "rate_a"} <= {o.name.flag for o in options.options(_Config, "one")}
    assert "rate_a" not in {o.name.flag for o in options.options(_Config, "three")}
    for config in (_Config, _Config()):
        assert options.name_of(config, "rounds") == errors.name("num_rounds", "total_rounds")


def test_a_derived_class_may_have_another_default():
    @dataclasses.dataclass(frozen=True)
    class Derived(_Part):
        epochs: int = options.with_default(_Part, "epochs", 5)

    (epochs,) = options.options(Derived)
    assert Derived() == Derived(5)
    assert epochs == dataclasses.replace(options.options(_Part)[0], default=5)


def test_a_dataclass_and_its_parts_are_checked():
    config = _Config(np.int64(2), rates=[1], part=_Part(np.int64(4)), plain="not looked at")
    whole = options.checked(config)
    assert whole == dataclasses.replace(config, rates=(1.0,))
    assert {type(whole.rounds), type(whole.part.epochs)} == {int}


@pytest.mark.parametrize(
    ("values", "field", "finding", "expected"),
    [
        ({"rounds": -1}, "num_rounds", -1, "at least 0"),
        ({"part": _Part(1001)}, "epochs", 1001, "from 1 to 1,000"),
        ({"other": _Part(0)}, "epochs", 0, "from 1 to 1,000"),
        ({"part": None}, "part", None, "_Part()"),
        ({"part": _Part}, "part", _Part, "_Part()"),
        ({"other": 3}, "other", 3, "_Part()"),
    ],
)
def test_a_part_that_is_wrong_is_named(values, field, finding, expected):
    with refused(field, finding, expected):
        options.checked(_Config(**values))


@pytest.mark.parametrize(
    ("values", "chosen", "field"),
    [
        ({"share": 0.1}, "other", "share"), ({"word": "best"}, "none", "word"),
        ({"share": 0.1, "word": "best"}, "some", ""), ({"word": "best"}, "other", ""),
        ({"rounds": 1}, "none", ""), ({}, "none", ""),
    ],
)  # fmt: skip
def test_options_that_what_was_chosen_does_not_have(values, chosen, field):
    with contextlib.ExitStack() as stack:
        if field:
            expected = f"choice={_OPTIONS[field].owners[0]}"
            stack.enter_context(refused(field, values[field], expected, "leave it out"))
        options.check_owners(_Config(**values), errors.name("choice"), chosen)
