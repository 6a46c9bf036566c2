"""Algorithms, one file each: paper and equation, Params, pure functions.

The registries; importing them imports no TensorFlow. A new global training algorithm is a file
`<name>.py` with `build(task, params, initial_weights, **own)` and a line in `TRAINING`; a new
algorithm for silos one with `build(task, Params, initial_weights)` and a line in `MULTI_TASK`.
"""

import importlib
from collections.abc import Mapping
from typing import Any

# {name: names of its own parameters beside FedAvg's}; trainers have a flag of each name.
TRAINING: Mapping[str, tuple[str, ...]] = {
    "fedavg": (),
    "fedprox": ("proximal_strength",),
    "fedsgd": (),
    "centralized": (),
}

# Those that train on everybody's examples in one place.
CENTRAL: tuple[str, ...] = ("centralized",)

# {name: {flag: parameter of its Params}} of the algorithms that train a model for each silo; every
# one has `personal_optimizer` beside.
MULTI_TASK: Mapping[str, Mapping[str, str]] = {
    "local": {},
    "ditto": {"lambda": "regularization"},
    "mocha": {"lambda": "regularization", "mocha_outer": "outer"},
    "mr_mtl": {"lambda": "regularization"},
    "apfl": {"alpha": "alpha"},
    "fedper": {},
    "pfedme": {"lambda": "regularization", "inner_steps": "inner_steps"},
    "per_fedavg": {},
}

# Algorithms that train several models, one for each cluster of clients.
CLUSTERING: tuple[str, ...] = ("hypcluster",)


def build_multi_task(
    name: str,
    task: Any,
    params: Any,
    personal_optimizer: Any,
    initial_weights: Any,
    own: Mapping[str, float],
) -> Any:
    """Returns a registered algorithm for silos.

    Args:
      name: A key of `MULTI_TASK`.
      task: A `core.task.Task` of silos.
      params: A `fedavg.Params`.
      personal_optimizer: An `OptimizerConfig`, of the silos' own models.
      initial_weights: The model's first weights.
      own: `{flag: value}` of the algorithm's own parameters; its defaults for those left out.

    Returns:
      A `core.algorithm.Algorithm`.
    """
    module = importlib.import_module(f"motley_tff.algorithms.{name}")
    names = MULTI_TASK[name]
    mine = {names[flag]: value for flag, value in own.items()}
    return module.build(task, module.Params(params, personal_optimizer, **mine), initial_weights)


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
