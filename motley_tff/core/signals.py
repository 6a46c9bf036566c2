"""Short pieces of work that no signal cuts in two."""

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def delay() -> Iterator[None]:
    """Keeps signals that would end the program waiting while the body runs.

    For libraries that leave things half-done when an exception comes from nowhere: NumPy's archive
    writer complains on stderr when it is collected after its file was closed. In another thread
    than the main one, which runs all handlers, nothing needs to be held.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: h for number in ENDING if callable(h := signal.getsignal(number))}
    arrived: list[int] = []
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: arrived.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for first in arrived[:1]:
            signal.raise_signal(first)
