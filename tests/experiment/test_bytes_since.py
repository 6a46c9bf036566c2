"""Bytes of algorithms that send a returning client what it missed, also after a resume."""

from motley_tff.algorithms import FedStcServer
from motley_tff.backends import base
from motley_tff.core.algorithm import NO_BYTES
from motley_tff.experiment import recorder, run_directory, schedule
from motley_tff.experiment.config import LoopConfig
from tests import toy

_TASK = toy.classifier_silos()
_FEDSTC = FedStcServer(sparsity=0.1).build(_TASK, _TASK.model.initial_weights(0))
_CONFIG = LoopConfig(clients_per_train_round=1, dropout_rate=0.5)


def _rows(root, first, last, config=_CONFIG, answered=1):
    """Returns what is noted of rounds; those before the first one were an earlier process's."""
    directory = run_directory.RunDirectory(str(root), f"from_{first}", {})
    writer = recorder.Recorder(config, _TASK, _FEDSTC, None, directory, "fedstc_server", NO_BYTES)
    for number in range(first, last + 1):
        means = {"loss": 0.0, _TASK.metric.name: 0.0}
        writer.add_rounds([base.RoundResult(number, answered, means, 1.0)])
    directory.close()
    return writer._round_rows


def _bytes(rows):
    # One client a round: what all are sent is what one is.
    assert all(row["largest_bytes_down"] == row["bytes_down"] for row in rows)
    return [(row["bytes_down"], row["bytes_up"]) for row in rows]


def test_the_largest_is_of_one_client(tmp_path):
    """Three a round: in the second one, who comes new is sent the whole model."""
    config = LoopConfig(clients_per_train_round=3)
    first, second = _rows(tmp_path, 1, 2, config, answered=2)
    cohorts = [set(schedule.cohort(config, _TASK, number)) for number in (1, 2)]
    new = len(cohorts[1] - cohorts[0])
    whole, sparse = _FEDSTC.bytes_since(None).down, _FEDSTC.bytes_since(1).down
    assert 0 < new < 3 and sparse < whole
    assert (first["bytes_down"], first["largest_bytes_down"]) == (3 * whole, whole)
    assert second["bytes_down"] == new * whole + (3 - new) * sparse
    assert second["largest_bytes_down"] == whole
    assert second["largest_bytes_up"] == first["bytes_up"] / 2


def test_a_returning_client_is_charged_for_the_rounds_it_missed(tmp_path):
    last, expected = {}, []
    for number in range(1, 9):
        (client_id,) = schedule.cohort(_CONFIG, _TASK, number)
        missed = number - last[client_id] if client_id in last else None
        expected.append(tuple(_FEDSTC.bytes_since(missed)))
        last[client_id] = number
    assert _bytes(_rows(tmp_path, 1, 8)) == expected and len(set(expected)) > 2


def test_a_resumed_run_remembers_who_was_there(tmp_path):
    assert _bytes(_rows(tmp_path, 6, 8)) == _bytes(_rows(tmp_path, 1, 8))[5:]
