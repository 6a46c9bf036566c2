"""What a person sees: a progress bar on a terminal, plain lines in a log, a closing table."""

import contextlib
import math
import shutil
import sys
import time
import types
from collections.abc import Mapping, Sequence

import tqdm

from motley_tff import commandline
from motley_tff.files import text_tables

# A log file gets a stage's first line after so many seconds, then at most one every so many.
_SECONDS_TO_FIRST_LINE, _SECONDS_BETWEEN_LINES = 2.0, 30.0
# What a bar counts in stages that do not count clients.
_UNITS = {"train": "round", "score": "set", "critics": "critic"}
# How many of the clients that are worse off the closing sentence names.
_NAMED_CLIENTS = 5
_NO_ERROR = 1e-6  # Cells have nine digits.
_HURT = "% hurt (95% interval)"


class TerminalProgress:
    """Shows a run's stages on stderr; an evaluation inside training has a bar of its own.

    `opening` is a line that says what the program is doing. A terminal gets it at once. A log gets
    it with the first stage, so that an error found before that is one line.
    """

    def __init__(self, opening: str = "") -> None:
        self._stages: list[_Bar | _Lines] = []
        self._opening = opening
        if sys.stderr.isatty():
            self._open()

    def _open(self) -> None:
        if self._opening:
            _write(self._opening)
            self._opening = ""

    def start(self, stage: str, total: int, done: int = 0) -> None:
        """Shows a new stage below the ones that are open."""
        self._open()
        if done:
            _write(f"{stage}: goes on after {done}/{total}")
        if not sys.stderr.isatty():
            self._stages.append(_Lines(stage, total, done))
            return
        depth, unit = len(self._stages), _UNITS.get(stage, "client")
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
        self._next_line = time.monotonic() + _SECONDS_TO_FIRST_LINE
        # When the first steps were done, which also compile what the others run, and how many.
        self._first: tuple[float, int] | None = None
        self._facts: Mapping[str, str] = {}

    def advance(self, steps: int, facts: Mapping[str, str]) -> None:
        now = time.monotonic()
        self._done += steps
        self._facts = facts or self._facts
        if self._first is None:
            self._first = now, self._done
        elif now > self._next_line:
            self._write(self._estimate(now, *self._first))
            self._next_line = now + _SECONDS_BETWEEN_LINES

    def _estimate(self, now: float, start: float, done_then: int) -> str:
        if self._done == self._total:
            return ""
        left = (now - start) / (self._done - done_then) * (self._total - self._done)
        return f", about {_duration(left)} left"

    def _write(self, estimate: str = "") -> None:
        facts = "".join(f", {name} {value}" for name, value in self._facts.items())
        with contextlib.suppress(OSError):  # A log that cannot be written ends no run.
            sys.stderr.write(f"{self._stage}: {self._done}/{self._total}{facts}{estimate}\n")
            sys.stderr.flush()

    close = _write


def _duration(seconds: float) -> str:
    """Returns a time in the unit in which people say it."""
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


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
    sentences: Sequence[str] = (),
    constants: Mapping[str, Mapping[str, float]] = types.MappingProxyType({}),
) -> None:
    """Prints the closing table, of rows of `summary.csv` and of constants by their name and split,
    warnings, sentences, and where the files are.
    """
    print(f"\n{metric}, mean and std over clients; backend: {backend}\n")
    columns = ("split", "clients", "candidate", "baseline", "personalized", _HURT)
    _print_table([columns, *map(_summary_cells, rows)])
    if constants:
        splits = [row["split"] for row in rows]
        cells = [[name, *_constant_cells(values, splits)] for name, values in constants.items()]
        print()
        _print_table([["without a model", *splits], *cells])
    for warning in warnings:
        print(f"\nwarning: {warning}")
    for sentence in sentences:
        print(f"\n{sentence}")
    print("", *paths, sep="\n", flush=True)


def _print_table(cells: Sequence[Sequence[str]]) -> None:
    for line in text_tables.aligned(cells, gap="   "):
        print(f"  {line}")


def _constant_cells(values: Mapping[str, float], splits: Sequence[str]) -> list[str]:
    return [f"{values[split]:.5g}" if split in values else "-" for split in splits]


def hurt_clients(rows: Sequence[Mapping[str, str]], reason: str = "") -> str:
    """Returns a sentence on who is worse off with their own model, of test clients' rows of
    `clients.csv`: the share, and the clients that lose most; or, where nobody's value changed, that
    and the reason.
    """
    rows = [row for row in rows if row["is_hurt"]]  # Others are unscored.
    if not rows:
        return ""
    if nobody_changed(rows):
        return (
            f"no test client's value changed (of {len(rows)}): with their own model they are where "
            f"they are with the global one{reason and f'; {reason}'}"
        )
    hurt = sorted((row for row in rows if row["is_hurt"] == "1"), key=_gain)
    share = f"{100 * len(hurt) / len(rows):.1f}% of the test clients ({len(hurt)} of {len(rows)})"
    if not hurt:
        return f"{share} are worse off with their own model"
    listed = ", ".join(row["client_id"].partition(":")[2] for row in hurt[:_NAMED_CLIENTS])
    more = f" and {len(hurt) - _NAMED_CLIENTS} more" if len(hurt) > _NAMED_CLIENTS else ""
    return (
        f"{share} are worse off with their own model, those that lose most first: {listed}{more}; "
        "is_hurt in clients.csv has all"
    )


def nobody_changed(rows: Sequence[Mapping[str, str]]) -> bool:
    """Returns whether all clients that are scored have the same value under both models."""
    return all(row["baseline"] == row["personalized"] != "" for row in rows if row["is_hurt"])


def _gain(row: Mapping[str, str]) -> float:
    return float(row["delta"] or "-inf")  # An empty cell: the personalized model diverged.


def worse_than_nothing(
    rows: Sequence[Mapping[str, str]],
    metric: str,
    higher_is_better: bool,
    constant: Mapping[str, float],
    own: Mapping[str, Mapping[str, float]] = types.MappingProxyType({}),
) -> list[str]:
    """Returns a warning for each model that is no better on test clients than predicting nothing.

    Of rows of `summary.csv`, and what `experiment.constant_prediction` found, by split. Clients'
    own models are compared with clients' own constants, where these are the better ones.
    """
    warnings = []
    for row in (row for row in rows if row["split"] == "test"):
        shared = (
            [(constant["test"], "one constant for every example")] if "test" in constant else []
        )
        if row.get("reference_mean"):
            shared = [(float(row["reference_mean"]), "a client's own most frequent word")]
        owns = [(v["test"], f"each client's {name}") for name, v in own.items() if "test" in v]
        is_untrained = row.get("round") == "0" and row.get("algorithm") == "local"
        models = [("the personalized model", "personalized_mean", [*shared, *owns])]
        if not is_untrained:  # Nobody expects anything of an untrained model.
            models.insert(0, ("the global model", "baseline_mean", shared))
        for model, column, nothings in models:
            if nothings:
                nothing, kind = (max if higher_is_better else min)(nothings)
                value = float(row[column] or "nan")  # An empty cell is a mean that is not finite.
                if than := _compared(value, nothing, higher_is_better):
                    warnings.append(
                        f"{model} ({metric} {value:.4g}) is {than} than predicting nothing "
                        f"({nothing:.4g}: {kind}); try other learning rates or more rounds"
                    )
    return warnings


def _compared(value: float, nothing: float, higher_is_better: bool) -> str:
    """Returns in which way a value is not above that of predicting nothing, or an empty string: of
    a model without an error, too, where nothing is as good.
    """
    if nothing == float(higher_is_better) and abs(value - nothing) < _NO_ERROR:
        return ""
    if math.isclose(value, nothing, rel_tol=_NO_ERROR):  # On either side.
        return "no better"
    return "" if (value > nothing if higher_is_better else value < nothing) else "worse"


def values_that_do_not_exist(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns a line for clients without a score, and for models that diverged, of each row of
    `summary.csv` that has some.
    """
    lines = []
    for row in rows:
        split, number = row["split"], row["num_clients"]
        if int(row.get("num_unscored") or 0):
            lines.append(
                f"{row['num_unscored']} of {number} {split} clients have nothing to be scored on; "
                "they are in no mean, no choice and no share (num_unscored)"
            )
        for column, model in (("baseline_num_diverged", "global"), ("num_diverged", "own")):
            if int(row.get(column) or 0):
                lines.append(
                    f"the {model} model diverged for {row[column]} of {number} {split} clients; "
                    f"the mean is over the others ({column}). Lower the learning rates"
                )
        if split == "valid" and row.get("diverged_candidates"):
            labels = ", ".join(row["diverged_candidates"].split(" "))
            lines.append(
                f"candidates that diverged for some validation client: {labels}; they are not "
                "chosen for all while another is left"
            )
    return lines


def _summary_cells(row: Mapping[str, str]) -> tuple[str, ...]:
    def mean_and_std(which: str) -> str:
        mean, std = row[f"{which}_mean"], row[f"{which}_std"]
        return f"{float(mean):.5g} ± {float(std):.3g}" if mean and std else "-"

    models = map(mean_and_std, ("baseline", "personalized"))
    hurt = f"{float(row['pct_clients_hurt']):.1f}" if row["pct_clients_hurt"] else "-"
    ends = [row.get(f"pct_clients_hurt_{end}") for end in ("low", "high")]
    if all(ends):  # Earlier versions wrote none.
        hurt += " ({:.1f} to {:.1f})".format(*map(float, filter(None, ends)))
    return (row["split"], row["num_clients"], row["candidate"], *models, hurt)
