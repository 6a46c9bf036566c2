"""Damages what users hand in at random and looks for what ends in a stack trace.

    python -m tests.reliability.fuzz --seconds=600 [--seed=S] [SUBJECT ...]

Each kind of file (`subjects`) gets its share of the time in a process of its own, whose memory is
limited. Prints a Markdown table and, for every
finding, the seed that makes it again:

    python -m tests.reliability.fuzz --again=SEED SUBJECT
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import text_tables

_ROOT = pathlib.Path(__file__).parents[2]
_SECONDS_EACH = 60
# Beside what is there after the first example: TensorFlow's threads and the like.
_MEMORY = 4 * 2**30
TAKEN, REFUSED, SLOW = "taken", "refused", "slow"


class Finding(NamedTuple):
    """An example that was neither taken nor refused in one line.

    Attributes:
      seed: Makes it again.
      what: The error and where in the project it came from.
    """

    seed: int
    what: str


class _Slow(Exception):
    """An example took too long."""


def example(subject, seed: int, valid: pathlib.Path) -> str:
    """Damages valid files and reads them; returns `TAKEN`, `REFUSED`, `SLOW` or what went wrong.

    Args:
      subject: Of `subjects.SUBJECTS`.
      seed: Decides the damage.
      valid: Folder that `subject.make` has filled.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "f"
        shutil.copytree(valid, folder)
        subject.damage(random.Random(seed), folder)
        try:
            with _limited(), contextlib.redirect_stdout(io.StringIO()):
                subject.read(folder)
        except UserError as error:
            return REFUSED if len(str(error).splitlines()) == 1 else f"several lines: {error}"
        except Exception as error:
            # Of these programs make one line themselves.
            known = isinstance(error, OSError) and commandline.os_hint(error)
            # TensorFlow wraps what is raised while it traces.
            is_slow = _Slow.__name__ in f"{type(error).__name__} {error}"
            return REFUSED if known else SLOW if is_slow else _where(error)
    return TAKEN


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raises where the time is up; says nothing of NumPy's warnings."""

    def ring(*_):
        raise _Slow(f"more than {_SECONDS_EACH} seconds")

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_SECONDS_EACH)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _where(error: Exception) -> str:
    """Returns an error's type and the last line of the project that it went through."""
    frames = [
        f"{pathlib.Path(frame.filename).relative_to(_ROOT)}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(str(_ROOT)) and "/tests/" not in frame.filename
    ]
    message = " ".join(str(error).split())[:160]
    return f"{type(error).__name__} at {frames[-1] if frames else 'the test'}: {message}"


def _subjects() -> dict:
    """Returns all kinds of input; importing them takes seconds."""
    from tests.reliability import subjects

    return dict(subjects.SUBJECTS)


def _work(name: str, seconds: float, seed: int, journal: pathlib.Path) -> None:
    """Tries examples of one kind and writes what becomes of each, a line each."""
    subject = _subjects()[name]
    choices = random.Random(seed)
    with tempfile.TemporaryDirectory() as valid, journal.open("w", encoding="utf-8") as lines:
        subject.make(pathlib.Path(valid))
        end = time.monotonic() + seconds
        is_first = True
        while time.monotonic() < end:
            number = choices.randrange(2**32)
            lines.write(f"{number} ")
            lines.flush()  # So that it is there if the process ends here.
            lines.write(json.dumps(example(subject, number, pathlib.Path(valid))) + "\n")
            if is_first:
                _limit_memory()
            is_first = False


def _wait(child: int, seconds: float) -> int:
    """Returns a process's exit status; one that hangs in a library's own code is killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _work_and_end(
    name: str, seconds: float, seed: int, journal: pathlib.Path, complaints: pathlib.Path
) -> None:
    """Works, all that is said on stderr in a file, and ends this process."""
    status = 1
    try:
        os.dup2(os.open(complaints, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
        _work(name, seconds, seed, journal)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _limit_memory() -> None:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def try_subject(name: str, seconds: float, seed: int) -> tuple[list[int], list[Finding]]:
    """Returns ([examples, taken, refused, slow], findings) of one kind, from a forked process.

    TensorFlow may have been imported, but not used: its threads do not survive a fork.
    """
    with tempfile.TemporaryDirectory() as folder:
        journal, complaints = pathlib.Path(folder) / "journal", pathlib.Path(folder) / "stderr"
        child = os.fork()
        if not child:
            _work_and_end(name, seconds, seed, journal, complaints)
        status = _wait(child, seconds + 3 * _SECONDS_EACH)
        lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
        said = complaints.read_text(encoding="utf-8", errors="replace")[-300:]
    outcomes = [(int(number), what) for number, _, what in (x.partition(" ") for x in lines)]
    decoded = [(number, json.loads(what)) for number, what in outcomes if what]
    known = (TAKEN, REFUSED, SLOW)
    findings = [Finding(n, what) for n, what in decoded if what not in known]
    if status:
        last = outcomes[-1][0] if outcomes else -1
        findings.append(Finding(last, f"exit status {status}: {said}"))
    return [len(outcomes), *(sum(what == k for _, what in decoded) for k in known)], findings


def _unique(findings: list[Finding]) -> list[Finding]:
    """Returns the first finding of each kind."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.what.split(": ")[0], finding)
    return list(first.values())


def main() -> None:
    """Tries all kinds, or those named, and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="by default all")
    parser.add_argument("--seconds", type=float, default=600.0, help="altogether")
    parser.add_argument("--seed", type=int, default=None, help="by default another each time")
    parser.add_argument("--again", type=int, help="one example, with its stack trace")
    given = parser.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    if given.again is not None:
        _again(given.subjects[0], given.again)
    else:
        _try_all(given.subjects, given.seconds, seed)


def _again(name: str, seed: int) -> None:
    subject = _subjects()[name]
    folder = pathlib.Path(tempfile.mkdtemp())
    subject.make(folder)
    subject.damage(random.Random(seed), folder)
    print(f"the files: {folder}")
    subject.read(folder)


def _try_all(wanted: list[str], seconds: float, seed: int) -> None:
    names = wanted or list(_subjects())
    rows = [["input", "examples", "taken", "refused", "slow", "findings"]]
    found: list[str] = []
    for name in names:
        counts, findings = try_subject(name, seconds / len(names), seed)
        kinds = _unique(findings)
        rows.append([name, *map(str, counts), str(len(kinds))])
        found += [f"{name}: --again={one.seed}: {one.what}" for one in kinds]
        print(f"{name}: {counts[0]} examples, {len(kinds)} findings", file=sys.stderr)
    print("\n".join([*text_tables.markdown(rows), "", *found]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
