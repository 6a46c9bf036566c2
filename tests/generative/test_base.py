"""What both generators share: optimizers that silos keep, and what is sent."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets import generators
from datasets.options import DataOptions, GeneratorOptions
from motley_tff import generative
from motley_tff.algorithms import FineTuning
from motley_tff.backends import base, sequential
from motley_tff.core import clients as clients_lib, random_streams
from motley_tff.core.errors import UserError
from motley_tff.experiment import scoring


def _task(kind, is_silos=True, **options):
    silos = {"setting": "cross_silo", "partition": "classes:5", "num_clients": 2}
    given = DataOptions("mnist", use_synthetic_data=True, **(silos if is_silos else {}))
    return generators.as_generative(
        datasets.create_task(given),
        GeneratorOptions(kind, width=8, diffusion_steps=20, **options),
    )


def _trained(task, kind, rounds, absent=(), **params):
    """Returns the process and its state after each round of two batches a client; of the pairs
    (round, client) in `absent` the client takes no part in the round.
    """
    params = {"train_steps": 2, "train_batch_size": 4, **params}
    algorithm = generative.KINDS[kind](**params).build(task, task.model.initial_weights(0))
    process = sequential.SequentialBackend(1).training(task, algorithm)
    plan = [
        base.Round(
            n,
            tuple(i for i in task.train.ids if (n, i) not in absent),
            random_streams.key(0, "local_training", n),
        )
        for n in range(1, rounds + 1)
    ]
    states = []
    process.run(process.initialize(), plan, lambda result, state: states.append(state))
    return process, states


@pytest.mark.parametrize("kind", generative.KINDS)
def test_silos_optimizers_go_on(kind):
    task = _task(kind)
    more = {"n_critic": 1} if kind == "wgan_gp" else {"server_decay": 0.0}
    process, states = _trained(task, kind, 3, keep_optimizer_state=True, **more)
    clients = process.client_states(states[-1])
    assert set(clients) == set(task.train.ids)
    # Every one of Adam's steps is counted: three rounds of two batches.
    steps = {float(leaf) for leaf in tf.nest.flatten(list(clients.values())) if np.ndim(leaf) == 0}
    assert 6 in steps and 2 not in steps
    fresh, others = _trained(task, kind, 3, **more)
    first, second, _ = _rounds(process, states, fresh, others)
    for a, b in first:
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in second)


def test_silos_count_steps_on_each_its_own():
    """One batch a round, the generator's step after three: of the silo that misses the first round
    a round later.
    """
    task = _task("wgan_gp")
    first, _ = task.train.ids
    params = {"n_critic": 3, "keep_optimizer_state": True, "train_steps": 1}
    process, states = _trained(task, "wgan_gp", 6, [(1, first)], **params)
    weights = [process.weights(state)[0] for state in states]
    moved = [not np.array_equal(a, b) for a, b in itertools.pairwise(weights)]
    assert moved == [False, True, True, False, True]
    # Of a batch a round, by epochs.
    params = generative.KINDS["wgan_gp"](keep_optimizer_state=True, train_batch_size=10**6)
    params.build(task, task.model.initial_weights(0))


def _rounds(process, states, fresh, others):
    """Yields for each round the pairs of weights of two processes."""
    for kept, new in zip(states, others, strict=True):
        a, b = (tf.nest.flatten(p.weights(s)) for p, s in ((process, kept), (fresh, new)))
        yield list(zip(a, b, strict=True))


@pytest.mark.parametrize("kind", generative.KINDS)
def test_devices_keep_nothing(kind):
    task = _task(kind, is_silos=False)
    params = generative.KINDS[kind](keep_optimizer_state=True, train_steps=5)
    with pytest.raises(UserError, match="--keep_optimizer_state is for silos"):
        params.build(task, task.model.initial_weights(0))


@pytest.mark.parametrize("kind", generative.KINDS)
def test_in_one_place_nothing_is_sent(kind):
    task = _task(kind, is_central=True)
    built = generative.KINDS[kind]().build(task, task.model.initial_weights(0))
    assert built.bytes_per_client == (0, 0)
    task = _task(kind)
    built = generative.KINDS[kind]().build(task, weights := task.model.initial_weights(0))
    size = sum(w.nbytes for w in weights)
    assert built.bytes_per_client == (size, size)


@pytest.mark.parametrize("kind", generative.KINDS)
def test_noise_differs_in_each_batch_of_an_evaluation(kind, monkeypatch):
    """The same picture twice as often is not the same error: it meets other noise."""
    monkeypatch.setattr("motley_tff.algorithms.scoring.EVALUATION_BATCH_SIZE", 2)
    task = _task(kind, is_silos=False)
    one, two = (_held_out_mean(task, copies) for copies in (2, 4))
    assert abs(one - two) > 1e-6


def _held_out_mean(task, copies):
    first = task.test.fetch(task.test.ids[0])["evaluation"]
    copied = {name: np.repeat(array[:1], copies, axis=0) for name, array in first.items()}
    clients = clients_lib.InMemoryClients({"a": dict.fromkeys(task.test.spec, copied)})
    task = dataclasses.replace(task, valid=clients, test=clients)
    work = FineTuning(max_epochs=0).build(task)
    evaluator = scoring.Evaluator(sequential.SequentialBackend(1), task, work)
    ids = dict.fromkeys(("valid", "test"), ("a",))
    scores = evaluator.score(task.model.initial_weights(0), None, ids, np.array([1, 2], np.int32))
    return float(scores["test"].values[task.metric.name][0, 0])
