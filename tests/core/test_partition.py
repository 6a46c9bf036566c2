"""Examples dealt again, and all in one place."""

import dataclasses

import numpy as np

from motley_tff.core import clients, partition
from tests import toy
from tests.errors import refused

_TRAIN = {"a": [1.0, 2.0, 3.0], "b": [10.0], "c": [20.0, 21.0]}
_HELD = {"d": ([1.0, 2.0], [3.0]), "e": ([30.0], [31.0, 32.0])}


def _all(source, parts):
    return sorted(x for i in source.ids for p in parts for x in np.asarray(source.fetch(i)[p]["x"]))


def test_clients_are_alike_afterwards():
    task = toy.scalar_task({"a": np.zeros(500), "b": np.ones(500)})
    first, other = (partition.deal(task, seed, 1e9).train for seed in (1, 2))
    own = [[source.fetch(i)["train"]["x"] for i in source.ids] for source in (first, other)]
    # 500 of 1000 without replacement: the standard error is 0.0158.
    np.testing.assert_allclose(np.mean(own[0], axis=1), 0.5, atol=0.07)
    assert not np.array_equal(*own)  # By another seed.


def test_a_silo_has_one_training_part():
    """With a silo too small to be evaluated, `train` and `test` are two lists of clients."""
    task = toy.classifier_silos()
    whole = {i: task.train.fetch(i) for i in task.train.ids}
    tiny = {part: {f: a[: 2 * (part == "train")] for f, a in whole["t0"]["train"].items()}
            for part in whole["t0"]}  # fmt: skip
    task = dataclasses.replace(task, train=clients.InMemoryClients({"tiny": tiny, **whole}))
    dealt = partition.deal(task, 1, 1e9)
    assert dealt.test.ids == tuple(whole) and dealt.train.ids == ("tiny", *whole)
    for i, before in whole.items():
        ours, theirs = (source.fetch(i)["train"]["x"] for source in (dealt.train, dealt.test))
        np.testing.assert_array_equal(ours, theirs)
        assert not np.array_equal(ours, before["train"]["x"])
    for part in ("valid", "test"):
        before, after = (
            np.concatenate([source.fetch(i)[part]["x"] for i in whole])
            for source in (task.test, dealt.test)
        )
        np.testing.assert_array_equal(np.sort(after, axis=0), np.sort(before, axis=0))


def test_too_much_to_pool():
    # Six float32 numbers are 24 bytes.
    partition.centralize(toy.scalar_task(_TRAIN), 24)
    with refused("memory_limit_gb", 2.3e-08):
        partition.centralize(toy.scalar_task(_TRAIN), 23)


def test_only_what_is_evaluated_is_dealt():
    task = toy.scalar_task(_TRAIN, _HELD)
    dealt = partition.deal_evaluation(task, 1, 1e9)
    assert dealt.train is task.train and dealt.valid is dealt.test
    for client_id in task.test.ids:
        before, after = task.test.fetch(client_id), dealt.test.fetch(client_id)
        np.testing.assert_array_equal(before["personalization"]["x"], after["personalization"]["x"])
        assert len(before["evaluation"]["x"]) == len(after["evaluation"]["x"])
    assert _all(dealt.test, ["evaluation"]) == [3.0, 31.0, 32.0]
    orders = {
        tuple(partition.deal_evaluation(task, s, 1e9).test.fetch("d")["evaluation"]["x"].tolist())
        for s in range(20)
    }
    assert orders == {(3.0,), (31.0,), (32.0,)}


def test_silos_parts_are_dealt_each_by_itself_and_training_is_left():
    task = toy.classifier_silos()
    dealt = partition.deal_evaluation(task, 1, 1e9)
    moved = set()
    for part in ("train", "valid", "test"):
        pairs = [(task.test.fetch(i)[part], dealt.test.fetch(i)[part]) for i in task.test.ids]
        both = [np.sort(np.concatenate([p[k]["x"] for p in pairs]), axis=0) for k in (0, 1)]
        np.testing.assert_array_equal(*both)
        if not all(np.array_equal(a["x"], b["x"]) for a, b in pairs):
            moved.add(part)
    assert moved == {"valid", "test"}
