"""The public interface gives what the trainers give, and loads nothing before it is needed."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import datasets
import motley_tff as motley
from motley_tff.algorithms import HypCluster, Mocha, OptimizerConfig
from motley_tff.core import clients, plugins
from motley_tff.experiment.config import RunConfig
from tests import toy
from tests.contracts import in_process
from tests.errors import refused
from tests.trainers import programs

pytestmark = pytest.mark.usefixtures("eagerly")
_SEQUENTIAL = motley.BackendConfig(name="sequential")
_SILOS = toy.scalar_task({"a": [1.0, 2.0], "b": [3.0]}, setting="cross_silo")


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


def test_it_gives_what_the_trainer_gives(tmp_path):
    flags = ("--algorithm=ditto", "--total_rounds=2", "--backend=sequential", "--lambda=0.5",
             "--client_learning_rate=0.2")  # fmt: skip
    optimizer = motley.algorithms.OptimizerConfig("sgd", 0.2)
    result = motley.run(
        in_process.silos(),
        motley.algorithms.Ditto(client_optimizer=optimizer, regularization=0.5),
        rounds=2,
        rounds_per_evaluation=1,
        backend=_SEQUENTIAL,
    )
    with in_process.opened("mtl_trainer") as trainer:
        left = trainer(tmp_path, "run", *flags, "--rounds_per_evaluation=1")
    assert result.directory is None and set(result.history["round"]) == {1, 2}
    assert set(result.clients["round"]) == {2} and set(result.rounds["round"]) == {1, 2}
    for name, frame in {
        "clients": result.history,
        "candidates": result.candidates,
        "summary": result.summary,
        "rounds": result.rounds,
    }.items():
        expected = pd.read_csv(left / f"{name}.csv")
        numbers = [n for n in expected.select_dtypes("number") if not n.endswith("seconds")]
        numbers = [n for n in numbers if n in frame.select_dtypes("number")]
        assert len(numbers) > 2
        np.testing.assert_allclose(frame[numbers], expected[numbers], rtol=1e-6)
    hurt = result.clients.groupby("split").is_hurt.mean()
    assert 100 * hurt["test"] == pytest.approx(
        result.summary.query("split == 'test' and round == 2").pct_clients_hurt.item()
    )


def test_devices_take_ten_a_round_and_are_fine_tuned():
    task = toy.scalar_task({f"c{i}": [float(i)] for i in range(11)})
    result = motley.run(task, motley.algorithms.FedAvg(), rounds=1, backend=_SEQUENTIAL)
    assert result.rounds.num_clients.tolist() == [10]
    assert set(result.clients.algorithm) == {"fedavg+finetuning"}
    assert len(set(result.candidates.candidate)) == 21


def test_files_are_kept_and_found_again(tmp_path):
    def run(rounds):
        return motley.run(
            _SILOS, motley.algorithms.Local(), rounds=rounds, backend=_SEQUENTIAL,
            root_output_dir=str(tmp_path), experiment_name="local",
        )  # fmt: skip

    first = run(2)
    assert first.directory == tmp_path / "local"
    written = (tmp_path / "local" / "clients.csv").stat().st_mtime_ns
    pd.testing.assert_frame_equal(run(2).clients, first.clients)
    assert (tmp_path / "local" / "clients.csv").stat().st_mtime_ns == written
    with refused("loop.total_rounds", 1, "at least 2"):
        run(1)


def test_a_central_run_is_found_again(tmp_path):
    def run():
        return motley.run(
            _SILOS, motley.algorithms.Centralized(), motley.algorithms.FineTuning(max_epochs=0),
            rounds=1, backend=_SEQUENTIAL, root_output_dir=str(tmp_path),
        )  # fmt: skip

    pd.testing.assert_frame_equal(run().clients, run().clients)


def test_a_personalization_too_many():
    with refused("personalization", "finetuning", "Ditto"):
        motley.run(_SILOS, motley.algorithms.Ditto(), motley.algorithms.FineTuning())


def test_clusters_take_no_personalization():
    task = toy.scalar_task({f"c{i}": [float(i % 2)] * 2 for i in range(4)})
    algorithm = motley.algorithms.HypCluster(num_clusters=2)
    result = motley.run(task, algorithm, rounds=2, backend=_SEQUENTIAL)
    assert set(result.candidates.candidate) == {"0", "chosen"}
    assert result.others["clusters"].num_clients.sum() == len(result.clients)


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
        return motley.run(
            dataclasses.replace(task, train=some, valid=some, test=some),
            motley.algorithms.Local(), rounds=1, backend=_SEQUENTIAL,
            root_output_dir=str(tmp_path), experiment_name="local",
        )  # fmt: skip

    run(test_split=0.3)
    settings = json.loads((tmp_path / "local" / "run.json").read_text())
    assert settings["data"]["arguments"] == {"use_synthetic_data": True, "test_split": 0.3}
    with refused(str(tmp_path / "local"), "'test_split': 0.3"):
        run(test_split=0.4)
    run(test_split=np.float64(0.3), data_dir=tmp_path)


def test_a_run_that_did_not_record_its_datas_options_is_known_again(tmp_path):
    def run():
        return motley.run(
            _SILOS, motley.algorithms.Local(), rounds=1, backend=_SEQUENTIAL,
            root_output_dir=str(tmp_path), experiment_name="local",
        )  # fmt: skip

    run()
    path = tmp_path / "local" / "run.json"
    record = json.loads(path.read_text())
    del record["flags"]["data"]
    path.write_text(json.dumps(record))
    run()


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


_CLASSES = motley.algorithms


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
        ({"rounds": 2.5}, "rounds", 2.5, "whole"),
        ({"rounds": None}, "rounds", None, "whole"),
        ({"seed": 2**40}, "seed", 2**40, "4,294,967,295"),
        ({"seed": "0"}, "seed", "0", "whole"),
        ({"clients_per_round": 0}, "clients_per_round", 0, "at least 1"),
        ({"rounds_per_evaluation": -1}, "rounds_per_evaluation", -1, "at least 1"),
        ({"algorithm": "ditto"}, "algorithm", "ditto", "FedAvg()"),
        ({"algorithm": _CLASSES.Ditto}, "algorithm", _CLASSES.Ditto, "FedAvg()"),
        ({"algorithm": _CLASSES.FineTuning()}, "algorithm", _CLASSES.FineTuning(), "FedAvg()"),
        ({"algorithm": _CLASSES.Ditto(regularization=-1)}, "regularization", -1, "at least 0"),
        ({"algorithm": _CLASSES.Apfl(alpha=7.0)}, "alpha", 7.0, "at most 1"),
        ({"algorithm": _CLASSES.FedRep(head_epochs=0)}, "head_epochs", 0, "at least 1"),
        ({"algorithm": _CLASSES.Local(train_batch_size=0)}, "train_batch_size", 0, "from 1"),
        ({"algorithm": _sgd(float("nan"))}, "client_optimizer.learning_rate", "nan", "above 0"),
        ({"algorithm": _sgd("0.1")}, "client_optimizer.learning_rate", "0.1", "a number"),
        ({"algorithm": _sgd(np.float32(0))}, "client_optimizer.learning_rate", 0.0, "above 0"),
        ({"algorithm": _sgd(0.1, momentun=0.9)}, "'sgd'", "momentun", "momentum"),
        ({"algorithm": _sgd(0.1, momentum="x")}, "client_optimizer.momentum", "x", "below 1"),
        ({"algorithm": _CLASSES.FedAvg("sgd")}, "client_optimizer", "sgd", "OptimizerConfig()"),
        ({"personalization": "finetuning"}, "personalization", "finetuning", "FineTuning()"),
        ({"personalization": _tuning(())}, "learning_rates", (), "at least one"),
        ({"personalization": _tuning((0.1, 0.1))}, "learning_rates", (0.1, 0.1), "different"),
        ({"personalization": _tuning(0.1)}, "learning_rates", 0.1, "several values"),
        ({"personalization": _CLASSES.KnnPer(num_neighbors=(0,))}, "num_neighbors", (0,), "from 1"),
        ({"personalization": _CLASSES.KnnPer(coefficients=(2,))}, "coefficients", (2,), "most 1"),
        ({"backend": "sequential"}, "backend", "sequential", "BackendConfig()"),
        ({"backend": motley.BackendConfig(name="gpu")}, "name", "gpu", "auto, tff, sequential"),
        ({"evaluation": motley.EvaluationConfig(tuning="best")}, "tuning", "best", "per_client"),
        ({"evaluation": _fractions(0.0)}, "personalization_fractions", (0.0,), "above 0"),
        ({"task": "school"}, "task", "school", "create_task"),
    ],
)
def test_what_no_run_could_use_is_refused(tmp_path, arguments, field, found, expected):
    given = {"task": _SILOS, "algorithm": motley.algorithms.FedAvg(), **arguments}
    with refused(field, found, expected):
        motley.run(**given, root_output_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_numpys_numbers_and_whole_rates_are_numbers():
    result = motley.run(
        _SILOS,
        motley.algorithms.FedAvg(OptimizerConfig("adam", 1)),
        motley.algorithms.FineTuning(learning_rates=np.array([1, 2]), max_epochs=np.int64(1)),
        rounds=np.int64(1), seed=np.int64(2), backend=_SEQUENTIAL,
    )  # fmt: skip
    assert set(result.candidates.candidate) == {"0", "lr1.0_epoch1", "lr2.0_epoch1"}


def test_silo_algorithms_do_not_fit_devices():
    task = toy.scalar_task({f"c{i}": [float(i)] for i in range(4)})
    with refused("task toy", "devices", "Ditto"):
        motley.run(task, motley.algorithms.Ditto())


def test_a_finished_run_of_other_clients_is_not_given_back(tmp_path):
    def run(prefix):
        return motley.run(
            toy.scalar_task({f"{prefix}{i}": [float(i)] * 2 for i in range(4)}),
            motley.algorithms.FedAvg(), motley.algorithms.FineTuning(max_epochs=1), rounds=1,
            backend=_SEQUENTIAL, root_output_dir=str(tmp_path), experiment_name="run",
        )  # fmt: skip

    run("c")
    with refused(str(tmp_path / "run"), "clients"):
        run("d")
    (tmp_path / "run" / "summary.csv").unlink()
    with refused(str(tmp_path / "run"), expected="summary.csv"):
        run("c")


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
        return motley.run(
            _SILOS, motley.algorithms.FedAvg(), motley.algorithms.FineTuning(max_epochs=1),
            rounds=rounds, backend=_SEQUENTIAL, root_output_dir=str(tmp_path), **more,
        )  # fmt: skip

    run(1, rounds_per_evaluation=2)
    raised = run(2, rounds_per_evaluation=2)
    whole = run(2, rounds_per_evaluation=2, experiment_name="whole")
    pd.testing.assert_frame_equal(
        raised.history.drop(columns="run_id"), whole.history.drop(columns="run_id")
    )
    run(3, rounds_per_evaluation=2)
    with refused(finding="loop.rounds_per_evaluation (2 then, 4 now"):
        run(4)  # By default one evaluation, after the last round.


@pytest.mark.parametrize("first", [0, 1])
def test_what_follows_the_rounds_is_raised_with_them(tmp_path, first):
    """Without rounds the name is another, and by default an evaluation is after the last."""

    def run(rounds, folder="raised", **more):
        return motley.run(
            _SILOS, motley.algorithms.FedAvg(), motley.algorithms.FineTuning(max_epochs=1),
            rounds=rounds, backend=_SEQUENTIAL, root_output_dir=str(tmp_path / folder), **more,
        ).directory  # fmt: skip

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
    def run(rounds):
        motley.run(
            _SILOS, HypCluster(num_clusters=2, balance=0.1), rounds=rounds, backend=_SEQUENTIAL,
            root_output_dir=str(tmp_path),
        )  # fmt: skip

    run(2)
    found = "algorithm.balance_rounds (1 then, 2 now), loop.total_rounds (2 then, 4 now)"
    with refused(finding=found):
        run(4)


def test_a_run_that_came_to_nothing_may_be_begun_anew(tmp_path):
    def run(rate):
        algorithm = motley.algorithms.FedAvg(OptimizerConfig("sgd", rate), train_batch_size=1)
        return motley.run(
            _SILOS, algorithm, motley.algorithms.FineTuning(max_epochs=1), rounds=1,
            backend=_SEQUENTIAL, root_output_dir=str(tmp_path),
        )  # fmt: skip

    with refused("round 1"):
        run(1e38)
    assert len(run(0.1).rounds) == 1
