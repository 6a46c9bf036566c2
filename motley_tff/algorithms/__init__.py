# ruff: isort: skip_file
"""Algorithms and personalizations, one file each: paper and equation, hyperparameters, functions.

A new one is a file with a frozen dataclass and its `card`, and a line here, in the order of help
texts and reports. Importing all of them imports no TensorFlow. Installed packages add others:
`algorithms.packages`.
"""

import functools
from typing import Any

from motley_tff.algorithms import packages
from motley_tff.algorithms.card import Card as Card
from motley_tff.algorithms.card import with_values as with_values
from motley_tff.algorithms.optimizers import OptimizerConfig as OptimizerConfig
from motley_tff.core.options import option as option

from motley_tff.algorithms.local import Local as Local
from motley_tff.algorithms.fedavg import FedAvg as FedAvg
from motley_tff.algorithms.fedprox import FedProx as FedProx
from motley_tff.algorithms.fedsgd import FedSgd as FedSgd
from motley_tff.algorithms.fednova import FedNova as FedNova
from motley_tff.algorithms.scaffold import Scaffold as Scaffold
from motley_tff.algorithms.feddyn import FedDyn as FedDyn
from motley_tff.algorithms.fedstc import FedStc as FedStc
from motley_tff.algorithms.fedstc import FedStcServer as FedStcServer
from motley_tff.algorithms.fedbabu import FedBabu as FedBabu
from motley_tff.algorithms.centralized import Centralized as Centralized
from motley_tff.algorithms.finetuning import FineTuning as FineTuning
from motley_tff.algorithms.lp_ft import LpFt as LpFt
from motley_tff.algorithms.proximal import ProximalFineTuning as ProximalFineTuning
from motley_tff.algorithms.hypcluster import HypCluster as HypCluster
from motley_tff.algorithms.knn_per import KnnPer as KnnPer
from motley_tff.algorithms.ditto import Ditto as Ditto
from motley_tff.algorithms.mocha import Mocha as Mocha
from motley_tff.algorithms.mr_mtl import MrMtl as MrMtl
from motley_tff.algorithms.apfl import Apfl as Apfl
from motley_tff.algorithms.fedper import FedPer as FedPer
from motley_tff.algorithms.fedrep import FedRep as FedRep
from motley_tff.algorithms.fedbn import FedBn as FedBn
from motley_tff.algorithms.pfedme import PFedMe as PFedMe
from motley_tff.algorithms.per_fedavg import PerFedAvg as PerFedAvg
from motley_tff.algorithms.persfl import PersFL as PersFL

_OURS: dict[str, Any] = {
    value.card.name: value for value in list(globals().values()) if hasattr(value, "card")
}
# Made when they are first asked for, as packages with algorithms import this one.
# {name: dataclass} of what trains models, and of what personalizes one that is trained.
TRAINING: dict[str, type[FedAvg]]
PERSONALIZATIONS: dict[str, Any]
# {name: card}, in the order of reports: those of installed packages come last.
CARDS: dict[str, Card]
# {name: why} of what installed packages offer and nobody can have.
REFUSED: dict[str, str]

# The one that a trainer takes unless it is told another.
DEFAULTS = {
    "finetuning_trainer": "fedavg",
    "knn_per_trainer": "fedavg",
    "hypcluster_trainer": "hypcluster",
    "mtl_trainer": "ditto",
}


@functools.cache
def _registry() -> dict[str, dict[str, Any]]:
    plugged, refused = packages.read(_OURS)
    every = {**_OURS, **plugged}
    training = {name: kind for name, kind in every.items() if issubclass(kind, FedAvg)}
    return {
        "TRAINING": training,
        "PERSONALIZATIONS": {name: c for name, c in every.items() if name not in training},
        "CARDS": {name: kind.card for name, kind in every.items()},
        "REFUSED": refused,
    }


def __getattr__(name: str) -> Any:
    if name in ("TRAINING", "PERSONALIZATIONS", "CARDS", "REFUSED"):
        return _registry()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def offered_by(trainer: str) -> dict[str, type[FedAvg]]:
    """Returns the training algorithms that a trainer offers, by name."""
    training = _registry()["TRAINING"]
    return {name: c for name, c in training.items() if trainer in c.card.trainers}


def personalizations_of(trainer: str) -> dict[str, Any]:
    """Returns the personalizations that a trainer offers, by name; its default comes first."""
    every = _registry()["PERSONALIZATIONS"]
    return {name: c for name, c in every.items() if trainer in c.card.trainers}


def plugged() -> dict[str, str]:
    """Returns the algorithms and personalizations of installed packages, `{name: package version}`,
    in the order of reports.
    """
    names = (name for name in _registry()["CARDS"] if name not in _OURS)
    return {name: packages.installed()[name].origin for name in names}


def origin(kind: type) -> str | None:
    """Returns the installed package of an algorithm's class, `package version`; None of others."""
    known = {**_registry()["TRAINING"], **_registry()["PERSONALIZATIONS"]}
    return next((o for name, o in plugged().items() if known[name] is kind), None)


def refuse(name: str, finding: str, advice: str) -> None:
    """Takes out a package's algorithm that a program finds it cannot offer, and keeps why."""
    registry = _registry()
    for kinds in ("TRAINING", "PERSONALIZATIONS", "CARDS"):
        registry[kinds].pop(name, None)
    registry["REFUSED"][name] = str(packages.installed()[name].error(finding, advice=advice))
