# ruff: isort: skip_file
"""Algorithms and personalizations, one file each: paper and equation, hyperparameters, functions.

A new one is a file with a frozen dataclass and its `card`, and a line here, in the order of help
texts and reports. Importing all of them imports no TensorFlow.
"""

from typing import Any

from motley_tff.algorithms.card import Card as Card
from motley_tff.algorithms.card import Parameter as Parameter
from motley_tff.algorithms.card import parameters as parameters
from motley_tff.algorithms.card import with_values as with_values
from motley_tff.algorithms.optimizers import OptimizerConfig as OptimizerConfig

from motley_tff.algorithms.local import Local as Local
from motley_tff.algorithms.fedavg import FedAvg as FedAvg
from motley_tff.algorithms.fedprox import FedProx as FedProx
from motley_tff.algorithms.fedsgd import FedSgd as FedSgd
from motley_tff.algorithms.fedbabu import FedBabu as FedBabu
from motley_tff.algorithms.centralized import Centralized as Centralized
from motley_tff.algorithms.finetuning import FineTuning as FineTuning
from motley_tff.algorithms.lp_ft import LpFt as LpFt
from motley_tff.algorithms.hypcluster import HypCluster as HypCluster
from motley_tff.algorithms.knn_per import KnnPer as KnnPer
from motley_tff.algorithms.ditto import Ditto as Ditto
from motley_tff.algorithms.mocha import Mocha as Mocha
from motley_tff.algorithms.mr_mtl import MrMtl as MrMtl
from motley_tff.algorithms.apfl import Apfl as Apfl
from motley_tff.algorithms.fedper import FedPer as FedPer
from motley_tff.algorithms.fedrep import FedRep as FedRep
from motley_tff.algorithms.pfedme import PFedMe as PFedMe
from motley_tff.algorithms.per_fedavg import PerFedAvg as PerFedAvg

_ALL: dict[str, Any] = {
    value.card.name: value for value in list(globals().values()) if hasattr(value, "card")
}
# {name: dataclass} of what trains models, and of what personalizes one that is trained.
TRAINING: dict[str, type[FedAvg]] = {n: c for n, c in _ALL.items() if issubclass(c, FedAvg)}
PERSONALIZATIONS: dict[str, Any] = {n: c for n, c in _ALL.items() if n not in TRAINING}
# {name: card}, in the order of reports.
CARDS: dict[str, Card] = {name: kind.card for name, kind in _ALL.items()}

# The one that a trainer takes unless it is told another.
DEFAULTS = {
    "finetuning_trainer": "fedavg",
    "knn_per_trainer": "fedavg",
    "hypcluster_trainer": "hypcluster",
    "mtl_trainer": "ditto",
}


def offered_by(trainer: str) -> dict[str, type[FedAvg]]:
    """Returns the training algorithms that a trainer offers, by name."""
    return {name: c for name, c in TRAINING.items() if trainer in c.card.trainers}


def personalizations_of(trainer: str) -> dict[str, Any]:
    """Returns the personalizations that a trainer offers, by name; its default comes first."""
    return {name: c for name, c in PERSONALIZATIONS.items() if trainer in c.card.trainers}
