"""Reads a trainer's flags, once, into frozen values; nothing behind it reads a flag.

No TensorFlow here: what is wrong with a command line is said at once.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from absl import flags

import datasets
from datasets.options import DataOptions, GeneratorOptions
from motley_tff import algorithms, commandline, generative
from motley_tff.algorithms import (
    FedAvg,
    FineTuning,
    HypCluster,
    OptimizerConfig,
    attacks,
)
from motley_tff.core import candidates, private_mean
from motley_tff.core.errors import UserError
from motley_tff.experiment import defaults
from motley_tff.experiment.config import (
    BackendConfig,
    EvaluationConfig,
    LoopConfig,
    RunConfig,
    WarmStartConfig,
)
from motley_tff.files import model_files
from trainers import algorithm_flags, optimizer_flags

FLAGS = flags.FLAGS
# Where the answer lies, not what it is: these may differ when an experiment is resumed.
_NOT_PART_OF_AN_EXPERIMENT = frozenset(
    {"root_output_dir", "experiment_name", "data_dir", "data_file", "tensorboard", "tff_workers"}
)
_OF_AGGREGATORS = {"trim_share": "trimmed_mean", "dp_noise_multiplier": private_mean.NAME}
_OF_GENERATORS: Mapping[str, tuple[str, ...]] = {
    "wgan_gp": ("n_critic", "penalty"),
    "ddpm": ("diffusion_steps", "sampling_steps", "server_decay"),
}
# Flags of all trainers that would change nothing: generators have models of their own, and their
# nets are not personalized.
_NOT_OF_GENERATORS = ("model", "model_sizes", "evaluate_ood", "personalization_fraction")
_WARM_START_RATES = (
    "warmstart_client_learning_rate",
    "warmstart_server_learning_rate",
    "warmstart_server_adam_epsilon",
)


@dataclasses.dataclass(frozen=True)
class Config:
    """What a trainer's command line asks for.

    `run` has None where a default depends on another value, which `experiment.defaults` fills in.
    `deciding_flags`, which `run.json` gets, are those that decide the numbers. `selects_round` says
    whether the closing table is that of the round best on validation clients, or of the last;
    `generator` what makes pictures, of the trainer that trains such; `raisable` what may
    be raised where a run goes on, see `RunDirectory`.
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
    for flag in commandline.given():
        if (aggregator := _OF_AGGREGATORS.get(flag.name, FLAGS.aggregator)) != FLAGS.aggregator:
            raise UserError(
                f"--{flag.name} is for --aggregator={aggregator}, found {FLAGS.aggregator}; leave "
                "one of them out"
            )
    data = data_options(trainer)
    is_silos = datasets.setting(data.dataset_name, data.setting) == "cross_silo"
    selects_round = _selects_round(is_silos)
    run = {
        "finetuning_trainer": _fine_tuning,
        "knn_per_trainer": _knn_per,
        "hypcluster_trainer": _clustering,
        "mtl_trainer": _multi_task,
        "generative_trainer": _generative,
    }[trainer](is_silos)
    datasets.check_options(data)
    whole = defaults.resolve(run, "cross_silo" if is_silos else "cross_device")
    whole.check()
    # The trainer's setting, if none was given.
    decides = {**deciding_flags(trainer), "setting": data.setting}
    if trainer == "generative_trainer":  # What they stand for, not whether they were given.
        client = whole.algorithm.client_optimizer
        betas = {f"client_{client.name}_{name}": v for name, v in client.parameters.items()}
        decides |= {name: value for name, value in betas.items() if name in decides}
    return Config(
        data=data,
        run=run,
        root_output_dir=FLAGS.root_output_dir,
        experiment_name=FLAGS.experiment_name,
        deciding_flags=decides,
        default_flags={name: FLAGS[name].default for name in decides},
        selects_round=selects_round,
        raisable={"total_rounds": _shares_of_rounds()},
        generator=_generator() if trainer == "generative_trainer" else None,
    )


def _shares_of_rounds() -> tuple[str, ...]:
    """Returns the given flags that mean a share of --total_rounds."""
    names = ("warmstart_fraction", "balance")
    return tuple(name for name in names if name in FLAGS and FLAGS[name].value)


def _selects_round(is_silos: bool) -> bool:
    """Returns whether the reported round is the best one; UserError if that is not to be had."""
    every = "finetune_every" in FLAGS and FLAGS.finetune_every is not None
    selects = every or FLAGS.reported_round == "best"
    if selects and not is_silos:
        flag = "--finetune_every" if every else "--reported_round=best"
        raise UserError(
            f"{flag} takes the best of several evaluations, which must be of the same "
            f"clients: it is for silos ({_silos()}); give --rounds_per_evaluation"
        )
    return selects


def data_options(trainer: str = "") -> DataOptions:
    """Returns which data; a program without `--base_random_seed` has seed 0. A user's data are
    silos for `mtl_trainer`, if nothing is said.
    """
    options = DataOptions(**_flags_of(DataOptions))
    lists: dict[str, Any] = {
        name: tuple(value)
        for name in ("feature_columns", "categorical_columns", "missing_values")
        if (value := getattr(options, name)) is not None
    }
    if options.model_sizes is not None:
        lists["model_sizes"] = tuple(map(int, options.model_sizes))
    if options.dataset_name in datasets.EITHER_SETTING:
        lists["setting"] = datasets.setting(options.dataset_name, options.setting, trainer)
    return dataclasses.replace(options, **lists)


def _silos() -> str:
    names = ", ".join(datasets.CROSS_SILO)
    return f"{names}; or {', '.join(datasets.EITHER_SETTING)} with --setting=cross_silo"


def _flags_of(kind: type) -> dict[str, Any]:
    """Returns the values of the flags that have the names of a dataclass's fields."""
    names = (field.name for field in dataclasses.fields(kind))
    return {name: FLAGS[name].value for name in names if name in FLAGS}


def deciding_flags(trainer: str) -> dict[str, Any]:
    """Returns the flags that decide an experiment's numbers."""
    by_module = FLAGS.flags_by_module_dict()
    foreign = {f.name for m, fs in by_module.items() if _is_foreign(m) for f in fs}
    chosen = [FLAGS[name].value for name in ("algorithm", "personalization") if name in FLAGS]
    foreign |= algorithm_flags.of_unused_packages(trainer, chosen)
    decides = {
        name: FLAGS[name].value
        for name in sorted({FLAGS[n].name for n in FLAGS} - foreign - _NOT_PART_OF_AN_EXPERIMENT)
        if optimizer_flags.first_name(name) == name  # One setting, one name.
    }
    # Other workers, or none and --backend=tff, may go on with what some began.
    return {**decides, "backend": "tff"} if FLAGS.tff_workers else decides


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] in ("absl", "tensorflow", "tensorflow_federated", "launch")


def _fine_tuning(is_silos: bool) -> RunConfig:
    personalization = _personalization(
        "finetuning_trainer",
        optimizer=_optimizer("finetune", FineTuning.optimizer.learning_rate),
        learning_rates=tuple(float(rate) for rate in FLAGS.finetune_learning_rate),
        max_epochs=FLAGS.finetune_max_epochs,
        last_layer=FLAGS.finetune_last_layer,
    )
    loop = _loop(FLAGS.finetune_tuning, FLAGS.include_baseline_candidate)
    if (every := FLAGS.finetune_every) is not None:
        loop = dataclasses.replace(loop, rounds_per_evaluation=every)
    return _run(_algorithm("finetuning_trainer"), personalization, loop)


def _knn_per(is_silos: bool) -> RunConfig:
    if not FLAGS.total_rounds and not FLAGS.path_to_initial_model_weights:
        raise UserError(
            "--total_rounds=0 trains no global model; give --path_to_initial_model_weights, or "
            "rounds"
        )
    personalization = _personalization(
        "knn_per_trainer",
        num_neighbors=tuple(int(k) for k in FLAGS.num_neighbors),
        coefficients=tuple(float(c) for c in FLAGS.coefficients),
    )
    loop = _loop(FLAGS.knn_tuning, FLAGS.include_baseline_candidate)
    return _run(_algorithm("knn_per_trainer"), personalization, loop)


def _multi_task(is_silos: bool) -> RunConfig:
    if not is_silos:
        raise UserError(
            f"--dataset_name={FLAGS.dataset_name} has clients that come and go, which keep no "
            f"state; mtl_trainer needs silos: {_silos()}"
        )
    algorithm: Any = _algorithm(
        "mtl_trainer", personal_optimizer=_optimizer("personal", FLAGS.personal_learning_rate)
    )
    return _run(algorithm, None, _loop())


def _generator() -> GeneratorOptions:
    _check_generators_flags()
    return GeneratorOptions(
        FLAGS.generator,
        FLAGS.generator_width,
        FLAGS.diffusion_steps,
        FLAGS.sampling_steps or None,
        FLAGS.algorithm == "centralized",
        FLAGS.only_client,
        FLAGS.memory_limit_gb,
    )


def _check_generators_flags() -> None:
    """Refuses flags of the other generator, and those that contradict each other."""
    for kind, names in _OF_GENERATORS.items():
        given = [name for name in names if FLAGS[name].present]
        if given and kind != FLAGS.generator:
            raise UserError(
                f"--{given[0]} is a flag of {kind}, not of --generator={FLAGS.generator}; leave it "
                "out"
            )
    for name in _NOT_OF_GENERATORS:
        if FLAGS[name].value != FLAGS[name].default:
            raise UserError(f"--{name} changes nothing of a generator's training; leave it out")
    if FLAGS["train_steps"].present and FLAGS["train_epochs"].present:
        raise UserError("--train_steps takes the place of --train_epochs; leave one of them out")
    if FLAGS.algorithm == "centralized" and FLAGS.only_client is not None:
        raise UserError(
            "--algorithm=centralized trains on all clients' pictures, --only_client on those of "
            "one; leave one of them out"
        )
    if FLAGS.sampling_steps > FLAGS.diffusion_steps:
        raise UserError(
            f"--sampling_steps={FLAGS.sampling_steps}: expected at most --diffusion_steps="
            f"{FLAGS.diffusion_steps}"
        )
    width = FLAGS.generator_width
    if width is not None and FLAGS.generator == "ddpm" and width % 8:
        raise UserError(
            f"--generator_width={width}: ddpm normalizes eight groups of filters; give a multiple "
            "of 8"
        )
    if width is not None and FLAGS.generator == "wgan_gp" and width < 2:
        raise UserError(
            f"--generator_width={width}: wgan_gp has a layer of half as many filters; give 2 or "
            "more"
        )


def _generative(is_silos: bool) -> RunConfig:
    kind: Any = generative.KINDS[FLAGS.generator]
    own = {name: FLAGS[name].value for name in _OF_GENERATORS[FLAGS.generator]}
    fields = {field.name for field in dataclasses.fields(kind)}
    algorithm = kind(
        **_fedavg(),
        train_steps=FLAGS.train_steps,
        keep_optimizer_state=FLAGS.keep_optimizer_state,
        **{name: value for name, value in own.items() if name in fields},
    )
    loop = dataclasses.replace(_loop(), num_generated=FLAGS.num_generated)
    # The nets are scored as they are.
    return _run(algorithm, FineTuning(max_epochs=0), loop)


def _clustering(is_silos: bool) -> RunConfig:
    paths = _cluster_models()
    before = _warm_start(is_silos)
    loop = _loop()
    if FLAGS.warmstart_fraction is not None:
        loop = dataclasses.replace(loop, total_rounds=loop.total_rounds - before.total_rounds)
    algorithm = HypCluster(
        **_fedavg(),
        num_clusters=FLAGS.num_clusters,
        steps_empty_clusters=FLAGS.step_empty_clusters,
        shares_base_layers=FLAGS.share_base_layers,
        balance=FLAGS.balance,
    )
    run = _run(algorithm, None, loop)
    return dataclasses.replace(run, initial_models=paths, warm_start=before)


def _cluster_models() -> tuple[str, ...]:
    """Returns the paths of the k models to start from, none for new ones."""
    if FLAGS.path_to_initial_model_weights:
        raise UserError(
            "--path_to_initial_model_weights holds one model; give k of them to "
            "--path_to_initial_model_weights_list"
        )
    given = FLAGS.path_to_initial_model_weights_list
    if given is None:
        return ()
    if not all(given or [""]):
        raise UserError(
            "--path_to_initial_model_weights_list has an empty path; give k paths, or one run of "
            "this trainer"
        )
    paths, k = model_files.model_paths(given), FLAGS.num_clusters
    if len(paths) != k:
        what = f"has {len(given)} paths"
        if len(paths) != len(given):
            what = f"leads to {len(paths)} models"
        raise UserError(f"--path_to_initial_model_weights_list {what}, expected --num_clusters={k}")
    if FLAGS.cluster_initialization == "updates":
        raise UserError(
            "--cluster_initialization=updates makes all models from one; leave "
            "--path_to_initial_model_weights_list out"
        )
    return tuple(paths)


def _warm_start(is_silos: bool) -> WarmStartConfig:
    """Returns what clusters start from: FedAvg, with other rates where they are given."""
    num_rounds = FLAGS.num_warmstart_fedavg_rounds
    if FLAGS.warmstart_fraction is not None:
        if not is_silos:
            raise UserError(
                f"--warmstart_fraction is for silos ({_silos()}); give "
                "--num_warmstart_fedavg_rounds"
            )
        if FLAGS["num_warmstart_fedavg_rounds"].present:
            raise UserError(
                "--warmstart_fraction and --num_warmstart_fedavg_rounds both say how long the "
                "warm start is; give one of them"
            )
        num_rounds = round(FLAGS.warmstart_fraction * FLAGS.total_rounds)
    # A preset's rates stand for nothing where its warm start is switched off behind it.
    given = [
        f"--{flag.name}"
        for flag in commandline.given()
        if flag.name in _WARM_START_RATES and flag.flagfile is None
    ]
    if given and not num_rounds and FLAGS.cluster_initialization == "random":
        raise UserError(
            f"{given[0]} is for a warm start, of which there are no rounds; leave it out, or give "
            "--num_warmstart_fedavg_rounds"
        )
    client = _optimizer("client", FLAGS.warmstart_client_learning_rate)
    server = _optimizer("server", FLAGS.warmstart_server_learning_rate)
    if FLAGS.warmstart_server_adam_epsilon is not None:
        parameters = {**server.parameters, "epsilon": FLAGS.warmstart_server_adam_epsilon}
        server = dataclasses.replace(server, parameters=parameters)
    optimizers = {"client_optimizer": client, "server_optimizer": server}
    algorithm = FedAvg(**_fedavg() | optimizers)
    return WarmStartConfig(algorithm, num_rounds, FLAGS.cluster_initialization)


def _run(algorithm: FedAvg, personalization: Any, loop: LoopConfig) -> RunConfig:
    path = FLAGS.path_to_initial_model_weights
    backend = _flags_of(BackendConfig) | {"tff_workers": tuple(FLAGS.tff_workers)}
    parts = {
        "algorithm": algorithm,
        "personalization": personalization,
        "loop": loop,
        "backend": BackendConfig(FLAGS.backend, **backend),
        "initial_models": (path,) if path else (),
        "attack": attacks.parse(FLAGS.attack),
    }
    return RunConfig(**_flags_of(RunConfig) | parts)


def _algorithm(trainer: str, **more: Any) -> FedAvg:
    """Returns `--algorithm` with its hyperparameters; see `_hyperparameters`."""
    offered = algorithms.offered_by(trainer)
    parameters = _hyperparameters(trainer, offered, "algorithm", FLAGS.algorithm)
    return offered[FLAGS.algorithm](**_fedavg(), **parameters, **more)


def _personalization(trainer: str, **more: Any) -> Any:
    """Returns the chosen personalization with its hyperparameters; see `_hyperparameters`."""
    offered = algorithms.personalizations_of(trainer)
    name = FLAGS.personalization if len(offered) > 1 else next(iter(offered))
    parameters = _hyperparameters(trainer, offered, "personalization", name)
    return offered[name](**parameters, **more)


def _hyperparameters(
    trainer: str, offered: Mapping[str, Any], kind: str, name: str
) -> dict[str, Any]:
    """Returns the values of the chosen one's own flags; UserError for a flag of another one."""
    parameters = {p.flag: p for p in algorithms.parameters(offered[name], trainer)}
    owners: dict[str, list[str]] = {}
    for other, its_class in offered.items():
        for parameter in algorithms.parameters(its_class, trainer):
            owners.setdefault(parameter.flag, []).append(other)
    for flag, names in owners.items():
        if flag not in parameters and FLAGS[flag].present:
            raise UserError(
                f"--{flag} is a flag of {', '.join(names)}, not of --{kind}={name}; leave it out"
            )
    given = {parameter.field: FLAGS[flag].value for flag, parameter in parameters.items()}
    given = {field: value for field, value in given.items() if value is not None}
    return {f: tuple(map(float, v)) if isinstance(v, list) else v for f, v in given.items()}


def _fedavg() -> dict[str, Any]:
    return {
        "client_optimizer": _optimizer("client", FLAGS.client_learning_rate),
        "server_optimizer": _optimizer("server", FLAGS.server_learning_rate),
        "train_epochs": FLAGS.train_epochs,
        "train_batch_size": FLAGS.train_batch_size,
    }


def _optimizer(prefix: str, rate: float | None) -> OptimizerConfig:
    name = FLAGS[f"{prefix}_optimizer"].value
    parameters = {
        parameter: value
        for parameter in optimizer_flags.PARAMETERS[name]
        if (value := FLAGS[f"{prefix}_{name}_{parameter}"].value) is not None
    }
    return OptimizerConfig(name, rate, parameters)


def _loop(
    tuning: candidates.Tuning | None = None,
    include_baseline_candidate: bool | None = None,
) -> LoopConfig:
    size, is_given = FLAGS.clients_per_train_round, FLAGS["clients_per_train_round"].present
    if is_given and FLAGS.clients_fraction is not None:
        raise UserError(
            f"--clients_per_train_round={size} and --clients_fraction={FLAGS.clients_fraction:g} "
            "both say how large a cohort is; leave one out"
        )
    if not is_given:
        size = None
    evaluation = EvaluationConfig(
        personalization_fractions=tuple(float(f) for f in FLAGS.personalization_fraction),
        acceptance=tuple(FLAGS.acceptance),
        ood_examples=FLAGS.ood_examples if FLAGS.evaluate_ood else 0,
        tuning=tuning,
        include_baseline_candidate=include_baseline_candidate,
    )
    given = _flags_of(LoopConfig) | {"clients_per_train_round": size, "evaluation": evaluation}
    return LoopConfig(**given)
