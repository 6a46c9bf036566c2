"""Other ways to spread the same examples: dealt again at random, or all in one place.

What FedEval compares a federated run with: clients whose data are alike (`deal`), and training
without federation (`centralize`); and all examples for those who deal them otherwise (`pool`). All
hold the examples in memory.
"""

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np

from motley_tff.core import errors, random_streams
from motley_tff.core.clients import Clients, InMemoryClients, num_rows
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task

CENTRAL_CLIENT = "all"

Examples = dict[str, np.ndarray]
Parts = dict[str, Examples]
Key = TypeVar("Key", bound=Hashable)


def deal(
    task: Task,
    seed: int,
    memory_limit_bytes: float,
    on_client: Callable[[], None] = lambda: None,
) -> Task:
    """Returns the task with its examples pooled and dealt to the clients again.

    Clients keep their ids and how many examples they have. Each split deals among its own clients,
    and each part (train, valid, test of silos; personalization together with evaluation elsewhere)
    among itself, so that nothing moves between what is trained on and what is reported. A silo's
    training part is dealt once, for all splits. (`train` may have silos more than the others, which
    are too small to be evaluated.)

    Args:
      memory_limit_bytes: What the examples may take; more is a UserError.
      on_client: Called after each client that was read.
    """
    read = _reader(task, memory_limit_bytes, on_client)
    dealt: dict[int, Clients] = {}
    trained: dict[str, Examples] = {}
    for number, clients in enumerate(task.splits.values()):
        if id(clients) not in dealt:
            stream = random_streams.generator(seed, "partition", number)
            decks = [tuple(clients.spec)]
            if task.setting == "cross_silo" or clients is task.train:
                decks = [(part,) for part in clients.spec]
            new = _deal(read(clients), decks, stream)
            if clients is task.train:
                trained = {i: parts["train"] for i, parts in new.items()}
            elif task.setting == "cross_silo":
                new = {i: {**parts, "train": trained[i]} for i, parts in new.items()}
            dealt[id(clients)] = InMemoryClients(new)
    # What was known of a client's own data holds no more.
    facts = {name: fact for name, fact in task.facts.items() if name != "client_groups"}
    return dataclasses.replace(
        task,
        train=dealt[id(task.train)],
        valid=dealt[id(task.valid)],
        test=dealt[id(task.test)],
        facts={**facts, "partition": "iid"},
        reference={},
    )


def deal_evaluation(
    task: Task, seed: int, memory_limit_bytes: float, on_client: Callable[[], None] = lambda: None
) -> Task:
    """Returns the task whose valid and test clients evaluate on examples of all of them.

    Evaluation parts are pooled and dealt at random: silos' parts `valid` and `test` each by itself,
    the evaluation sets of devices all together. Clients keep how many examples they have, and what
    they train and personalize on, as FedEval's clients, who train on one class and are scored on
    all. The arguments and errors are those of `deal`.
    """
    read = _reader(task, memory_limit_bytes, on_client)
    sources = {id(clients): clients for clients in (task.valid, task.test)}
    data = {
        (number, client_id): parts
        for number, clients in sources.items()
        for client_id, parts in read(clients).items()
    }
    parts = ("valid", "test") if task.setting == "cross_silo" else (task.evaluation_part("test"),)
    stream = random_streams.generator(seed, "evaluation_partition", 0)
    new = _deal(data, [(part,) for part in parts], stream)
    dealt = {
        number: InMemoryClients({i: {**data[number, i], **new[number, i]} for i in clients.ids})
        for number, clients in sources.items()
    }
    return dataclasses.replace(
        task, valid=dealt[id(task.valid)], test=dealt[id(task.test)], reference={}
    )


def pool(
    task: Task, memory_limit_bytes: float, on_client: Callable[[], None] = lambda: None
) -> Examples:
    """Returns the examples of all clients of a task, of all their parts, each once.

    The arguments and errors are those of `deal`.
    """
    read = _reader(task, memory_limit_bytes, on_client)
    taken: set[tuple[str, str]] = set()
    everything = []
    for clients in {id(clients): clients for clients in task.splits.values()}.values():
        for client_id, parts in read(clients).items():
            everything += [e for part, e in parts.items() if (client_id, part) not in taken]
            taken |= {(client_id, part) for part in parts}
    return _concatenate(everything)


def centralize(
    task: Task, memory_limit_bytes: float, on_client: Callable[[], None] = lambda: None
) -> Task:
    """Returns the task with one training client, `all`, that has everybody's training examples.

    The arguments and errors are those of `deal`.
    """
    data = _reader(task, memory_limit_bytes, on_client)(task.train)
    parts = {part: _concatenate([d[part] for d in data.values()]) for part in task.train.spec}
    everybody = InMemoryClients({CENTRAL_CLIENT: parts})
    # A limit on what a client contributes to a round is none on what all of them have.
    return dataclasses.replace(task, train=everybody, max_train_examples=None)


def _reader(
    task: Task, limit: float, on_client: Callable[[], None]
) -> Callable[[Clients], dict[str, Parts]]:
    """Returns what reads clients into memory, up to a limit over all that it reads."""
    left = limit

    def read_client(fetched) -> Parts:
        nonlocal left
        parts = {p: {f: np.asarray(a) for f, a in e.items()} for p, e in fetched.items()}
        left -= sum(a.nbytes for e in parts.values() for a in e.values())
        if left < 0:
            expected = f"more, as all examples of {task.dataset} are in memory at once"
            advice = f"give a higher limit, or fewer clients by {errors.name('max_clients')}"
            raise UserError(errors.name("memory_limit_gb"), limit / 1e9, expected, advice)
        on_client()
        return parts

    return lambda clients: {i: read_client(clients.fetch(i)) for i in clients.ids}


def _deal(data: Mapping[Key, Parts], decks, stream) -> dict[Key, Parts]:
    """Deals the clients' examples again, each deck of parts by itself."""
    new: dict[Key, Parts] = {i: {} for i in data}
    for deck in decks:
        hands = [(i, part) for i in data for part in deck]
        sizes = [num_rows(data[i][part]) for i, part in hands]
        pool = _concatenate([data[i][part] for i, part in hands])
        order = stream.permutation(sum(sizes))
        for (i, part), rows in zip(hands, np.split(order, np.cumsum(sizes)[:-1]), strict=True):
            new[i][part] = {field: array[rows] for field, array in pool.items()}
    return new


def _concatenate(parts) -> dict[str, np.ndarray]:
    return {field: np.concatenate([p[field] for p in parts]) for field in parts[0]}
