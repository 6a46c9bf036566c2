"""FedEval's scorecard: five scores of a federated method, 0 (worst) to 5.

Chai et al. 2022 (FedEval, https://arxiv.org/abs/2011.09655), the benchmark's page "Radar Chart".
Its formulas have no numbers; here they are (1) to (6). Where it leaves freedom, the choice is:

- *Disparity* is relative to the reference, as its percentages do not say of what: 0.02 is 2%. It
  is positive where the method is worse, for errors too.
- The points of (3) do not add up: the best condition that holds counts (else 6 of 3 + 1 + 1 + ...
  would leave the scale of 5).
- A straggler or a dropout is "handled" if the run with it is at most 5% worse than the one without,
  the widest disparity that (3) still rewards.
- Effectiveness beyond a disparity of 20% is 0, the only score left.

One formula is not as printed. Where a cost P_a is worse than the baseline's P_b, the page gives
e^(1 - P_b / P_a), which lies between 1 and e: more than the baseline's 1 point, the more the worse.
(1) has the ratio the other way round, so that it falls from 1 to 0.

None stands for what nobody measured; a score with such a part is not measured itself.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

MOST = 5.0
# What clients and server exchange, from the most to the least informative; the place is the score.
EXCHANGES = (
    "raw data",
    "plain, one step of training",
    "plain, many steps of training",
    "noised or compressed",
    "secure aggregation",
    "homomorphic encryption",
)
HANDLED_DISPARITY = 0.05

# (disparity at most, points)
_ROBUSTNESS = ((0.01, 3), (0.03, 2), (0.05, 1))
_EFFECTIVENESS = ((0.01, 5), (0.03, 4), (0.05, 3), (0.10, 2), (0.20, 1))
# 0.95 of 1 is 5% less, whatever becomes of it as a float32.
_ROUNDING = 1e-6


class Network(NamedTuple):
    """What lies between the server and a client; FedEval's containers have 100 Mbit/s.

    Attributes:
      mbit_down, mbit_up: Megabits a second from the server and to it.
      latency_ms: Milliseconds that a message takes beside its bytes.
    """

    mbit_down: float = 100.0
    mbit_up: float = 100.0
    latency_ms: float = 50.0


def federated_seconds(
    bytes_down: float,
    bytes_up: float,
    client_seconds: float,
    server_seconds: float,
    network: Network,
) -> float:
    """Returns how long a round would take if its clients were apart (FedEval, section 4, "federated
    time consumption"): the slowest client's download, training on one core and upload, then the
    server's work.

    Bytes are the most that one client is sent and sends back, seconds those of who trains longest:
    where that is not the same client (FedSTC's, who are sent what they missed), more than the
    slowest takes.

    FedEval adds the same of its evaluations: the slowest client's and the server's part. That is
    left out: here all clients are scored every few rounds, each candidate of theirs, and no table
    has what one client took.
    """
    megabits = 8.0 * bytes_down / 1e6, 8.0 * bytes_up / 1e6
    transfer = megabits[0] / network.mbit_down + megabits[1] / network.mbit_up
    return transfer + 2.0 * network.latency_ms / 1e3 + client_seconds + server_seconds


class Cost(NamedTuple):
    """What training took, or a score of each; bytes are sent both ways, of all clients."""

    rounds: float
    bytes: float
    seconds: float


# The paper's best imaginable.
_BEST = Cost(1.0, 0.0, 0.0)


def cost_scores(cost: Cost, baseline: Cost) -> Cost:
    """Returns the score of each cost beside a baseline's (FedSGD's in the paper), which has 1.

    (1)  e^(1 - P_a / P_b)                     where P_a > P_b
    (2)  1 + 4 (P_b - P_a) / (P_b - P_best)    elsewhere
    """
    return Cost(*(_cost_score(*costs) for costs in zip(cost, baseline, _BEST, strict=True)))


def _cost_score(cost: float, baseline: float, best: float) -> float:
    if cost > baseline:
        return math.exp(1.0 - cost / baseline) if baseline else 0.0
    if baseline <= best:
        return 1.0
    return 1.0 + 4.0 * (baseline - max(cost, best)) / (baseline - best)


def efficiency(scores: Cost | None) -> float | None:
    """Returns the mean of the three scores of costs."""
    return None if scores is None else sum(scores) / len(scores)


def disparity(value: float, reference: float, higher_is_better: bool) -> float:
    """Returns how much worse a value is, relative to the reference; below 0 where it is better."""
    worse = reference - value if higher_is_better else value - reference
    if not worse:
        return 0.0
    return worse / abs(reference) if reference else math.copysign(math.inf, worse)


def iid_points(to_iid: float) -> int:
    """Returns 0 to 3 points for the disparity to the same method on clients that are alike (3)."""
    return _points(to_iid, _ROBUSTNESS)


def handled_points(to_undisturbed: float) -> int:
    """Returns the point for stragglers or dropouts (4), by the disparity to the run without."""
    return _points(to_undisturbed, ((HANDLED_DISPARITY, 1),))


def robustness(points: Sequence[int | None]) -> float | None:
    """Returns the sum of the points for alike clients, stragglers and dropouts."""
    known = [p for p in points if p is not None]
    return float(sum(known)) if len(known) == len(points) else None


def effectiveness(is_better_than_local: bool, to_central: float) -> float:
    """Returns 0 to 5 (5): by disparity to a central model, 0 if not strictly better than local."""
    return float(_points(to_central, _EFFECTIVENESS)) if is_better_than_local else 0.0


def privacy(exchange: str) -> float:
    """Returns how little the server learns of clients' data (6), by what is sent (`EXCHANGES`)."""
    return float(EXCHANGES.index(exchange))


def security(exchange: str) -> float:
    """Returns how well the server can check what clients send (6): the other way round."""
    return MOST - privacy(exchange)


def _points(value: float, limits: Sequence[tuple[float, int]]) -> int:
    return next((points for limit, points in limits if value <= limit + _ROUNDING), 0)
