"""Epsilon where a trainer says it, and where there is none; the noise that gives one."""

import contextlib
import json
from unittest import mock

import pytest

from launch.report import building, runs
from motley_tff.backends import sequential
from motley_tff.core.privacy import Mechanism
from motley_tff.experiment import rate_probe, runner
from tests import eager
from tests.contracts import in_process
from tests.errors import refused

PRIVATE = ("--aggregator=differentially_private", "--dp_noise_multiplier=0.25")
SHORT = ("--finetune_max_epochs=0", "--rounds_per_evaluation=2")
DELTA = 3**-1.1


@pytest.fixture(autouse=True)
def without_tff():
    """Its aggregator adds what no number here depends on."""
    with (
        eager.running(),
        mock.patch.object(
            runner, "_open_tff", lambda *_: contextlib.nullcontext(sequential.SequentialBackend(1))
        ),
    ):
        yield


@pytest.fixture(scope="module")
def train():
    with in_process.opened("finetuning_trainer") as run:
        yield run


def _record(folder):
    return json.loads((folder / "run.json").read_text())["privacy"]


def _epsilons(folder, table="rounds"):
    return list(in_process.table(folder, table)["epsilon"])


def test_epsilon_is_in_all_tables(train, tmp_path, capsys):
    """Of three silos, all of which are asked in every round, whoever answers."""
    flags = ("--total_rounds=4", "--dropout_rate=0.3", "--algorithm=fedprox", *SHORT)
    folder = train(tmp_path, "x", *PRIVATE, *flags)
    expected = [f"{Mechanism(0.25, 3, 3, DELTA).epsilon(t):.9g}" for t in range(1, 5)]
    assert _epsilons(folder) == expected
    assert _epsilons(folder, "summary") == [expected[1]] * 2 + [expected[3]] * 2
    record = _record(folder)
    assert f"{record['epsilon']:.9g}" == expected[3]
    assert record["accountant"].startswith("dp-accounting 0.4.3")
    assert (record["relation"], record["sampling"]) == (
        "replacing one client", "all clients in every round",
    )  # fmt: skip
    assert (record["noise_multiplier"], record["noise_per_replacement"]) == (0.25, 0.125)
    (run,) = runs.find([str(folder)]).runs
    reported = building._run_row("x", run)["Epsilon, replacing one client"]
    assert reported.startswith(f"{record['epsilon']:.4g} at delta 0.299 (dp-accounting")
    said = capsys.readouterr().out
    assert f"epsilon {record['epsilon']:.4g} at delta 0.299, replacing one client of 3" in said


def test_fine_tuning_of_cohorts_on_devices(train, tmp_path):
    """Spends nothing more; its candidates are chosen on other clients."""
    flags = ("--dataset_name=emnist", "--clients_per_train_round=2", "--finetune_max_epochs=1")
    noise = ("--dp_noise_multiplier=0.15", "--dp_delta=0.01")
    folder = train(tmp_path, "x", *PRIVATE, *noise, *flags, "--total_rounds=1")
    expected = Mechanism(0.15, 2, 3, 0.01).epsilon(1)
    assert _epsilons(folder) == [f"{expected:.9g}"]
    assert _record(folder)["sampling"].startswith("cohorts of a fixed size")


def test_two_groups_have_their_noise_each(tmp_path):
    with in_process.opened("mtl_trainer") as train:
        folder = train(tmp_path, "x", *PRIVATE, "--algorithm=fedper", "--total_rounds=1")
    spent = Mechanism(0.25 / 2**0.5, 3, 3, DELTA).epsilon(1)
    assert _record(folder)["epsilon"] == pytest.approx(spent)


def test_a_run_that_goes_on_counts_as_one_that_did_not_stop(train, tmp_path):
    flags = (*PRIVATE, "--finetune_max_epochs=0", "--rounds_per_evaluation=10")
    whole = train(tmp_path, "whole", *flags, "--total_rounds=10")
    for rounds in (5, 10):
        cut = train(tmp_path, "cut", *flags, f"--total_rounds={rounds}")
    assert _epsilons(cut) == _epsilons(whole)
    assert "" not in _epsilons(cut)
    assert _record(cut) == _record(whole)


def test_a_run_that_goes_on_with_other_noise_has_no_number(train, tmp_path, capsys):
    flags = (*PRIVATE, *SHORT)
    folder = train(tmp_path, "x", *flags, "--total_rounds=1")
    path = folder / "run.json"
    record = json.loads(path.read_text())
    record["privacy"]["noise_multiplier"] = 0.2
    path.write_text(json.dumps(record))
    train(tmp_path, "x", *flags, "--total_rounds=2")
    assert _epsilons(folder)[1] == "" != _epsilons(folder)[0]
    assert _record(folder)["epsilon"] is None
    assert "no epsilon, as the noise or the cohort changed" in capsys.readouterr().out
    train(tmp_path, "x", *flags, "--total_rounds=3")
    assert _epsilons(folder)[1:] == ["", ""]
    del record["privacy"]
    path.write_text(json.dumps(record))
    train(tmp_path, "x", *flags, "--total_rounds=4")
    assert "earlier version" in _record(folder)["reason"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--dp_noise_multiplier=0",), "no noise"),
        (("--finetune_max_epochs=1",), "choose a candidate for all"),
        (("--algorithm=centralized", "--dp_noise_multiplier=0.09"), "one training client"),
    ],
)
def test_no_number_and_why(train, tmp_path, capsys, flags, reason):
    folder = train(tmp_path, "x", *PRIVATE, *SHORT, "--total_rounds=1", *flags)
    assert _record(folder)["epsilon"] is None
    assert reason in _record(folder)["reason"]
    assert f"no epsilon, as {_record(folder)['reason']}" in capsys.readouterr().out
    (run,) = runs.find([str(folder)]).runs
    assert reason in building._run_row("x", run)["Epsilon, replacing one client"]
    assert _epsilons(folder) == [""]
    assert set(_epsilons(folder, "summary")) == {""}


def test_no_number_of_models_that_were_trained_before(train, tmp_path):
    first = train(tmp_path, "first", "--total_rounds=1", *SHORT)
    flags = (f"--path_to_initial_model_weights={first}", "--total_rounds=1")
    folder = train(tmp_path, "x", *PRIVATE, *SHORT, *flags)
    assert "trained before" in _record(folder)["reason"]


def test_no_number_of_a_round_that_silos_chose(train, tmp_path, capsys):
    flags = ("--total_rounds=2", "--reported_round=best")
    (run,) = runs.find([str(train(tmp_path, "x", *PRIVATE, *SHORT, *flags))]).runs
    assert "chose the round" in building._run_row("x", run)["Epsilon, replacing one client"]
    assert "no epsilon, as the silos that train chose the round" in capsys.readouterr().out


def test_no_number_with_a_memory_of_examples(tmp_path):
    with in_process.opened("knn_per_trainer") as train:
        folder = train(tmp_path, "x", *PRIVATE, "--total_rounds=1")
    assert "memory" in _record(folder)["reason"]


def test_no_number_of_rates_that_training_clients_chose(train, tmp_path):
    probe = {"chosen": 0.1, "best": 0.1, "tried": [[0.1, 1.0], [1, 2.0]], "rounds": 1, "clients": 3}
    flags = (*SHORT, "--total_rounds=1")
    with (
        mock.patch.object(rate_probe, "rate_free", lambda config: ["client_optimizer"]),
        mock.patch.object(rate_probe, "choose", return_value={"client_optimizer": probe}) as choose,
    ):
        folder = train(tmp_path, "x", *PRIVATE, *flags)
        assert choose.call_count == 1
        with refused("dp_epsilon", 9.0, "learning rates", "leave it out"):
            train(tmp_path, "y", PRIVATE[0], *flags, "--dp_epsilon=9")
        assert choose.call_count == 1  # Which takes a while.
    assert "learning rates" in _record(folder)["reason"]


def test_nothing_without_a_private_mean(train, tmp_path, capsys):
    folder = train(tmp_path, "x", "--total_rounds=1", *SHORT)
    assert "privacy" not in json.loads((folder / "run.json").read_text())
    assert not any("epsilon" in in_process.table(folder, t) for t in ("rounds", "summary"))
    assert "epsilon" not in capsys.readouterr().out


def test_the_noise_of_an_epsilon(train, tmp_path):
    flags = ("--aggregator=differentially_private", *SHORT, "--total_rounds=2")
    folder = train(tmp_path, "x", *flags, "--dp_epsilon=200")
    record = json.loads((folder / "run.json").read_text())
    noise = record["configuration"]["backend.dp_noise_multiplier"]
    assert record["privacy"]["noise_multiplier"] == noise
    assert 199 < record["privacy"]["epsilon"] <= 200
    assert Mechanism(noise * 0.999, 3, 3, DELTA).epsilon(2) > 200
    with refused("total_rounds", 3, "dp_epsilon"):  # More rounds would have more noise.
        train(tmp_path, "x", *flags, "--dp_epsilon=200", "--total_rounds=3")


@pytest.mark.parametrize(
    ("flags", "where", "expected", "advice"),
    [
        (("--dp_epsilon=1",), "dp_epsilon", "2 rounds of 3 of 3 clients", "more clients"),
        (("--dp_epsilon=99", "--finetune_max_epochs=1"), "dp_epsilon", "a candidate", "leave"),
        (("--dp_epsilon=9", "--dp_noise_multiplier=0.2"), "dp_noise_multiplier", "beside", "leave"),
        (("--dp_epsilon=0",), "dp_epsilon", "above 0", ""),
        (("--dp_delta=1",), "dp_delta", "below 1", ""),
        (("--dp_delta=0",), "dp_delta", "at least 1e-12", ""),
        (("--dp_delta=0.1", "--aggregator=mean"), "dp_delta", "differentially_private", "leave"),
        (("--dp_epsilon=9", "--aggregator=robust"), "dp_epsilon", "differentially_private", ""),
    ],
)
def test_refusals(train, tmp_path, flags, where, expected, advice):
    private = "--aggregator=differentially_private"
    with refused(where, None, expected, advice):
        train(tmp_path, "x", private, *SHORT, "--total_rounds=2", *flags)
    assert not (tmp_path / "x" / "rounds.csv").exists()
