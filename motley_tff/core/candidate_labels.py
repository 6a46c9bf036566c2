"""Labels of candidates in tables: made where candidates are scored, read where they are drawn.

| candidates | labels |
|---|---|
| the global model | `0` |
| fine-tuning, one rate | `1`, `2`, ...: epochs |
| fine-tuning, several rates | `lr0.01_epoch3` |
| PersFL, several weights or temperatures | `w0.5_t3_epoch2` |
| kNN-Per, one number of neighbours | `c0.5`: the coefficient |
| kNN-Per, several | `k10_c0.5` |
| a silo's own model | `personal` |
| a client's cluster | `chosen` |
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

BASELINE = "0"
PERSONAL = (BASELINE, "personal")
CLUSTER = (BASELINE, "chosen")
Kind = Literal["rate", "epoch", "neighbors", "coefficient"]
_NUMBER = r"[-+.\de]+"
_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "rate": re.compile(rf"lr({_NUMBER})_epoch\d+"),
    "epoch": re.compile(rf"(?:(?:lr{_NUMBER}|w{_NUMBER}_t{_NUMBER})_epoch)?(\d+)"),
    "neighbors": re.compile(rf"k(\d+)_c{_NUMBER}"),
    "coefficient": re.compile(rf"(?:k\d+_)?c({_NUMBER})"),
}


def of_epochs(learning_rates: Sequence[float], max_epochs: int) -> tuple[str, ...]:
    """Returns the labels of fine-tuning's candidates."""
    return _labels([f"lr{rate!r}_epoch" for rate in learning_rates], range(1, max_epochs + 1))


def of_students(pairs: Sequence[tuple[float, float]], max_epochs: int) -> tuple[str, ...]:
    """Returns the labels of PersFL's candidates, of pairs of a weight and a temperature."""
    return _labels([f"w{w:g}_t{t:g}_epoch" for w, t in pairs], range(1, max_epochs + 1))


def of_neighbors(num_neighbors: Sequence[int], coefficients: Sequence[float]) -> tuple[str, ...]:
    """Returns the labels of kNN-Per's candidates."""
    return _labels([f"k{k}_" for k in num_neighbors], [f"c{c:g}" for c in coefficients])


def _labels(firsts: Sequence[str], seconds: Iterable[object]) -> tuple[str, ...]:
    """Returns the baseline's label and those of all pairs; a single first one is not named."""
    shown = firsts if len(firsts) > 1 else [""]
    return (BASELINE, *(f"{first}{second}" for first in shown for second in seconds))


def of_clients(different: Sequence[str]) -> str:
    """Returns the label that all clients have, or `per_client`, from those that any has."""
    return str(different[0]) if len(different) == 1 else "per_client"


def value(label: str, kind: Kind) -> float | None:
    """Returns a candidate's rate, epoch, neighbours or coefficient; None of the baseline, or
    without such.
    """
    match = _PATTERNS[kind].fullmatch(label)
    return float(match[1]) if match and label != BASELINE else None
