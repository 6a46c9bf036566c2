"""Runs that are killed at random moments, again and again, until one comes to its end."""

import collections
import pathlib
import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from motley_tff import commandline
from motley_tff.core.errors import UserError
from tests.reliability import trainer_runs

STATUS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
# Our handlers are there a tenth of a second after the start of a process, on an idle machine.
_START_SECONDS = 1.0
_MILLISECONDS = 3.0
_MOST_MISSES = 5


class Kind(NamedTuple):
    """What is to hit a run: which signal, and whether inside a write."""

    number: signal.Signals
    in_a_write: bool


class Moment(NamedTuple):
    """When exactly: seconds after the start, or at which change and how long after it."""

    kind: Kind
    at: float
    milliseconds: float | None = None

    def __str__(self) -> str:
        name = self.kind.number.name
        if not self.kind.in_a_write:
            return f"{name} after {self.at:.2f} s"
        later = "" if self.milliseconds is None else f" + {self.milliseconds:.1f} ms"
        return f"{name} at change {self.at}{later}"


class Matrix:
    """What came of one trainer on one backend.

    Attributes:
      hits: How often a run was hit, by kind.
      cut_files: How often a temporary file was left, half-written or about to be renamed.
      outside: Signals that came before our handlers were there, or after they were gone.
      compared: Runs that came to their end and were compared.
      failures: What did not survive.
    """

    def __init__(self, setting: trainer_runs.Setting, work: pathlib.Path, stream: random.Random):
        self._setting, self._work, self._stream = setting, work, stream
        self.hits: collections.Counter[Kind] = collections.Counter()
        self.cut_files = self.outside = self.compared = 0
        self.failures: list[str] = []
        self._misses = 0
        self._run_undisturbed()

    def _run_undisturbed(self) -> None:
        """Runs the trainer to its end: keeps its files and seconds, and how often it wrote.

        Raises:
          UserError: If it does not get there.
        """
        root, count, start = self._work / "undisturbed", self._work / "changes", time.monotonic()
        ending = trainer_runs.run(self._setting.watched(root, f"--count_to={count}"))
        self._undisturbed, self._seconds = root / "run", time.monotonic() - start
        if ending.status or trainer_runs.damages(self._undisturbed):
            raise UserError(f"{self._setting} fails undisturbed: {ending}")
        self._changes = int(count.read_text())

    def _moment(self, kind: Kind) -> Moment:
        """Draws a moment of a kind."""
        stream = self._stream
        if not kind.in_a_write:
            return Moment(kind, stream.uniform(0.0, self._seconds))
        later = stream.uniform(0.0, _MILLISECONDS) if stream.random() < 0.5 else None
        return Moment(kind, stream.randint(1, self._changes), later)

    def spend(self, kinds: Sequence[Kind]) -> Iterator[str]:
        """Hits runs until all kinds were spent; yields a line for each that came to its end."""
        left = list(kinds)
        self._stream.shuffle(left)
        while left:
            root = self._work / f"chain_{self.compared + 1}"
            self._chain(root, left)
            yield f"{self._setting}: {self.compared} runs compared, {len(left)} moments to come"

    def _chain(self, root: pathlib.Path, left: list[Kind]) -> None:
        """Starts a run again and again until it is not hit any more, and compares it."""
        before = len(self.failures)
        story: list[str] = []
        while left:
            commandline.raise_if_ended()  # Of this program itself.
            moment = self._moment(left[-1])
            known = trainer_runs.files(root / "run")
            ending = self._hit(root, moment)
            if ending.status == 0:
                self._miss(moment, story, left)
                break
            self._misses = 0
            story.append(str(moment))
            self._judge(moment, ending, known, root / "run", story)
            left.pop()
        else:
            ending = trainer_runs.run(self._setting.command(root))
        self._compare(root / "run", ending, story)
        if len(self.failures) == before:
            shutil.rmtree(root)

    def _miss(self, moment: Moment, story: Sequence[str], left: list[Kind]) -> None:
        """Gives a kind up that whole runs, which do all there is to do, are not hit by."""
        if not story and not moment.kind.in_a_write:
            # The machine is less busy than when the undisturbed run was timed.
            self._seconds = min(self._seconds, moment.at)
        self._misses += not story
        if self._misses == _MOST_MISSES:
            self._fail([f"never hit by {moment}"], story)
            left.pop()

    def _hit(self, root: pathlib.Path, moment: Moment) -> trainer_runs.Ending:
        number = moment.kind.number
        if moment.kind.in_a_write:
            options = [f"--at={moment.at}", f"--signal={int(number)}"]
            if moment.milliseconds is not None:
                options.append(f"--milliseconds={moment.milliseconds}")
            return trainer_runs.run(self._setting.watched(root, *options))
        started = trainer_runs.Started(self._setting.command(root))
        if not started.has_ended(moment.at):
            started.send(number)
        return started.ending()

    def _judge(self, moment, ending, known, directory, story) -> None:
        """Says what is wrong with the end of a run that was hit."""
        self.hits[moment.kind] += 1
        left = trainer_runs.files(directory)
        self.cut_files += any(name.endswith(".tmp") for name in left)
        wrong = [*ending.outlived, *trainer_runs.damages(directory)]
        # Of all else nothing should have been removed.
        lost = sorted(n for n in known - left if not n.endswith(".tmp") and "checkpoints/" not in n)
        wrong += [f"{name} is gone" for name in lost]
        if self._is_outside(moment, ending, directory):
            self.outside += 1
        elif ending.status != STATUS[moment.kind.number] or not ending.is_quiet:
            wrong.append(f"exit status {ending.status}, stderr {ending.stderr[-500:]!r}")
        self._fail(wrong, story)

    def _is_outside(self, moment: Moment, ending, directory: pathlib.Path) -> bool:
        """Whether a signal came when Python has no handlers: at its start, or at its very end."""
        if moment.kind.number == signal.SIGKILL or ending.status != -moment.kind.number:
            return False
        is_early = not moment.kind.in_a_write and moment.at < _START_SECONDS
        return is_early or not trainer_runs.differences(self._undisturbed, directory)

    def _compare(self, directory: pathlib.Path, ending, story: Sequence[str]) -> None:
        wrong = ending.outlived
        if ending.status:
            wrong.append(f"no resume: exit status {ending.status}, {ending.stderr[-500:]!r}")
        wrong += trainer_runs.differences(self._undisturbed, directory)
        self._fail(wrong, story)
        self.compared += 1

    def _fail(self, wrong: Sequence[str], story: Sequence[str]) -> None:
        after = ", ".join(story)
        self.failures += [
            f"{self._setting}: {problem} ({self._work}, {after})" for problem in wrong
        ]


def kinds(kills: int, signals: int) -> list[Kind]:
    """Returns what is to hit a run, half of each inside a write."""
    counts = {signal.SIGKILL: kills, signal.SIGTERM: signals, signal.SIGINT: signals}
    return [Kind(number, bool(i % 2)) for number, count in counts.items() for i in range(count)]
