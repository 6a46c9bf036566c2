"""Personalized federated learning, cross-device and cross-silo, on TensorFlow Federated.

    import motley_tff as motley

    task = motley.create_task("school", use_synthetic_data=True)
    result = motley.run(task, motley.algorithms.Ditto(regularization=1.0), rounds=100, seed=0)
    result.clients.groupby("split").is_hurt.mean()

Names are loaded when they are used: importing this loads neither TensorFlow nor pandas.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motley_tff import algorithms as algorithms
    from motley_tff.core.errors import UserError as UserError
    from motley_tff.evaluation.config import EvaluationConfig as EvaluationConfig
    from motley_tff.experiment.config import BackendConfig as BackendConfig
    from motley_tff.interface import (
        Result as Result,
        compare as compare,
        create_task as create_task,
        run as run,
    )

__version__ = "0.1.0"

# Raised whenever the same flags give other numbers: nothing goes on with what another one began.
RESULTS_VERSION = 9

_MODULES = {
    "BackendConfig": "experiment.config",
    "EvaluationConfig": "evaluation.config",
    "Result": "interface",
    "UserError": "core.errors",
    "compare": "interface",
    "create_task": "interface",
    "run": "interface",
}
__all__ = ["algorithms", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "algorithms":
        return importlib.import_module("motley_tff.algorithms")
    if name in _MODULES:
        return getattr(importlib.import_module(f"motley_tff.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'motley_tff' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
