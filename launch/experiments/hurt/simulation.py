"""Populations whose truth is known: does the estimate of who is truly hurt find it?

    ./launch/run python -m launch.experiments.hurt.simulation [--populations=100] [--kind=errors]

The plan, fixed before the first run. Of 200 clients a share of 0, 10 or 30% is truly hurt, 40% are
better off and the others are unchanged. A difference is the spread, 0.05 or 0.15, times a uniform
number of 0.5 to 1.5. Each client has 3, 10, 30 or 100 evaluation examples.

- `accuracies`: an example changes with probability c + |difference|, at most 1, where c is drawn
  from Beta(2, 48); gained less lost is the difference.
- `errors`: the differences of single examples are normal, with a deviation of a tenth of a gamma
  number of mean 1 and shape 4.

For each cell the page has, over the populations: the bias of the share that looks hurt, of
`pct_truly_hurt` and of a normal random-effects estimate; the interval's coverage and mean width;
the share of false ones among those who are surely hurt (0 where there are none). In points.
"""

import sys

import numpy as np
from scipy import special

from motley_tff.metrics import true_effects
from motley_tff.metrics.true_effects import Evidence

_CLIENTS, _MARGIN = 200, 0.01
_SPREADS, _SIZES, _SHARES = (0.05, 0.15), (3, 10, 30, 100), (0.0, 0.1, 0.3)
_HEADER = ("spread", "examples", "truly hurt", "looks hurt", "by chance", "estimate", "error",
           "normal", "coverage", "width", "false")  # fmt: skip


def differences(rng: np.random.Generator, share: float, spread: float) -> np.ndarray:
    """Returns the clients' true differences, [clients]."""
    true = spread * rng.uniform(0.5, 1.5, _CLIENTS)
    hurt, better = round(share * _CLIENTS), round(0.4 * _CLIENTS)
    return true * np.repeat([-1.0, 1.0, 0.0], [hurt, better, _CLIENTS - hurt - better])


def accuracies(rng: np.random.Generator, true: np.ndarray, num_examples: int) -> Evidence:
    """Returns what examples that are right or wrong show of the differences."""
    changed = np.minimum(rng.beta(2, 48, len(true)) + np.abs(true), 1.0)
    shares = np.stack([(changed + true) / 2, (changed - true) / 2, 1.0 - changed], axis=1)
    gained, lost, _ = rng.multinomial(num_examples, shares).T
    sizes = np.full(len(true), num_examples)
    mean = (gained - lost) / num_examples
    variance = (gained + lost) / num_examples - mean**2
    error = np.sqrt(variance / (num_examples - 1))
    return Evidence(mean, error, sizes, gained, lost)


def errors(rng: np.random.Generator, true: np.ndarray, num_examples: int) -> Evidence:
    """Returns what differences of errors show."""
    deviation = 0.1 * rng.gamma(4, 0.25, len(true))
    draws = rng.standard_normal((len(true), num_examples))
    values = true[:, None] + deviation[:, None] * draws
    error = values.std(axis=1, ddof=1) / np.sqrt(num_examples)
    return Evidence(values.mean(axis=1), error, np.full(len(true), num_examples))


def normal_share(evidence: Evidence) -> float:
    """Returns the share beyond the margin under a normal distribution of the true differences,
    fitted by moments (DerSimonian and Laird 1986) with the variance cut at 0.
    """
    kept = evidence.delta_se > 0
    if not kept.any():
        return 0.0
    weights = 1.0 / evidence.delta_se[kept] ** 2
    delta = evidence.delta[kept]
    mean = np.average(delta, weights=weights)
    excess = weights @ (delta - mean) ** 2 - (len(delta) - 1)
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    variance = max(0.0, excess / scale) if scale > 0 else 0.0
    mean = np.average(delta, weights=1.0 / (evidence.delta_se[kept] ** 2 + variance))
    if variance == 0.0:
        return float(mean < -_MARGIN)
    return float(special.ndtr((-_MARGIN - mean) / np.sqrt(variance)))


def cell(kind: str, spread: float, num_examples: int, share: float, populations: int) -> np.ndarray:
    """Returns the columns of a cell after the first three, means over populations."""
    rows = []
    for number in range(populations):
        rng = np.random.default_rng([number, num_examples, round(100 * share), round(100 * spread)])
        true = differences(rng, share, spread)
        evidence = {"accuracies": accuracies, "errors": errors}[kind](rng, true, num_examples)
        estimate = true_effects.estimate(evidence, _MARGIN)
        sure = true_effects.surely_hurt(estimate.probability_hurt)
        rows.append(
            (
                np.mean(evidence.delta < 0) - share,
                np.mean(true_effects.hurt_by_chance(evidence)),
                estimate.share - share,
                abs(estimate.share - share),
                normal_share(evidence) - share,
                estimate.low <= share <= estimate.high,
                estimate.high - estimate.low,
                np.mean(true[sure] == 0.0) + np.mean(true[sure] > 0) if sure.any() else 0.0,
            )
        )
    return 100.0 * np.mean(np.array(rows, np.float64), axis=0)


def main(kind: str, populations: int) -> None:
    """Prints a Markdown table, a row for each cell."""
    print("|", " | ".join(_HEADER), "|\n|", "---|" * len(_HEADER), sep="")
    for spread in _SPREADS:
        for num_examples in _SIZES:
            for share in _SHARES:
                row = cell(kind, spread, num_examples, share, populations)
                cells = [f"{spread}", f"{num_examples}", f"{share:.0%}", *(f"{v:.1f}" for v in row)]
                print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    flags = dict(argument.lstrip("-").split("=") for argument in sys.argv[1:])
    main(flags.get("kind", "accuracies"), int(flags.get("populations", 100)))
