"""Which clients take part in a round, and which an evaluation looks at."""

import collections
import contextlib
from typing import ClassVar

import numpy as np
import pytest

from motley_tff.algorithms import FedAvg, FineTuning, optimizers
from motley_tff.backends import base, sequential
from motley_tff.core import random_streams
from motley_tff.experiment import experiment, run_directory, schedule
from motley_tff.experiment.config import LoopConfig
from motley_tff.files import csv_files
from tests import toy

pytestmark = pytest.mark.usefixtures("eagerly")

_TRAIN = {f"t{i}": [float(i)] for i in range(10)}
_HELD_OUT = {f"v{i}": ([1.0], [float(i)]) for i in range(6)}
_SGD = optimizers.OptimizerConfig("sgd", 0.5)


class _Backend(sequential.SequentialBackend):
    """Writes down who takes part in a round; every client it evaluates is like the first."""

    first: ClassVar[dict] = {}

    def __init__(self):
        super().__init__()
        self.cohorts = {}

    def map_clients(self, call):
        setting = call.task.setting
        if setting not in self.first:
            some = super().map_clients(call._replace(client_ids=call.client_ids[:1]))
            ((_, self.first[setting]),) = some
        return ((client_id, self.first[setting]) for client_id in call.client_ids)

    def training(self, task, algorithm):
        process = super().training(task, algorithm)

        def run(state, rounds, on_round):
            for one in rounds:
                self.cohorts[one.number] = one.client_ids
                means = {"loss": 1.0, "half_squared_error": 1.0}
                on_round(base.RoundResult(one.number, len(one.client_ids), means, 0.0), state)
            return state

        process.run = run
        return process


def _run(root, setting="cross_device", **config):
    """Returns ({round: cohort}, {(round, split): evaluated clients})."""
    config = {"total_rounds": 4, "rounds_per_evaluation": 2, "clients_per_train_round": 3} | config
    task = toy.scalar_task(_TRAIN, _HELD_OUT, setting=setting)
    training = FedAvg(_SGD, _SGD).build(task, task.model.initial_weights(0))
    tuned, backend = FineTuning(_SGD, (0.5,), 1).build(task), _Backend()
    name = f"run{len(list(root.iterdir()))}"
    with contextlib.closing(run_directory.RunDirectory(str(root), name, {})) as directory:
        directory.write_record(status="running")
        made = LoopConfig(rounds_per_checkpoint=1000, **config)
        experiment.Experiment(made, task, training, tuned, backend, directory, "toy").run()
    looked_at = collections.defaultdict(list)
    for row in csv_files.read(root / name / "clients.csv"):
        looked_at[int(row["round"]), row["split"]].append(row["client_id"].partition(":")[2])
    return backend.cohorts, dict(looked_at)


def test_cohorts_are_random_and_of_different_clients(tmp_path):
    rounds, size = 400, 3
    found, _ = _run(tmp_path, total_rounds=rounds, rounds_per_evaluation=rounds)
    assert sorted(found) == list(range(1, rounds + 1))
    assert all(len(set(cohort)) == len(cohort) == size for cohort in found.values())
    assert sum(a != b for a, b in zip(found.values(), list(found.values())[1:], strict=False)) > 390
    # Each of 10 clients is in 3 of 10 rounds: 120 of 400, with a standard deviation of
    # sqrt(400 * 0.3 * 0.7) = 9.2. Four of them either way.
    often = collections.Counter(client for cohort in found.values() for client in cohort)
    assert set(often) == set(_TRAIN)
    assert all(120 - 37 < number < 120 + 37 for number in often.values())
    # Any two in a cohort with probability 3 / 10 * 2 / 9 = 1 / 15: 27 rounds, deviation 5.
    pairs = collections.Counter(
        frozenset((a, b)) for cohort in found.values() for a in cohort for b in cohort if a < b
    )
    assert len(pairs) == 45 and all(27 - 20 < number < 27 + 20 for number in pairs.values())


def test_the_seed_and_the_round_decide_a_cohort(tmp_path):
    found, _ = _run(tmp_path, total_rounds=8)
    assert _run(tmp_path, total_rounds=8)[0] == found
    # Neither how long the run is nor how often one looks.
    longer, _ = _run(tmp_path, total_rounds=12, rounds_per_evaluation=5)
    assert {number: longer[number] for number in found} == found
    other, _ = _run(tmp_path, total_rounds=8, base_random_seed=1)
    assert sum(other[number] != found[number] for number in found) >= 7


@pytest.mark.parametrize("size", [None, len(_TRAIN)])
def test_a_cohort_of_all_is_everybody_in_order(tmp_path, size):
    found, _ = _run(tmp_path, clients_per_train_round=size)
    assert set(found.values()) == {tuple(_TRAIN)} and len(found) == 4


def test_an_evaluation_looks_at_a_sample_and_the_last_at_all(tmp_path):
    sizes = {"valid_clients_per_evaluation": 2, "test_clients_per_evaluation": 4}
    config = {"total_rounds": 8, "rounds_per_evaluation": 1, **sizes}
    _, found = _run(tmp_path, **config)
    for number in range(1, 8):
        valid, test = (found[number, split] for split in ("valid", "test"))
        assert (len(set(valid)), len(set(test))) == (len(valid), len(test)) == (2, 4)
        assert set(valid) | set(test) <= set(_HELD_OUT)
    for split in ("valid", "test"):
        assert found[8, split] == list(_HELD_OUT)
        samples = [tuple(found[number, split]) for number in range(1, 8)]
        assert len(set(samples)) >= 4 and set().union(*samples) == set(_HELD_OUT)
    assert _run(tmp_path, **config)[1] == found
    # A sample is its round's, however often one looks; another seed has others.
    _, rarely = _run(tmp_path, **config | {"rounds_per_evaluation": 3})
    assert {key: found[key] for key in rarely} == rarely and len(rarely) == 6
    _, other = _run(tmp_path, **config, base_random_seed=1)
    assert sum(other[key] != found[key] for key in found if key[0] < 8) >= 10


def test_splits_are_sampled_apart(tmp_path):
    """Of one list of clients, validation and test do not get the same sample every time."""
    sizes = {"valid_clients_per_evaluation": 3, "test_clients_per_evaluation": 3}
    _, found = _run(tmp_path, total_rounds=8, rounds_per_evaluation=1, **sizes)
    assert sum(found[n, "valid"] != found[n, "test"] for n in range(1, 8)) >= 4


@pytest.mark.parametrize(("asked", "number"), [(0, 6), (2, 2), (5, 5), (6, 6), (100, 6)])
def test_how_many_the_last_evaluation_looks_at(tmp_path, asked, number):
    _, found = _run(tmp_path, final_evaluation_clients=asked, valid_clients_per_evaluation=1)
    assert {split: len(set(found[4, split])) for split in ("valid", "test")} == {
        "valid": number,
        "test": number,
    }
    assert (len(found[2, "valid"]), len(found[2, "test"])) == (1, 6)


def test_silos_are_all_looked_at(tmp_path):
    sizes = dict.fromkeys(
        ("valid_clients_per_evaluation", "test_clients_per_evaluation", "final_evaluation_clients"),
        2,
    )
    _, found = _run(tmp_path, "cross_silo", **sizes)
    assert len(found) == 4 and all(ids == list(_TRAIN) for ids in found.values())


def test_who_drops_out():
    ids = tuple(map(str, range(1000)))

    def staying(rate, number=0, who=ids):
        stream = random_streams.generator(0, "cohort_faults", number)
        return schedule.remaining(who, rate, stream)

    assert staying(0.0) == ids
    kept = staying(0.3)
    assert sorted(kept, key=int) == list(kept) and len(set(kept)) == len(kept)
    # 700 of 1,000, with a standard deviation of 14.5: three of them either way.
    assert abs(len(kept) - 700) < 44
    assert set(staying(0.6)) < set(kept)
    # One always stays, and not always the same.
    left = [staying(0.999999, number, ids[:5]) for number in range(40)]
    assert {len(stayed) for stayed in left} == {1} and len(set(left)) == 5
    np.testing.assert_array_equal(staying(0.3), kept)
