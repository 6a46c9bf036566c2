"""The same seed gives the same files: every trainer on every backend, on all cores and on one.

    python -m tests.reliability.determinism

Each run is repeated on one core, which changes how many clients it trains at once, while another
run goes on beside it. Its files must be those of the first, byte for byte, times aside. A task
whose model has convolutions and dropout stands beside the linear one. The table at the end is
Markdown.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Sequence

from absl import flags

from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import text_tables
from tests.reliability import trainer_runs

FLAGS = flags.FLAGS

flags.DEFINE_bool("writers", True, "Whether runs on synthetic writers (minutes) are among them.")

_WRITERS = (
    "--dataset_name=emnist",
    "--total_rounds=2",
    "--clients_per_train_round=3",
    "--final_evaluation_clients=3",
)
_OWN = {
    "finetuning_trainer": ("--finetune_max_epochs=1",),
    "hypcluster_trainer": ("--num_clusters=2", "--cluster_initialization=updates"),
    "knn_per_trainer": ("--num_neighbors=5", "--coefficients=0.3,1", "--knn_tuning=global"),
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two runs that must give the same."""

    setting: trainer_runs.Setting
    flags: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.setting}{', writers' if self.flags else ''}"

    def run(self, root: pathlib.Path, core: int | None = None) -> pathlib.Path:
        """Runs it, on one core if one is named; returns where its files are."""
        prefix = [] if core is None else ["taskset", "-c", str(core)]
        ending = trainer_runs.run([*prefix, *self.setting.command(root, *self.flags)])
        if ending.status:
            raise UserError(f"{self} ended with status {ending.status}: {ending.stderr}")
        return root / "run"


def _pairs() -> list[Pair]:
    pairs = [
        Pair(trainer_runs.Setting(trainer, backend))
        for trainer in trainer_runs.TRAINERS
        for backend in trainer_runs.BACKENDS
    ]
    if FLAGS.writers:
        pairs += [
            Pair(trainer_runs.Setting(trainer, backend), (*_WRITERS, *own))
            for trainer, own in _OWN.items()
            for backend in ("sequential", "tff")
        ]
    return pairs


def main() -> int:
    """Runs all pairs; returns 1 if two differ."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 or not shutil.which("taskset"):
        raise UserError("found one core or no taskset; expected two cores or more and util-linux")
    work = pathlib.Path(tempfile.mkdtemp(prefix="determinism_"))
    rows, failures = [["trainer and backend", "same on all cores and on one, beside another"]], []

    def on_one_core(number: int, pair: Pair) -> list[str]:
        first = pair.run(work / f"{number}" / "all")
        second = pair.run(work / f"{number}" / "one", cores[number % 2])
        found = trainer_runs.differences(first, second)
        print(f"{pair}: {', '.join(found) or 'the same'}", file=sys.stderr, flush=True)
        return [f"{pair}: {what}" for what in found]

    pairs = _pairs()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for pair, found in zip(pairs, pool.map(on_one_core, range(len(pairs)), pairs), strict=True):
            rows.append([str(pair), "no" if found else "yes"])
            failures += found
    print(*text_tables.markdown(rows), sep="\n")
    if failures:
        print("", *failures, sep="\n")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    commandline.run_main(main)
