"""Every field of a run's configuration, as Python says it and as its trainer's flag does.

Found by reading: other values by the fields' types, flags by the field's name, the algorithm's card
or the optimizer's prefix. What cannot be found so stands in a table here; a field that is in none
of them is a KeyError, a flag is left over.
"""

import dataclasses
import typing
from typing import Any, NamedTuple

from absl import flags

from motley_tff import algorithms, generative
from motley_tff.algorithms import FineTuning, OptimizerConfig, attacks, optimizers
from motley_tff.experiment.config import RunConfig

TRAINERS = (*algorithms.DEFAULTS, "generative_trainer")
# {field: the flag that has another name}
_OTHER_NAMES = {
    "backend.name": "backend",
    "algorithm.steps_empty_clusters": "step_empty_clusters",
    "algorithm.shares_base_layers": "share_base_layers",
    "personalization.learning_rates": "finetune_learning_rate",
    "personalization.max_epochs": "finetune_max_epochs",
    "personalization.last_layer": "finetune_last_layer",
    "loop.evaluation.personalization_fractions": "personalization_fraction",
    "warm_start.total_rounds": "num_warmstart_fedavg_rounds",
    "warm_start.initialization": "cluster_initialization",
    "finetuning_trainer: loop.evaluation.tuning": "finetune_tuning",
    "knn_per_trainer: loop.evaluation.tuning": "knn_tuning",
    "hypcluster_trainer: initial_models": "path_to_initial_model_weights_list",
    "initial_models": "path_to_initial_model_weights",
}
# {field: why trainers have no flag for it}, or one trainer.
_WITHOUT_FLAG = {
    "algorithm.balance_rounds": "the first half of the rounds",
    "personalization.batch_size": "that of training",
    "warm_start.algorithm": "the clusters' but for its rates, of which there is a test",
    "finetuning_trainer: algorithm.personal_optimizer": "that of fine-tuning",
    "finetuning_trainer: algorithm.adaptation_epochs": "those of fine-tuning",
    "generative_trainer: personalization": "nets are scored as they are",
    "generative_trainer: loop.evaluation.ood_examples": "refused",
    "generative_trainer: loop.evaluation.personalization_fractions": "refused",
    **{
        f"{trainer}: {field}": "the algorithm's"
        for trainer in ("hypcluster_trainer", "mtl_trainer", "generative_trainer")
        for field in ("loop.evaluation.tuning", "loop.evaluation.include_baseline_candidate")
    },
    **{f"{trainer}: loop.num_generated": "makes no pictures" for trainer in algorithms.DEFAULTS},
    **{
        f"{trainer}: warm_start": "trains no clusters"
        for trainer in TRAINERS
        if trainer != "hypcluster_trainer"
    },
}
# {flag: why it is no field}, or of one trainer; flags of data are fields of `DataOptions`.
_WITHOUT_FIELD = {
    **dict.fromkeys(("algorithm", "personalization", "generator"), "the class"),
    **dict.fromkeys(("experiment_name", "root_output_dir"), "where results go"),
    "evaluate_ood": "--ood_examples stands for nothing without it",
    "finetune_every": "--rounds_per_evaluation, and the closing table of the best",
    "hypcluster_trainer: path_to_initial_model_weights": "refused, as there are several",
    "generative_trainer: ood_examples": "refused",
    "generative_trainer: personalization_fraction": "refused",
    "reported_round": "what the closing table shows",
    "warmstart_fraction": "--num_warmstart_fedavg_rounds as a share",
    "warmstart_client_learning_rate": "of the warm start's optimizer, of which there is a test",
    "warmstart_server_learning_rate": "of the warm start's optimizer, of which there is a test",
    "warmstart_server_adam_epsilon": "of the warm start's optimizer, of which there is a test",
    **dict.fromkeys(
        ("only_client", "generator_width", "diffusion_steps", "sampling_steps"),
        "a generator's task: trainers/test_generative_trainer",
    ),
}
# Fields that `motley.run` has no argument for.
WITHOUT_ARGUMENT = (
    "loop.rounds_per_checkpoint", "loop.clients_fraction", "loop.valid_clients_per_evaluation",
    "loop.test_clients_per_evaluation", "loop.final_evaluation_clients", "loop.num_generated",
    "loop.dropout_rate", "initial_models", "warm_start", "straggler_rate", "attack",
    "export_scores", "tensorboard",
)  # fmt: skip
# {field: what else has to be other}
_BESIDE: dict[str, dict[str, Any]] = {
    "backend.trim_share": {"backend.aggregator": "trimmed_mean"},
    "backend.dp_noise_multiplier": {"backend.aggregator": "differentially_private"},
    "algorithm.balance_rounds": {"algorithm.balance": 20.0},
    "algorithm.steps_empty_clusters": {
        "algorithm.server_optimizer": OptimizerConfig("momentum", 1.0)
    },
}
# Smallest forms that are not the default's.
_SMALL = {
    "algorithm.client_optimizer": OptimizerConfig("sgd", 2.0),
    "algorithm.train_batch_size": 2,
    "algorithm.adaptation_epochs": 1,
    "algorithm.student_epochs": 2,
    "algorithm.head_epochs": 1,
    "algorithm.inner_steps": 1,
    "algorithm.distillation_weights": (0.25,),
    "algorithm.temperatures": (2.0,),
    "algorithm.num_clusters": 2,
    "algorithm.balance": 20.0,
    "personalization.max_epochs": 1,
    "personalization.num_neighbors": (1,),
    "personalization.coefficients": (0.5,),
}
# Values that no type tells.
_VALUES: dict[str, Any] = {
    "dp_noise_multiplier": 0.125,
    "acceptance": ("min_examples:3",),
    "tff_workers": ("localhost:4711",),
    "initial_models": ("some/run.npz",),
    "attack": attacks.Attack("sign_flip", 0.25, 2.0),
    "clients_per_train_round": 2,
    "batch_size": 1,
    "probing_epochs": 0,
    "sparsity": 1.0,
}


class Change(NamedTuple):
    """A field with another value: its dotted name, the value, `{field: value}` beside it."""

    field: str
    value: Any
    beside: dict[str, Any]

    def made_to(self, config: RunConfig) -> RunConfig:
        """Returns the configuration with it."""
        for name, value in {**self.beside, self.field: self.value}.items():
            config = _with_value(config, name.split("."), value)
        return config

    def flags(self, trainer: str, config: RunConfig) -> tuple[str, ...] | None:
        """Returns what says so to a trainer of these classes; None if a table says why none."""
        named = {**self.beside, self.field: self.value}
        texts = [_texts(trainer, config, field, value) for field, value in named.items()]
        return None if None in texts else tuple(text for some in texts for text in some or ())


def changes(config: RunConfig) -> list[Change]:
    """Returns a change of every field of a configuration and of the values in it."""
    return list(_changes(config, ""))


def small(config: RunConfig) -> list[Change]:
    """Returns changes to the smallest forms of what a configuration has."""
    parts = {part: {f.name for f in dataclasses.fields(getattr(config, part))}
             for part in _CLASSES if getattr(config, part)}  # fmt: skip
    names = {f"{part}.{name}" for part, fields in parts.items() for name in fields}
    return [Change(field, value, {}) for field, value in _SMALL.items() if field in names]


def parameters(config: RunConfig) -> list[Change]:
    """Returns a change of every parameter of every optimizer that a field can be."""
    return [
        Change(field, dataclasses.replace(value, name=name, parameters={parameter: other}), {})
        for field, value in {c.field: c.value for c in changes(config)}.items()
        if isinstance(value, OptimizerConfig)
        for name, defaults in optimizers.PARAMETERS.items()
        for parameter, default in defaults.items()
        if (other := default is False or 0.125)
    ]


def is_no_field(trainer: str, flag: str) -> bool:
    """Returns whether a table says why a flag has no field."""
    return flag in _WITHOUT_FIELD or f"{trainer}: {flag}" in _WITHOUT_FIELD


def flag_of(trainer: str, config: RunConfig, field: str) -> str | None:
    """Returns a field's flag, of an optimizer its prefix; None if a table says why none; a
    KeyError if nothing does.
    """
    for key in _WITHOUT_FLAG:
        whose, _, name = key.rpartition(": ")
        if whose in ("", trainer) and f"{field}.".startswith(f"{name}."):
            return None
    part, _, last = field.rpartition(".")
    cards = (
        (algorithms.parameters(type(getattr(config, part)), trainer)) if part in _CLASSES else ()
    )
    by_card = {parameter.field: parameter.flag for parameter in cards}
    if last.endswith("optimizer"):
        return last.removesuffix("optimizer").rstrip("_") or "finetune"
    names = (_OTHER_NAMES.get(f"{trainer}: {field}"), _OTHER_NAMES.get(field), by_card.get(last))
    flag = next(filter(None, names), last)
    if flag not in flags.FLAGS:
        raise KeyError(f"{trainer} has no flag for {field}: give it one, or say in a table why not")
    return flag


_CLASSES = ("algorithm", "personalization")
# Fine-tuning's optimizer takes one of its `learning_rates`.
_WITH_RATE = tuple(f"algorithm.{whose}_optimizer" for whose in ("client", "server", "personal"))


def _texts(trainer: str, config: RunConfig, field: str, value: Any) -> tuple[str, ...] | None:
    flag = flag_of(trainer, config, field)
    if flag is None:
        return None
    if isinstance(value, OptimizerConfig):
        rate = ()
        if field in _WITH_RATE and value.learning_rate is not None:
            rate = (f"--{flag}_learning_rate={value.learning_rate}",)
        own = (f"--{flag}_{value.name}_{name}={v}" for name, v in value.parameters.items())
        return (f"--{flag}_optimizer={value.name}", *rate, *own)
    if isinstance(value, attacks.Attack):
        value = f"{value.kind}:{value.share}:{value.factor}"
    if isinstance(value, bool):
        return (f"--{flag}={str(value).lower()}",)
    text = ",".join(map(str, value)) if isinstance(value, tuple) else value
    return (*(("--evaluate_ood",) if flag == "ood_examples" else ()), f"--{flag}={text}")


def _with_value(config: Any, names: list[str], value: Any) -> Any:
    first, *rest = names
    new = _with_value(getattr(config, first), rest, value) if rest else value
    return dataclasses.replace(config, **{first: new})


def _changes(config: Any, where: str) -> typing.Iterator[Change]:
    hints = typing.get_type_hints(type(config))
    bounds = {
        n: b for kind in type(config).__mro__ for n, b in vars(kind).get("BOUNDS", {}).items()
    }
    for field in dataclasses.fields(config):
        name, value = f"{where}{field.name}", getattr(config, field.name)
        if isinstance(value, OptimizerConfig):
            # Whose first step is another one already.
            other = "fedavgm" if value.name == "sgd" else "sgd"
            yield Change(name, OptimizerConfig(other, value.learning_rate), {})
            if name in _WITH_RATE:
                rate = 0.25 if value.learning_rate is None else value.learning_rate / 2
                yield Change(name, dataclasses.replace(value, learning_rate=rate), {})
        elif dataclasses.is_dataclass(value):
            yield from _changes(value, f"{name}.")
        elif name != "personalization":
            most = bounds.get(field.name, (0, field.metadata.get("upper")))[1]
            choices = field.metadata.get("choices") or ()
            if (other := _VALUES.get(field.name)) is None:
                other = _other(hints[field.name], value, most, choices)
            yield Change(name, other, _BESIDE.get(name, {}))


def _other(hint: Any, value: Any, most: float | None, choices: tuple[str, ...]) -> Any:
    """Returns another value of a type, of whose numbers the most is known."""
    options = typing.get_args(hint)
    if type(None) in options:
        return _other(options[0], value, most, choices)
    if typing.get_origin(hint) is typing.Literal:
        choices = options
    if choices:
        return next(choice for choice in reversed(choices) if choice != value)
    if typing.get_origin(hint) is tuple:
        return (_other(options[0], value[0], most, ()),)
    if hint is bool:
        return value is False
    if hint is int:
        return 2 if value is None else value + 1
    return value / 2 if value else min(1.0, most or 1.0) / 2


def kinds(trainer: str) -> list[tuple[Any, Any]]:
    """Returns pairs of (algorithm, personalization or None) that a trainer offers; each is in one,
    its defaults first.
    """
    if trainer == "generative_trainer":
        return [(kind, FineTuning) for kind in generative.KINDS.values()]
    trained = algorithms.offered_by(trainer)
    default = trained[algorithms.DEFAULTS[trainer]]
    on_top: list[Any] = [*algorithms.personalizations_of(trainer).values()] or [None]
    others = [kind for kind in trained.values() if kind is not default]
    return [*((default, p) for p in on_top), *((kind, on_top[0]) for kind in others)]


def choosing(kind: Any, personalization: Any) -> tuple[str, ...]:
    """Returns the flags that choose a pair, of those that are declared."""
    names = {"algorithm": kind, "generator": kind, "personalization": personalization}
    if "generator" in flags.FLAGS:
        del names["algorithm"], names["personalization"]
    return tuple(f"--{n}={k.card.name}" for n, k in names.items() if n in flags.FLAGS)
