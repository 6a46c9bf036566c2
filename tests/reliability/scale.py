"""A run over as many clients as StackOverflow has, killed in the middle of its last evaluation.

    python -m tests.reliability.scale
    python -m tests.reliability.scale --train_clients=3000 --test_clients=1500 --compare

Clients are made from their ids, few examples each, so that their number is what counts. Says how
memory went while clients were evaluated, and checks that a run that goes on keeps what was scored
and leaves all rows; with --compare, that they are those of a run that was not killed.
"""

import argparse
import csv
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil

from tests.trainers import programs

_COHORT = 100
_MEGABYTE = 1e6
_BLOCKS = "evaluation/round_*.npz"
_TABLES = ("candidates", "clients", "rounds", "summary")


def run(directory: pathlib.Path, sizes: argparse.Namespace) -> None:
    """Trains two rounds and evaluates everybody, as a trainer does."""
    from launch.benchmarks import population
    from motley_tff.algorithms import FedAvg, FineTuning, optimizers
    from motley_tff.backends import sequential
    from motley_tff.experiment import experiment, run_directory
    from motley_tff.experiment.config import LoopConfig
    from trainers import terminal

    own = run_directory.RunDirectory(str(directory.parent), directory.name, {})
    own.write_record(status="running")
    # Few examples each; of sizes the benchmark has those of real data.
    numbers = (sizes.train_clients, sizes.valid_clients, sizes.test_clients)
    task = population.create_task(*(1 + np.arange(number) % 7 for number in numbers))
    rate = optimizers.OptimizerConfig("sgd", 0.01)
    params = FedAvg(rate, optimizers.OptimizerConfig("sgd", 1.0), train_batch_size=4)
    experiment.Experiment(
        LoopConfig(total_rounds=2, clients_per_train_round=_COHORT),
        task,
        params.build(task, task.model.initial_weights(0)),
        FineTuning(rate, (0.01,), 2, 4).build(task),
        sequential.SequentialBackend(),
        own,
        "fedavg+finetuning",
        terminal.TerminalProgress(),
    ).run()


class Watched:
    """A run in a process of its own whose memory and finished blocks are looked at.

    Attributes:
      memory: `(finished blocks, resident bytes)` as time went on.
    """

    def __init__(self, directory: pathlib.Path, arguments: list[str]):
        self._directory = directory
        command = [sys.executable, "-m", __spec__.name, f"--run={directory}", *arguments]
        self._process = subprocess.Popen(command, env=programs.environment())
        self.memory: list[tuple[int, int]] = []

    def wait(self, kill_after_blocks: int | None = None) -> None:
        """Waits for its end, or kills it with so many blocks done."""
        seen = psutil.Process(self._process.pid)
        while self._process.poll() is None:
            blocks = sum(1 for _ in self._directory.glob(_BLOCKS))
            try:
                self.memory.append((blocks, seen.memory_info().rss))
            except psutil.Error:
                break
            if kill_after_blocks is not None and blocks >= kill_after_blocks:
                self._process.kill()
            time.sleep(0.05)
        status = self._process.wait()
        if status != (0 if kill_after_blocks is None else -signal.SIGKILL):
            raise SystemExit(f"the run ended with status {status}")


def finished_blocks(directory: pathlib.Path) -> dict[str, int]:
    """Returns when each finished block was written, in nanoseconds."""
    return {path.name: path.stat().st_mtime_ns for path in directory.glob(_BLOCKS)}


def row_counts(directory: pathlib.Path) -> dict[str, int]:
    """Returns the number of rows of each table."""
    counts = {}
    for name in _TABLES:
        with open(directory / f"{name}.csv", encoding="utf-8", newline="") as file:
            counts[name] = sum(1 for _ in csv.reader(file)) - 1
    return counts


def _kill_and_go_on(directory, arguments, num_blocks, shares) -> list[Watched]:
    """Kills a run with these shares of its blocks done, one after the other, and lets it end."""
    watched = []
    for share in shares:
        before = finished_blocks(directory)
        watched.append(Watched(directory, arguments))
        watched[-1].wait(kill_after_blocks=int(share * num_blocks))
        after = finished_blocks(directory)
        if before.items() - after.items():
            raise SystemExit("blocks that were finished were scored again")
        if not after:
            raise SystemExit("killed before a block was finished, or after the tables were whole")
        print(f"killed with {len(after)} of {num_blocks} blocks done", flush=True)
    watched.append(Watched(directory, arguments))
    watched[-1].wait()
    return watched


def _report(sizes: argparse.Namespace, watched: list[Watched], directory: pathlib.Path) -> None:
    memory = [entry for one in watched for entry in one.memory]
    evaluating = [rss for one in watched for blocks, rss in one.memory if blocks]
    most = max(blocks for blocks, _ in memory)
    early = [rss for blocks, rss in watched[0].memory if 0 < blocks <= max(2, most // 20)]
    late = [rss for blocks, rss in watched[-1].memory if blocks >= 0.95 * most]
    rows = ", ".join(f"{number:,} {name}" for name, number in row_counts(directory).items())
    print(f"| training, validation, test clients | {sizes.train_clients:,}, "
          f"{sizes.valid_clients:,}, {sizes.test_clients:,} |")  # fmt: skip
    print(f"| killed in the evaluation, went on | {len(watched) - 1} times |")
    print(f"| resident with the first blocks, the last, most while evaluating | "
          f"{max(early) / _MEGABYTE:,.0f}, {max(late) / _MEGABYTE:,.0f}, "
          f"{max(evaluating) / _MEGABYTE:,.0f} MB |")  # fmt: skip
    print(f"| most in all, tables written | {max(r for _, r in memory) / _MEGABYTE:,.0f} MB |")
    print(f"| rows | {rows} |", flush=True)


def main() -> None:
    """Runs, kills, looks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train_clients", type=int, default=342_477)
    parser.add_argument("--valid_clients", type=int, default=38_758)
    parser.add_argument("--test_clients", type=int, default=204_088)
    parser.add_argument("--compare", action="store_true", help="with a run that is not killed")
    parser.add_argument("--run", type=pathlib.Path, help=argparse.SUPPRESS)
    sizes = parser.parse_args()
    if sizes.run:
        run(sizes.run, sizes)
        return
    arguments = [f"--{name}={getattr(sizes, name)}" for name in
                 ("train_clients", "valid_clients", "test_clients")]  # fmt: skip
    with tempfile.TemporaryDirectory() as root:
        directory = pathlib.Path(root) / "killed" / "run"
        check(sizes, arguments, directory)
        if sizes.compare:
            whole = pathlib.Path(root) / "whole" / "run"
            Watched(whole, arguments).wait()
            programs.same_tables(directory, whole)
            print("| tables | those of a run that was not killed |")


def check(sizes: argparse.Namespace, arguments: list[str], directory: pathlib.Path) -> None:
    """Kills a run twice, lets it end, and looks at what it left."""
    from motley_tff.experiment import scoring

    num_blocks = sum(n // scoring.BLOCK for n in (sizes.valid_clients, sizes.test_clients))
    watched = _kill_and_go_on(directory, arguments, num_blocks, (0.4, 0.7))
    _report(sizes, watched, directory)
    if row_counts(directory)["clients"] != sizes.valid_clients + sizes.test_clients:
        raise SystemExit("clients.csv lacks clients")
    if (directory / "evaluation").exists():
        raise SystemExit("blocks were left behind")


if __name__ == "__main__":
    main()
