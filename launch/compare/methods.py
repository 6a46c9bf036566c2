"""What can be compared: each method's trainer, flags and small grid of rates.

A method is one line of `METHODS`. Every other algorithm and personalization of the registry, those
of installed packages, too, is made into one by `find`. A grid's rates surround one value: that of
the data set's file in launch/flagfiles, with half a decade to either side; without such a file
three decades.
"""

import dataclasses
import difflib
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import datasets
from datasets.options import DataOptions, Setting
from launch.sweeps import grids
from motley_tff import algorithms
from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.experiment import config
from trainers import algorithm_flags, optimizer_flags

_ALGORITHMS = errors.name("algorithms")
_FLAGFILES = pathlib.Path(__file__).parents[1] / "flagfiles"
_CENTRE = 0.1
# What a comparison decides itself.
OWN_FLAGS = ("dataset_name", "total_rounds", "rounds_per_evaluation", "rounds_per_checkpoint",
              "finetune_every", "reported_round", "stop_after", "min_improvement")  # fmt: skip
_WARM_START = options.name_of(config.WarmStartConfig, "total_rounds").flag
BOTH: tuple[Setting, ...] = typing.get_args(Setting)
_SILOS: tuple[Setting, ...] = ("cross_silo",)
_CLIENTS = {"cross_silo": "silos", "cross_device": "devices"}
# How much of a grid is left where time is short: all; rates of training alone; the middle ones.
LEVELS = ("all", "rates", "one")


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to train, and what is tried of it.

    Attributes:
      name: In tables, and of its directory.
      title: In the closing table.
      fixed: Flags of every run.
      rates: Flags of rates, each a run of its own; those that surround 0.1 unless they are
        published, and, at None, those that are tried only if they are.
      inside: The same, tried inside a run.
      grid: Further values, of one or several to try, unless others are published.
      settings: Where it runs.
      flagfile: Whose published flags it has, such as `finetuning` of `finetuning.school.flags`.
      has_rounds: Whether it trains in rounds.
      personalizes_fedavg: Whether the baseline of its runs is the model that it personalizes.
      baseline_of: The method whose runs' baseline it is, if that is compared, too.
      only_deep: Whether it is another method's twin where the model has one layer.
    """

    name: str
    title: str
    trainer: str
    fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rates: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    inside: Mapping[str, float] = dataclasses.field(default_factory=dict)
    grid: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    settings: tuple[Setting, ...] = BOTH
    flagfile: str = ""
    has_rounds: bool = True
    personalizes_fedavg: bool = False
    baseline_of: str = ""
    only_deep: bool = False


_TRAINING_RATE = {"client_learning_rate": _CENTRE}
_TUNING_RATE = {"finetune_learning_rate": _CENTRE}
FEDAVG, FINETUNING, LOCAL = "fedavg", "finetuning", "local"
# In the order of tables; `local` is one or the other, as the setting says.
METHODS = (
    Method(
        LOCAL, "local training", "finetuning_trainer", inside=_TUNING_RATE,
        grid={"finetune_max_epochs": ("50",)}, settings=("cross_device",), flagfile="local",
        has_rounds=False,
    ),
    Method(
        LOCAL, "local training", "mtl_trainer",
        # FedAvg, which is trained beside it, shall not diverge.
        {"algorithm": "local", "client_learning_rate": "0.01"},
        {"personal_learning_rate": _CENTRE}, settings=_SILOS, flagfile="local",
    ),
    Method(
        FEDAVG, "FedAvg", "finetuning_trainer", {"algorithm": "fedavg", "finetune_max_epochs": "0"},
        _TRAINING_RATE, flagfile="finetuning", baseline_of=FINETUNING,
    ),
    Method(
        FINETUNING, "FedAvg + fine-tuning", "finetuning_trainer", {"algorithm": "fedavg"},
        _TRAINING_RATE, _TUNING_RATE, flagfile="finetuning", personalizes_fedavg=True,
    ),
    Method(
        "finetuning_last_layer", "FedAvg + fine-tuning, last layer", "finetuning_trainer",
        {"algorithm": "fedavg", "finetune_last_layer": "true"}, _TRAINING_RATE, _TUNING_RATE,
        flagfile="finetuning", personalizes_fedavg=True, only_deep=True,
    ),
    Method(
        "knn_per", "FedAvg + kNN-Per", "knn_per_trainer", {"algorithm": "fedavg"}, _TRAINING_RATE,
        flagfile="knn_per", personalizes_fedavg=True,
    ),
    Method(
        "hypcluster", "HypCluster", "hypcluster_trainer", {}, _TRAINING_RATE,
        # Models that are drawn apart end as one (mode collapse).
        grid={"num_clusters": ("3",), "cluster_initialization": ("updates",)},
        flagfile="hypcluster",
    ),
    Method(
        "ditto", "Ditto", "mtl_trainer", {"algorithm": "ditto"},
        {**_TRAINING_RATE, "personal_learning_rate": None}, grid={"lambda": ("0.1", "1")},
        settings=_SILOS, flagfile="ditto",
    ),
)  # fmt: skip


def names() -> list[str]:
    """Returns what --algorithms takes, without what has no method in this project's list last."""
    ours = dict.fromkeys(method.name for method in METHODS)
    every = [*ours, *algorithms.TRAINING, *algorithms.PERSONALIZATIONS]
    return list(dict.fromkeys(name for name in every if name not in algorithms.REFUSED))


def chosen(wanted_names: Sequence[str] | None, setting: Setting, is_deep: bool) -> list[Method]:
    """Returns the methods of these names, in their order, or those of `METHODS` that a setting
    allows; UserError if one is unknown, or the setting does not allow it.
    """
    if wanted_names is None:
        fitting = (method for method in METHODS if setting in method.settings)
        return [method for method in fitting if is_deep or not method.only_deep]
    return [find(name, setting) for name in wanted_names]


def find(name: str, setting: Setting) -> Method:
    """Returns a method; UserError if there is none of the name, or the setting forbids it."""
    of_name = [method for method in METHODS if method.name == name] or _of_registry(name)
    if not of_name:
        known = names()
        near = difflib.get_close_matches(name, known, 1)
        advice = algorithms.REFUSED.get(name) or (f"did you mean {near[0]}?" if near else "")
        raise UserError(_ALGORITHMS, name, f"some of {', '.join(known)}", advice)
    fitting = [method for method in of_name if setting in method.settings]
    if not fitting:
        expected, other = f"what runs on {_CLIENTS[setting]}", of_name[0].settings[0]
        either = f"{errors.name('setting')}={other}, where the data can be {_CLIENTS[other]}"
        advice = f"leave it out, or give {either}"
        raise UserError(_ALGORITHMS, name, expected, advice)
    return fitting[0]


def _of_registry(name: str) -> list[Method]:
    """Returns the methods of an algorithm or a personalization that has no line of its own."""
    if (kind := algorithms.PERSONALIZATIONS.get(name)) is not None:
        (plain,) = (method for method in METHODS if method.name == FINETUNING)
        fixed = {**plain.fixed, "personalization": name}
        title = kind.card.on_fedavg or f"FedAvg + {kind.card.title}"
        if FINETUNING not in algorithms.PERSONALIZATIONS or plain.trainer not in kind.card.trainers:
            return []
        return [dataclasses.replace(plain, name=name, title=title, fixed=fixed)]
    if (kind := algorithms.TRAINING.get(name)) is None:
        return []
    trainers, card = kind.card.trainers, kind.card
    # Another algorithm's published optimizers, unless this one has demands of its own.
    is_plain = kind.check is algorithms.FedAvg.check
    on_silos_only = [
        Method(name, card.title, "mtl_trainer", {"algorithm": name},
               {**_TRAINING_RATE, "personal_learning_rate": None},
               settings=_SILOS, flagfile="ditto" if is_plain else "")
    ] * ("mtl_trainer" in trainers)  # fmt: skip
    tuned = [
        Method(name, f"{card.title} + fine-tuning", "finetuning_trainer", {"algorithm": name},
               _TRAINING_RATE, _TUNING_RATE, settings=_SILOS if card.silos_keep else BOTH,
               flagfile="finetuning" if is_plain else "")
    ] * ("finetuning_trainer" in trainers)  # fmt: skip
    return [*on_silos_only, *tuned]


def grid_of(
    method: Method, dataset: str, rounds: int, fixed: Mapping[str, str], level: str = LEVELS[0]
) -> grids.Grid:
    """Returns a method's grid on a data set; UserError if its trainer refuses a flag.

    Args:
      rounds: Of training.
      fixed: Flags that the user gives, as far as its trainer has them.
      level: One of `LEVELS`.
    """
    published, known = _published(method, dataset, rounds), _known_flags(method)
    flags = {**published, **method.fixed}
    # What the method has of its own is tried unless it is published, a rate around what is.
    rates = {
        flag: _around(published.get(flag, ""), centre)
        for flag, centre in method.rates.items()
        if flag in known and (centre is not None or flag in published)
    }
    inside = {
        flag: tuple(text.split(","))
        if "," in (text := published.get(flag, ""))
        else _around(text, centre)
        for flag, centre in method.inside.items()
        if flag in known  # A package's personalization need not have it.
    }
    others = {flag: values for flag, values in method.grid.items() if not published}
    tried = {**rates, **others}
    if level != LEVELS[0]:
        whole = next(iter(rates), "") if level == "rates" else ""
        tried = {f: values if f == whole else (_middle(values),) for f, values in tried.items()}
    num_rounds = str(rounds if method.has_rounds else 0)
    own = {
        "total_rounds": num_rounds,
        "rounds_per_evaluation": str(max(1, rounds)),
        **{flag: values[0] for flag, values in tried.items() if len(values) == 1},
    }
    kept = {f: v for f, v in flags.items() if f not in rates and f not in inside}
    searched = {flag: values for flag, values in tried.items() if len(values) > 1}
    grid = grids.Grid(
        method.name, dataset, method.trainer, {**kept, **own}, inside, searched,
    )  # fmt: skip
    return grids.checked(grids.with_fixed(grid, fixed), f"{_ALGORITHMS} {method.name}")


def published_rounds(dataset: str) -> int | None:
    """Returns the rounds of a data set's published flags, None of other data."""
    return _published_number("total_rounds", dataset)


def published_cohort(dataset: str) -> int | None:
    """Returns the clients in a round by a data set's published flags, None if they do not say."""
    return _published_number("clients_per_train_round", dataset)


def _published_number(flag: str, dataset: str) -> int | None:
    text = _flagfile(FINETUNING, dataset).get(flag)
    return int(text) if text else None


def _published(method: Method, dataset: str, rounds: int) -> dict[str, str]:
    """Returns the published flags that a method's trainer and algorithm have; a warm start is the
    same share of the rounds as in the paper.
    """
    flags = _flagfile(method.name, dataset) or _flagfile(method.flagfile, dataset)
    before = int(flags.get("total_rounds") or 0)
    if _WARM_START in flags and before:
        flags[_WARM_START] = str(max(1, round(int(flags[_WARM_START]) * rounds / before)))
    known = _known_flags(method)
    return {
        flag: text
        for flag, text in flags.items()
        if flag not in OWN_FLAGS and optimizer_flags.first_name(flag) in known
    }


def _known_flags(method: Method) -> set[str]:
    """Returns the flags that its trainer has for all algorithms, or for this one."""
    trainer = method.trainer
    name = method.fixed.get("algorithm", algorithms.DEFAULTS[trainer])
    on_top = algorithms.personalizations_of(trainer)
    kinds: list[Any] = [DataOptions, algorithms.TRAINING[name], *algorithm_flags.beside(trainer)]
    kinds += [on_top[method.fixed.get("personalization", next(iter(on_top)))]] if on_top else []
    return {option.name.flag for kind in kinds for option in options.options(kind, trainer)}


def _flagfile(name: str, dataset: str) -> dict[str, str]:
    """Returns the flags of a method's file of published ones, none where there is no file."""
    path = _FLAGFILES / f"{name}.{dataset}.flags"
    if not name or not path.exists():
        return {}
    flags = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("--"):
            flag, equals, value = line.strip().lstrip("-").partition("=")
            is_off = not equals and flag.startswith("no")
            flags[flag.removeprefix("no") if is_off else flag] = value or str(not is_off).lower()
    return flags


def _around(published: str, centre: float | None) -> tuple[str, ...]:
    """Returns three rates: half a decade to either side of a published one, a decade of another.

    Half decades are those of the papers' grids, 1, 3, 10.
    """
    middle = float(published or centre or _CENTRE)
    leading = f"{middle:e}"[0]
    factors = {"1": (0.3, 3.0), "3": (1 / 3, 10 / 3)}.get(leading, (0.1**0.5, 10**0.5))
    low, high = factors if published else (0.1, 10.0)
    return tuple(f"{rate:.3g}" for rate in (middle * low, middle, middle * high))


def _middle(values: Sequence[str]) -> str:
    return values[(len(values) - 1) // 2]


def fixed_of(method: Method, fixed: Mapping[str, str]) -> dict[str, str]:
    """Returns the flags of the user that a method's trainer and algorithm have."""
    known = _known_flags(method)
    return {f: v for f, v in fixed.items() if optimizer_flags.first_name(f) in known}


def is_deep(dataset: str, model: str | None) -> bool:
    """Returns whether a model may have more than one layer, as far as that is known before the
    data are there.
    """
    if dataset in ("school", "vehicle"):
        return False
    return (model or ("linear" if dataset == "table" else "")) != "linear"


def setting_of(dataset: str, setting: Setting | None) -> Setting:
    """Returns what clients are; devices unless a user says otherwise of data that can be either."""
    return datasets.setting(dataset, setting)
