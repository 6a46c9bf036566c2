"""What a comparison says: `compare.csv`, `comparisons.csv`, `costs.csv`, the closing table and one
sentence.

All but `costs.csv` is a function of the runs' results, so a comparison that was cut and resumed
writes the same bytes.
"""

import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from launch.compare import collecting
from launch.compare.collecting import Outcome, Work
from launch.compare.methods import FEDAVG, FINETUNING, LOCAL
from launch.sweeps import results
from motley_tff.files import csv_files, text_tables
from motley_tff.metrics import paired_tests
from motley_tff.metrics.paired_tests import Aligned, PairedTest
from motley_tff.tables import columns as columns_lib

# Of p-values under Holm's correction.
_LEVEL = 0.05
_LISTED = 5
# What others are compared with, where they are compared at all.
REFERENCES = (FINETUNING, LOCAL)


class ComparedPair(NamedTuple):
    """A method beside a reference; `p_holm` is corrected for all pairs of the comparison."""

    method: Outcome
    reference: Outcome
    by_client: PairedTest
    by_seed: PairedTest
    p_holm: float


class ComparedMethods(NamedTuple):
    """Everything that is said.

    Attributes:
      outcomes: All methods, in their order.
      aligned: The pairs of client and seed that count, of the methods that have values.
      pairs: Methods beside each reference; a pair that stands twice, the other way round, is one
        test.
      num_tests: How many tests p-values are corrected for.
      seeds: The seeds.
      drawn_by_seed: Whether clients of one name are others under another seed.
    """

    outcomes: Sequence[Outcome]
    aligned: Aligned
    pairs: Sequence[ComparedPair]
    num_tests: int
    seeds: Sequence[int]
    drawn_by_seed: bool = False

    @property
    def compared(self) -> list[Outcome]:
        """The methods that have values."""
        return [o for o in self.outcomes if o.method.name in self.aligned.methods]

    def pair(self, method: str, reference: str) -> ComparedPair | None:
        """Returns a method beside a reference, None if they are not compared."""
        names = ((p.method.method.name, p.reference.method.name) for p in self.pairs)
        return dict(zip(names, self.pairs, strict=True)).get((method, reference))


def compare(
    outcomes: Sequence[Outcome], seeds: Sequence[int], drawn_by_seed: bool = False
) -> ComparedMethods:
    """Returns the comparison of methods on the pairs of client and seed that all of them have."""
    with_values = {o.method.name: o for o in outcomes if any(map(math.isfinite, o.values.values()))}
    aligned = paired_tests.align({name: o.values for name, o in with_values.items()})
    references = [name for name in REFERENCES if name in with_values] or list(with_values)[:1]
    tested: dict[frozenset[str], float] = {}
    rows = []
    for reference in references:
        for name in with_values:
            if name != reference:
                arguments = (aligned, name, reference, with_values[name].higher_is_better)
                test = paired_tests.over_clients(*arguments)
                tested[frozenset((name, reference))] = test.p
                rows.append((name, reference, (test, paired_tests.over_seeds(*arguments))))
    corrected = dict(zip(tested, paired_tests.holm(list(tested.values())), strict=True))
    pairs = [
        ComparedPair(
            with_values[name], with_values[other], *tests, corrected[frozenset((name, other))]
        )
        for name, other, tests in rows
    ]
    num_tests = sum(not math.isnan(p) for p in tested.values())
    return ComparedMethods(outcomes, aligned, pairs, num_tests, seeds, drawn_by_seed)


def of_works(
    directory: pathlib.Path, works: Sequence[Work], drawn_by_seed: bool = False
) -> tuple[ComparedMethods, list[dict[str, Any]]]:
    """Writes the tables of the methods' sweeps; returns the comparison, and each method's costs.

    UserError if methods were trained on different data files.
    """
    plans = {work.path: work.plan for work in works}
    rows = {path: results.write(path, plan) for path, plan in plans.items()}
    collecting.check_data_files(directory, works)
    outcomes = [collecting.outcome(work, rows[work.path], directory) for work in works]
    comparison = compare(outcomes, works[0].plan.seeds, drawn_by_seed)
    return comparison, [collecting.cost(work, rows[work.path]) for work in works]


def seconds_of(costs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns what each method's runs took, where it has runs of its own."""
    return {cost["method"]: cost["seconds"] for cost in costs if cost["seconds"] is not None}


def write(
    directory: pathlib.Path, comparison: ComparedMethods, costs: Sequence[Mapping[str, Any]]
) -> list[pathlib.Path]:
    """Writes the three tables; returns their paths."""
    tables = {
        "compare": method_rows(comparison), "comparisons": pair_rows(comparison), "costs": costs,
    }  # fmt: skip
    for name, rows in tables.items():
        names = columns_lib.names(name)
        csv_files.write(directory / f"{name}.csv", names, map(csv_files.formula_safe, rows))
    return [directory / f"{name}.csv" for name in tables]


def method_rows(comparison: ComparedMethods) -> list[dict[str, Any]]:
    """Returns the rows of `compare.csv`."""
    fedavg = next((o for o in comparison.outcomes if o.method.name == FEDAVG), None)
    return [_method_row(comparison, outcome, fedavg) for outcome in comparison.outcomes]


def _method_row(
    comparison: ComparedMethods, outcome: Outcome, fedavg: Outcome | None
) -> dict[str, Any]:
    aligned, name = comparison.aligned, outcome.method.name
    is_compared = name in aligned.methods
    clients, seeds = (
        means(aligned, name) if is_compared else np.array([])
        for means in (paired_tests.client_means, paired_tests.seed_means)
    )
    hurt = collecting.hurt(outcome, fedavg)
    row: dict[str, Any] = {
        "method": name,
        "title": outcome.method.title,
        "metric": outcome.metric,
        "higher_is_better": outcome.higher_is_better,
        "num_clients": aligned.num_clients if is_compared else 0,
        "num_left_out": len(_clients_left_out(aligned)) if is_compared else None,
        "num_without_value": len(_clients(aligned.left_out[name])) if is_compared else None,
        "num_seeds": len(comparison.seeds),
        "mean": float(np.mean(clients)) if len(clients) else math.nan,
        "std_over_clients": float(np.std(clients)) if len(clients) else math.nan,
        "std_over_seeds": float(np.std(seeds)) if len(seeds) > 1 else math.nan,
        "pct_clients_hurt": hurt.percent,
        "pct_truly_hurt": hurt.percent_truly,
        "hurt_against": hurt.against,
        "num_settings": outcome.num_settings,
        "setting": " ".join(f"{flag}={value}" for flag, value in outcome.setting.items()),
        "bytes": None if outcome.num_bytes is None else round(outcome.num_bytes),
        "reason": outcome.reason,
    }
    return row


def pair_rows(comparison: ComparedMethods) -> list[dict[str, Any]]:
    """Returns the rows of `comparisons.csv`."""
    return [
        {
            "method": pair.method.method.name,
            "reference": pair.reference.method.name,
            "num_clients": pair.by_client.num,
            "difference": pair.by_client.difference,
            "difference_low": pair.by_client.low,
            "difference_high": pair.by_client.high,
            "p": pair.by_client.p,
            "p_holm": pair.p_holm,
            "num_tests": comparison.num_tests,
            "sides": 2,
            "degrees_of_freedom": pair.by_client.degrees_of_freedom,
            "is_identical": pair.by_client.is_identical,
            "num_seeds": pair.by_seed.num,
            "seeds_low": pair.by_seed.low,
            "seeds_high": pair.by_seed.high,
            "seeds_p": pair.by_seed.p,
            "seeds_degrees_of_freedom": pair.by_seed.degrees_of_freedom,
        }
        for pair in comparison.pairs
    ]


def closing_text(comparison: ComparedMethods, training: str, seconds: Mapping[str, float]) -> str:
    """Returns the closing tables, what their numbers mean, and the sentence.

    Args:
      training: What each method was trained for, in words.
      seconds: `{method: what its runs took}`.
    """
    compared = comparison.compared
    if not comparison.aligned.num_clients:
        none = "no test client has a value of every method" if compared else "no method has a value"
        return "\n".join([none, *_left_out(comparison), *_reasons(comparison)])
    first = compared[0]
    better = "higher" if first.higher_is_better else "lower"
    title = (
        f"{first.metric} of {comparison.aligned.num_clients} test clients, {better} is better; "
        f"mean over clients ± std over {len(comparison.seeds)} seeds"
    )
    parts = [title, training, "", *_indented(method_cells(comparison, seconds))]
    if comparison.pairs:
        parts += ["", pairs_title(comparison), "", *_indented(pair_cells(comparison))]
    return "\n".join([*parts, "", *notes(comparison), "", sentence(comparison)])


def notes(comparison: ComparedMethods) -> list[str]:
    """Returns what numbers mean, who lacks some, and what was chosen at an edge, in words."""
    return [*_meanings(comparison), *_left_out(comparison), *_reasons(comparison)]


def _indented(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    return (f"  {line}" for line in text_tables.aligned(cells, gap="   "))


def method_cells(
    comparison: ComparedMethods, seconds: Mapping[str, float]
) -> list[tuple[str, ...]]:
    """Returns the closing table of methods, its header first."""
    metric = comparison.compared[0].metric
    cells: list[tuple[str, ...]]
    cells = [("method", metric, "% hurt", "% truly hurt", "settings", "MB a run", "seconds")]
    for row in method_rows(comparison):
        spread = "" if math.isnan(row["std_over_seeds"]) else f" ± {row['std_over_seeds']:.2g}"
        own_seconds = seconds.get(row["method"])
        cells.append((
            row["title"],
            "-" if math.isnan(row["mean"]) else f"{row['mean']:.5g}{spread}",
            *(_percent(row[name]) for name in ("pct_clients_hurt", "pct_truly_hurt")),
            str(row["num_settings"]),
            "-" if row["bytes"] is None else f"{row['bytes'] / 1e6:.3g}",
            "-" if own_seconds is None else f"{own_seconds:.0f}",
        ))  # fmt: skip
    return cells


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1f}"


def pairs_title(comparison: ComparedMethods) -> str:
    """Returns which tests the table of differences has."""
    test = comparison.pairs[0].by_client
    return (
        f"differences (positive is better): 95% intervals and two-sided p of Student's t over "
        f"{test.num} clients ({test.degrees_of_freedom} degrees of freedom), p by Holm for "
        f"{comparison.num_tests} tests; p over seeds by t, not corrected"
    )


def pair_cells(comparison: ComparedMethods) -> list[tuple[str, ...]]:
    """Returns the closing table of differences, its header first."""
    freedom = comparison.pairs[0].by_seed.degrees_of_freedom
    head = ("method", "from", "difference", "95% interval", "p (Holm)")
    cells: list[tuple[str, ...]] = [(*head, f"p over seeds ({freedom} df)")]
    for pair in comparison.pairs:
        test = pair.by_client
        cells.append((
            pair.method.method.title,
            pair.reference.method.title,
            "identical" if test.is_identical else f"{test.difference:+.4g}",
            "" if math.isnan(test.low) else f"{test.low:.4g} to {test.high:.4g}",
            _p_text(pair.p_holm),
            _p_text(pair.by_seed.p),
        ))  # fmt: skip
    return cells


def _p_text(p: float) -> str:
    if math.isnan(p):
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.995 else "1"


def _meanings(comparison: ComparedMethods) -> list[str]:
    fedavg = any(o.method.name == FEDAVG for o in comparison.compared)
    lines = []
    if any(o.method.personalizes_fedavg for o in comparison.compared):
        others = " (of methods that tune none: than with FedAvg's)" if fedavg else ""
        lines += [
            f"hurt: clients that do worse than with the shared model that was tuned{others}",
            "truly hurt: those that do by more than a margin, the noise of few examples taken out",
        ]
    elif fedavg:
        lines.append("hurt: clients that do worse than with FedAvg's model")
    if comparison.drawn_by_seed and len(comparison.seeds) > 1:
        lines.append("each seed draws its clients anew: one name is several clients' mean")
    lines += [f"{o.method.title}: {line}" for o in comparison.compared for line in o.at_edge]
    return lines


def _left_out(comparison: ComparedMethods) -> Iterator[str]:
    """Yields who lacks a value under which method, and that nobody's mean is over them."""
    aligned = comparison.aligned
    for outcome in comparison.compared:
        lacking = aligned.left_out[outcome.method.name]
        kinds: dict[str, list[tuple[int, str]]] = {}
        for pair in lacking:
            value = outcome.values.get(pair)
            kinds.setdefault(_kind(value), []).append(pair)
        for kind, pairs in kinds.items():
            names = _clients(pairs)
            listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
            count = f"{len(names)} client{'s' * (len(names) > 1)}"
            yield (
                f"{outcome.method.title}: {count} without a value ({kind} under a seed): {listed}; "
                "that seed of theirs is in nobody's mean"
            )


def _kind(value: float | None) -> str:
    """Returns why there is no value."""
    if value is None:
        return "not tested"
    return "unscored" if math.isnan(value) else "diverged"


def _clients(pairs: Sequence[tuple[int, str]]) -> list[str]:
    return sorted({client for _, client in pairs})


def _clients_left_out(aligned: Aligned) -> set[str]:
    """Returns the clients that no test has under any seed."""
    every = {client for pairs in aligned.left_out.values() for _, client in pairs}
    return every - set(aligned.clients.tolist())


def _reasons(comparison: ComparedMethods) -> list[str]:
    return [f"{o.method.title}: {o.reason}" for o in comparison.outcomes if o.reason]


def sentence(comparison: ComparedMethods) -> str:
    """Returns the answer: whether personalization helps, and whether a method beats it."""
    compared = {o.method.name: o.method.title for o in comparison.compared}
    count = comparison.aligned.num_clients
    where = f"On {'this' if count == 1 else 'these'} {count} client{'s' * (count != 1)}"
    if not comparison.pairs:
        return f"{where} nothing is compared with {next(iter(compared.values()))}."
    pair, reference = comparison.pair(FEDAVG, FINETUNING), comparison.pairs[0].reference.method
    pronoun = reference.title if pair is None else "it"
    ahead = [
        p for p in comparison.pairs
        if p.reference.method is reference and p.method.method.name != FEDAVG
        and p.by_client.difference > 0 and p.p_holm < _LEVEL
    ]  # fmt: skip
    ahead.sort(key=lambda p: -p.by_client.difference)
    beats = " and ".join(
        f"{p.method.method.title} beats {pronoun} by {_amount(p.by_client, 1)}" for p in ahead
    )
    beats = beats or f"no method beats {pronoun} beyond noise"
    if pair is None:
        return f"{where} {beats}."
    first = f"{where} personalization by fine-tuning {_effect(pair)}"
    return f"{first}; {beats}." if len(compared) > 2 else f"{first}."


def _effect(pair: ComparedPair) -> str:
    """Returns what fine-tuning does, of the pair of FedAvg beside fine-tuning."""
    test = pair.by_client
    if test.is_identical:
        return "changes nothing"
    if math.isnan(pair.p_holm):
        return f"changes the value by {_amount(test, -1)}, which is too few to tell from noise"
    if pair.p_holm < _LEVEL:
        verb, sign = ("hurts", 1) if test.difference > 0 else ("helps", -1)
        return f"{verb} by {_amount(test, sign)}"
    # The interval is of this test alone and may leave 0 out.
    p = f"p {pair.p_holm:.2g} by Holm's correction"
    return f"makes no difference beyond noise ({_amount(test, -1)}, {p})"


def _amount(test: PairedTest, sign: int) -> str:
    """Returns a difference with its interval, turned by a sign."""
    text = f"{sign * test.difference:.2g}"
    if math.isnan(test.low):
        return text
    low, high = sorted((sign * test.low, sign * test.high))
    return f"{text} ({low:.2g} to {high:.2g})"
