"""What a program tells its user in one line, and the signal that asks it to stop.

An error carries its parts: where, what was found, what was expected, what to do. `UserError.line`
makes the line of them, and nothing edits it afterwards. What a user sets has two names, a field in
Python and a flag on the command line; a `Name` stands for both, in a part or inside its text.
"""

import contextlib
import re
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

# What a `Name` is inside a text, until a line is made of it; no text of a user holds these.
_BEGIN, _BETWEEN, _END = "\x11", "\x12", "\x13"
_NAME = re.compile(f"{_BEGIN}(.*?){_BETWEEN}(.*?){_END}")


class Name(NamedTuple):
    """What a user sets, by its name in Python and by its flag, without dashes."""

    field: str
    flag: str

    def __str__(self) -> str:
        """Returns what stands for the name in a part of a `UserError`."""
        return f"{_BEGIN}{self.field}{_BETWEEN}{self.flag}{_END}"


def name(field: str, flag: str = "") -> Name:
    """Returns the name of a field; its flag is called like it unless it is given."""
    return Name(field, flag or field)


def printable(text: str) -> str:
    """Returns a text of which nothing moves a terminal's cursor: spaces for what would."""
    return "".join(c if c.isprintable() else " " for c in text)


class UserError(Exception):
    """An error that its reader can act on: a bad flag, a broken file, a full disk.

    Programs print it to stderr without a stack trace and leave with `exit_status`; 2: the user can
    mend it.

    Attributes:
      where: What is wrong: a `Name`, or a path, its line and column. Alone it is the whole message.
      finding: What is there: a `Name`'s value, or words; None where there is nothing to show.
      expected: What should be there, in words.
      advice: What to do, in words.
    """

    exit_status = 2

    def __init__(
        self, where: Name | str = "", finding: Any = None, expected: str = "", advice: str = ""
    ):
        """Makes the error of its parts."""
        super().__init__(where, finding, expected, advice)
        self.where, self.finding, self.expected, self.advice = where, finding, expected, advice

    def __str__(self) -> str:
        """Returns the line with the names of Python."""
        return self.line()

    def line(self, with_flags: bool = False) -> str:
        """Returns one line of the parts, whatever was quoted in them; names are flags or fields."""
        head, finding = str(self.where), self.finding
        if isinstance(self.where, Name) and finding is not None:
            if with_flags:
                head, finding = f"{head}={_as_flag(finding)}", None
            else:
                finding = repr(finding)
        clauses = [f"found {finding}"] if finding is not None else []
        clauses += [f"expected {self.expected}"] if self.expected else []
        text = f"{head}{': ' if head and clauses else ''}{', '.join(clauses)}"
        text += f"; {self.advice}" if self.advice else ""
        text = _NAME.sub(r"--\2" if with_flags else r"\1", text)
        return " ".join(printable(line).strip() for line in text.splitlines())


def _as_flag(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_as_flag, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


@contextlib.contextmanager
def at(where: object) -> Iterator[None]:
    """Puts a place, such as a file's path, before what errors inside say of theirs.

    An error about what a user set, a `Name`, has its place already.
    """
    try:
        yield
    except UserError as error:
        if not isinstance(error.where, Name):
            error.where = f"{where} {error.where}".rstrip()
            error.args = (error.where, *error.args[1:])  # What another process gets.
        raise


class WorkerError(UserError):
    """TFF's worker process did not start, died, or cannot be reached: not the user's fault."""

    exit_status = 1


class Terminated(SystemExit):
    """A signal asked the program to end: raised in the main thread, so that `finally` blocks run.

    It is no `Exception`: code that handles errors lets it pass. `exit_status` is as a shell reports
    a signal: 143 for SIGTERM.
    """

    def __init__(self, signal_number: int = signal.SIGTERM):
        """Makes an exit with the signal's status."""
        self.exit_status = 128 + signal_number
        super().__init__(self.exit_status)
        self.signal_name = signal.Signals(signal_number).name
