"""Flags as they are given: parsed into absl's `FLAGS`, and errors of one line."""

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from absl import flags

from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS
# The flags of the last command line; see `given`.
_given: list["Given"] = []


class Given(NamedTuple):
    """A flag as it was given.

    Attributes:
      name: Its name, without a `no` that switches it off.
      value: Its text; of a flag that takes none, it means nothing.
      flagfile: The flagfile that has it, as it was named; None for the command line itself.
    """

    name: str
    value: str | None
    flagfile: str | None


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
        words = list(_expanded(argv[1:]))
        _given[:] = _flags_among(words)
        values = FLAGS([argv[0], *(word for word, _ in words)])[1:]
    except flags.UnrecognizedFlagError as error:
        hint = advice(error.flagname) or _similar_flag(error.flagname)
        hint = hint or f"{name} --help lists the flags"
        raise UserError(f"unknown flag --{error.flagname}; {hint}") from error
    except flags.Error as error:
        raise UserError(_explain(str(error))) from error
    _refuse_infinite()
    if len(values) < len(positional):
        raise UserError(f"missing {positional[len(values)]}; usage: {usage(name, positional)}")
    takes_many = bool(positional) and positional[-1].endswith("...")
    if len(values) > len(positional) and not takes_many:
        raise UserError(
            f"unexpected argument {values[len(positional)]!r}; flags are written --name=value, "
            "or --name and --noname where they are true or false"
        )
    return values


def given() -> tuple[Given, ...]:
    """Returns the flags of the last `parse` in the order in which they were given."""
    return tuple(_given)


def usage(name: str, positional: Sequence[str]) -> str:
    """Returns how a command is called."""
    return " ".join([name, *positional, "[--flag=value ...]"])


def own_flags() -> dict[str, list[flags.Flag]]:
    """Returns flags by the module that declares them, absl's left out."""
    modules = FLAGS.flags_by_module_dict()
    return {
        module: sorted(group, key=lambda flag: flag.name)
        for module, group in modules.items()
        if module.split(".")[0] != "absl"
    }


def _expanded(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yields (argument, None), and (line, its flagfile) in the place of a flagfile.

    A flagfile is read once: it may be a pipe.
    """
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            yield from ((word, None) for word in (argument, *remaining))
        elif re.fullmatch(r"--?flagfile(=.*)?", argument):
            words = [argument] if "=" in argument else [argument, *itertools.islice(remaining, 1)]
            flagfile = words[-1].rpartition("=")[2]
            for line in FLAGS.read_flags_from_files(words, force_gnu=False):
                yield line, flagfile
        else:
            yield argument, None


def _flags_among(words: Sequence[tuple[str, str | None]]) -> Iterator[Given]:
    for i, (word, flagfile) in enumerate(words):
        if word == "--":
            return
        match = re.fullmatch(r"--?(\w+)(?:=(.*))?", word, re.DOTALL)
        if match:
            name, value = match.groups()
            if value is None and i + 1 < len(words):
                value = words[i + 1][0]
            is_off = name not in FLAGS and name.removeprefix("no") in FLAGS
            yield Given(name.removeprefix("no") if is_off else name, value, flagfile)


def _similar_flag(name: str) -> str:
    """Returns a question about a flag that exists, or an empty string."""
    ours = [flag for group in own_flags().values() for flag in group]
    names = {flag.name for flag in ours} | {f"no{flag.name}" for flag in ours if flag.boolean}
    return "".join(
        f"did you mean --{n}?" for n in difflib.get_close_matches(name, sorted(names), 1)
    )


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
    parser = FLAGS[name].parser
    if allowed := getattr(parser, "enum_values", None):
        reason = f"expected one of {', '.join(allowed)}"
        for similar in difflib.get_close_matches(value, sorted(allowed), 1):
            reason += f"; did you mean {similar}?"
    elif FLAGS[name].boolean:
        reason = "expected true or false"
    elif re.search("invalid literal|could not convert|is not ", reason):
        reason = f"expected {parser.syntactic_help.removeprefix('a ').removeprefix('an ')}"
    return f"--{name}={value}: {reason}"


def _refuse_infinite() -> None:
    """Raises a UserError for a value that passes its bounds and breaks every computation."""
    for flag in itertools.chain(*own_flags().values()):
        for value in flag.value if isinstance(flag.value, list) else [flag.value]:
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--{flag.name}={value}: expected a finite number")
