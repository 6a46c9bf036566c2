"""Flags as they are given, parsed into absl's `FLAGS`; errors of one line; what --help prints."""

import difflib
import inspect
import itertools
import math
import operator
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import flags

from motley_tff.core import errors
from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS
_ABOVE_0 = math.nextafter(0.0, 1.0)
# The flags of the last command line; see `given`.
_given: list["Given"] = []
# The groups of a trainer's short --help, in order.
EVERYDAY = ("data", "training", "personalization", "evaluation", "output")
# absl's own, as far as they are worth a line in --help.
_COMMON_FLAGS = """Flags of every command:

  --flagfile=...
      File with more flags, one a line.

  --verbosity=...
      What libraries may say: -2 errors (default), -1 warnings, 0 information, 1 everything."""


class Given(NamedTuple):
    """A flag as it was given, without a `no` that switches it off.

    The text of a flag without a value means nothing. `flagfile` is None for the command line.
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
    """Parses flags of a program and its arguments; returns the positional arguments.

    `positional` and `advice` are those of `run_main`; `name` is the command, for messages.

    Raises:
      UserError: If a flag is unknown or has a wrong value, or an argument is missing or too many.
    """
    try:
        words = list(_expanded(argv[1:]))
        _given[:] = _flags_among(words)
        values = FLAGS([argv[0], *(word for word, _ in words)])[1:]
    except flags.UnrecognizedFlagError as error:
        ours = itertools.chain(*_own_flags().values())
        hint = advice(error.flagname) or similar_flag(error.flagname, ours)
        hint = hint or f"{name} --help lists the flags"
        raise UserError(f"unknown flag --{error.flagname}", advice=hint) from error
    except flags.CantOpenFlagFileError as error:
        raise _unreadable(error) from error
    except flags.Error as error:
        # What is required may be there, but for its dashes.
        stray = None if positional else _assignment(words)
        raise (_unexpected(stray) if stray else _explained(str(error))) from error
    _refuse_infinite()
    if len(values) < len(positional):
        usage = f"usage: {_usage(name, positional)}"
        raise UserError(f"missing {positional[len(values)]}", advice=usage)
    takes_many = bool(positional) and positional[-1].endswith("...")
    if len(values) > len(positional) and not takes_many:
        raise _unexpected(values[len(positional)])
    return values


def _unexpected(argument: str) -> UserError:
    advice = "write flags --name=value, or --name and --noname where they are true or false"
    return UserError(f"unexpected argument {argument!r}", advice=advice)


def _assignment(words: Sequence[tuple[str, str | None]]) -> str | None:
    """Returns the first word that would be a flag if it began with dashes."""
    before = ""
    for word, _ in words:
        name, equals, _ = word.partition("=")
        takes_next = before.startswith("-") and "=" not in before
        if equals and name in FLAGS and not takes_next:
            return word
        before = word
    return None


def _unreadable(error: flags.CantOpenFlagFileError) -> UserError:
    """Returns the error of a flagfile; absl has the system's as its own text."""
    cause, expected = error.__context__, "a file of flags, one a line"
    is_systems = isinstance(cause, OSError)
    path, reason = (cause.filename, cause.strerror) if is_systems else (None, error)
    return UserError(errors.name("flagfile"), path, f"{expected} ({reason})")


def given() -> tuple[Given, ...]:
    """Returns the flags of the last `parse` in the order in which they were given."""
    return tuple(_given)


def common() -> set[str]:
    """Returns the names of the flags that every program has: absl's."""
    modules = FLAGS.flags_by_module_dict().items()
    return {flag.name for module, group in modules if module.startswith("absl") for flag in group}


def _usage(name: str, positional: Sequence[str]) -> str:
    return " ".join([name, *positional, "[--flag=value ...]"])


def _own_flags() -> dict[str, list[flags.Flag]]:
    """Returns flags by the module that declares them, absl's left out."""
    modules = FLAGS.flags_by_module_dict().items()
    by_name = operator.attrgetter("name")
    return {m: sorted(group, key=by_name) for m, group in modules if m.split(".")[0] != "absl"}


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


def similar_flag(name: str, known: Iterable[flags.Flag]) -> str:
    """Returns a question about flags that exist, or an empty string: those that end in the name,
    which says too little, or the one that is spelled most like it.
    """
    ours = list(known)
    longer = sorted(flag.name for flag in ours if flag.name.endswith(f"_{name}"))
    if len(longer) > 1:
        return f"did you mean one of --{', --'.join(longer)}?"
    names = {flag.name for flag in ours} | {f"no{flag.name}" for flag in ours if flag.boolean}
    near = longer or difflib.get_close_matches(name, sorted(names), 1)
    return f"did you mean --{near[0]}?" if near else ""


def _explained(message: str) -> UserError:
    """Returns the error of a wrong value, with what was expected.

    absl writes "flag --name=value: what its parser raised".
    """
    match = re.fullmatch(r"flag --(\w+)=(.*?): (.*)", message, re.DOTALL)
    if match is None or match[1] not in FLAGS:
        return UserError(message)
    flag, value, reason = match.groups()
    name, parser = errors.name(flag), FLAGS[flag].parser
    if "must have a value other than None" in reason:
        return UserError(f"{name} is required", advice=f"give {name}=...")
    if allowed := getattr(parser, "enum_values", None):
        near = difflib.get_close_matches(value, sorted(allowed), 1)
        advice = f"did you mean {near[0]}?" if near else ""
        return UserError(name, value, f"one of {', '.join(allowed)}", advice)
    if FLAGS[flag].boolean:
        return UserError(name, value, "true or false")
    if re.search("invalid literal|could not convert|is not ", reason):
        expected = parser.syntactic_help.replace(
            f"in the range [{_ABOVE_0}, ", "above 0, in the range [0, "
        )
        return UserError(name, value, expected)
    return UserError(f"{name}={value}: {reason}")


def _refuse_infinite() -> None:
    """Raises a UserError for a value that passes its bounds and breaks every computation."""
    for flag in itertools.chain(*_own_flags().values()):
        for value in flag.value if isinstance(flag.value, list) else [flag.value]:
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(errors.name(flag.name), value, "a finite number")


def help_text(
    main: Callable[..., object], positional: Sequence[str], name: str, topic: str | None
) -> str:
    """Returns usage, the docstring of the command's module, and its flags.

    Args:
      topic: None for the everyday flags, a line each, if the command has such; else the group of
        flags to show, or a part of their names; empty for all flags.
    """
    # absl knows a program's own file by the path it was started with.
    own_modules = (main.__module__, sys.argv[0])
    groups = {
        # "shared" for flags of `trainers.shared_flags`.
        "" if module in own_modules else module.rpartition(".")[2].removesuffix("_flags"): defined
        for module, defined in sorted(_own_flags().items())
    }
    docs = inspect.getdoc(inspect.getmodule(main)) or ""
    head = f"usage: {_usage(name, positional)}\n\n{docs}".rstrip()
    if topic is None and (everyday := list(_everyday_lines(groups, name))):
        return "\n".join([head, *everyday])
    parts = [head]
    for group in sorted(groups):
        flags_of = [f for f in groups[group] if _is_asked_for(topic or "", group, f)]
        title = f"{group.replace('_', ' ')} flags:".strip().capitalize()
        parts += [title, *map(_flag_help, flags_of)] if flags_of else []
    return "\n\n".join([*parts, _COMMON_FLAGS])


def _is_asked_for(topic: str, group: str, flag: flags.Flag) -> bool:
    name = topic.replace(" ", "_")
    return name in (group.replace(" ", "_"), "") or (name in flag.name and len(name) > 1)


def _everyday_lines(groups: Mapping[str, Sequence[flags.Flag]], name: str) -> Iterator[str]:
    """Yields a line for each everyday flag, by group, and one that says how to see the others."""
    # In the order in which they are declared.
    declared = itertools.chain(*FLAGS.flags_by_module_dict().values())
    everyday = [flag for flag in declared if getattr(flag, "everyday", "")]
    if not everyday:
        return
    for group in EVERYDAY:
        if defined := [flag for flag in everyday if flag.everyday == group]:
            yield f"\n{group.capitalize()}:"
        for flag in defined:
            default = _default_text(flag) or "..."
            spelling = f"--{flag.name}" if flag.boolean else f"--{flag.name}={default}"
            brief = re.split(r"[;:.](?: |$)| \(default", flag.help, maxsplit=1)[0]
            lead = f"  {spelling:<36} "
            yield from textwrap.wrap(brief, 99, initial_indent=lead, subsequent_indent=" " * 39)
    names = ", ".join(sorted(group.replace("_", " ") for group in groups if group))
    yield f"\n--helpfull lists all flags of {name}; --help=NAME lists those of a group"
    yield from textwrap.wrap(f"({names}) or with NAME in their own names, such as --help=adam.", 99)
    yield "--flagfile=FILE reads flags from a file, one a line."


def _default_text(flag: flags.Flag) -> str:
    """Returns a flag's default as it would be given; empty if it has none."""
    return flag.default_as_str.strip("'") if flag.default not in (None, "", []) else ""


def _flag_help(flag: flags.Flag) -> str:
    allowed = getattr(flag.parser, "enum_values", None)
    value = f"=<{'|'.join(allowed)}>" if allowed else "=..."
    spelling = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}{value}"
    text = _default_text(flag)
    default = f" (default: {text})" if text else ""
    # absl puts the allowed values in front of the help, too, and its own words behind a list's.
    words = (flag.help or "").removeprefix(f"{value[1:]}: ").partition(";\n")[0] + default
    width = max(40, min(100, shutil.get_terminal_size().columns))
    lines = textwrap.wrap(words, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([f"  {spelling}", *lines])
