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
import difflib
import errno
import gc
import inspect
import io
import itertools
import logging as python_logging
import math
import os
import pathlib
import re
import select
import shutil
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from absl import flags, logging

from launch import published_flags
from motley_tff.core.errors import Terminated, UserError

FLAGS = flags.FLAGS
_HELP = frozenset({"-h", "-?", "-help", "--help", "-helpfull", "--helpfull", "--helpshort"})
# absl's own, as far as they are worth a line in --help.
_COMMON_FLAGS = """Flags of every command:

  --flagfile=...
      File with more flags, one a line.

  --verbosity=...
      What libraries may say: -2 errors (default), -1 warnings, 0 information, 1 everything."""
_TERMINATING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 128 + signal.SIGINT
# Signals that asked this program to end, in order.
_received: list[int] = []
# The flags of the last command line; see `given`.
_given: list["Given"] = []
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
    errno.ELOOP: "mend the link, or give another path",
}
_BROKEN_PIPE = 128 + signal.SIGPIPE


def run_main(
    main: Callable[..., int | None], positional: Sequence[str] = (), goes_on: bool = False
) -> NoReturn:
    """Parses `sys.argv`, runs a command, and exits.

    Args:
      main: The command. Gets the values of the positional arguments; returns its exit status.
      positional: Their names for messages, e.g. `("GRID",)`; a last one that ends in "..." takes
        one or more.
      goes_on: Whether a run that was cut goes on when it is given again; its last line says so.

    Raises:
      SystemExit: With the exit status; see the module's table.
    """
    name = command_name()
    again = "; the same command goes on from there" if goes_on else ""
    _take_signals()
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # A terminal that knows ASCII only.
            stream.reconfigure(errors="replace")
    try:
        with _leaving_without_memory(name):
            status = _run(main, positional, name)
    except BrokenPipeError:
        if not _stdout_is_broken():
            raise  # Another pipe broke: a bug of ours.
        status = _BROKEN_PIPE
    except UserError as error:
        status = _fail(name, str(error), error.exit_status)
    except OSError as error:
        hint = os_hint(error)
        if hint is None:
            raise
        what = error.filename or "a file or stdout"
        status = _fail(name, f"{what}: {error.strerror}; {hint}", 2)
    except KeyboardInterrupt:
        status = _fail(name, f"interrupted{again}", _INTERRUPTED)
    except Terminated as end:
        status = _fail(name, f"ended by {end.signal_name}{again}", end.exit_status)
    except Exception:
        # A signal that lands inside a library's own error handling comes out as another error.
        if not _received:
            raise
        status = _fail(name, f"ended by signal {_received[0]}{again}", 128 + _received[0])
    _settle_stdout()
    # The interpreter's last collections would go through TensorFlow's objects for a second.
    gc.freeze()
    sys.exit(status)


def _open_what_is_closed() -> None:
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
    known = _DISK_ERRORS if error.filename is None else _DISK_ERRORS | _PATH_ERRORS
    return known.get(error.errno or 0)


def command_name() -> str:
    """Returns the name this program was started by."""
    path = pathlib.Path(sys.argv[0])
    return path.parent.name if path.stem == "__main__" else path.stem


def _run(main: Callable[..., int | None], positional: Sequence[str], name: str) -> int:
    if _HELP.intersection(_before_double_dash(sys.argv[1:])):
        print(help_text(main, positional, name))
    else:
        values = parse(sys.argv, positional, name)
        silence_libraries()
        return _flushed(main(*values) or 0)
    return _flushed(0)


@contextlib.contextmanager
def _leaving_without_memory(name: str) -> Iterator[None]:
    """Ends the program at once where memory ran out.

    An allocation that failed inside TensorFlow leaves its locks taken: its destructors would wait
    for them forever.
    """
    try:
        yield
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        what = "memory ran out; give the program more, or fewer clients and examples at once"
        status = _fail(name, f"{what}, and start again", 2)
        _settle_stdout()
        os._exit(status)


def _is_out_of_memory(error: Exception) -> bool:
    """TensorFlow's own error is told by its name: nothing heavy is imported here."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"


def _before_double_dash(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _flushed(status: int) -> int:
    """Writes what is left for stdout while errors can still be reported."""
    # Its reader may be gone by now: the work is done, and its status stands.
    with contextlib.suppress(BrokenPipeError):
        print(end="", flush=True)
    return status


def _stdout_is_broken() -> bool:
    """Returns whether nobody reads stdout any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _settle_stdout() -> None:
    """Sees that Python has nothing to complain about when it flushes stdout at its end."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(name: str, message: str, status: int) -> int:
    with contextlib.suppress(OSError):  # A terminal that was closed.
        print(f"{name}: {message}", file=sys.stderr, flush=True)
    return status


def raise_if_ended() -> None:
    """Raises again for a signal that asked for the end and was not heeded.

    To be called now and then in long work. A handler's exception lands wherever the main thread
    is; inside a destructor or a callback (TensorFlow's tracing is full of them) Python drops it.
    """
    if _received:
        raise _end(_received[0])


def _take_signals() -> None:
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


# --- flags ----------------------------------------------------------------------------------------


def parse(argv: Sequence[str], positional: Sequence[str] = (), name: str = "") -> list[str]:
    """Parses flags into absl's `FLAGS`.

    Args:
      argv: Program and arguments.
      positional: As in `run_main`.
      name: The command, for messages.

    Returns:
      The positional arguments.

    Raises:
      UserError: If a flag is unknown or has a wrong value, or an argument is missing or too many.
    """
    try:
        values = FLAGS(list(_note_given(argv)))[1:]
    except flags.UnrecognizedFlagError as error:
        raise UserError(_unknown(error.flagname, name)) from error
    except flags.Error as error:
        raise UserError(_explain(str(error))) from error
    _refuse_infinite()
    many = bool(positional) and positional[-1].endswith("...")
    if len(values) < len(positional):
        raise UserError(f"missing {positional[len(values)]}; usage: {_usage(name, positional)}")
    if len(values) > len(positional) and not many:
        raise UserError(
            f"unexpected argument {values[len(positional)]!r}; flags are written --name=value, "
            "or --name and --noname where they are true or false"
        )
    return values


class Given(NamedTuple):
    """A flag as it was given.

    Attributes:
      name: Its name, without a `no` that switches it off.
      value: Its text; None where it stands alone.
      flagfile: The flagfile that has it, as it was named; None for the command line itself.
    """

    name: str
    value: str | None
    flagfile: str | None


def given() -> tuple[Given, ...]:
    """Returns the flags of the last `parse` in the order in which they were given."""
    return tuple(_given)


def _note_given(argv: Sequence[str]) -> Iterator[str]:
    """Yields a command line with its flagfiles' lines in their places; fills `given`.

    A flagfile is read once: it may be a pipe.
    """
    _given.clear()
    arguments = iter(argv)
    yield next(arguments)
    for argument in arguments:
        if argument == "--":
            yield argument
            yield from arguments
        elif re.fullmatch(r"--?flagfile(=.*)?", argument):
            parts = [argument] if "=" in argument else [argument, *itertools.islice(arguments, 1)]
            lines = FLAGS.read_flags_from_files(parts, force_gnu=False)
            _note(lines, parts[-1].rpartition("=")[2])
            yield from lines
        else:
            following = [] if "=" in argument else _value_behind(argument, arguments)
            _note([argument, *following], None)
            yield argument
            yield from following


def _value_behind(argument: str, arguments: Iterator[str]) -> list[str]:
    """Returns the next argument if it is the value of this one, `--name value`."""
    name = argument.lstrip("-")
    is_flag = argument.startswith("-") and name in FLAGS and not FLAGS[name].boolean
    return list(itertools.islice(arguments, 1)) if is_flag else []


def _note(words: Sequence[str], flagfile: str | None) -> None:
    for number, word in enumerate(words):
        match = re.fullmatch(r"--?(\w+)(?:=(.*))?", word, re.DOTALL)
        if match:
            name, value = match.groups()
            if value is None and number + 1 < len(words):
                value = words[number + 1]  # Where the flag takes none, nobody asks for it.
            known = name in FLAGS or name.removeprefix("no") not in FLAGS
            _given.append(Given(name if known else name.removeprefix("no"), value, flagfile))


def _unknown(flag: str, command: str) -> str:
    """Returns what to say of a flag that there is not."""
    if "total_rounds" in FLAGS:  # A trainer, to which a command line of Motley's may be given.
        advice = published_flags.advice(flag)
        if advice:
            return f"unknown flag --{flag}; {advice}"
    near = _near(flag, _spellings())
    hint = f"did you mean --{near}?" if near else f"{command} --help lists the flags"
    return f"unknown flag --{flag}; {hint}"


def _usage(name: str, positional: Sequence[str]) -> str:
    return " ".join([name, *positional, "[--flag=value ...]"])


def _near(word: str, known: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(word, sorted(known), 1)), "")


def _spellings() -> set[str]:
    """Returns our flags and the forms that switch one off."""
    ours = [flag for group in _own_flags().values() for flag in group]
    return {flag.name for flag in ours} | {f"no{flag.name}" for flag in ours if flag.boolean}


def _explain(message: str) -> str:
    """Returns absl's words for a wrong value, shorter and with what was expected.

    absl writes "flag --name=value: what its parser raised".
    """
    match = re.fullmatch(r"flag --(\w+)=(.*?): (.*)", message, re.DOTALL)
    if match is None or match[1] not in FLAGS:
        return message
    name, value, reason = match.groups()
    if "must have a value other than None" in reason:
        return f"--{name} is required; give --{name}=..."
    return f"--{name}={value}: {_expectation(name, value, reason)}"


def _expectation(name: str, value: str, reason: str) -> str:
    flag = FLAGS[name]
    allowed = getattr(flag.parser, "enum_values", None)
    if allowed:
        near = _near(value, allowed)
        hint = f"; did you mean {near}?" if near else ""
        return f"expected one of {', '.join(allowed)}{hint}"
    if flag.boolean:
        return "expected true or false"
    if re.search("invalid literal|could not convert|is not ", reason):
        return f"expected {flag.parser.syntactic_help.removeprefix('a ').removeprefix('an ')}"
    return reason


def _refuse_infinite() -> None:
    """Raises a UserError for a value that passes its bounds and breaks every computation."""
    for flag in (flag for group in _own_flags().values() for flag in group):
        values = flag.value if isinstance(flag.value, list) else [flag.value]
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--{flag.name}={value}: expected a finite number")


# --- help -----------------------------------------------------------------------------------------


def help_text(main: Callable[..., object], positional: Sequence[str], name: str) -> str:
    """Returns usage, the docstring of the command's module, and its flags by declaring module."""
    own = main.__module__
    groups = _own_flags()
    # absl knows a program's own file by the path it was started with.
    order = sorted(groups, key=lambda module: (module not in (own, sys.argv[0]), module))
    parts = [f"usage: {_usage(name, positional)}", inspect.getdoc(inspect.getmodule(main)) or ""]
    for module in order:
        parts.append("Flags:" if module in (own, sys.argv[0]) else _heading(module))
        parts.extend(_flag_help(flag) for flag in groups[module])
    return "\n\n".join(part for part in [*parts, _COMMON_FLAGS] if part)


def _heading(module: str) -> str:
    """Returns `Shared flags:` for `trainers.shared_flags`."""
    words = module.rpartition(".")[2].removesuffix("_flags").replace("_", " ")
    return f"{words.capitalize()} flags:"


def _own_flags() -> dict[str, list[flags.Flag]]:
    """Returns flags by the module that declares them, absl's left out."""
    modules = FLAGS.flags_by_module_dict()
    return {
        module: sorted(group, key=lambda flag: flag.name)
        for module, group in modules.items()
        if module.split(".")[0] != "absl"
    }


def _flag_help(flag: flags.Flag) -> str:
    allowed = getattr(flag.parser, "enum_values", None)
    value = f"=<{'|'.join(allowed)}>" if allowed else "=..."
    spelling = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}{value}"
    unset = flag.default in (None, "", [])
    default = "" if unset else f" (default: {flag.default_as_str.strip(chr(39))})"
    width = max(40, min(100, shutil.get_terminal_size().columns))
    # absl puts the allowed values in front of the help, too, and its own words behind a list's.
    words = (flag.help or "").removeprefix(f"{value[1:]}: ").partition(";\n")[0]
    return "\n".join(_wrapped(spelling, f"{words}{default}", width))


def _wrapped(heading: str, text: str, width: int) -> Iterator[str]:
    yield f"  {heading}"
    yield from textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


# --- chatter --------------------------------------------------------------------------------------


def silence_libraries() -> None:
    """Sets what libraries may say, by --verbosity; to be called before TensorFlow is imported.

    By default only errors are shown, and nothing of TensorFlow's C++ side, which reports as errors
    what are none. What the environment says counts for nothing: jax, once imported, puts its own
    idea there, and programs that this one starts inherit it.
    """
    chosen = not FLAGS["verbosity"].using_default_value
    verbosity = FLAGS.verbosity if chosen else logging.ERROR
    logging.use_absl_handler()
    logging.set_verbosity(verbosity)
    # absl counts down from INFO = 0 to FATAL = -3, TensorFlow up from 0.
    level = max(0, min(3, -verbosity)) if chosen else 3
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = str(level)
    os.environ["GRPC_VERBOSITY"] = "ERROR"
    if level > 1:
        # gRPC logs a stack trace of its own where a worker's error quotes bytes that are no text.
        python_logging.getLogger("grpc").setLevel(python_logging.CRITICAL)
    if level > 1 and not sys.warnoptions:
        warnings.simplefilter("ignore")
