"""What the tests cost: the dearest files are printed, and in CI the sum has a limit.

The cost is CPU seconds, those of child processes included. A machine's speed does not matter: the
limit is a multiple of what a fixed piece of work costs, which every test process does, too.
"""

import collections
import os

import psutil
import pytest

# Set by .ci/run: how many times the fixed work the tests may cost. A third more is a failure.
_BUDGET = float(os.environ.get("MOTLEY_TEST_BUDGET", "inf"))
_TOLERANCE = 4 / 3
_NUM_SHOWN = 10
_START, _WORK = "(start, imports, collection)", "(fixed work)"


class Costs:
    """Adds up the CPU seconds of each test file, here or as other test processes report them."""

    def __init__(self):
        self._costs, self._num_processes = collections.Counter(), 0
        self._before = 0.0  # What had been used when the present file began.

    def pytest_collection_finish(self, session):
        """Ends the start; does the fixed work, in as many processes at a time as the tests."""
        self._add(_START)
        if float("inf") > _BUDGET and not _has_workers(session.config):
            _work()
            self._add(_WORK)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        """Adds a file's cost after its last test."""
        yield
        if nextitem is None or nextitem.path != item.path:
            self._add(item.nodeid.partition("::")[0])

    def _add(self, name):
        before, self._before = self._before, _seconds()
        self._costs[name] += self._before - before

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Adds what another process reports."""
        self._costs.update(getattr(node, "workeroutput", {}).get("costs", {}))
        self._num_processes += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        """Reports to the process that began this one. There, a run that cost too much fails."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["costs"] = dict(self._costs)
        elif self._multiple > _BUDGET * _TOLERANCE:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        """Prints the sum and the dearest files."""
        work = self._costs.pop(_WORK, 0.0)
        terminalreporter.section(f"{self._costs.total():.0f} CPU seconds; the dearest files")
        for name, cost in self._costs.most_common(_NUM_SHOWN):
            terminalreporter.line(f"{cost:8.1f} s  {name}")
        if work:
            self._costs[_WORK] = work
            terminalreporter.line(
                f"That is {self._multiple:.0f} times the fixed work. The budget is {_BUDGET:g} "
                "times, and a third more is a failure: make tests cheaper (CONTRIBUTING.md)."
            )

    @property
    def _multiple(self):
        """The cost of all tests over that of the fixed work in one process; 0 without it."""
        work = self._costs[_WORK] / max(1, self._num_processes)
        return (self._costs.total() - self._costs[_WORK]) / work if work else 0.0


def _has_workers(config):
    """Returns whether other processes than this one run the tests."""
    return bool(config.option.numprocesses) and not hasattr(config, "workeroutput")


def _seconds():
    """Returns the CPU seconds that this process has used, and its children, dead or alive."""
    of = os.times()
    used = of.user + of.system + of.children_user + of.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            used += sum(child.cpu_times()[:4])  # The last two are of its own children.
        except psutil.Error:
            continue  # It has ended since it was listed.
    return used


def _work():
    """Does about what tests do: traces, computes, and interprets, in a few seconds."""
    import tensorflow as tf  # Not where nothing is measured.

    def steps(weights):
        for _ in range(60):
            weights = tf.tanh(weights @ weights) - 0.1 * tf.reduce_sum(weights, 0)
        return weights

    for size in range(10, 90, 10):
        traced = tf.function(steps, autograph=False)
        for _ in range(20):
            traced(tf.ones([size, size]))
    sum(len(str(number)) for number in range(2_000_000))
