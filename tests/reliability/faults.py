"""Lets everything happen to runs that may: full disks, jumping clocks, closed streams, no memory.

    python -m tests.reliability.faults --only=disk,clock

Each fault happens to one run. Its exit status and what it says are looked at, its files must be
whole, and once the fault is mended the same command must go on and end with the files of a run that
nobody disturbed. The table at the end is Markdown.
"""

import pathlib
import shutil
import sys
import tempfile

from absl import flags

from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import text_tables
from tests.reliability import disturbances, verdicts

FLAGS = flags.FLAGS

flags.DEFINE_list("only", [], "Words of which one must be in a fault's name.")

_HEADER = ["fault", "backend", "exit status", "survived", "what stderr says"]
_MOST_SAID = 160


def _cells(verdict: verdicts.Verdict) -> list[str]:
    fault = verdict.fault
    if verdict.skipped:
        return [fault.name, fault.backend, "-", "skipped", verdict.skipped]
    survived = "no" if verdict.wrong else "yes"
    return [fault.name, fault.backend, str(verdict.status), survived, verdict.said[:_MOST_SAID]]


def _chosen() -> list[disturbances.Fault]:
    words = FLAGS.only or [""]
    chosen = [f for f in disturbances.FAULTS if any(word in f.name for word in words)]
    if not chosen:
        names = ", ".join(fault.name for fault in disturbances.FAULTS)
        raise UserError(f"--only={','.join(words)} names no fault; there are {names}")
    return chosen


def main() -> int:
    """Lets the faults happen; returns 1 if something did not survive."""
    judged: list[verdicts.Verdict] = []
    folder = pathlib.Path(tempfile.mkdtemp(prefix="faults_"))
    court = verdicts.Court(folder)
    for number, fault in enumerate(chosen := _chosen(), 1):
        judged.append(court.judge(fault))
        line = f"{number}/{len(chosen)} {fault.name}: {_cells(judged[-1])[3]}"
        print(line, *judged[-1].wrong, sep="\n  ", file=sys.stderr, flush=True)
    print(*text_tables.markdown([_HEADER, *map(_cells, judged)]), sep="\n")
    if wrong := [f"{each.fault.name}: {problem}" for each in judged for problem in each.wrong]:
        print("", *wrong, f"files are in {folder}", sep="\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    commandline.run_main(main)
