"""Faults that take seconds to happen; `faults` has all of them."""

import pytest

from tests.reliability import disturbances, verdicts

_SHORT = ("disk that fills in round_00000002.npz", "stdout's reader left")


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    return verdicts.Court(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
@pytest.mark.parametrize("name", _SHORT)
def test_a_run_survives(court, name):
    (fault,) = (fault for fault in disturbances.FAULTS if fault.name == name)
    verdict = court.judge(fault)
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert not verdict.wrong
