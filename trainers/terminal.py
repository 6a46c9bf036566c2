"""What a person sees: a progress bar on a terminal, plain lines in a log, a closing table."""

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

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
        kind: type[_Bar | _Lines] = _Bar if sys.stderr.isatty() else _Lines
        self._stages.append(kind(stage, total, done, len(self._stages)))

    def advance(self, steps: int = 1, **facts: float) -> None:
        """Moves the innermost stage on, or ends the program if a signal asked for it."""
        commandline.raise_if_ended()
        self._stages[-1].advance(steps, facts)

    def finish(self) -> None:
        """Closes the innermost stage."""
        self._stages.pop().close()


class _Bar:
    def __init__(self, stage: str, total: int, done: int, depth: int):
        unit = "round" if stage == "train" else "client"
        self._bar = tqdm.tqdm(
            desc=stage, total=total, initial=done, unit=unit, leave=depth == 0, position=depth,
            ncols=shutil.get_terminal_size().columns,  # 80 where a terminal does not say.
        )  # fmt: skip

    def advance(self, steps: int, facts: Mapping[str, float]) -> None:
        if facts:
            self._bar.set_postfix({k: f"{v:.4g}" for k, v in facts.items()}, refresh=False)
        self._bar.update(steps)

    def close(self) -> None:
        self._bar.close()


class _Lines:
    def __init__(self, stage: str, total: int, done: int, depth: int):
        del depth
        self._stage, self._total, self._done = stage, total, done
        self._last = time.monotonic()
        self._facts: Mapping[str, float] = {}

    def advance(self, steps: int, facts: Mapping[str, float]) -> None:
        self._done += steps
        self._facts = facts or self._facts
        if time.monotonic() - self._last > _SECONDS_BETWEEN_LINES:
            self._say()

    def _say(self) -> None:
        facts = "".join(f", {k} {v:.4g}" for k, v in self._facts.items())
        with contextlib.suppress(OSError):  # A log that cannot be written ends no run.
            sys.stderr.write(f"{self._stage}: {self._done}/{self._total}{facts}\n")
            sys.stderr.flush()
        self._last = time.monotonic()

    def close(self) -> None:
        self._say()


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
    """Prints the closing table of a run and where its files are.

    Args:
      rows: Rows of `summary.csv`.
      metric: What mean and std are of.
      backend: Which backend ran and why.
      paths: The files.
      warnings: What to say below the table.
    """
    sys.stdout.write(f"\n{metric}, mean and std over clients; backend: {backend}\n\n")
    columns = ("split", "clients", "candidate", "baseline", "personalized", "% hurt")
    table = [columns, *(_summary_cells(row) for row in rows)]
    for line in text_tables.aligned(table, gap="   "):
        sys.stdout.write(f"  {line}\n")
    for warning in (*_collapsed(rows), *warnings):
        sys.stdout.write(f"\nwarning: {warning}\n")
    sys.stdout.write("\n" + "".join(f"{path}\n" for path in paths))
    sys.stdout.flush()


def _collapsed(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yields a warning where the test clients are in one cluster."""
    for row in rows:
        share = float(row.get("largest_cluster_pct") or 0)
        if row["split"] == "test" and share >= _COLLAPSED_PCT:
            yield (
                f"{share:.0f}% of the test clients are in one cluster (mode collapse); see "
                "--num_warmstart_fedavg_rounds, --cluster_initialization=updates and --balance"
            )


def worse_than_nothing(
    rows: Sequence[Mapping[str, str]],
    metric: str,
    higher_is_better: bool,
    constant: Mapping[str, float],
) -> list[str]:
    """Returns a warning for each model that is worse on test clients than predicting nothing.

    Args:
      rows: Rows of `summary.csv`.
      metric: The reported metric.
      higher_is_better: Its direction.
      constant: What `experiment.constant_prediction` found, by split.
    """
    warnings = []
    names = {"baseline_mean": "the global model", "personalized_mean": "the personalized model"}
    for row in (row for row in rows if row["split"] == "test"):
        nothing, what = constant.get("test"), "one constant for every example"
        if row.get("reference_mean"):
            nothing, what = float(row["reference_mean"]), "a client's own most frequent word"
        for column, name in names.items():
            is_untrained = row.get("round") == "0" and row.get("algorithm") == "local"
            if column == "baseline_mean" and is_untrained:
                continue  # Nobody expects anything of an untrained model.
            value = float(row[column] or "nan")  # An empty cell is a mean that is not finite.
            is_as_good = nothing is None or (
                value >= nothing if higher_is_better else value <= nothing
            )
            if not is_as_good:
                warnings.append(
                    f"{name} ({metric} {value:.4g}) is worse than predicting nothing "
                    f"({nothing:.4g}: {what})"
                )
    return warnings


def _summary_cells(row: Mapping[str, str]) -> tuple[str, ...]:
    def mean_and_std(which: str) -> str:
        mean, std = row[f"{which}_mean"], row[f"{which}_std"]
        return f"{float(mean):.5g} ± {float(std):.3g}" if mean and std else "-"

    return (
        row["split"],
        row["num_clients"],
        row["candidate"],
        mean_and_std("baseline"),
        mean_and_std("personalized"),
        f"{float(row['pct_clients_hurt']):.1f}",
    )
