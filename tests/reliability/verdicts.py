"""Whether a run survived what happened to it."""

import pathlib
import subprocess
from typing import NamedTuple

from tests.reliability import bench as bench_lib, disturbances, trainer_runs


class Verdict(NamedTuple):
    """What came of a fault.

    Attributes:
      fault: Which.
      status: Exit status of the run it happened to.
      said: What that run said on stderr, progress aside.
      wrong: What did not survive.
      skipped: Why it could not happen on this machine, if so.
    """

    fault: disturbances.Fault
    status: int = 0
    said: str = ""
    wrong: tuple[str, ...] = ()
    skipped: str = ""


class Court:
    """Lets faults happen, and compares what is left with undisturbed runs.

    Args:
      folder: Where; what did not survive stays there.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._undisturbed: dict[object, pathlib.Path] = {}

    def judge(self, fault: disturbances.Fault) -> Verdict:
        """Lets a fault happen, mends it, and has the run go on."""
        name = "".join(c if c.isalnum() else "_" for c in fault.name)
        bench = bench_lib.Bench(fault.setting, self._folder / name)
        with bench.stack:
            try:
                ending = fault.happen(bench)
            except bench_lib.UnavailableError as error:
                return Verdict(fault, skipped=str(error))
            except (OSError, AssertionError, subprocess.SubprocessError) as error:
                return Verdict(fault, wrong=(f"it did not happen: {error!r}",))
            wrong = _wrong_at_once(fault, ending, bench)
            resumed = bench.run()  # Where nothing is wrong any more.
            wrong += [f"no resume: {resumed}"] if resumed.status else []
            wrong += trainer_runs.differences(self._expected(bench), bench.directory)
        said = " / ".join(ending.messages).replace(f"{bench.root}/", "")
        return Verdict(fault, ending.status, said, tuple(wrong))

    def _expected(self, bench: bench_lib.Bench) -> pathlib.Path:
        """Returns the directory of an undisturbed run with the same flags."""
        known = (bench.setting, bench.flags)
        if known not in self._undisturbed:
            other = bench_lib.Bench(
                bench.setting, self._folder / f"undisturbed_{len(self._undisturbed)}"
            )
            other.flags = bench.flags
            ending = other.run()
            assert ending.status == 0, ending
            self._undisturbed[known] = other.directory
        return self._undisturbed[known]


def _wrong_at_once(
    fault: disturbances.Fault, ending: trainer_runs.Ending, bench: bench_lib.Bench
) -> list[str]:
    wrong = ending.outlived
    if ending.status not in fault.statuses:
        wrong.append(f"exit status {ending.status}, expected {fault.statuses}")
    expected = 1 if fault.words else 0
    is_right = len(ending.messages) == expected and fault.words in ending.stderr
    if not is_right and ending.status >= 0:  # Who was killed has no say in what is said.
        wrong.append(f"stderr says {ending.stderr[-2000:]!r}")
    return wrong + trainer_runs.damages(bench.directory)
