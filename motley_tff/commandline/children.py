"""Commands that end with the program that starts them, and the last line they wrote."""

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import IO

_LOG_TAIL_BYTES = 4096

# Run by a bare Python that becomes the command: code between fork and exec in this process, which
# has threads, could deadlock. 1 is PR_SET_PDEATHSIG, a promise of the kernel that survives exec. A
# parent that was gone before the promise was made is another process's number by now.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process is gone")
for number in sys.argv[2].split():
    signal.signal(int(number), signal.SIG_IGN)
os.execv(sys.argv[3], sys.argv[3:])
"""


def bound_to_parent(command: Sequence[str], ignored: Iterable[signal.Signals]) -> list[str]:
    """Wraps a command so that the kernel kills it when this process ends, however that comes about.

    The promise holds for the *thread* that starts the command: it has to live as long.
    """
    numbers = " ".join(str(int(number)) for number in ignored)
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), numbers, *command]


def last_line(log: IO[bytes]) -> str:
    """Returns the last line of a log that is not blank, or an empty string; moves no position."""
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES))
    return tail.decode(errors="replace").strip().rpartition("\n")[2].strip()
