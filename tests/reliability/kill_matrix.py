"""Kills every trainer on every backend at random moments and compares what it leaves.

    python -m tests.reliability.kill_matrix --kills=20 --jobs=1

A chain: a run is started, killed, started again on the same directory, killed again, until one
comes to its end; then its files must be those of a run that nobody disturbed. Half of the moments
are by time, half inside a write (see `killed_in_a_write`). SIGTERM and Ctrl-C come --signals times
each, and must end in their exit status and one line. After each of them all files must be whole and
all processes gone. The table at the end is Markdown.
"""

import concurrent.futures
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from absl import flags

from motley_tff import commandline
from motley_tff.files import text_tables
from tests.reliability import kills, trainer_runs

FLAGS = flags.FLAGS

flags.DEFINE_list("trainers", list(trainer_runs.TRAINERS), "Which trainers.")
flags.DEFINE_list("backends", list(trainer_runs.BACKENDS), "On which backends.")
flags.DEFINE_integer("kills", 20, "Kills of each trainer on each backend.", lower_bound=0)
flags.DEFINE_integer("signals", 4, "SIGTERMs, and Ctrl-Cs, of each.", lower_bound=0)
flags.DEFINE_integer("seed", 0, "Of the random moments.")
flags.DEFINE_integer("jobs", 1, "How many trainers run at once.", lower_bound=1)

_HEADER = [
    "trainer and backend", "SIGKILL by time", "SIGKILL in a write", "SIGTERM by time",
    "SIGTERM in a write", "Ctrl-C by time", "Ctrl-C in a write", "outside our handlers",
    "temporary file left", "resumed and compared", "minutes", "survived",
]  # fmt: skip


def _spend(setting: trainer_runs.Setting, work: pathlib.Path) -> tuple[list[str], list[str]]:
    """Spends all kills of one trainer on one backend; returns (its row, its failures)."""
    start = time.monotonic()
    folder = work / f"{setting.trainer}_{setting.backend}"
    folder.mkdir()
    matrix = kills.Matrix(setting, folder, random.Random(f"{FLAGS.seed} {setting}"))
    for line in matrix.spend(kills.kinds(FLAGS.kills, FLAGS.signals)):
        print(line, file=sys.stderr, flush=True)
    ways = (kills.Kind(number, write) for number in kills.STATUS for write in (False, True))
    numbers = (
        *(matrix.hits[way] for way in ways),
        matrix.outside,
        matrix.cut_files,
        matrix.compared,
    )
    minutes, survived = (time.monotonic() - start) / 60, "no" if matrix.failures else "yes"
    row = [str(setting), *map(str, numbers), f"{minutes:.1f}", survived]
    print(*row, sep=" | ", file=sys.stderr, flush=True)
    return row, matrix.failures


def main() -> int:
    """Runs the matrix; returns 1 if something did not survive."""
    settings = [trainer_runs.Setting(t, b) for t in FLAGS.trainers for b in FLAGS.backends]
    # Ignored where a shell started this in the background, and what this starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work = pathlib.Path(tempfile.mkdtemp(prefix="kill_matrix_"))
    with concurrent.futures.ThreadPoolExecutor(FLAGS.jobs) as pool:
        results = list(pool.map(lambda setting: _spend(setting, work), settings))
    print(*text_tables.markdown([_HEADER, *(row for row, _ in results)]), sep="\n")
    failures = [failure for _, own in results for failure in own]
    if failures:
        print("", *failures, sep="\n")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    commandline.run_main(main)
