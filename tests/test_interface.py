"""The public interface gives what the trainers give, and loads nothing before it is needed."""

import dataclasses
import json
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import datasets
import motley_tff as motley
from motley_tff.algorithms import HypCluster, Mocha, OptimizerConfig
from motley_tff.core import clients, plugins
from motley_tff.experiment.config import RunConfig
from tests import toy
from tests.errors import refused
from tests.trainers import programs

pytestmark = pytest.mark.usefixtures("eagerly")
_CLASSES = motley.algorithms
_SEQUENTIAL = motley.BackendConfig(name="sequential")
_SILOS = toy.scalar_task({"a": [1.0, 2.0], "b": [3.0]}, setting="cross_silo")
_TUNED = _CLASSES.FineTuning(max_epochs=1)


def _run(root, algorithm=None, personalization=None, task=_SILOS, rounds=1, **more):
    """Runs local training, or another algorithm, and keeps its files in a folder."""
    return motley.run(
        task, algorithm or _CLASSES.Local(), personalization, rounds=rounds, backend=_SEQUENTIAL,
        root_output_dir=str(root), **more,
    )  # fmt: skip


def test_importing_it_loads_no_tensorflow():
    code = (
        "import sys, motley_tff as motley; motley.algorithms.Ditto(regularization=1.0);"
        "print(sorted({'tensorflow', 'pandas', 'datasets'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=programs.environment(), capture_output=True, text=True
    )
    assert result.stdout == "[]\n", result.stderr


def test_every_name_is_there():
    assert {"create_task", "run", "algorithms", "Result"} <= set(dir(motley))
    for name in motley.__all__:
        assert getattr(motley, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = motley.trian


def test_a_result_has_the_tables_of_its_run(tmp_path):
    """That they are the trainers' tables is `contracts/test_python_and_trainers`."""
    task = toy.scalar_task({f"c{i}": [float(i % 2)] * 2 for i in range(4)})
    clusters = HypCluster(num_clusters=2)
    result = _run(tmp_path, clusters, task=task, rounds=2, rounds_per_evaluation=1)
    assert result.directory == tmp_path / "run" and set(result.history["round"]) == {1, 2}
    assert set(result.clients["round"]) == {2} and set(result.candidates.candidate) == {
        "0", "chosen"
    }  # fmt: skip
    frames = {"clients": result.history, **result.others}
    frames |= {name: getattr(result, name) for name in ("candidates", "summary", "rounds")}
    for name, frame in frames.items():
        expected = pd.read_csv(result.directory / f"{name}.csv")
        numbers = [
            n for n in expected.select_dtypes("number") if n in frame.select_dtypes("number")
        ]
        assert len(numbers) > 2
        np.testing.assert_allclose(frame[numbers], expected[numbers], rtol=1e-6)
    assert {"clusters"} <= frames.keys()


def test_devices_take_ten_a_round_and_are_fine_tuned():
    task = toy.scalar_task({f"c{i}": [float(i)] for i in range(11)})
    result = motley.run(task, _CLASSES.FedAvg(), rounds=1, backend=_SEQUENTIAL)
    assert result.rounds.num_clients.tolist() == [10] and result.directory is None
    assert set(result.clients.algorithm) == {"fedavg+finetuning"}
    assert len(set(result.candidates.candidate)) == 21


@pytest.mark.parametrize("kinds", [(), (_CLASSES.Centralized(), _CLASSES.FineTuning(max_epochs=0))])
def test_files_are_kept_and_found_again(tmp_path, kinds):
    first = _run(tmp_path, *kinds, rounds=2)
    path = tmp_path / "run" / "clients.csv"
    written = path.stat().st_mtime_ns
    pd.testing.assert_frame_equal(_run(tmp_path, *kinds, rounds=2).clients, first.clients)
    assert path.stat().st_mtime_ns == written
    with refused("loop.total_rounds", 1, "at least 2"):
        _run(tmp_path, *kinds)


@pytest.mark.parametrize(
    ("algorithm", "aggregator", "expected"),
    [
        (Mocha(), "robust", "every silo's row"),
        (HypCluster(num_clusters=2), "differentially_private", "cannot leave out"),
    ],
)
def test_what_an_algorithm_cannot_have_is_refused(tmp_path, algorithm, aggregator, expected):
    with refused("aggregator", aggregator, expected):
        motley.run(
            _SILOS,
            algorithm,
            backend=motley.BackendConfig(name="sequential", aggregator=aggregator),
            root_output_dir=str(tmp_path),
        )
    assert not list(tmp_path.iterdir())


def test_options_of_the_data_belong_to_a_run(tmp_path):
    def run(**options):
        task = motley.create_task("school", use_synthetic_data=True, **options)
        some = clients.subset(task.train, task.train.ids[:2])
        _run(tmp_path, task=dataclasses.replace(task, train=some, valid=some, test=some))

    run(test_split=0.3)
    path = tmp_path / "run" / "run.json"
    record = json.loads(path.read_text())
    assert record["data"]["arguments"] == {"use_synthetic_data": True, "test_split": 0.3}
    with refused(str(tmp_path / "run"), "'test_split': 0.3"):
        run(test_split=0.4)
    run(test_split=np.float64(0.3), data_dir=tmp_path)
    del record["flags"]["data"]  # Earlier versions did not record them.
    path.write_text(json.dumps(record))
    run(test_split=0.3)


def test_tasks_are_found_by_name():
    assert set(plugins.ours(plugins.DATASETS)) == set(datasets.REGISTRY)
    task = motley.create_task("school", use_synthetic_data=True, base_random_seed=1)
    assert (task.dataset, task.facts["source"]) == ("school", "synthetic")
    with refused("task", "schol", "adni, celeba, cifar10"):
        motley.create_task("schol")
    with refused("task", "SCHOOL", advice="'school'"):
        motley.create_task("SCHOOL")
    with refused("school", "seed"):
        motley.create_task("school", seed=1)


def _sgd(rate, **parameters):
    return _CLASSES.FedAvg(OptimizerConfig("sgd", rate, parameters))


def _tuning(rates):
    return _CLASSES.FineTuning(learning_rates=rates)


def _fractions(*fractions):
    return motley.EvaluationConfig(personalization_fractions=fractions)


@pytest.mark.parametrize(
    ("arguments", "field", "found", "expected"),
    [
        ({"rounds": -1}, "rounds", -1, "a whole number of at least 0"),
        ({"seed": 2**40}, "seed", 2**40, "4,294,967,295"),
        ({"clients_per_round": 0}, "clients_per_round", 0, "at least 1"),
        ({"algorithm": "ditto"}, "algorithm", "ditto", "FedAvg()"),
        ({"algorithm": _CLASSES.FineTuning()}, "algorithm", _CLASSES.FineTuning(), "FedAvg()"),
        ({"algorithm": _CLASSES.Ditto(regularization=-1)}, "regularization", -1, "at least 0"),
        ({"algorithm": _sgd(float("nan"))}, "client_optimizer.learning_rate", "nan", "above 0"),
        ({"algorithm": _sgd(0.1, momentun=0.9)}, "'sgd'", "momentun", "momentum"),
        ({"algorithm": _sgd(0.1, momentum="x")}, "client_optimizer.momentum", "x", "below 1"),
        ({"algorithm": _CLASSES.FedAvg("sgd")}, "client_optimizer", "sgd", "OptimizerConfig()"),
        ({"personalization": "finetuning"}, "personalization", "finetuning", "FineTuning()"),
        ({"personalization": _tuning(())}, "learning_rates", (), "at least one"),
        ({"backend": "sequential"}, "backend", "sequential", "BackendConfig()"),
        ({"backend": motley.BackendConfig(name="gpu")}, "name", "gpu", "auto, tff, sequential"),
        ({"evaluation": motley.EvaluationConfig(tuning="best")}, "tuning", "best", "per_client"),
        ({"evaluation": _fractions(0.0)}, "personalization_fractions", (0.0,), "above 0"),
        ({"task": "school"}, "task", "school", "create_task"),
    ],
)
def test_what_no_run_could_use_is_refused(tmp_path, arguments, field, found, expected):
    given = {"task": _SILOS, "algorithm": _CLASSES.FedAvg(), **arguments}
    with refused(field, found, expected):
        motley.run(**given, root_output_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_numpys_numbers_and_whole_rates_are_numbers(tmp_path):
    tuned = _CLASSES.FineTuning(learning_rates=np.array([1, 2]), max_epochs=np.int64(1))
    adam = _CLASSES.FedAvg(OptimizerConfig("adam", 1))
    result = _run(tmp_path, adam, tuned, rounds=np.int64(1), seed=np.int64(2))
    assert set(result.candidates.candidate) == {"0", "lr1.0_epoch1", "lr2.0_epoch1"}


def test_silo_algorithms_do_not_fit_devices():
    task = toy.scalar_task({f"c{i}": [float(i)] for i in range(4)})
    with refused("task toy", "devices", "Ditto"):
        motley.run(task, motley.algorithms.Ditto())


def test_a_finished_run_of_other_clients_is_not_given_back(tmp_path):
    def run(*names):
        _run(tmp_path, task=toy.scalar_task({i: [1.0] for i in names}, setting="cross_silo"))

    run("a", "b")
    with refused(str(tmp_path / "run"), "clients"):
        run("a", "c")
    (tmp_path / "run" / "summary.csv").unlink()
    with refused(str(tmp_path / "run"), expected="summary.csv"):
        run("a", "b")


def test_a_class_without_a_card_of_its_own_has_its_own_name():
    @dataclasses.dataclass(frozen=True)
    class Mine(motley.algorithms.Ditto):
        pass

    @dataclasses.dataclass(frozen=True)
    class Tuning(motley.algorithms.FineTuning):
        pass

    fedavg, ditto = motley.algorithms.FedAvg(), motley.algorithms.Ditto()
    runs = [(Mine(), None), (ditto, None), (fedavg, Tuning(max_epochs=1))]
    names = [RunConfig(algorithm=one, personalization=other).algorithm_name for one, other in runs]
    assert names == ["Mine", "ditto", "fedavg+Tuning"]


def test_rounds_are_raised_where_nothing_else_changes(tmp_path):
    def run(rounds, **more):
        return _run(tmp_path, _CLASSES.FedAvg(), _TUNED, rounds=rounds, **more)

    run(1, rounds_per_evaluation=2)
    raised = run(2, rounds_per_evaluation=2).history.drop(columns="run_id")
    whole = run(2, rounds_per_evaluation=2, experiment_name="whole").history
    pd.testing.assert_frame_equal(raised, whole.drop(columns="run_id"))
    run(3, rounds_per_evaluation=2)
    with refused(finding="loop.rounds_per_evaluation (2 then, 4 now"):
        run(4)  # By default one evaluation, after the last round.


@pytest.mark.parametrize("first", [0, 1])
def test_what_follows_the_rounds_is_raised_with_them(tmp_path, first):
    """Without rounds the name is another, and by default an evaluation is after the last."""

    def run(rounds, folder="raised", **more):
        given = _CLASSES.FedAvg(), _TUNED
        return _run(tmp_path / folder, *given, rounds=rounds, **more).directory

    run(first)
    raised, whole = run(3), run(3, "whole")
    programs.same_tables(raised, whole)
    one, other = (path / "global_model.npz" for path in (raised, whole))
    assert one.read_bytes() == other.read_bytes()
    flags = [json.loads((path / "run.json").read_text())["flags"] for path in (raised, whole)]
    assert flags[0] == flags[1]
    assert run(3) == raised
    with refused(finding="loop.rounds_per_evaluation (3 then, 2 now"):
        run(4, rounds_per_evaluation=2)


def test_rounds_that_an_algorithm_trains_by_are_not_raised(tmp_path):
    clusters = HypCluster(num_clusters=2, balance=0.1)
    _run(tmp_path, clusters, rounds=2)
    found = "algorithm.balance_rounds (1 then, 2 now), loop.total_rounds (2 then, 4 now)"
    with refused(finding=found):
        _run(tmp_path, clusters, rounds=4)


def _clients(**columns):
    rows = {
        "client_id": ["t:a", "t:b", "t:c", "t:d"], "split": ["test"] * 3 + ["valid"],
        "metric": ["accuracy"] * 4, "delta": [0.25, -0.5, np.nan, np.nan],
        "is_hurt": [False, True, None, None],
    }  # fmt: skip
    return pd.DataFrame({**rows, **columns})


def test_a_run_that_ends_early_gives_its_best_round(tmp_path):
    """At a rate above 2 every step is away from the silos' numbers."""
    away = _CLASSES.Local(motley.algorithms.OptimizerConfig("sgd", 2.5))

    def run(rounds):
        return _run(tmp_path, away, rounds=rounds, rounds_per_evaluation=1, stop_after=1)

    result = run(4)
    assert result.rounds["round"].tolist() == [1, 2]
    assert set(result.clients["round"]) == {1} and set(result.history["round"]) == {1, 2}
    one = _run(tmp_path / "one", away, rounds=1).directory
    for name in ("global_model.npz", "personal_models.npz"):
        assert (result.directory / name).read_bytes() == (one / name).read_bytes()
    with refused("rounds", 5, "stop_after depends on it"):
        run(5)
    with refused("stop_after", 1, "below 1", "rounds_per_evaluation"):
        _run(tmp_path / "once", rounds=4, stop_after=1)


def test_runs_of_before_have_no_further_metrics(tmp_path):
    """So one that asks for none goes on, and one that asks for some does not."""
    task = dataclasses.replace(_SILOS, prediction=lambda outputs: outputs, label_unit=1.0)
    _run(tmp_path, task=task)
    flags = json.loads((tmp_path / "run" / "run.json").read_text())["flags"]
    assert not {"metrics", "tuning_metric"} & flags["loop.evaluation"].keys()
    further = motley.EvaluationConfig(metrics=("absolute_error",), tuning_metric="loss")
    with refused("run", "loop.evaluation"):
        _run(tmp_path, task=task, evaluation=further)
    result = _run(tmp_path, task=task, evaluation=further, experiment_name="further")
    # The shared model goes from 0 to (2 * 0.15 + 0.3) / 3 = 0.2; silos' numbers are 1, 2 and 3.
    baseline = result.clients.set_index(["split", "client_id"]).baseline_absolute_error
    assert baseline["test"].tolist() == pytest.approx([1.3, 2.8])
    assert result.summary.personalized_loss_mean.notna().all()


def test_clients_are_drawn_those_that_lose_most_first():
    matplotlib.use("agg")
    result = motley.Result(*[_clients()] * 6, {}, None)
    ax = result.plot_clients()
    assert [t.get_text() for t in ax.get_xticklabels()] == ["b", "a"]
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in ax.patches}
    assert heights == {0: -0.5, 1: 0.25}
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [text.rpartition(": ")[2] for text in legend] == ["1 of 2", "1 of 2"]
    assert "1 without a value" in ax.get_xlabel() and "accuracy" in ax.get_ylabel()
    assert result.plot_clients(ax=ax) is ax
    pyplot.close("all")
    for split in ("valid", "train"):
        with refused(f"split '{split}'", "no client with a value", "test, valid"):
            result.plot_clients(split)


def test_a_report_of_files_that_were_kept_and_of_those_that_were_not(tmp_path, monkeypatch):
    for name, kept in (("kept", {"root_output_dir": str(tmp_path / "runs")}), ("not", {})):
        result = motley.run(_SILOS, _CLASSES.Local(), rounds=1, backend=_SEQUENTIAL, **kept)
        assert bool(result.files) == (name == "not")
        page = result.report(tmp_path / name)
        assert page == tmp_path / name / "report.html"
        text = page.read_text()
        assert "Personalized federated learning: toy" in text and "run.json" not in text
        assert (tmp_path / name / "tables.csv").exists()
    blocked = tmp_path / "file"
    blocked.touch()
    with refused(str(blocked), "exists"):
        result.report(blocked)
    monkeypatch.setattr(plugins, "ours", lambda group: {})
    with refused("report", expected="installed"):
        result.report(tmp_path / "none")
