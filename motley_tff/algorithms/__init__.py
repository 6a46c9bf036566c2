"""Algorithms, one file each: paper and equation, Params, pure functions.

The registry of global training algorithms; importing it imports no TensorFlow. A new one is a file
`<name>.py` with `build(task, params, initial_weights, **own)` and one line here.
"""

import importlib
from collections.abc import Mapping
from typing import Any

# {name: names of its own parameters beside FedAvg's}; trainers have a flag of each name.
TRAINING: Mapping[str, tuple[str, ...]] = {
    "fedavg": (),
    "fedprox": ("proximal_strength",),
    "fedsgd": (),
}


def build_training(
    name: str, task: Any, params: Any, initial_weights: Any, own: Mapping[str, float]
) -> Any:
    """Returns a registered training algorithm.

    Args:
      name: A key of `TRAINING`.
      task: A `core.task.Task`.
      params: A `fedavg.Params`.
      initial_weights: The model's first weights.
      own: The algorithm's own parameters.

    Returns:
      A `core.algorithm.Algorithm`.
    """
    module = importlib.import_module(f"motley_tff.algorithms.{name}")
    return module.build(task, params, initial_weights, **own)
