import signal
from concurrent import futures

import pytest

from motley_tff.core import signals


@pytest.mark.parametrize("divisor", [1, 0])
def test_a_signal_waits_for_the_end(divisor):
    """It wins over an error in the body: what it asks for is the end anyway."""
    done = []
    with pytest.raises(KeyboardInterrupt), signals.delay():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the body")
        1 / divisor
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.delay():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_are_left_alone():
    def work():
        with signals.delay():
            return "no signal.signal, which is the main thread's"

    with futures.ThreadPoolExecutor() as pool:
        assert pool.submit(work).result()
