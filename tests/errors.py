"""Errors that tests expect, by their parts: no test depends on a sentence."""

import contextlib
from collections.abc import Iterator

import pytest

from motley_tff.core.errors import UserError


@contextlib.contextmanager
def refused(
    where: str = "",
    finding: object = None,
    expected: str = "",
    advice: str = "",
    kind: type[UserError] = UserError,
) -> Iterator[pytest.ExceptionInfo]:
    """Sees to it that a UserError is raised whose parts have these, each only where it is given.

    Args:
      where: The field's name in Python, or a part of the place's text.
      finding: The value, or a part of the words.
      expected: A part of the words, such as a bound or a choice.
      advice: A part of the words, such as a field's name.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    place = getattr(error.where, "field", error.where)
    for part, words in ((place, where), (error.expected, expected), (error.advice, advice)):
        assert words in UserError(part).line(), f"{words!r} is not in {part!r} of {error!r}"
    if finding is not None:
        is_same = error.finding == finding
        assert is_same or str(finding) in UserError(str(error.finding)).line(), repr(error)
