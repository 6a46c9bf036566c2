"""What every command shares: flags, help, signals, errors of one line, exit statuses.

    def main() -> int | None: ...

    def run() -> None:  # the console entry
        commandline.run_main(main)

| exit status | when |
|---|---|
| 0 | `main` returned None or 0; --help |
| 2 | the user can mend it: a flag, an argument, any `UserError` |
| 1 | a stack trace, or an error that says so (`UserError.exit_status`) |
| 130, 143, 129 | Ctrl-C, SIGTERM, SIGHUP: `finally` blocks have run |
| 141 | stdout's reader went away |

Only absl's flags and logging are imported here: what a wrong flag is told does not wait for
TensorFlow. `absl.app` is not used: its errors take several lines, its --help exits with 1 and finds
no flags behind a console entry.
"""

import contextlib
import errno
import gc
import importlib.abc
import io
import itertools
import logging as python_logging
import os
import pathlib
import re
import select
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from absl import flags, logging

from motley_tff.commandline import parsing
from motley_tff.core.errors import Terminated, UserError

_HELP = frozenset({"-h", "-?", "-help", "--help", "-helpfull", "--helpfull", "--helpshort"})
_TERMINATING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# Signals that asked this program to end, in order.
_received: list[int] = []
# What TensorFlow imports, 0.4 s of its 2.3, for data frames that Keras is given, and functions of
# jax that TensorFlow Lite is.
_UNNEEDED = frozenset({"jax", "pandas"})
# New objects between two collections of garbage: TensorFlow's imports and graphs are millions that
# stay, and Python's 700 make it go through them for a sixth of a short run.
_OBJECTS_PER_COLLECTION = 20_000
# What a user can do about an error of the disk, and about one of a path.
_ROOM = "make room and start again"
_DISK_ERRORS = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EROFS: "make it writable and start again",
    errno.EIO: "see to the disk and start again",
}
_PATH_ERRORS = {
    errno.EACCES: "name another path, or let this user have this one",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EEXIST: "move away what is there, no directory, or name another path",
    errno.ELOOP: "mend the link, or give another path",
}


def run_main(
    main: Callable[..., int | None],
    positional: Sequence[str] = (),
    can_resume: bool = False,
    advice: Callable[[str], str | None] = lambda flag: None,
) -> NoReturn:
    """Parses `sys.argv`, runs a command, and exits.

    Args:
      main: The command. Gets the values of the positional arguments; returns its exit status.
      positional: Their names for messages, e.g. `("GRID",)`; a last one that ends in "..." takes
        one or more.
      can_resume: Whether a run that was cut goes on when it is given again; its last line says so.
      advice: `unknown flag -> what to give instead`, or None.

    Raises:
      SystemExit: With the exit status; see the module's table.
    """
    path = pathlib.Path(sys.argv[0])
    name = path.parent.name if path.stem in ("__main__", "command") else path.stem
    _install_signal_handlers()
    _open_closed_streams()
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    sys.meta_path.insert(0, _WithoutUnneeded())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # A terminal that knows ASCII only.
            stream.reconfigure(errors="replace")
    try:
        status = _run(main, positional, name, advice)
    except BaseException as error:
        end = _reason_and_status(error)
        if end is None:
            raise
        reason, status = end
        again = "; the same command goes on from there" if can_resume and status > 128 else ""
        with contextlib.suppress(OSError):  # A terminal that was closed.
            if reason:
                print(f"{name}: {reason}{again}", file=sys.stderr, flush=True)
        if _is_out_of_memory(error):
            # An allocation that failed inside TensorFlow leaves its locks taken: its destructors
            # would wait for them forever.
            _flush_stdout()
            os._exit(status)
    _flush_stdout()
    # The interpreter's last collections would go through TensorFlow's objects for a second.
    gc.freeze()
    sys.exit(status)


class _WithoutUnneeded(importlib.abc.MetaPathFinder):
    """Hides from TensorFlow, while it is imported, what it can do without; others still find it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises what TensorFlow takes for a package that is not installed."""
        if name in _UNNEEDED:
            spec = getattr(sys.modules.get("tensorflow"), "__spec__", None)
            if getattr(spec, "_initializing", False):  # As Python's imports mark it.
                raise ModuleNotFoundError(f"{name} is not needed here", name=name)


def _run(
    main: Callable[..., int | None],
    positional: Sequence[str],
    name: str,
    advice: Callable[[str], str | None],
) -> int:
    words = list(itertools.takewhile(lambda word: word != "--", sys.argv[1:]))
    groups = [word.partition("=")[2] for word in words if re.match("--?help(full)?=", word)]
    if groups or _HELP.intersection(words):
        is_full = any(word.endswith("helpfull") for word in words)
        group = groups[0] if groups else "" if is_full else None
        print(parsing.help_text(main, positional, name, group))
        status = 0
    else:
        values = parsing.parse(sys.argv, positional, name, advice)
        silence_libraries()
        status = main(*values) or 0
    # While errors can still be reported. If stdout's reader is gone by now, the work is done.
    with contextlib.suppress(BrokenPipeError):
        print(end="", flush=True)
    return status


def _reason_and_status(error: BaseException) -> tuple[str, int] | None:
    """Returns why a program ends, in a line, and its exit status; None if the error is a bug.

    No reason is given to a reader of stdout that went away.
    """
    if isinstance(error, BrokenPipeError):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
            return "", 128 + signal.SIGPIPE
    if isinstance(error, UserError):
        return error.line(with_flags=True), error.exit_status
    if _is_out_of_memory(error):
        return (
            "memory ran out; give the program more, or fewer clients and examples at once, and "
            "start again"
        ), 2
    if isinstance(error, OSError) and (hint := os_hint(error)):
        return f"{error.filename or 'a file or stdout'}: {error.strerror}; {hint}", 2
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 128 + signal.SIGINT
    if isinstance(error, Terminated):
        return f"ended by {error.signal_name}", error.exit_status
    if isinstance(error, Exception) and _received:
        # A signal that lands inside a library's own error handling comes out as another error.
        return f"ended by signal {_received[0]}", 128 + _received[0]
    return None


def _is_out_of_memory(error: BaseException) -> bool:
    """TensorFlow's own error is told by its name: nothing heavy is imported here."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"


def _open_closed_streams() -> None:
    """Leads standard streams that were closed (`>&-`) to nowhere.

    Or the next files that are opened would get their numbers, and with them what libraries print.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - as long as the program
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def os_hint(error: OSError) -> str | None:
    """Returns what a user can do about an error of the system, None if that is not known."""
    hints = _DISK_ERRORS if error.filename is None else _DISK_ERRORS | _PATH_ERRORS
    return hints.get(error.errno or 0)


def _flush_stdout() -> None:
    """Sees that Python has nothing to complain about when it flushes stdout at its end."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def raise_if_ended() -> None:
    """Raises again for a signal that asked for the end and was not heeded.

    To be called now and then in long work. A handler's exception lands wherever the main thread
    is; inside a destructor or a callback (TensorFlow's tracing is full of them) Python drops it.
    """
    if _received:
        raise _end(_received[0])


def _install_signal_handlers() -> None:
    """Makes the signals that end a program exceptions; those that are ignored (nohup) stay so."""
    for number in _TERMINATING_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _terminate)
    # Whoever started this may ignore the ends of children, whose statuses would all read 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.unraisablehook = _unraisable


def _terminate(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    for each in _TERMINATING_SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # A second one would cut the cleaning up short.
    raise _end(number)


def _end(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def _unraisable(dropped: "sys.UnraisableHookArgs") -> None:
    """Says nothing of an end that Python drops: `raise_if_ended` brings it back."""
    if not isinstance(dropped.exc_value, KeyboardInterrupt | Terminated):
        sys.__unraisablehook__(dropped)


def silence_libraries() -> None:
    """Sets what libraries may say, by --verbosity; to be called before TensorFlow is imported.

    By default only errors are shown, and nothing of TensorFlow's C++ side, which reports as errors
    what are none. What the environment says counts for nothing: jax, once imported, puts its own
    idea there, and programs that this one starts inherit it.
    """
    chosen = not flags.FLAGS["verbosity"].using_default_value
    verbosity = flags.FLAGS.verbosity if chosen else logging.ERROR
    logging.use_absl_handler()
    logging.set_verbosity(verbosity)
    # absl counts down from INFO = 0 to FATAL = -3, TensorFlow up from 0.
    level = max(0, min(3, -verbosity)) if chosen else 3
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = str(level)
    os.environ["GRPC_VERBOSITY"] = "ERROR"
    if level > 1:
        # gRPC logs a stack trace of its own where a worker's error quotes bytes that are no text.
        python_logging.getLogger("grpc").setLevel(python_logging.CRITICAL)
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
