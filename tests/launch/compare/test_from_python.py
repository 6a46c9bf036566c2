"""`motley.compare`: beside runs of one's own, and beside the command."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import motley_tff as motley
from launch.compare import from_python
from motley_tff import interface
from motley_tff.algorithms import FedAvg, FineTuning, OptimizerConfig
from motley_tff.core.errors import UserError
from tests import owners, toy
from tests.launch import commands

SIZES = (7, 12, 5)


@pytest.fixture(scope="module")
def task():
    return toy.without_keras(toy.classifier_silos(SIZES, 3))


def of_test(result):
    return result.clients[result.clients["split"] == "test"]


@pytest.mark.usefixtures("eagerly")
def test_it_is_the_runs_that_one_would_make(task, tmp_path, monkeypatch):
    place = {"root_output_dir": str(tmp_path)}
    compared = motley.compare(task, ["fedavg", "hypcluster"], rounds=1, seeds=2, **place)
    of_method = compared.methods.set_index("method")
    rate = float(of_method.loc["fedavg", "setting"].partition("=")[2])
    fedavg, tuning = FedAvg(client_optimizer=OptimizerConfig("sgd", rate)), FineTuning(max_epochs=0)
    for seed in (100, 1100):
        alone = of_test(motley.run(task, fedavg, tuning, rounds=1, seed=seed))
        clients = compared.clients.query("method == 'fedavg' and base_random_seed == @seed")
        expected = dict(zip(alone["client_id"], alone["personalized"], strict=True))
        assert dict(zip(clients["client_id"], clients["value"], strict=True)) == expected
    means = compared.clients.groupby("method")["value"].mean()
    assert of_method["mean"].to_dict() == pytest.approx(means.to_dict(), rel=1e-6)
    assert compared.sentence in str(compared) and compared.directory == tmp_path / "compare"
    assert (compared.directory / "hypcluster" / "sweep.csv").exists()
    # Given again, nothing is run; other seeds are another comparison.
    monkeypatch.setattr(interface, "run_whole", lambda *arguments: pytest.fail("a run"))
    again = motley.compare(task, ["fedavg", "hypcluster"], rounds=1, seeds=2, **place)
    pd.testing.assert_frame_equal(again.methods, compared.methods)
    with pytest.raises(UserError, match="a run of other settings: seeds"):
        motley.compare(task, ["fedavg", "hypcluster"], rounds=1, seeds=3, **place)


@pytest.mark.usefixtures("eagerly")
def test_a_method_that_fails_is_named_and_the_others_are_compared(task, monkeypatch):
    run = interface.run_whole

    def fails(task, config, *arguments):
        if config.algorithm.card.name == "ditto":
            raise UserError("lambda", 3, "none today")
        return run(task, config, *arguments)

    monkeypatch.setattr(interface, "run_whole", fails)
    compared = motley.compare(task, ["fedavg", "ditto"], rounds=1, seeds=1)
    reasons = compared.methods.set_index("method")["reason"]
    assert "none today" in reasons["ditto"] and not reasons["fedavg"]
    assert "Ditto: no setting finished" in compared.text and compared.directory is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["dito"],), "did you mean ditto"),
        (("ditto",), "expected a list of names"),
        (([],), "expected a list of names"),
    ],
)
def test_names_are_checked(task, arguments, words):
    with pytest.raises(UserError, match=words):
        motley.compare(task, *arguments)


@pytest.mark.parametrize(("option", "value"), [("rounds", 0), ("seeds", "3"), ("rounds", 1.5)])
def test_numbers_are_checked(task, option, value):
    with pytest.raises(UserError, match=f"{option}: found {value!r}"):
        motley.compare(task, **{option: value})


def test_only_a_task_is_compared():
    with pytest.raises(UserError, match="what create_task returns"):
        motley.compare("school")


def test_large_models_are_trained_one_by_one(task):
    method = from_python.methods.find("finetuning", "cross_silo")
    plans = [
        from_python._plan(method, toy_like(task, vectorizes), 2, None, 2)
        for vectorizes in (True, False)
    ]
    assert [[len(part.runs) for part in plan.tasks] for plan in plans] == [[6], [1] * 6]
    runs = [[run for part in plan.tasks for run in part.runs] for plan in plans]
    assert sorted(runs[0]) == runs[1]


def toy_like(task, vectorizes):
    model = dataclasses.replace(task.model, vectorizes=vectorizes)
    return dataclasses.replace(task, dataset="school", model=model)


@pytest.mark.slow
def test_it_is_the_command(tmp_path):
    table = owners.table().query("owner < 'o3'")
    table.to_csv(tmp_path / "owners.csv", index=False)
    names = ["finetuning", "hypcluster"]
    task = motley.create_task("table", data=table, client="owner", label="yes")
    compared = motley.compare(task, names, rounds=5, seeds=2)
    with commands.opened("launch.compare.command") as command:
        status, _ = command(
            "--dataset_name=table", f"--data_file={tmp_path / 'owners.csv'}", "--noreport",
            "--client_column=owner", "--label_column=yes", f"--algorithms={','.join(names)}",
            "--total_rounds=5", "--seeds=2", f"--root_output_dir={tmp_path}",
            "--experiment_name=c",
        )  # fmt: skip
    assert status == 0
    by_command = pd.read_csv(tmp_path / "c" / "compare.csv")
    assert by_command["setting"].tolist() == compared.methods["setting"].tolist()
    np.testing.assert_allclose(by_command["mean"], compared.methods["mean"], rtol=1e-5)
