"""Flags as they are given: parsed into absl's `FLAGS`, and errors of one line."""

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from absl import flags

from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS
# The flags of the last command line; see `given`.
_given: list["Given"] = []


def parse(
    argv: Sequence[str],
    positional: Sequence[str] = (),
    name: str = "",
    advice: Callable[[str], str | None] = lambda flag: None,
) -> list[str]:
    """Parses flags into absl's `FLAGS`.

    Args:
      argv: Program and arguments.
      positional: As in `run_main`.
      name: The command, for messages.
      advice: `unknown flag -> what to give instead`, or None.

    Returns:
      The positional arguments.

    Raises:
      UserError: If a flag is unknown or has a wrong value, or an argument is missing or too many.
    """
    try:
        values = FLAGS(list(_note_given(argv)))[1:]
    except flags.UnrecognizedFlagError as error:
        raise UserError(_unknown(error.flagname, name, advice)) from error
    except flags.Error as error:
        raise UserError(_explain(str(error))) from error
    _refuse_infinite()
    many = bool(positional) and positional[-1].endswith("...")
    if len(values) < len(positional):
        raise UserError(f"missing {positional[len(values)]}; usage: {usage(name, positional)}")
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


def _unknown(flag: str, command: str, advice: Callable[[str], str | None]) -> str:
    """Returns what to say of a flag that does not exist."""
    near = _near(flag, _spellings())
    guess = f"did you mean --{near}?" if near else f"{command} --help lists the flags"
    hint = advice(flag) or guess
    return f"unknown flag --{flag}; {hint}"


def usage(name: str, positional: Sequence[str]) -> str:
    """Returns how a command is called."""
    return " ".join([name, *positional, "[--flag=value ...]"])


def _near(word: str, known: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(word, sorted(known), 1)), "")


def _spellings() -> set[str]:
    """Returns our flags and the forms that switch one off."""
    ours = [flag for group in own_flags().values() for flag in group]
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
    for flag in (flag for group in own_flags().values() for flag in group):
        values = flag.value if isinstance(flag.value, list) else [flag.value]
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--{flag.name}={value}: expected a finite number")


def own_flags() -> dict[str, list[flags.Flag]]:
    """Returns flags by the module that declares them, absl's left out."""
    modules = FLAGS.flags_by_module_dict()
    return {
        module: sorted(group, key=lambda flag: flag.name)
        for module, group in modules.items()
        if module.split(".")[0] != "absl"
    }
