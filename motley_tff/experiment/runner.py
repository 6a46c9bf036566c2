"""Runs an experiment: a task and a `RunConfig` in, a run directory out."""

import asyncio
import contextlib
import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from motley_tff import algorithms, commandline
from motley_tff.algorithms import attacks, kept_optimizers, stragglers
from motley_tff.backends import base, choice, sequential, vectorized
from motley_tff.core import (
    algorithm as algorithm_lib,
    cores,
    options,
    partition,
    private_mean,
    robust_mean,
)
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tff
from motley_tff.core.task import Task
from motley_tff.evaluation import acceptance, further_metrics
from motley_tff.experiment import (
    accounting,
    checkpoints,
    constant_prediction,
    defaults,
    loop as loop_lib,
    progress,
    rate_probe,
    recorder,
    run_directory,
    warm_start,
)
from motley_tff.experiment.config import BackendConfig, LoopConfig, RunConfig
from motley_tff.files import model_files


def limit_threads(threads_per_client: int) -> bool:
    """Sets TensorFlow's threads before it starts; returns whether it has that many."""
    with contextlib.suppress(RuntimeError):  # It runs already, with the threads that it has.
        tf.config.threading.set_intra_op_parallelism_threads(threads_per_client)
    return tf.config.threading.get_intra_op_parallelism_threads() == threads_per_client


def run(
    task: Task,
    config: RunConfig,
    directory: run_directory.RunDirectory,
    reporter: progress.Progress,
    warn: Callable[[str], None],
) -> None:
    """Runs an experiment to its end, from the last checkpoint if there is one.

    Args:
      task: The task, as its data set makes it.
      config: What to run, resolved (see `defaults`).
      directory: The run's; held by this process.
      reporter: Told what happens.
      warn: Given lines that a user should see.

    Raises:
      UserError: If the settings do not fit the task, or the directory holds another experiment.
    """
    task = prepared(task, config)
    task = attacks.unevaluated(task, config.attack, config.loop.base_random_seed)
    facts = {**check_data(task, directory), **_check_plugins(task, config, directory)}
    warn_of_omissions(task, warn)
    loop = _fit_cohort(task, config.loop, warn)
    _warn_of_plain_mean(task, config.backend, loop, warn)
    cohort = loop.clients_per_train_round or len(task.train)
    config.backend.added_noise(cohort)  # Refuses too much before a rate is tried.
    check_config(loop, task)
    config.algorithm.trained_layers(task)  # Which FedBABU refuses where all layers are the last.
    models = _initial_models(task, config)
    accounting.check_rates(config, rate_probe.rate_free(config))
    config, rates = _chosen_rates(task, config, directory, reporter)
    config, counted = _accounting(task, config, loop, models, rates, directory)
    noise = config.backend.added_noise(cohort)
    with _open_backend(task, config.backend, loop, warn) as (backend, reason):
        directory.write_record(
            status="running",
            backend=backend.name,
            backend_reason=reason,
            data=dict(task.facts),
            metric=task.metric.name,
            higher_is_better=task.metric.higher_is_better,
            **_tuning(task),
            num_weights=task.model.num_weights,
            constant_prediction=constant_prediction.scores(task),
            own_constant_prediction=constant_prediction.own_scores(task),
            **({} if noise is None else {"dp_added_noise": noise}),
            **({} if counted is None else {accounting.KEY: counted.facts(loop.total_rounds)}),
            configuration=dataclasses.replace(config, loop=loop).settings(),
            **({run_directory.RATES: rates} if rates else {}),
            **facts,
        )
        try:
            weights, sent = models, algorithm_lib.NO_BYTES
            if config.algorithm.num_models is not None:
                weights, sent = _warm_start(
                    task, config, loop, models, backend, directory, reporter
                )
            start = {"sha256": _digest(weights)}
            directory.check_same("initial_weights", start, "initial weights")
            built = kept_optimizers.build(config.algorithm, task, weights)
            personalization = config.build_personalization(task, built)
            directory.write_record(initial_weights=start, candidates=personalization.candidates)
            attacked = attacks.attacked(built, task, config.attack, config.loop.base_random_seed)
            slowed = stragglers.slowed(attacked, config.straggler_rate)
            loop_lib.run(
                loop, task, config.scheduled(slowed), personalization, backend, directory,
                config.algorithm_name, reporter, sent, _scalar_writer(config, directory),
                counted.epsilon if counted else None,
            )  # fmt: skip
        except BaseException as error:
            with contextlib.suppress(UserError):  # On a full disk, say.
                directory.write_record(status="stopped", reason=f"{type(error).__name__}: {error}")
            raise
    directory.write_record(status="finished", reason=None)


def _chosen_rates(
    task: Task,
    config: RunConfig,
    directory: run_directory.RunDirectory,
    reporter: progress.Progress,
) -> tuple[RunConfig, dict[str, Any]]:
    """Returns (the configuration with all its rates, how those that nobody gave were chosen); a
    resumed run has them in its record.
    """
    rates: dict[str, Any] = {}
    if rate_probe.rate_free(config):
        rates = directory.record.get(run_directory.RATES) or rate_probe.choose(
            task, config, reporter
        )
        algorithm = rate_probe.with_rates(config.algorithm, rates)
        chosen = dataclasses.replace(config, algorithm=algorithm)
        # Where none could be tried, the published ones.
        config = defaults.resolve(chosen, task.setting, len(task.train))
        config.check()
    return config, rates


def _accounting(
    task: Task,
    config: RunConfig,
    loop: LoopConfig,
    models: Any,
    rates: Mapping[str, Any],
    directory: run_directory.RunDirectory,
) -> tuple[RunConfig, accounting.Accounting | None]:
    """Returns (the configuration with its noise, what is counted of its privacy, if it is)."""
    if config.backend.aggregator != private_mean.NAME:
        return config, None
    built, labels = None, tuple[str, ...]()
    if config.algorithm.num_models is None:
        built = config.algorithm.build(task, models)
        labels = config.build_personalization(task, built).candidates
    config, counted = accounting.of_run(task, config, loop, built, labels, bool(rates))
    saved = checkpoints.rounds(directory.checkpoints)
    return config, counted.resumed(directory.record, max(saved, default=0))


def prepared(task: Task, config: RunConfig) -> Task:
    """Returns the task with its examples where the algorithm wants them, and what evaluations score
    and export.
    """
    task = further_metrics.with_metrics(task, config.loop.evaluation)
    limit = config.backend.memory_limit_gb * 1e9
    if config.algorithm.card.is_central:
        task = partition.centralize(task, limit, commandline.raise_if_ended)
    return dataclasses.replace(task, exports_scores=True) if config.export_scores else task


def check_config(config: LoopConfig, task: Task) -> None:
    """Raises a UserError for settings that do not fit the task's clients."""
    size = config.clients_per_train_round
    if size is not None and size > len(task.train):
        expected = f"at most {len(task.train)}, the training clients of {task.dataset}"
        raise UserError(options.name_of(config, "clients_per_train_round"), size, expected)
    if config.dropout_rate and len(task.train) == 1:
        name, rate = options.name_of(config, "dropout_rate"), config.dropout_rate
        expected = f"0 with the one training client of {task.dataset}, who always answers"
        raise UserError(name, rate, expected, "leave it out")
    if task.setting == "cross_device" and config.stop_after and config.final_evaluation_clients:
        stop = options.name_of(config, "stop_after")
        expected = f"none, as with {stop} all evaluations are of the same clients"
        advice = f"give {options.name_of(config, 'test_clients_per_evaluation')}"
        final = options.name_of(config, "final_evaluation_clients")
        raise UserError(final, config.final_evaluation_clients, expected, advice)
    # Flags are parsed before the task's setting is known, and Python's callers pass no flags.
    for text in config.evaluation.acceptance:
        acceptance.parse(text, task.setting == "cross_silo")
    if config.evaluation.tuning == "per_client" and task.setting != "cross_silo":
        expected = f"silos with validation data of their own; {task.dataset} is cross-device"
        raise UserError("tuning=per_client", None, expected, "choose global")


def check_data(task: Task, directory: run_directory.RunDirectory) -> dict[str, Any]:
    """Checks that a resumed run has the data it began with; returns what tells them apart."""
    files = {str(path): run_directory.digest(path) for path in task.facts.get("files", ())}
    digests = {os.path.basename(path): digest for path, digest in files.items()}
    if "data_sha256" in task.facts:  # Of data in memory.
        digests["data"] = task.facts["data_sha256"]
    directory.check_same("data_files", digests, "data files")
    ids = hashlib.sha256("\0".join(task.train.ids).encode()).hexdigest()
    clients = {"number": len(task.train), "sha256": ids}
    directory.check_same("clients", clients, "clients")
    return {"data_files": digests, "clients": clients}


def _tuning(task: Task) -> dict[str, Any]:
    """Returns what a record says of the metric that chooses, if it is not the reported one."""
    metric = task.chooses_by
    return {} if metric is None else {
        "tuning_metric": metric.name, "tuning_higher_is_better": metric.higher_is_better
    }  # fmt: skip


def warn_of_omissions(task: Task, warn: Callable[[str], None]) -> None:
    """Warns of examples that take no part, which a task's facts count by what they are, or by why,
    and of what else its data set has to say.
    """
    for fact, counts in task.facts.items():
        for reason, count in (counts if isinstance(counts, Mapping) else {"": counts}).items():
            if "left_out" in fact and isinstance(count, int) and count:
                omission = fact.replace("_", " ").replace("left out", "are left out")
                warn(f"of the data, {count:,} {omission}" + (f": {reason}" if reason else ""))
    for note in task.facts.get("notes", ()):
        warn(note)


def _check_plugins(
    task: Task, config: RunConfig, directory: run_directory.RunDirectory
) -> dict[str, Any]:
    """Checks that a resumed run has the packages it began with; returns those it has, if any."""
    origins = {
        "dataset": task.facts.get("package"),
        "algorithm": algorithms.origin(type(config.algorithm)),
        "personalization": algorithms.origin(type(config.personalization)),
    }
    plugins = {part: origin for part, origin in origins.items() if origin}
    directory.check_same("plugins", plugins, "versions of plug-ins")
    return {"plugins": plugins} if plugins else {}


def _fit_cohort(task: Task, loop: LoopConfig, warn: Callable[[str], None]) -> LoopConfig:
    """Returns the loop's settings; of a made-up population that is too small, all take part, and in
    one place there is no cohort.

    Real data refuse it, as Motley's sampling without replacement did: a round of fewer clients is
    another experiment.
    """
    size = loop.clients_per_train_round
    if task.train.ids == (partition.CENTRAL_CLIENT,):
        return dataclasses.replace(loop, clients_per_train_round=None)
    is_made_up = task.facts.get("source") == "synthetic" and task.setting == "cross_device"
    if is_made_up and size is not None and size > len(task.train):
        warn(
            f"--clients_per_train_round={size}, but synthetic {task.dataset} has "
            f"{len(task.train)} training clients: all take part"
        )
        return dataclasses.replace(loop, clients_per_train_round=None)
    return loop


def _warn_of_plain_mean(
    task: Task, config: BackendConfig, loop: LoopConfig, warn: Callable[[str], None]
) -> None:
    """Warns of a trimmed mean that leaves nobody out, and so resists no attack."""
    cohort, share = loop.clients_per_train_round or len(task.train), config.trim_share
    is_asked = config.aggregator == "trimmed_mean" and share > 0 and loop.total_rounds > 0
    if is_asked and robust_mean.trims_nobody(share, cohort):
        advice = f"give {math.ceil(1000 / cohort) / 1000:g}, or" if cohort > 2 else "train with"
        warn(
            f"--aggregator=trimmed_mean with --trim_share={share:g} leaves out nobody of {cohort} "
            f"clients a round, and is their plain mean; {advice} more clients"
        )


def _initial_models(task: Task, config: RunConfig) -> Any:
    """Returns the weights to start from; for clusters a list, empty if they are to be drawn."""
    models = [
        model_files.load(path, task.model.shapes, task.model.names)
        for path in config.initial_models
    ]
    config.algorithm.check_clients(task)
    if config.algorithm.num_models is not None:
        return models
    return models[0] if models else task.model.initial_weights(config.loop.base_random_seed)


def _warm_start(
    task: Task,
    config: RunConfig,
    loop: LoopConfig,
    initial_models: Sequence[Any],
    backend: base.Backend,
    directory: run_directory.RunDirectory,
    reporter: progress.Progress,
) -> tuple[Sequence[Any], algorithm_lib.Bytes]:
    """Returns (the k models that clustering starts from, what making them communicated)."""
    clusters: Any = config.algorithm
    before, seed, k = config.warm_start, loop.base_random_seed, clusters.num_models

    def build(weights: Any) -> algorithm_lib.Algorithm:
        built = before.algorithm(clusters).build(task, weights)
        return stragglers.slowed(built, config.straggler_rate)

    start = warm_start.WarmStart(task, backend, build, loop, directory.path, reporter)
    if before.initialization == "updates":
        first = (list(initial_models) or [task.model.initial_weights(seed)])[:1]
        (trained,) = start.fedavg(first, before.total_rounds)
        is_shared = [clusters.shares_base_layers and not last for last in task.model.is_last_layer]
        models = start.split(trained, k, is_shared)
    else:
        models = list(initial_models) or warm_start.random_models(task, seed, k)
        models = start.fedavg(models, before.total_rounds)
    return models, start.communicated


def _digest(weights: Any) -> str:
    leaves = tf.nest.flatten(weights)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


def _scalar_writer(
    config: RunConfig, directory: run_directory.RunDirectory
) -> recorder.WriteScalars | None:
    """Returns what writes a round's scalars for TensorBoard, through TFF's own release manager."""
    if not config.tensorboard:
        return None
    manager = tff.program.TensorBoardReleaseManager(directory.path / "tensorboard")
    return lambda means, number: asyncio.run(manager.release(dict(means), number))


@contextlib.contextmanager
def _open_backend(
    task: Task, config: BackendConfig, loop: LoopConfig, warn: Callable[[str], None]
) -> Iterator[tuple[base.Backend, str]]:
    """Yields (the backend, why it was chosen); TFF's worker lives as long."""
    cohort = loop.clients_per_train_round
    name, reason = choice.choose(
        config.name,
        config.aggregator,
        task,
        cohort_changes=bool(loop.dropout_rate) or (cohort is not None and cohort < len(task.train)),
        memory_limit_bytes=config.memory_limit_gb * 1e9,
        has_workers=bool(config.tff_workers),
    )
    if name == "tff":
        with _open_tff(config, cohort or len(task.train), warn) as backend:
            yield backend, reason
    elif name == "vectorized":
        yield vectorized.VectorizedBackend(), reason
    else:
        threads = config.threads_per_client
        at_once = max(1, cores.num_available() // threads) if threads else 1
        robust = config.aggregator if config.aggregator in robust_mean.NAMES else None
        yield sequential.SequentialBackend(at_once, robust, config.trim_share), reason


@contextlib.contextmanager
def _open_tff(
    config: BackendConfig, clients_per_round: int, warn: Callable[[str], None]
) -> Iterator[base.Backend]:
    # TFF's imports take 1.5 s, which other backends need not wait for.
    from motley_tff.backends.tff import aggregators, backend, runtime, workers

    aggregator = aggregators.build(
        config.aggregator, config.dp_noise_multiplier, clients_per_round, config.trim_share
    )
    opened: contextlib.AbstractContextManager[Any]
    if config.tff_workers:
        opened = workers.tff_workers_runtime(config.tff_workers, warn)
    else:
        opened = runtime.tff_runtime(warn, intra_op_threads=config.threads_per_client or None)
    with opened:
        yield backend.TffBackend(aggregator)
