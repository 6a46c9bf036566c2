"""Puts `hypcluster_trainer` together."""

import dataclasses
from typing import Any

from absl import flags

from motley_tff.algorithms import fedavg, hypcluster, stragglers
from motley_tff.backends import base
from motley_tff.core import algorithm as algorithm_lib
from motley_tff.core import task as task_lib
from motley_tff.core.errors import UserError
from motley_tff.experiment import run_directory, warm_start
from motley_tff.files import model_files
from trainers import assembly, shared_flags, terminal


def build(values: flags.FlagValues, rounds: shared_flags.Rounds) -> assembly.Build:
    """Returns what makes the algorithm and the personalization of given models."""

    def build_for(task: task_lib.Task, models: Any):
        params = hypcluster.Params(
            fedavg=assembly.fedavg_params(values),
            steps_empty_clusters=values.step_empty_clusters,
            shares_base_layers=values.share_base_layers,
            balance=values.balance,
            balance_rounds=max(1, rounds.clustering // 2),
        )
        training = hypcluster.build(task, params, models)
        return training, hypcluster.personalization(task, len(models)), training.name

    return build_for


def initial_models(values: flags.FlagValues, rounds: shared_flags.Rounds) -> assembly.Prepare:
    """Returns what makes the models that clustering starts from."""

    def prepare(task: task_lib.Task) -> assembly.Train:
        k, seed = values.num_clusters, values.base_random_seed
        if k > len(task.train):
            raise UserError(
                f"--num_clusters={k} but {task.dataset} has {len(task.train)} training clients; "
                "give at most that many"
            )
        given = _given(values, task)

        def train(
            backend: base.Backend, directory: run_directory.RunDirectory, cohort_size: int | None
        ) -> tuple[list[Any], algorithm_lib.Bytes]:
            start = warm_start.WarmStart(
                task,
                backend,
                lambda weights: _fedavg(values, task, weights),
                seed,
                cohort_size,
                directory.path,
                terminal.TerminalProgress(),
                values.dropout_rate,
            )
            if values.cluster_initialization == "updates":
                first = (given or [task.model.initial_weights(seed)])[:1]
                (trained,) = start.fedavg(first, rounds.warm_start)
                is_shared = [
                    values.share_base_layers and not last for last in task.model.is_last_layer
                ]
                models = start.split(trained, k, is_shared)
            else:
                models = given or warm_start.random_models(task, seed, k)
                models = start.fedavg(models, rounds.warm_start)
            return models, start.communicated

        return train

    return prepare


def _fedavg(values: flags.FlagValues, task: task_lib.Task, weights: Any) -> algorithm_lib.Algorithm:
    """Returns the warm start's FedAvg, with stragglers where the run has them."""
    params = warm_start_params(values)
    return stragglers.slowed(fedavg.build(task, params, weights), values.straggler_rate)


def warm_start_params(values: flags.FlagValues) -> fedavg.Params:
    """Returns clustering's hyperparameters with the warm start's own rates where it has some."""
    params = assembly.fedavg_params(values)
    client, server = params.client_optimizer, params.server_optimizer
    if values.warmstart_client_learning_rate is not None:
        client = dataclasses.replace(client, learning_rate=values.warmstart_client_learning_rate)
    if values.warmstart_server_learning_rate is not None:
        server = dataclasses.replace(server, learning_rate=values.warmstart_server_learning_rate)
    if values.warmstart_server_adam_epsilon is not None:
        own = {**server.parameters, "epsilon": values.warmstart_server_adam_epsilon}
        server = dataclasses.replace(server, parameters=own)
    return dataclasses.replace(params, client_optimizer=client, server_optimizer=server)


def _given(values: flags.FlagValues, task: task_lib.Task) -> list[Any] | None:
    given: list[str] | None = values.path_to_initial_model_weights_list
    if given is None:
        return None
    paths = model_files.model_paths(given)
    return [model_files.load(path, task.model.shapes, task.model.names) for path in paths]
