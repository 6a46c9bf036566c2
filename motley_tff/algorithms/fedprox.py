"""FedProx (Li et al. 2018, https://arxiv.org/abs/1812.06127, Algorithm 2).

FedAvg whose clients minimize loss + mu / 2 * ||w - w_incoming||^2. `proximal_strength` is mu;
0 gives back FedAvg. Clients always run all their epochs (the paper's gamma-inexactness is not
simulated).
"""

import dataclasses

from motley_tff.algorithms import fedavg
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib


def build(
    task: task_lib.Task,
    params: fedavg.Params,
    initial_weights: learning.Weights,
    proximal_strength: float,
) -> algorithm.Algorithm:
    """Returns FedProx.

    Args:
      task: The task.
      params: FedAvg's hyperparameters.
      initial_weights: The model's first weights.
      proximal_strength: mu, at least 0.
    """

    def proximity(weights, incoming):
        return 0.5 * proximal_strength * learning.squared_distance(weights, incoming)

    base = fedavg.build(task, params, initial_weights, proximity)
    return dataclasses.replace(base, name="fedprox")
