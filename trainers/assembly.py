"""Puts a trainer together: from parsed flags to a finished experiment.

Imports TensorFlow, and so is itself imported only once the flags are known to be right.
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

import datasets
from motley_tff import algorithms, commandline
from motley_tff.algorithms import fedavg, finetuning, stragglers
from motley_tff.backends import base, choice, sequential, vectorized
from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import cores, partition
from motley_tff.core import task as task_lib
from motley_tff.core.errors import UserError
from motley_tff.experiment import (
    constant_prediction,
    experiment,
    run_directory,
    studies,
    tensorboard,
)
from motley_tff.files import model_files
from trainers import data_flags, optimizer_flags, terminal

# (task, initial weights) -> (training algorithm, personalization, name in the tables)
Build = Callable[
    [task_lib.Task, Any], tuple[algorithm_lib.Algorithm, algorithm_lib.Personalization, str]
]
# (backend, directory, cohort size) -> what `Build` gets as initial weights, and what it took
Train = Callable[
    [base.Backend, run_directory.RunDirectory, int | None], tuple[Any, algorithm_lib.Bytes]
]
# A trainer's own settings of the loop that say how candidates are chosen.
_CHOICE = ("tuning", "include_baseline_candidate")
# Reads and checks what is given; nothing is written before.
Prepare = Callable[[task_lib.Task], Train]


def run(
    values: flags.FlagValues,
    directory: run_directory.RunDirectory,
    build: Build,
    prepare: Prepare | None = None,
    selects_round: bool = False,
    **loop: Any,
) -> None:
    """Runs an experiment to its end, or finds it there, and prints the closing table.

    Args:
      values: The parsed flags.
      directory: The experiment's directory.
      build: Makes the trainer's algorithms.
      prepare: Makes what they start from, where that takes training.
      selects_round: Whether the closing table is that of the round that is best on validation
        clients; else of the last.
      **loop: The trainer's own settings of the loop, fields of `experiment.Config` and
        `studies.Config`.
    """
    limit_threads(values.threads_per_client)
    if directory.is_finished:
        _check_data_file(values, directory)
    else:
        _run_experiment(values, directory, build, prepare, loop)
    _draw(directory)
    _print_closing_table(directory, selects_round)


def _run_experiment(
    values: flags.FlagValues,
    directory: run_directory.RunDirectory,
    build: Build,
    prepare: Prepare | None,
    loop: Mapping[str, Any],
) -> None:
    task = _partitioned(values, datasets.create_task(data_flags.options(values)))
    files = {str(path): run_directory.digest(path) for path in task.facts.get("files", ())}
    digests = {os.path.basename(path): digest for path, digest in files.items()}
    directory.check_same("data_files", digests, "data files")
    ids = hashlib.sha256("\0".join(task.train.ids).encode()).hexdigest()
    directory.check_same("clients", {"number": len(task.train), "sha256": ids}, "clients")
    config = experiment_config(values, task, loop)
    experiment.check_config(config, task)
    train_initial = (prepare or _plain_start(values))(task)
    with open_backend(values, task, config) as (backend, reason):
        directory.write_record(
            status="running",
            backend=backend.name,
            backend_reason=reason,
            data=dict(task.facts),
            data_files=digests,
            clients={"number": len(task.train), "sha256": ids},
            metric=task.metric.name,
            higher_is_better=task.metric.higher_is_better,
            num_weights=task.model.num_weights,
            constant_prediction=constant_prediction.scores(task),
        )
        try:
            weights, before = train_initial(backend, directory, config.clients_per_train_round)
            start = {"sha256": _digest(weights)}
            directory.check_same("initial_weights", start, "initial weights")
            directory.write_record(initial_weights=start)
            algorithm, personalization, name = build(task, weights)
            experiment.Experiment(
                config, task, stragglers.slowed(algorithm, values.straggler_rate), personalization,
                backend, directory, name, terminal.TerminalProgress(), bytes_before=before,
                **_release(values, directory),
            ).run()  # fmt: skip
        except BaseException as error:
            with contextlib.suppress(UserError):  # On a full disk, say.
                directory.write_record(status="stopped", reason=f"{type(error).__name__}: {error}")
            raise
    directory.write_record(status="finished", reason=None)


def _partitioned(values: flags.FlagValues, task: task_lib.Task) -> task_lib.Task:
    """Returns the task with its examples where `--partition` and `--algorithm` want them."""
    is_central = "algorithm" in values and values.algorithm in algorithms.CENTRAL
    limit = values.memory_limit_gb * 1e9
    if values.partition == "iid":
        task = partition.deal(task, values.base_random_seed, limit, commandline.raise_if_ended)
    if is_central:
        task = partition.centralize(task, limit, commandline.raise_if_ended)
    return dataclasses.replace(task, exports_scores=True) if values.export_scores else task


def _plain_start(values: flags.FlagValues) -> Prepare:
    def prepare(task: task_lib.Task) -> Train:
        weights = initial_weights(values, task)
        return lambda backend, directory, cohort_size: (weights, algorithm_lib.NO_BYTES)

    return prepare


def _digest(weights: Any) -> str:
    leaves = tf.nest.flatten(weights)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


def _check_data_file(values: flags.FlagValues, directory: run_directory.RunDirectory) -> None:
    """Refuses to show results of one file for another."""
    if values.data_file and not values.use_synthetic_data:
        name = os.path.basename(values.data_file)
        found = {name: run_directory.digest(os.path.expanduser(values.data_file))}
        directory.check_same("data_files", found, "data files")


def _release(values: flags.FlagValues, directory: run_directory.RunDirectory) -> dict[str, Any]:
    if not values.tensorboard:
        return {}
    return {"release": tensorboard.writer(directory.path / "tensorboard")}


def _draw(directory: run_directory.RunDirectory) -> None:
    """Draws what the run exported, if the pictures are not there."""
    table, picture = directory.table("relations"), directory.figures / "relations.png"
    if table.exists() and not picture.exists():
        from motley_tff.report import relations

        picture.parent.mkdir(exist_ok=True)
        relations.save(picture, table)


def _print_closing_table(directory: run_directory.RunDirectory, selects_round: bool) -> None:
    first = [directory.table(name) for name in ("summary", "clients", "candidates", "rounds")]
    others = sorted(set(directory.path.glob("*.csv")) - set(first))  # Of flags: sizes.csv, say.
    rows = experiment.last_summary(directory)
    if selects_round:
        rows = experiment.selected_summary(directory, directory.record["higher_is_better"])
    metric = directory.record["metric"]
    title = metric
    if selects_round:
        title += f" after round {rows[0]['round']} (the best on validation clients)"
    terminal.print_summary(
        rows,
        title,
        f"{directory.record['backend']} ({directory.record['backend_reason']})",
        [*first, *others, directory.path / "run.json"],
        terminal.worse_than_nothing(
            rows,
            metric,
            directory.record["higher_is_better"],
            directory.record.get("constant_prediction", {}),
        ),
    )


def limit_threads(threads_per_client: int) -> None:
    """Sets TensorFlow's threads before it starts; see `--threads_per_client`."""
    tf.config.threading.set_intra_op_parallelism_threads(threads_per_client)


def experiment_config(
    values: flags.FlagValues, task: task_lib.Task, loop: Mapping[str, Any]
) -> experiment.Config:
    """Returns the loop's settings; silos all take part unless a number was given."""
    size = values.clients_per_train_round
    if task.setting == "cross_silo" and not values["clients_per_train_round"].present:
        size = None
    if task.train.ids == (partition.CENTRAL_CLIENT,):
        size = None
    if _is_cut(values, task, size):
        terminal.warn(
            f"--clients_per_train_round={size}, but synthetic {task.dataset} has "
            f"{len(task.train)} training clients: all take part"
        )
        size = None
    return experiment.Config(
        rounds_per_checkpoint=values.rounds_per_checkpoint,
        clients_per_train_round=size,
        valid_clients_per_evaluation=values.valid_clients_per_evaluation,
        test_clients_per_evaluation=values.test_clients_per_evaluation,
        final_evaluation_clients=values.final_evaluation_clients,
        base_random_seed=values.base_random_seed,
        dropout_rate=values.dropout_rate,
        studies=studies.Config(
            personalization_fractions=tuple(float(f) for f in values.personalization_fraction),
            acceptance=tuple(values.acceptance),
            ood_examples=values.ood_examples if values.evaluate_ood else 0,
            **{name: value for name, value in loop.items() if name in _CHOICE},
        ),
        **{
            "total_rounds": values.total_rounds,
            "rounds_per_evaluation": values.rounds_per_evaluation,
            **{name: value for name, value in loop.items() if name not in _CHOICE},
        },
    )


def _is_cut(values: flags.FlagValues, task: task_lib.Task, size: int | None) -> bool:
    """Returns whether a cohort is larger than a made-up population, which tries a command out.

    Real data refuse it, as Motley's sampling without replacement did: a round of fewer clients is
    another experiment.
    """
    is_made_up = values.use_synthetic_data and task.setting == "cross_device"
    return is_made_up and size is not None and size > len(task.train)


def initial_weights(values: flags.FlagValues, task: task_lib.Task) -> Any:
    """Returns weights from `--path_to_initial_model_weights`, or newly drawn ones."""
    if values.path_to_initial_model_weights:
        path = values.path_to_initial_model_weights
        return model_files.load(path, task.model.shapes, task.model.names)
    return task.model.initial_weights(values.base_random_seed)


def fedavg_params(values: flags.FlagValues) -> fedavg.Params:
    """Returns FedAvg's hyperparameters."""
    return fedavg.Params(
        client_optimizer=optimizer_flags.config("client", values),
        server_optimizer=optimizer_flags.config("server", values),
        train_epochs=values.train_epochs,
        train_batch_size=values.train_batch_size,
    )


def training_algorithm(
    values: flags.FlagValues, task: task_lib.Task, weights: Any
) -> algorithm_lib.Algorithm:
    """Returns the global training algorithm of `--algorithm`."""
    params = fedavg_params(values)
    own = {name: values[name].value for name in algorithms.TRAINING[values.algorithm]}
    return algorithms.build_training(values.algorithm, task, params, weights, own)


def multi_task_algorithm(
    values: flags.FlagValues, task: task_lib.Task, optimizer: Any, weights: Any
) -> algorithm_lib.Algorithm:
    """Returns the silo algorithm of `--algorithm`, whose own models use `optimizer`."""
    given = {name: values[name].value for name in algorithms.MULTI_TASK[values.algorithm]}
    own = {name: value for name, value in given.items() if value is not None}
    return algorithms.build_multi_task(
        values.algorithm, task, fedavg_params(values), optimizer, weights, own
    )


def fine_tuning(values: flags.FlagValues, task: task_lib.Task) -> algorithm_lib.Personalization:
    """Returns the fine-tuning of the `--finetune_*` flags."""
    params = finetuning.Params(
        optimizer=optimizer_flags.config("finetune", values),
        learning_rates=tuple(float(rate) for rate in values.finetune_learning_rate),
        max_epochs=values.finetune_max_epochs,
        batch_size=values.train_batch_size,
        last_layer=values.finetune_last_layer,
    )
    return finetuning.build(task, params)


@contextlib.contextmanager
def open_backend(
    values: flags.FlagValues, task: task_lib.Task, config: experiment.Config
) -> Iterator[tuple[base.Backend, str]]:
    """Yields (the backend, why it was chosen); TFF's worker lives as long."""
    cohort = config.clients_per_train_round
    name, reason = choice.choose(
        values.backend,
        values.aggregator,
        task,
        cohort_changes=bool(config.dropout_rate)
        or (cohort is not None and cohort < len(task.train)),
        memory_limit_bytes=values.memory_limit_gb * 1e9,
        has_workers=bool(values.tff_workers),
    )
    if name == "tff":
        with _tff_backend(values, cohort or len(task.train)) as backend:
            yield backend, reason
    elif name == "vectorized":
        yield vectorized.VectorizedBackend(), reason
    else:
        yield sequential.SequentialBackend(_parallel_clients(values.threads_per_client)), reason


@contextlib.contextmanager
def _tff_backend(values: flags.FlagValues, clients_per_round: int) -> Iterator[base.Backend]:
    from motley_tff.backends.tff import aggregators as tff_aggregators
    from motley_tff.backends.tff import backend as tff_backend
    from motley_tff.backends.tff import worker as tff_worker
    from motley_tff.backends.tff import workers as tff_workers

    aggregator = tff_aggregators.build(
        values.aggregator, values.dp_noise_multiplier, clients_per_round
    )
    runtime: contextlib.AbstractContextManager[Any]
    if values.tff_workers:
        runtime = tff_workers.tff_workers_runtime(values.tff_workers, terminal.warn)
    else:
        runtime = tff_worker.tff_runtime(intra_op_threads=values.threads_per_client or None)
    with runtime:
        yield tff_backend.TffBackend(aggregator)


def _parallel_clients(threads_per_client: int) -> int:
    """Returns how many clients run at once on the cores this process may use."""
    if threads_per_client == 0:
        return 1
    return max(1, cores.usable() // threads_per_client)
