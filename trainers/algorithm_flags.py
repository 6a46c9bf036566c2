"""The flags of a trainer: those that all have, of its algorithms, and the choice among these."""

import dataclasses
import textwrap
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from absl import flags

from datasets.options import DataOptions, GeneratorOptions
from motley_tff import algorithms, commandline, generative
from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.core.options import Option
from motley_tff.evaluation.config import MAX_OOD_EXAMPLES
from motley_tff.experiment import config, run_directory
from trainers import optimizer_flags, option_flags
from trainers.option_flags import NewFlag


@dataclasses.dataclass(frozen=True)
class ExperimentOptions:
    """What a trainer's command has beside a `RunConfig`."""

    experiment_name: str | None = options.option(
        None, "Name of the experiment and its directory", parse=run_directory.check_name,
        everyday="output",
    )  # fmt: skip
    root_output_dir: str = options.option(
        "results", "Directory that holds the experiments", everyday="output"
    )
    reported_round: Literal["last", "best"] = options.option(
        "last", "Evaluation that is reported: the last or, for silos, that of best validation mean",
        everyday="evaluation",
    )  # fmt: skip
    finetune_every: int | None = options.option(
        None,
        "Silos: evaluate every so many rounds and at the end; the best by validation is reported",
        lower=1, trainers=("finetuning_trainer",),
    )  # fmt: skip
    evaluate_ood: bool = options.option(
        False,
        "Also score test clients' models on the examples of other test clients (columns ood_...)",
        everyday="evaluation",
    )
    ood_examples: int = options.option(
        500,
        "How many such examples; of each client as many, fewer in all if some have too few",
        lower=1,
        upper=MAX_OOD_EXAMPLES,
    )
    path_to_initial_model_weights: str | None = options.option(
        None,
        "Start from these weights: a run's directory, its global_model.npz, or a Keras SavedModel",
        trainers=("finetuning_trainer", "knn_per_trainer", "mtl_trainer", "generative_trainer"),
    )
    path_to_initial_model_weights_list: tuple[str, ...] | None = options.option(
        None,
        "Start from these models: k runs' directories, their global_model.npz, Keras SavedModels, "
        "or the directory of one run of this trainer with k models",
        trainers=("hypcluster_trainer",),
    )


# {group of --help: the dataclasses whose options its flags are}
_SHARED: Mapping[str, tuple[type, ...]] = {
    "data": (DataOptions,),
    "experiment": (ExperimentOptions,),
    "round": (config.LoopConfig,),
    "evaluation": (config.EvaluationConfig,),
    "backend": (config.BackendConfig, config.RunConfig),
}

_BESIDE: Mapping[str, tuple[type, ...]] = {
    "hypcluster_trainer": (config.WarmStartConfig,),
    "generative_trainer": (GeneratorOptions,),
}


# {trainer: what --algorithm says, where there is a choice}
_CHOICES: Mapping[str, str] = {
    "finetuning_trainer": "How the global model is trained.",
    "generative_trainer": "Where: at the clients, or in one place.",
    "knn_per_trainer": "How the global model is trained.",
    "mtl_trainer": "How personal models are trained.",
}


def define(trainer: str) -> None:
    """Declares a trainer's flags.

    An algorithm of an installed package whose flags mean something else is not offered.
    """
    option_flags.declare(make(trainer).values())
    flags.mark_flags_as_required(["experiment_name", "dataset_name"])
    optimizer_flags.define_aliases()


def define_data() -> None:
    """Declares the flags of data, the name of the data set, too."""
    option_flags.declare(_data_flags().values())


def make(trainer: str) -> dict[str, NewFlag]:
    """Returns a trainer's flags by their first names, without declaring them."""
    by_name, shared = _data_flags(), dict[str, NewFlag]()
    for group, kinds in _SHARED.items():
        shared |= option_flags.make(group, kinds, trainer, {*by_name, *shared})
    _refuse_taken_flags(trainer, {*by_name, *shared})
    offered, on_top = kinds_of(trainer), algorithms.personalizations_of(trainer)
    if trainer in _CHOICES:
        names = ("fedavg", "centralized") if trainer == "generative_trainer" else offered
        default = algorithms.DEFAULTS.get(trainer, "fedavg")
        by_name["algorithm"] = _choice("algorithm", default, names, _CHOICES[trainer], trainer)
    if len(on_top) > 1:
        meaning, default = "How clients personalize the global model.", next(iter(on_top))
        by_name["personalization"] = _choice("personalization", default, on_top, meaning, trainer)
    by_name |= shared
    own = [*offered.values(), *on_top.values(), *_BESIDE.get(trainer, ())]
    return by_name | option_flags.make(trainer.removesuffix("_trainer"), own, trainer, by_name)


def _data_flags() -> dict[str, NewFlag]:
    import datasets

    known = Option(
        "", errors.name("dataset_name"), None, str | None,
        f"Data set ({', '.join(datasets.names())})", parse=datasets.check_name, everyday="data",
    )  # fmt: skip
    name = option_flags.flag_of(known, f"{known.meaning}.", "data")
    return {"dataset_name": name, **option_flags.make("data", [DataOptions])}


def beside(trainer: str) -> list[type]:
    """Returns the dataclasses of a trainer's options, but for those of algorithms and of data."""
    shared = [kind for kinds in _SHARED.values() for kind in kinds if kind is not DataOptions]
    return [*shared, *_BESIDE.get(trainer, ())]


def kinds_of(trainer: str) -> dict[str, Any]:
    """Returns what a trainer trains, by name: generators, or algorithms."""
    return generative.KINDS if trainer == "generative_trainer" else algorithms.offered_by(trainer)


def _choice(flag: str, default: str, offered: Iterable[str], meaning: str, trainer: str) -> NewFlag:
    advice = {**_elsewhere(trainer), **algorithms.REFUSED}
    choice = Option(
        "", errors.name(flag), default, str, meaning, choices=tuple(offered),
        elsewhere=tuple(advice.items()), everyday="training",
    )  # fmt: skip
    return option_flags.flag_of(choice, meaning, trainer.removesuffix("_trainer"))


def _elsewhere(trainer: str) -> dict[str, str]:
    """Returns where each algorithm and personalization is, in words."""
    kinds = {"algorithm": algorithms.TRAINING, "personalization": algorithms.PERSONALIZATIONS}
    return {
        name: f"here it is --{flag}={name}"
        if trainer in kind.card.trainers
        else f"for {name} see {' and '.join(kind.card.trainers)}"
        for flag, of_flag in kinds.items()
        for name, kind in of_flag.items()
    }


def _refuse_taken_flags(trainer: str, defined: Collection[str]) -> None:
    """Takes out algorithms of installed packages whose flags mean something else already."""
    kinds = {**kinds_of(trainer), **algorithms.personalizations_of(trainer)}
    others = algorithms.plugged()
    taken = {*defined, *commandline.common(), "algorithm", "personalization"}
    known: dict[str, tuple[str, tuple[object, ...]]] = {}
    for name, kind in kinds.items():  # This project's come first.
        for option in options.options(kind, trainer):
            meaning = (option.kind, option.lower, option.upper)
            owner, first = known.setdefault(option.name.flag, (name, meaning))
            if name in others and (option.name.flag in taken or meaning != first):
                owner = trainer if option.name.flag in taken else owner
                problem = f"the flag --{option.name.flag}, which {owner} has with another meaning"
                algorithms.refuse(name, problem, "give another one, option(..., flag=...)")


def refuse_others(trainer: str, choice: str, chosen: str, offered: Mapping[str, Any]) -> None:
    """Raises a UserError for a flag that is given and that what is chosen does not have.

    Args:
      choice: The flag that chooses.
      offered: `{name: class}` of what can be chosen.
    """
    owners: dict[str, tuple[Option, list[str]]] = {}
    for name, kind in offered.items():
        for option in options.options(kind, trainer):
            owners.setdefault(option.name.flag, (option, []))[1].append(name)
    for flag, (option, names) in owners.items():
        if chosen not in names and flags.FLAGS[flag].present:
            expected = f"only with --{choice}={' or '.join(names)}, not {chosen}"
            raise UserError(option.name, flags.FLAGS[flag].value, expected, "leave it out")


def of_unused_packages(trainer: str, chosen: Collection[str]) -> set[str]:
    """Returns flags that are there for algorithms of installed packages alone, none of them among
    the names `chosen` by --algorithm and --personalization.

    They decide nothing, and a run must not depend on what else is installed.
    """
    offered, on_top = kinds_of(trainer), algorithms.personalizations_of(trainer)
    others = algorithms.plugged()
    used: set[str] = set()
    unused: set[str] = set()
    for name, kind in {**offered, **on_top}.items():
        its_flags = {option.name.flag for option in options.options(kind, trainer)}
        (unused if name in others and name not in chosen else used).update(its_flags)
    ours_on_top = on_top.keys() - others
    if len(ours_on_top) == 1 and ours_on_top <= {*chosen}:
        unused.add("personalization")
    return unused - used


def listing(trainer: str) -> str:
    """Returns a line or more for each algorithm that a trainer offers, for its help."""
    cards = [kind.card for kind in algorithms.offered_by(trainer).values()]
    width = max(len(card.name) for card in cards) + 2
    lines, rest = [], " " * (width + 2)
    for card in cards:
        name = f"  {card.name:{width}}"
        lines.append(textwrap.fill(card.summary, 100, initial_indent=name, subsequent_indent=rest))
    return "\n".join(lines)
