"""How a program says on stderr what it is doing: bars on a terminal, plain lines in a log."""

import contextlib
import shutil
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import tqdm

from motley_tff.commandline.program import raise_if_ended

# A log file gets a stage's first line after so many seconds, then at most one every so many.
_SECONDS_TO_FIRST_LINE, _SECONDS_BETWEEN_LINES = 2.0, 30.0
# What a bar counts in stages that do not count clients.
_UNITS = {"train": "round", "score": "set", "critics": "critic"}


class TerminalProgress:
    """Shows a run's stages on stderr; an evaluation inside training has a bar of its own.

    `opening` is a line that says what the program is doing. A terminal gets it at once. A log gets
    it with the first stage, so that an error found before that is one line.
    """

    def __init__(self, opening: str = "") -> None:
        self._stages: list[_Bar | _Lines] = []
        self._opening = opening
        if sys.stderr.isatty():
            self._open()

    def _open(self) -> None:
        if self._opening:
            _write(self._opening)
        self._opening = ""

    def start(self, stage: str, total: int, done: int = 0) -> None:
        """Shows a new stage below the ones that are open."""
        self._open()
        if done:
            _write(f"{stage}: goes on after {done}/{total}")
        if not sys.stderr.isatty():
            self._stages.append(_Lines(stage, total, done))
            return
        depth, unit = len(self._stages), _UNITS.get(stage, "client")
        self._stages.append(_Bar(
            desc=stage, total=total, initial=done, unit=unit, leave=depth == 0, position=depth,
            ncols=shutil.get_terminal_size().columns,  # 80 where a terminal does not say.
        ))  # fmt: skip

    def advance(self, steps: int = 1, **facts: float) -> None:
        """Moves the innermost stage on, or ends the program if a signal asked for it."""
        raise_if_ended()
        self._stages[-1].advance(steps, {k: f"{v:.4g}" for k, v in facts.items()})

    def finish(self) -> None:
        """Closes the innermost stage."""
        self._stages.pop().close()


class NotebookProgress:
    """Shows a run's stages as bars of a notebook: widgets if it has them, else lines of text."""

    def __init__(self) -> None:
        self._bars: list[Any] = []

    def start(self, stage: str, total: int, done: int = 0) -> None:
        """Shows a new stage below the ones that are open."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of widgets that are not installed.
            from tqdm.auto import tqdm as bar  # Looks for a notebook.

            unit, is_outer = _UNITS.get(stage, "client"), not self._bars
            self._bars.append(
                bar(
                    desc=stage,
                    total=total,
                    initial=done,
                    unit=unit,
                    leave=is_outer,
                    position=0,  # Text of a notebook has one line.
                )
            )

    def advance(self, steps: int = 1, **facts: float) -> None:
        """Moves the innermost stage on, or ends the program if a signal asked for it."""
        raise_if_ended()
        if facts:
            shown = {name: f"{value:.4g}" for name, value in facts.items()}
            self._bars[-1].set_postfix(shown, refresh=False)
        self._bars[-1].update(steps)

    def finish(self) -> None:
        """Closes the innermost stage."""
        self._bars.pop().close()


def of_notebook() -> NotebookProgress | None:
    """Returns bars if this process is a notebook's, else None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_notebook = shell is not None and "IPKernelApp" in shell.config
    return NotebookProgress() if is_notebook else None


class _Bar(tqdm.tqdm):
    def advance(self, steps: int, facts: Mapping[str, str]) -> None:
        if facts:
            self.set_postfix(facts, refresh=False)
        self.update(steps)


class _Lines:
    def __init__(self, stage: str, total: int, done: int):
        self._stage, self._total, self._done = stage, total, done
        self._next_line = time.monotonic() + _SECONDS_TO_FIRST_LINE
        # When the first steps were done, which also compile what the others run, and how many.
        self._first: tuple[float, int] | None = None
        self._facts: Mapping[str, str] = {}

    def advance(self, steps: int, facts: Mapping[str, str]) -> None:
        now = time.monotonic()
        self._done += steps
        self._facts = facts or self._facts
        if self._first is None:
            self._first = now, self._done
        elif now > self._next_line:
            start, done = self._first
            left = (now - start) / (self._done - done) * (self._total - self._done)
            estimate = f", about {tqdm.tqdm.format_interval(left)} left"
            self.close(estimate if self._done < self._total else "")
            self._next_line = now + _SECONDS_BETWEEN_LINES

    def close(self, estimate: str = "") -> None:
        facts = "".join(f", {name} {value}" for name, value in self._facts.items())
        with contextlib.suppress(OSError):  # A log that cannot be written ends no run.
            sys.stderr.write(f"{self._stage}: {self._done}/{self._total}{facts}{estimate}\n")
            sys.stderr.flush()


def warn(message: str) -> None:
    """Warns on stderr, above the bars."""
    _write(f"warning: {message}")


def _write(line: str) -> None:
    with contextlib.suppress(OSError):
        tqdm.tqdm.write(line, file=sys.stderr)
