"""Laws of random streams and of what they decide: cohorts, dealt examples, parts held out."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, example, given, settings, strategies as st

from motley_tff.core import clients, partition, random_streams
from motley_tff.evaluation import parts as parts_lib
from motley_tff.experiment import schedule
from tests import toy

SEEDS = st.integers(0, 2**32 - 1)
PLACES = st.tuples(
    SEEDS,
    st.sampled_from(random_streams.STREAMS),
    st.lists(st.integers(0, 3) | SEEDS, min_size=1, max_size=3),
)
IDS = st.text("ab", max_size=4) | st.text(st.characters(codec="utf-8"), max_size=5)


@given(st.lists(PLACES, min_size=2, max_size=6))
def test_the_same_choice_draws_the_same_and_another_one_another(places):
    keys = [tuple(random_streams.key(seed, name, *indices)) for seed, name, indices in places]
    draws = [random_streams.generator(s, name, *i).integers(2**63) for s, name, i in places]
    for i, place in enumerate(places):
        for j, other in enumerate(places[:i]):
            assert (keys[i] == keys[j]) == (draws[i] == draws[j]) == (place == other)


@settings(max_examples=settings().max_examples // 3)
@given(st.lists(IDS, unique=True, max_size=8))
def test_each_client_has_a_key_of_its_own(ids):
    keys = {tuple(random_streams.client_key(client_id)) for client_id in ids}
    assert len(keys) == len(ids)


RATES = st.floats(0, 1, exclude_max=True)


@given(st.lists(IDS, min_size=1, unique=True), RATES, RATES, SEEDS)
def test_who_stays_at_a_higher_rate_stays_at_a_lower_one(ids, rate, other, seed):
    def remaining(rate):
        stream = random_streams.generator(seed, "cohort_faults", 1)
        return schedule.remaining(tuple(ids), rate, stream)

    many, few = (remaining(r) for r in sorted((rate, other)))
    assert len(few) >= 1 and set(few) <= set(many) <= set(ids)
    assert list(many) == [i for i in ids if i in many], "in their order"
    assert remaining(rate) == remaining(rate)
    assert remaining(0.0) == tuple(ids)


# Clients take a while to make.
FEWER = settings(max_examples=settings().max_examples // 6)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def task():
    return toy.scalar_task({"t": [1.0]})


def _numbered(sizes, first):
    """Returns `{client: {part: numbers}}`, each number once."""
    source: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for parts in sizes:
        client = source.setdefault(f"c{first}", {})
        for part, size in parts.items():
            numbers = first + np.arange(size, dtype=np.float32)
            client[part] = {"x": numbers, "y": -numbers}
            first += size
    return clients.InMemoryClients(source)


def _numbers(source, *parts):
    return [x for i in source.ids for part in parts for x in source.fetch(i)[part]["x"]]


def _devices(task, train, held):
    trained = _numbered([{"train": size} for size in train], 0)
    tested = [{"personalization": p, "evaluation": e} for p, e in held]
    return dataclasses.replace(
        task, train=trained, valid=_numbered(tested, 1000), test=_numbered(tested, 2000)
    )


@FEWER
@given(train=SIZES, held=PAIRS, seed=SEEDS)
def test_each_example_is_dealt_once_and_within_its_split(task, train, held, seed):
    task = _devices(task, train, held)
    dealt, again = (partition.deal(task, seed, 1e9) for _ in range(2))
    for split, parts in (
        ("train", ["train"]),
        ("valid", ["personalization", "evaluation"]),
        ("test", ["personalization", "evaluation"]),
    ):
        before, after = task.splits[split], dealt.splits[split]
        assert after.ids == before.ids
        assert sorted(_numbers(after, *parts)) == sorted(_numbers(before, *parts))
        assert _numbers(after, *parts) == _numbers(again.splits[split], *parts)
        for client in before.ids:
            for part in parts:
                examples = after.fetch(client)[part]
                assert len(examples["x"]) == len(before.fetch(client)[part]["x"])
                np.testing.assert_array_equal(examples["x"], -examples["y"])


@FEWER
@given(sizes=st.lists(st.tuples(*[st.integers(1, 5)] * 3), min_size=1, max_size=5), seed=SEEDS)
def test_each_part_of_silos_is_dealt_among_itself(task, sizes, seed):
    names = ("train", "valid", "test")
    silos = _numbered([dict(zip(names, row, strict=True)) for row in sizes], 0)
    silo_task = dataclasses.replace(
        task, setting="cross_silo", train=silos, valid=silos, test=silos
    )
    dealt = partition.deal(silo_task, seed, 1e9)
    assert dealt.train is dealt.valid is dealt.test
    for part in names:
        assert sorted(_numbers(dealt.test, part)) == sorted(_numbers(silos, part))
        sizes = [len(dealt.test.fetch(i)[part]["x"]) for i in silos.ids]
        assert sizes == [len(silos.fetch(i)[part]["x"]) for i in silos.ids]


@FEWER
@given(train=SIZES)
def test_the_central_client_has_everything_in_order(task, train):
    task = _devices(task, train, [(1, 1)])
    central = partition.centralize(task, 4 * 2 * sum(train))
    assert central.train.ids == ("all",) and central.test is task.test
    assert _numbers(central.train, "train") == _numbers(task.train, "train")


PERCENTS = st.integers(1, 100)
# TensorFlow traces what derives clients, in every example; to find a smaller one that fails would
# take minutes.
FEW = settings(
    max_examples=settings().max_examples // 30,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def _held(task, held=tuple((size, 3) for size in (1, 2, 3, 10, 50, 100))):
    """Returns a task whose clients have personalization and evaluation sets of these sizes."""
    task = _devices(task, [1], held)
    return dataclasses.replace(task, valid=task.test)


@FEW
@given(percent=PERCENTS, other=PERCENTS, seed=SEEDS)
@example(percent=7, other=14, seed=1)  # 0.07 * 100 is above 7 as a float.
def test_smaller_sets_are_parts_of_larger_ones(task, percent, other, seed):
    whole = _held(task)
    small, large = (
        parts_lib.smaller_personalization_sets(whole, p / 100, seed).test
        for p in sorted((percent, other))
    )
    for client in whole.test.ids:
        before, many, few = (
            [float(x) for x in source.fetch(client)["personalization"]["x"]]
            for source in (whole.test, large, small)
        )
        assert len(few) == -(-len(before) * min(percent, other) // 100)
        assert many == [x for x in before if x in many] and few == [x for x in many if x in few]
        same = whole.test.fetch(client)["evaluation"]["x"]
        np.testing.assert_array_equal(small.fetch(client)["evaluation"]["x"], same)


@FEW
@given(percent=st.integers(1, 99), seed=SEEDS)
def test_a_holdout_and_the_rest_are_the_whole(task, percent, seed):
    whole = _held(task)
    cut = parts_lib.held_out_part(whole, percent / 100, seed).test
    # What is cut depends on the client alone, not on who else there is.
    few = clients.subset(whole.test, whole.test.ids[3:6])
    first = dataclasses.replace(whole, valid=few, test=few)
    alone = parts_lib.held_out_part(first, percent / 100, seed).test
    for client in whole.test.ids:
        parts = {part: _of(cut, client, part) for part in ("personalization", parts_lib.HOLDOUT)}
        before = _of(whole.test, client, "personalization")
        assert sorted(itertools.chain(*parts.values())) == before
        held_back = -(-len(before) * percent // 100)
        assert len(parts["personalization"]) == max(1, len(before) - held_back)
        if client in alone.ids:
            assert _of(alone, client, parts_lib.HOLDOUT) == parts[parts_lib.HOLDOUT]


def _of(source, client, part):
    return [float(x) for x in source.fetch(client)[part]["x"]]


@FEW
@given(held=PAIRS, num_examples=st.integers(1, 30), seed=SEEDS)
def test_other_clients_examples_are_a_sample_without_ones_own(task, held, num_examples, seed):
    whole = _held(task, held)
    source = parts_lib.distribution_shift(whole, num_examples, seed).test
    numbers_of = {client: _of(source, client, parts_lib.OOD) for client in source.ids}
    everything = set(_numbers(whole.test, "evaluation"))
    for client, numbers in numbers_of.items():
        assert set(numbers) <= everything
        assert not set(numbers) & set(_of(whole.test, client, "evaluation"))
        assert len(set(numbers)) == len(numbers) <= num_examples
    sample = set().union(*numbers_of.values())
    if len(numbers_of) > 1:
        # Of one sample, everybody has what is not its own.
        for client, numbers in numbers_of.items():
            assert set(numbers) == sample - set(_of(whole.test, client, "evaluation"))
        each = -(-num_examples // min(len(numbers_of), num_examples))
        for client in numbers_of:
            assert len(sample & set(_of(whole.test, client, "evaluation"))) <= each
        most = sum(min(each, size) for _, size in held)
        assert len(sample) == min(num_examples, most)


def test_a_subset_has_the_order_it_is_given():
    arrays = {name: {"train": {"x": np.array([i])}} for i, name in enumerate("abc")}
    names = tf.constant(["a", "b", "c"])
    by_id = clients.InGraphClients(
        ("a", "b", "c"), lambda i: {"train": {"x": tf.where(names == i)[:, 0]}}
    )
    for source in (clients.InMemoryClients(arrays), by_id):
        few = clients.subset(source, ("c", "a"))
        assert few.ids == ("c", "a") and few.index == {"c": 0, "a": 1}
        assert [int(few.fetch(i)["train"]["x"][0]) for i in few.ids] == [2, 0]
