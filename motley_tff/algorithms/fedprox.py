"""FedProx (Li et al. 2018, https://arxiv.org/abs/1812.06127, Algorithm 2).

FedAvg whose clients minimize loss + mu / 2 * ||w - w_incoming||^2. `proximal_strength` is mu;
0 gives back FedAvg. Clients always run all their epochs (the paper's gamma-inexactness is not
simulated).
"""

import dataclasses

from motley_tff.algorithms import fedavg
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: Those of FedAvg.
      proximal_strength: mu, at least 0.
    """

    fedavg: fedavg.Params
    proximal_strength: float = 0.1


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns FedProx for a task."""

    def proximity(weights, incoming):
        return 0.5 * params.proximal_strength * learning.squared_distance(weights, incoming)

    base = fedavg.build(task, params.fedavg, initial_weights, proximity)
    return dataclasses.replace(base, name="fedprox")
