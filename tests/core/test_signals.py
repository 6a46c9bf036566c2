import signal
import threading

import pytest

from motley_tff.core import signals


def test_a_signal_waits_for_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt), signals.delay():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the body")
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_and_a_signal():
    """The signal wins: what it asks for is the end anyway."""
    with pytest.raises(KeyboardInterrupt), signals.delay():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("full disk")


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.delay():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_are_left_alone():
    errors = []

    def work():
        try:
            with signals.delay():
                pass
        except ValueError as error:  # signal.signal outside the main thread
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
