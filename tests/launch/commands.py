"""Commands in this process: what they print and how they end, but for signals and start-up.

with opened("launch.rerun", "RUN") as rerun:
    status, printed = rerun("results/run", "--root_output_dir=again")
    message = rerun.refused("nowhere")
"""

import contextlib
import csv
import functools
import importlib
import io

import pytest
from absl import flags
from absl.testing import flagsaver

from motley_tff import commandline
from motley_tff.core.errors import UserError


def rows(path):
    """Returns the rows of a CSV, their cells as text."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@contextlib.contextmanager
def opened(module, *positional):
    """Yields a command, to be called with its arguments: it returns (exit status, stdout)."""
    before = _taken_away()
    command, declared = _imported(module)
    _declare(declared)
    try:
        yield _Command(module, command, positional)
    finally:
        _taken_away()
        _declare(before)


class _Command:
    def __init__(self, name, module, positional):
        self._name, self._module, self._positional = name, module, positional
        self.printed = io.StringIO()  # Of the last call.

    def __call__(self, *arguments):
        self.printed = io.StringIO()
        argv = [self._name, *map(str, arguments)]
        with flagsaver.flagsaver(), contextlib.redirect_stdout(self.printed):
            status = self._module.main(*commandline.parse(argv, self._positional, self._name))
        return status or 0, self.printed.getvalue()

    def refused(self, *arguments):
        """Returns the one line that the command says of wrong input."""
        with pytest.raises(UserError) as error:
            self(*arguments)
        line = error.value.line(with_flags=True)
        assert "\n" not in line and error.value.exit_status == 2
        return line


@functools.cache
def _imported(module):
    """Returns a command and the flags that it declares, which can be declared only once."""
    command = importlib.import_module(module)
    return command, _taken_away()


def _taken_away():
    """Takes away what programs of ours declared here; returns `{flag: (itself, its module)}`."""
    of_module = flags.FLAGS.flags_by_module_dict().items()
    ours = {
        flag.name: (flag, module)
        for module, declared in of_module
        for flag in declared
        if module.partition(".")[0] in ("trainers", "launch", "tests")
    }
    for name in ours:
        delattr(flags.FLAGS, name)
    return ours


def _declare(declared):
    for flag, module in declared.values():
        flags.DEFINE_flag(flag, module_name=module)
