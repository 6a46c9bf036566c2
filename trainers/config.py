"""Reads a trainer's flags, once, into frozen values; nothing behind it reads a flag.

No TensorFlow here: what is wrong with a command line is said at once.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from absl import flags

import datasets
from datasets.options import DataOptions, GeneratorOptions
from motley_tff import algorithms, commandline
from motley_tff.algorithms import FedAvg, FineTuning
from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.experiment import config as configs, defaults
from motley_tff.experiment.config import RunConfig
from motley_tff.files import model_files
from trainers import algorithm_flags, optimizer_flags, option_flags
from trainers.algorithm_flags import ExperimentOptions

FLAGS = flags.FLAGS
# Where the answer lies, not what it is: these may differ when an experiment is resumed.
_NOT_PART_OF_AN_EXPERIMENT = frozenset(
    {"root_output_dir", "experiment_name", "data_dir", "data_file", "tensorboard", "tff_workers"}
)
# What depends on --total_rounds where it is given: shares of it, whose models are kept, the noise.
_OF_ALL_ROUNDS = ("warmstart_fraction", "balance", "stop_after", "dp_epsilon")
# Generators have models of their own, and their nets are not personalized.
_NOT_OF_GENERATORS = (
    "model", "model_sizes", "evaluate_ood", "personalization_fraction", "metrics", "tuning_metric",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config:
    """What a trainer's command line asks for.

    `run` has None where a default depends on another value, which `experiment.defaults` fills in.
    `deciding_flags` decide the numbers; `default_flags` and `raisable` are as `RunDirectory` has
    them. `selects_round` says whether the closing table is of the best round, or of the last.
    """

    data: DataOptions
    run: RunConfig
    root_output_dir: str
    experiment_name: str
    deciding_flags: dict[str, Any]
    default_flags: dict[str, Any]
    selects_round: bool
    raisable: Mapping[str, tuple[str, ...]]
    generator: GeneratorOptions | None = None


def read(trainer: str) -> Config:
    """Returns what a trainer's parsed flags ask for; UserError if they do not fit together."""
    optimizer_flags.check_given(commandline.given())
    data = datasets.check_options(data_options(trainer))
    setting = datasets.setting(data.dataset_name, data.setting)
    experiment = option_flags.read(ExperimentOptions, trainer)
    generator = _generator() if trainer == "generative_trainer" else None
    run = _run(trainer, experiment)
    if trainer == "mtl_trainer" and setting == "cross_device":
        expected = f"silos: {_silos()}; other clients come and go, and keep no state"
        raise UserError(errors.name("dataset_name"), data.dataset_name, expected)
    is_own_data = data.dataset_name in datasets.USERS_DATA
    whole = defaults.resolve(run, setting, is_own_data=is_own_data)
    whole.check()
    stands_for = _stands_for() | _published_rates(trainer, data.dataset_name)
    if isinstance(whole.personalization, FineTuning):
        rates = whole.personalization.rates
        stands_for["finetune_learning_rate"] = [f"{rate:g}" for rate in rates]
    if generator is not None:  # Its betas depend on which it is.
        client = whole.algorithm.client_optimizer
        stands_for |= {f"client_{client.name}_{n}": v for n, v in client.parameters.items()}
    of_all = tuple(name for name in _OF_ALL_ROUNDS if name in FLAGS and FLAGS[name].value)
    decides = {**deciding_flags(trainer), "setting": data.setting}  # Perhaps the trainer's.
    return Config(
        data=data,
        run=run,
        root_output_dir=experiment.root_output_dir,
        experiment_name=str(experiment.experiment_name),
        deciding_flags=_filled_in(decides, stands_for),
        default_flags=_filled_in({name: FLAGS[name].default for name in decides}, stands_for),
        selects_round=_selects_round(experiment, run, setting),
        raisable={"total_rounds": (*of_all, *run.algorithm.schedules_of_all_rounds)},
        generator=generator,
    )


def default_flags(trainer: str, dataset: str) -> dict[str, Any]:
    """Returns a trainer's flags on a data set where they are not given, as `run.json` has them."""
    known = {name: defined.flag.default for name, defined in algorithm_flags.make(trainer).items()}
    return _filled_in(known, _stands_for() | _published_rates(trainer, dataset))


def _stands_for() -> dict[str, Any]:
    """Returns what flags at None stand for that once had a default of their own."""
    tuning, includes_baseline = configs.EvaluationConfig().choice()
    return {
        "finetune_tuning": tuning,
        "knn_tuning": tuning,
        "include_baseline_candidate": includes_baseline,
        "clients_per_train_round": configs.DEVICES_A_ROUND,
    }


def _published_rates(trainer: str, dataset: str) -> dict[str, float]:
    """Returns what rates of training stand for that are not given, where none are tried out."""
    client, server = FedAvg().client.learning_rate, FedAvg().server.learning_rate
    if trainer == "generative_trainer":  # Each generator has a clients' rate of its own.
        return {"server_learning_rate": server}
    is_own_data = dataset in datasets.USERS_DATA
    return {} if is_own_data else {"client_learning_rate": client, "server_learning_rate": server}


def _filled_in(values: Mapping[str, Any], stands_for: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stands_for.get(name) if v is None else v for name, v in values.items()}


def _selects_round(experiment: ExperimentOptions, run: RunConfig, setting: str) -> bool:
    """Returns whether the reported round is the best one; UserError if that is not to be had."""
    every, stops_early = experiment.finetune_every, run.loop.stop_after is not None
    selects = every is not None or (experiment.reported_round == "best" and not stops_early)
    if selects and setting == "cross_device":
        field = "reported_round" if every is None else "finetune_every"
        expected = f"the same clients in all evaluations, which silos are: {_silos()}"
        rounds = options.name_of(configs.LoopConfig, "rounds_per_evaluation")
        name, value = options.name_of(experiment, field), getattr(experiment, field)
        raise UserError(name, value, expected, f"give {rounds}")
    return selects or stops_early


def data_options(trainer: str = "") -> DataOptions:
    """Returns which data; a program without `--base_random_seed` has seed 0. A user's data are
    silos for `mtl_trainer`, if nothing is said.
    """
    data = option_flags.read(DataOptions, dataset_name=FLAGS.dataset_name)
    if data.dataset_name not in datasets.EITHER_SETTING:
        return data
    setting = datasets.setting(data.dataset_name, data.setting, trainer)
    return dataclasses.replace(data, setting=setting)


def _silos() -> str:
    names = ", ".join(datasets.CROSS_SILO)
    return f"{names}; or {', '.join(datasets.EITHER_SETTING)} with --setting=cross_silo"


def deciding_flags(trainer: str) -> dict[str, Any]:
    """Returns the flags that decide an experiment's numbers."""
    chosen = [FLAGS[name].value for name in ("algorithm", "personalization") if name in FLAGS]
    names = algorithm_flags.make(trainer).keys() - _NOT_PART_OF_AN_EXPERIMENT
    names -= algorithm_flags.of_unused_packages(trainer, chosen)
    # Other workers, or none and --backend=tff, may go on with what some began.
    workers = {"backend": "tff"} if FLAGS.tff_workers else {}
    return {name: FLAGS[name].value for name in sorted(names)} | workers


def _run(trainer: str, experiment: ExperimentOptions) -> RunConfig:
    """Returns the configuration of a trainer's run, as far as it was given."""
    evaluation = option_flags.read(
        configs.EvaluationConfig, trainer,
        ood_examples=experiment.ood_examples if experiment.evaluate_ood else 0,
    )  # fmt: skip
    loop = option_flags.read(configs.LoopConfig, trainer, evaluation=evaluation)
    if experiment.finetune_every is not None:
        loop = dataclasses.replace(loop, rounds_per_evaluation=experiment.finetune_every)
    choice = "generator" if trainer == "generative_trainer" else "algorithm"
    on_top = algorithms.personalizations_of(trainer)
    parts = {
        "algorithm": _chosen(trainer, choice, algorithm_flags.kinds_of(trainer)),
        "personalization": _chosen(trainer, "personalization", on_top) if on_top else None,
        "loop": loop,
        "backend": option_flags.read(configs.BackendConfig),
        "initial_models": (path,) if (path := experiment.path_to_initial_model_weights) else (),
    }
    if trainer == "hypcluster_trainer":
        _forget_rates_of_presets()
        parts["warm_start"] = option_flags.read(configs.WarmStartConfig)
        if paths := experiment.path_to_initial_model_weights_list:
            parts["initial_models"] = tuple(model_files.model_paths(paths))
    return options.checked(option_flags.read(RunConfig, **parts))


def _chosen(trainer: str, choice: str, offered: Mapping[str, Any]) -> Any:
    """Returns what a flag chooses, with its own flags; UserError for a flag of another one."""
    name = FLAGS[choice].value if choice in FLAGS else next(iter(offered))
    if name in algorithms.REFUSED:  # A package's, of a name that is taken.
        raise UserError(errors.name(choice), name, "another one", algorithms.REFUSED[name])
    algorithm_flags.refuse_others(trainer, choice, name, offered)
    return option_flags.read(offered[name], trainer)


def _generator() -> GeneratorOptions:
    for name in _NOT_OF_GENERATORS:
        if FLAGS[name].value != FLAGS[name].default:
            expected = "nothing, as it changes nothing of a generator's training"
            raise UserError(errors.name(name), FLAGS[name].value, expected, "leave it out")
    generator = option_flags.read(GeneratorOptions, is_central=FLAGS.algorithm == "centralized")
    generator.check()
    return generator


def _forget_rates_of_presets() -> None:
    """Takes back a preset's rates of a warm start that is switched off behind it."""
    names = {flag.name for flag in commandline.given() if flag.flagfile is None}
    if FLAGS.num_warmstart_fedavg_rounds or FLAGS.warmstart_fraction is not None:
        return
    for option in options.options(configs.WarmStartConfig):
        is_rate = option.default is None and option.field != "fraction"
        if is_rate and option.name.flag not in names:
            FLAGS[option.name.flag].unparse()
