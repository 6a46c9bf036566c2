"""Every option of a run's configuration with another value, as Python says it and as its flag does.

Found by reading the options. What no option tells stands in a table here; a flag that belongs to
nothing is left over.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from absl import flags

from datasets.options import DataOptions, GeneratorOptions
from motley_tff import algorithms, generative
from motley_tff.algorithms import FineTuning, OptimizerConfig, attacks, optimizers
from motley_tff.core import options
from motley_tff.experiment.config import RunConfig
from trainers.algorithm_flags import ExperimentOptions

TRAINERS = (*algorithms.DEFAULTS, "generative_trainer")
# {field: its flag} of evaluations of what has classes or numbers.
_NOT_OF_GENERATORS = {
    "personalization_fractions": "personalization_fraction",
    "metrics": "metrics",
    "tuning_metric": "tuning_metric",
}
# {field: why a trainer has no flag for it}, or `trainer: field`.
_WITHOUT_FLAG = {
    **{f"generative_trainer: loop.evaluation.{field}": "refused" for field in _NOT_OF_GENERATORS},
    "hypcluster_trainer: algorithm.keep_optimizer_state": "refused",
    **{f"{t}: warm_start": "trains no clusters" for t in TRAINERS if t != "hypcluster_trainer"},
}
# Flags that are no field of a run's configuration.
_WITHOUT_FIELD = {
    option.name.flag
    for kind in (ExperimentOptions, DataOptions, GeneratorOptions)
    for option in options.options(kind)
} | {"algorithm", "personalization", "dataset_name"}
# Fields that `motley.run` has no argument for.
WITHOUT_ARGUMENT = (
    "loop.rounds_per_checkpoint", "loop.clients_fraction", "loop.valid_clients_per_evaluation",
    "loop.test_clients_per_evaluation", "loop.final_evaluation_clients", "loop.num_generated",
    "loop.dropout_rate", "initial_models", "warm_start", "straggler_rate", "attack",
    "export_scores", "tensorboard",
)  # fmt: skip
# {field: what else has to be other}
_BESIDE: dict[str, dict[str, Any]] = {
    **{
        f"warm_start.{name}": {"warm_start.total_rounds": 1}
        for name in ("client_learning_rate", "server_learning_rate")
    },
    "warm_start.server_adam_epsilon": {
        "warm_start.total_rounds": 1,
        "algorithm.server_optimizer": OptimizerConfig("adam", 1.0),
    },
    "backend.trim_share": {"backend.aggregator": "trimmed_mean"},
    **{
        f"backend.dp_{name}": {"backend.aggregator": "differentially_private"}
        for name in ("noise_multiplier", "epsilon")
    },
    "backend.dp_delta": {
        "backend.aggregator": "differentially_private",
        "backend.dp_noise_multiplier": 0.125,
    },
    "algorithm.balance_rounds": {"algorithm.balance": 20.0},
    **{
        f"algorithm.{name}": {f"algorithm.{side}_schedule": "exponential"}
        for side, name in (("client", "decay_factor"), ("server", "decay_rounds"))
    },
    "loop.min_improvement": {"loop.stop_after": 2},
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
    "dp_epsilon": 300.0,
    "dp_delta": 0.25,
    "acceptance": ("min_examples:3",),
    "tff_workers": ("localhost:4711",),
    "initial_models": ("some/run.npz",),
    "attack": attacks.Attack("sign_flip", 0.25, 2.0),
    "clients_per_train_round": 2,
    "batch_size": 1,
    "probing_epochs": 0,
    "sparsity": 1.0,
    "warmup_rounds": 4,
    "metrics": ("macro_f1",),
    "tuning_metric": "loss",
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
        """Returns what says so to a trainer of these classes; None if it has no flag for it."""
        named = {**self.beside, self.field: self.value}
        texts = [_texts(trainer, config, field, value) for field, value in named.items()]
        return None if None in texts else tuple(text for some in texts for text in some or ())


def changes(config: RunConfig) -> list[Change]:
    """Returns a change of every option of a configuration and of the values in it."""
    return list(_changes(config, ""))


def small(config: RunConfig) -> list[Change]:
    """Returns changes to the smallest forms of what a configuration has."""
    parts = {part: {f.name for f in dataclasses.fields(getattr(config, part))}
             for part in ("algorithm", "personalization") if getattr(config, part)}  # fmt: skip
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
    """Returns whether a flag is none of a run's configuration, or a trainer refuses it."""
    is_refused = trainer == "generative_trainer" and flag in _NOT_OF_GENERATORS.values()
    return is_refused or flag in _WITHOUT_FIELD


def flag_of(trainer: str, config: RunConfig, field: str) -> str | None:
    """Returns a field's flag, of an optimizer its prefix; None if the trainer has none."""
    for key in _WITHOUT_FLAG:
        if f"{trainer}: {field}.".startswith(f"{key}."):
            return None
    part, _, last = field.rpartition(".")
    for name in filter(None, part.split(".")):
        config = getattr(config, name)
    if last.endswith("optimizer"):
        prefix = last.removesuffix("optimizer").rstrip("_") or "finetune"
        return prefix if f"{prefix}_optimizer" in flags.FLAGS else None
    every = {o.field: o.name.flag for o in options.options(type(config), trainer)}
    return every.get(last)


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
    return (f"--{flag}={','.join(map(str, value)) if isinstance(value, tuple) else value}",)


def _with_value(config: Any, names: list[str], value: Any) -> Any:
    first, *rest = names
    new = _with_value(getattr(config, first), rest, value) if rest else value
    return dataclasses.replace(config, **{first: new})


def _changes(config: Any, where: str) -> Iterator[Change]:
    by_field = {option.field: option for option in options.options(type(config))}
    for field in dataclasses.fields(config):
        name, value = f"{where}{field.name}", getattr(config, field.name)
        if isinstance(value, OptimizerConfig):
            # Whose first step is another one already.
            other = "fedavgm" if value.name == "sgd" else "sgd"
            yield Change(name, OptimizerConfig(other, value.learning_rate), {})
            if name in _WITH_RATE:
                rate = 0.25 if value.learning_rate is None else value.learning_rate / 2
                yield Change(name, dataclasses.replace(value, learning_rate=rate), {})
        elif field.name in by_field:
            other = _VALUES.get(field.name)
            other = _other(by_field[field.name], value) if other is None else other
            yield Change(name, other, _BESIDE.get(name, {}))
        elif dataclasses.is_dataclass(value):
            yield from _changes(value, f"{name}.")


def _other(option: options.Option, value: Any) -> Any:
    """Returns another value of an option."""
    if option.is_list:
        return (_other(dataclasses.replace(option, hint=option.kind), (value or (1,))[0]),)
    if option.choices:
        return next(choice for choice in reversed(option.choices) if choice != value)
    if option.kind is bool:
        return value is False
    if option.kind is int:
        return 2 if value is None else value + 1
    return value / 2 if value else min(1.0, option.upper or 1.0) / 2


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
