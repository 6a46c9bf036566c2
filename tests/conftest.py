"""How many processes run the tests, on which examples, and what a skipped test means."""

import gc
import os
import pathlib
import signal

import hypothesis
import psutil
import pytest

from motley_tff.core import cores
from tests import budget
from tests.trainers import programs

if not __debug__:  # What helpers assert would be gone.
    raise pytest.UsageError("found PYTHONOPTIMIZE or -O, under which tests pass; leave it out")
# What a script starts in its background ignores Ctrl-C, what nohup starts a hangup; so would the
# programs that tests start. Where SIGCHLD is ignored every exit status is 0.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGCHLD, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
if "PYTEST_XDIST_WORKER" in os.environ:
    # A process a core: more threads would only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# The dearest tests hold a data set, TensorFlow, and a trainer in a process of its own. What was
# compiled in a process stays there: in the slow tier up to 5 GB were seen.
_BYTES_A_PROCESS, _BYTES_A_SLOW_PROCESS = 3e9, 5e9
# Property tests: the same few examples every time, or others with `--hypothesis-profile=search`.
# That option is read after this file. What `search` finds it tries first the next time.
hypothesis.settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, max_examples=30
)
hypothesis.settings.register_profile(
    "search",
    derandomize=False,
    database=hypothesis.database.DirectoryBasedExampleDatabase(
        pathlib.Path(__file__).parent.parent / ".hypothesis" / "examples"
    ),
    deadline=None,
    max_examples=2000,
)
hypothesis.settings.load_profile("same")


def pytest_configure(config):
    """Adds up what the tests cost."""
    config.pluginmanager.register(budget.Costs())


def pytest_collection_finish(session):
    """Leaves what was imported, TensorFlow first, to no garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers(config):
    """Returns how many processes `-n auto` starts."""
    is_quick = "not slow" in config.option.markexpr
    each = _BYTES_A_PROCESS if is_quick else _BYTES_A_SLOW_PROCESS
    room = int(psutil.virtual_memory().available // each)
    return max(1, min(cores.num_available(), room))


@pytest.fixture()
def eagerly():
    """Runs functions without tracing, for what they compute: `contracts` compares compiled ones."""
    from tests import eager  # TensorFlow: not where no test needs it.

    with eager.running():
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Makes a skipped test a failed one under MOTLEY_NO_SKIPS, where all that tests need is there.

    Real data alone may be missing: they belong to no checkout.
    """
    report = (yield).get_result()
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("MOTLEY_NO_SKIPS"):
        reason = str(report.longrepr[2])
        if programs.DATA.is_dir() or "no real data" not in reason:
            report.outcome, report.longrepr = "failed", f"skipped: {reason}"
