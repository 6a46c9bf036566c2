"""Damages what users hand in at random and looks for what ends in a stack trace (`test_fuzz`)."""

import contextlib
import io
import pathlib
import random
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator

from motley_tff import commandline
from motley_tff.core.errors import UserError

_ROOT = pathlib.Path(__file__).parents[2]
_SECONDS_EACH = 60
TAKEN, REFUSED, SLOW = "taken", "refused", "slow"


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
