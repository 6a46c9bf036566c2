"""Commands in this process: what they print and how they end, but for signals and start-up.

    with opened("launch.rerun", "RUN") as rerun:
        status, printed = rerun("results/run", "--root_output_dir=again")

A `UserError` is left to the caller.
"""

import contextlib
import functools
import importlib
import io

from absl import flags
from absl.testing import flagsaver

from motley_tff import commandline


@contextlib.contextmanager
def opened(module, *positional):
    """Yields what runs a command with arguments: `(*arguments) -> (exit status, stdout)`."""
    before = _taken_away()
    command, declared = _imported(module)
    _declare(declared)

    def run(*arguments):
        printed = io.StringIO()
        argv = [module, *map(str, arguments)]
        with flagsaver.flagsaver(), contextlib.redirect_stdout(printed):
            status = command.main(*commandline.parse(argv, positional)) or 0
        return status, printed.getvalue()

    try:
        yield run
    finally:
        _taken_away()
        _declare(before)


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
