"""Which clients take part in a round, and which an evaluation looks at."""

import collections
import contextlib
import itertools

import numpy as np
import pytest

from motley_tff.algorithms import FedAvg, FineTuning
from motley_tff.backends import sequential
from motley_tff.core import random_streams
from motley_tff.experiment import loop, run_directory, schedule
from motley_tff.experiment.config import LoopConfig
from motley_tff.files import csv_files
from tests import toy

_TRAIN = {f"t{i}": [float(i)] for i in range(10)}
_TASK = toy.scalar_task(_TRAIN, {f"v{i}": ([1.0], [float(i)]) for i in range(6)})
_SPLITS = ("valid", "test")


def _config(**changes):
    fields = {"total_rounds": 8, "rounds_per_evaluation": 1, "clients_per_train_round": 3} | changes
    return LoopConfig(rounds_per_checkpoint=1000, **fields)


@pytest.mark.parametrize(("done", "count"), [(0, 1), (1, 1), (5, 1), (6, 2), (10, 2), (11, 3)])
def test_evaluations_are_counted_by_their_round(done, count):
    """That of round 6 is the last one's, or of a run that goes on the second one's."""
    assert schedule.evaluations(_config(rounds_per_evaluation=5), done) == count


def _cohorts(rounds, **changes):
    config = _config(**changes)
    return [schedule.round_of(config, _TASK, n).client_ids for n in range(1, rounds + 1)]


def _looked_at(task=_TASK, **changes):
    """Returns `{(round, split): clients}`."""
    config = _config(**changes)
    return {(n, s): schedule.evaluated(config, task, s, n) for n in range(1, 9) for s in _SPLITS}


class _Noting(sequential.SequentialBackend):
    """Notes who is asked to work."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def run_clients(self, call, *others):
        self.asked.append(call.client_ids)
        return super().run_clients(call, *others)


@pytest.mark.usefixtures("eagerly")
def test_a_run_keeps_to_the_schedule(tmp_path):
    config = _config(total_rounds=2, valid_clients_per_evaluation=2, final_evaluation_clients=1)
    training, backend = FedAvg().build(_TASK, _TASK.model.initial_weights(0)), _Noting()
    tuned = FineTuning(max_epochs=0).build(_TASK)
    with contextlib.closing(run_directory.RunDirectory(str(tmp_path), "run", {})) as directory:
        directory.write_record(status="running")
        loop.run(config, _TASK, training, tuned, backend, directory, "toy")
    looked_at = collections.defaultdict(list)
    for row in csv_files.read(tmp_path / "run" / "clients.csv"):
        looked_at[int(row["round"]), row["split"]].append(row["client_id"].partition(":")[2])
    for n, split in itertools.product((1, 2), _SPLITS):
        assert looked_at[n, split] == [*schedule.evaluated(config, _TASK, split, n)]
    cohorts = [asked for asked in backend.asked if asked[0] in _TRAIN]
    assert cohorts == [[*schedule.round_of(config, _TASK, n).client_ids] for n in (1, 2)]


def test_cohorts_are_random_and_of_different_clients():
    cohorts = _cohorts(400)
    assert all(len(set(cohort)) == len(cohort) == 3 for cohort in cohorts)
    assert sum(a != b for a, b in itertools.pairwise(cohorts)) > 390
    # Each of 10 clients is in 3 of 10 rounds: 120 of 400, with a standard deviation of
    # sqrt(400 * 0.3 * 0.7) = 9.2. Four of them either way.
    often = collections.Counter(client for cohort in cohorts for client in cohort)
    assert set(often) == set(_TRAIN)
    assert all(120 - 37 < number < 120 + 37 for number in often.values())
    # Any two in a cohort with probability 3 / 10 * 2 / 9 = 1 / 15: 27 rounds, deviation 5.
    pairs = collections.Counter(
        pair for cohort in cohorts for pair in itertools.combinations(sorted(cohort), 2)
    )
    assert len(pairs) == 45 and all(27 - 20 < number < 27 + 20 for number in pairs.values())


@pytest.mark.parametrize(
    ("done", "per_call", "changes", "numbers"),
    [
        (0, 1, {}, [1]),
        (0, 5, {}, [1]),  # The next round has another cohort.
        (0, 5, {"clients_per_train_round": None}, [1, 2, 3, 4, 5]),
        (4, 5, {"clients_per_train_round": None}, [5, 6]),  # Then clients are evaluated.
        (6, 5, {"clients_per_train_round": None}, [7, 8]),  # Then training ends.
    ],
)
def test_how_many_rounds_a_call_runs(done, per_call, changes, numbers):
    config = _config(rounds_per_evaluation=6, **changes)
    rounds = schedule.next_rounds(config, _TASK, done, per_call)
    assert [round_.number for round_ in rounds] == numbers
    for round_ in rounds:
        assert round_.client_ids == schedule.round_of(config, _TASK, round_.number).client_ids


def test_the_seed_and_the_round_decide_a_cohort():
    cohorts = _cohorts(8)
    # Neither how long the run is nor how often one looks.
    assert _cohorts(8, total_rounds=12, rounds_per_evaluation=5) == cohorts
    other = _cohorts(8, base_random_seed=1)
    assert sum(a != b for a, b in zip(other, cohorts, strict=True)) >= 7
    keys = {tuple(schedule.round_of(_config(), _TASK, n).key) for n in range(1, 9)}
    assert len(keys) == 8


@pytest.mark.parametrize("size", [None, len(_TRAIN)])
def test_a_cohort_of_all_is_everybody_in_order(size):
    assert set(_cohorts(4, clients_per_train_round=size)) == {tuple(_TRAIN)}


def test_an_evaluation_looks_at_a_sample_and_the_last_at_all():
    sizes = {"valid_clients_per_evaluation": 2, "test_clients_per_evaluation": 3}
    clients = _looked_at(**sizes)
    for split, size in (("valid", 2), ("test", 3)):
        assert tuple(clients[8, split]) == _TASK.test.ids
        samples = [clients[n, split] for n in range(1, 8)]
        assert all(len(set(ids)) == len(ids) == size for ids in samples)
        assert len(set(samples)) >= 4 and set().union(*samples) == set(_TASK.test.ids)
    # A sample is its round's, however often one looks; another seed has others.
    assert _looked_at(rounds_per_evaluation=3, **sizes) == clients
    other = _looked_at(base_random_seed=1, **sizes)
    assert sum(other[key] != clients[key] for key in clients if key[0] < 8) >= 10
    # Of one list of clients, validation and test do not get the same sample every time.
    same = _looked_at(**dict.fromkeys(sizes, 3))
    assert sum(same[n, "valid"] != same[n, "test"] for n in range(1, 8)) >= 4


def test_evaluations_of_a_run_that_may_stop_early_look_at_one_sample():
    sizes = {"valid_clients_per_evaluation": 2, "test_clients_per_evaluation": 3}
    clients = _looked_at(stop_after=2, **sizes)
    for split, size in (("valid", 2), ("test", 3)):
        (sample,) = {tuple(clients[n, split]) for n in range(1, 9)}
        assert len(sample) == size
    others = [_looked_at(stop_after=2, base_random_seed=s, **sizes)[1, "valid"] for s in range(9)]
    assert len(set(map(tuple, others))) > 2


@pytest.mark.parametrize(("asked", "number"), [(0, 6), (2, 2), (5, 5), (6, 6), (100, 6)])
def test_how_many_the_last_evaluation_looks_at(asked, number):
    clients = _looked_at(final_evaluation_clients=asked, valid_clients_per_evaluation=1)
    assert [len(set(clients[8, split])) for split in _SPLITS] == [number] * 2
    assert [len(clients[2, split]) for split in _SPLITS] == [1, 6]


def test_silos_are_all_looked_at():
    names = ("valid_clients_per_evaluation", "test_clients_per_evaluation")
    sizes = dict.fromkeys((*names, "final_evaluation_clients"), 2)
    silos = toy.scalar_task(_TRAIN, setting="cross_silo")
    assert set(map(tuple, _looked_at(silos, **sizes).values())) == {tuple(_TRAIN)}


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
