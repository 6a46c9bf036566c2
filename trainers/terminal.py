"""What a person sees: a progress bar on a terminal, plain lines in a log, a closing table."""

import contextlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence

import tqdm

from motley_tff import commandline
from motley_tff.files import text_tables

# In a log file, at most a line every so many seconds.
_SECONDS_BETWEEN_LINES = 30.0
# From here on one cluster has, as good as, all clients.
_COLLAPSED_PCT = 95.0


class TerminalProgress:
    """Shows a run's stages on stderr; an evaluation inside training has a bar of its own."""

    def __init__(self) -> None:
        self._stages: list[_Bar | _Lines] = []

    def start(self, stage: str, total: int, done: int = 0) -> None:
        """Shows a new stage below the ones that are open."""
        if done:
            _write(f"{stage}: goes on after {done}/{total}")
        if not sys.stderr.isatty():
            self._stages.append(_Lines(stage, total, done))
            return
        depth, unit = len(self._stages), "round" if stage == "train" else "client"
        self._stages.append(_Bar(
            desc=stage, total=total, initial=done, unit=unit, leave=depth == 0, position=depth,
            ncols=shutil.get_terminal_size().columns,  # 80 where a terminal does not say.
        ))  # fmt: skip

    def advance(self, steps: int = 1, **facts: float) -> None:
        """Moves the innermost stage on, or ends the program if a signal asked for it."""
        commandline.raise_if_ended()
        self._stages[-1].advance(steps, {k: f"{v:.4g}" for k, v in facts.items()})

    def finish(self) -> None:
        """Closes the innermost stage."""
        self._stages.pop().close()


class _Bar(tqdm.tqdm):
    def advance(self, steps: int, facts: Mapping[str, str]) -> None:
        if facts:
            self.set_postfix(facts, refresh=False)
        self.update(steps)


class _Lines:
    def __init__(self, stage: str, total: int, done: int):
        self._stage, self._total, self._done = stage, total, done
        self._last = time.monotonic()
        self._facts: Mapping[str, str] = {}

    def advance(self, steps: int, facts: Mapping[str, str]) -> None:
        self._done += steps
        self._facts = facts or self._facts
        if time.monotonic() - self._last > _SECONDS_BETWEEN_LINES:
            self._say()
            self._last = time.monotonic()

    def _say(self) -> None:
        facts = "".join(f", {name} {value}" for name, value in self._facts.items())
        with contextlib.suppress(OSError):  # A log that cannot be written ends no run.
            sys.stderr.write(f"{self._stage}: {self._done}/{self._total}{facts}\n")
            sys.stderr.flush()

    close = _say


def warn(message: str) -> None:
    """Warns on stderr, above the bars."""
    _write(f"warning: {message}")


def _write(line: str) -> None:
    with contextlib.suppress(OSError):
        tqdm.tqdm.write(line, file=sys.stderr)


def print_summary(
    rows: Sequence[Mapping[str, str]],
    metric: str,
    backend: str,
    paths: Sequence[object],
    warnings: Sequence[str] = (),
) -> None:
    """Prints the closing table, of rows of `summary.csv`, warnings, and where the files are."""
    print(f"\n{metric}, mean and std over clients; backend: {backend}\n")
    columns = ("split", "clients", "candidate", "baseline", "personalized", "% hurt")
    for line in text_tables.aligned([columns, *map(_summary_cells, rows)], gap="   "):
        print(f"  {line}")
    for row in rows:
        share = float(row.get("largest_cluster_pct") or 0)
        if row["split"] == "test" and share >= _COLLAPSED_PCT:
            print(
                f"\nwarning: {share:.0f}% of the test clients are in one cluster (mode collapse); "
                "see --num_warmstart_fedavg_rounds, --cluster_initialization=updates and --balance"
            )
    for warning in warnings:
        print(f"\nwarning: {warning}")
    print("", *paths, sep="\n", flush=True)


def worse_than_nothing(
    rows: Sequence[Mapping[str, str]],
    metric: str,
    higher_is_better: bool,
    constant: Mapping[str, float],
) -> list[str]:
    """Returns a warning for each model that is worse on test clients than predicting nothing.

    Of rows of `summary.csv`, and what `experiment.constant_prediction` found, by split.
    """
    warnings = []
    names = {"baseline_mean": "the global model", "personalized_mean": "the personalized model"}
    for row in (row for row in rows if row["split"] == "test"):
        nothing, what = constant.get("test"), "one constant for every example"
        if row.get("reference_mean"):
            nothing, what = float(row["reference_mean"]), "a client's own most frequent word"
        for column, name in names.items():
            is_untrained = row.get("round") == "0" and row.get("algorithm") == "local"
            if nothing is None or (column == "baseline_mean" and is_untrained):
                continue  # Nobody expects anything of an untrained model.
            value = float(row[column] or "nan")  # An empty cell is a mean that is not finite.
            if not (value >= nothing if higher_is_better else value <= nothing):
                warnings.append(
                    f"{name} ({metric} {value:.4g}) is worse than predicting nothing "
                    f"({nothing:.4g}: {what})"
                )
    return warnings


def _summary_cells(row: Mapping[str, str]) -> tuple[str, ...]:
    def mean_and_std(which: str) -> str:
        mean, std = row[f"{which}_mean"], row[f"{which}_std"]
        return f"{float(mean):.5g} ± {float(std):.3g}" if mean and std else "-"

    models = map(mean_and_std, ("baseline", "personalized"))
    hurt = f"{float(row['pct_clients_hurt']):.1f}"
    return (row["split"], row["num_clients"], row["candidate"], *models, hurt)
