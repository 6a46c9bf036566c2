"""What --help prints: usage, the docstring of the command's module, and its flags."""

import inspect
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence

from absl import flags

from motley_tff.commandline import parsing

# absl's own, as far as they are worth a line in --help.
_COMMON_FLAGS = """Flags of every command:

  --flagfile=...
      File with more flags, one a line.

  --verbosity=...
      What libraries may say: -2 errors (default), -1 warnings, 0 information, 1 everything."""


def text(main: Callable[..., object], positional: Sequence[str], name: str) -> str:
    """Returns usage, the docstring of the command's module, and its flags by declaring module."""
    # absl knows a program's own file by the path it was started with.
    own_modules = (main.__module__, sys.argv[0])
    groups = parsing.own_flags()
    docs = inspect.getdoc(inspect.getmodule(main)) or ""
    parts = [f"usage: {parsing.usage(name, positional)}", docs]
    for module in sorted(groups, key=lambda module: (module not in own_modules, module)):
        # "Shared flags:" for those of `trainers.shared_flags`.
        origin = module.rpartition(".")[2].removesuffix("_flags").replace("_", " ").capitalize()
        parts.append("Flags:" if module in own_modules else f"{origin} flags:")
        parts.extend(_flag_help(flag) for flag in groups[module])
    return "\n\n".join(part for part in [*parts, _COMMON_FLAGS] if part)


def _flag_help(flag: flags.Flag) -> str:
    allowed = getattr(flag.parser, "enum_values", None)
    value = f"=<{'|'.join(allowed)}>" if allowed else "=..."
    spelling = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}{value}"
    has_default = flag.default not in (None, "", [])
    default = f" (default: {flag.default_as_str.strip(chr(39))})" if has_default else ""
    # absl puts the allowed values in front of the help, too, and its own words behind a list's.
    words = (flag.help or "").removeprefix(f"{value[1:]}: ").partition(";\n")[0] + default
    width = max(40, min(100, shutil.get_terminal_size().columns))
    lines = textwrap.wrap(words, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([f"  {spelling}", *lines])
