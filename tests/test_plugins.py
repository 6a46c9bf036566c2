"""Plug-ins: the page's package runs, and what is wrong with one is a line that breaks nothing."""

import functools
import json
import os
import subprocess
import sys
import uuid

import pytest
from absl import flags

import datasets
from launch.report import names
from launch.sweeps import grids, plans
from motley_tff import algorithms, interface
from motley_tff.core import plugins
from tests import plugin_package
from tests.contracts import in_process
from tests.errors import refused
from tests.trainers import programs
from trainers import config

_DATASETS, _ALGORITHMS = plugins.DATASETS, plugins.ALGORITHMS
_ROOMS = (
    "--dataset_name=thermostats", "--use_synthetic_data", "--experiment_name=rooms",
    "--total_rounds=2", "--finetune_max_epochs=1", "--backend=sequential",
)  # fmt: skip


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return plugin_package.write_example(tmp_path_factory.mktemp("page") / "installed")


def _run(folder, *words):
    """Returns what Python says where a package is installed."""
    environment = {**os.environ, "PYTHONPATH": f"{programs.ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=programs.ROOT
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_the_pages_package_is_trained_and_recorded(example, tmp_path):
    given = ("--algorithm=clipped_fedavg", "--clip_norm=0.001", f"--root_output_dir={tmp_path}")
    _run(example, "-m", "trainers.finetuning_trainer", *_ROOMS, *given)
    record = json.loads((tmp_path / "rooms" / "run.json").read_text())
    origin = "thermostats 1.0"
    assert record["plugins"] == {"dataset": origin, "algorithm": origin}
    assert record["flags"]["clip_norm"] == 0.001
    clients = programs.table(tmp_path, "rooms", "clients")
    assert set(clients.algorithm) == {"clipped_fedavg+finetuning"}


def test_the_pages_package_is_compared(example):
    compared = ("--algorithms=clipped_fedavg,finetuning", "--fixed=clip_norm=0.5", "--dry_run")
    stdout = _run(example, "-m", "launch.compare.command", *_ROOMS[:3], *compared)
    # Three rates under three seeds each; the flag goes to the algorithm that has it.
    assert stdout.count("--algorithm=clipped_fedavg") == 9 == stdout.count("--clip_norm=0.5")
    assert stdout.count("--algorithm=fedavg") == 9


@pytest.mark.slow
def test_the_contract_tests_run_over_the_pages_package(example):
    words = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k")
    chosen = "(thermostats or clipped_fedavg) and not tff"
    paths = [f"tests/contracts/test_{name}.py" for name in ("absence", "agreement", "datasets")]
    stdout = _run(example, *words, chosen, *paths)
    # Absent clients; three rounds on another backend; the task's own.
    assert int(stdout.splitlines()[-1].split()[0]) >= 7, stdout


def test_names_are_known_without_tensorflow(example):
    code = (
        "import sys, datasets; from motley_tff import algorithms; from trainers import "
        "finetuning_trainer; print(datasets.setting('thermostats'), algorithms.plugged(), "
        "list(algorithms.CARDS)[-1], {'tensorflow', 'sklearn'} & set(sys.modules))"
    )
    expected = "cross_device {'clipped_fedavg': 'thermostats 1.0'} clipped_fedavg set()\n"
    assert _run(example, "-c", code) == expected


def test_the_example_itself_can_be_imported_first(example):
    """Its module imports this project's algorithms, which import it."""
    code = "import thermostats; from motley_tff import algorithms; print(algorithms.REFUSED)"
    assert _run(example, "-c", code) == "{}\n"


# --- what is wrong with a package -----------------------------------------------------------------


def _forget():
    plugins.installed.cache_clear()
    algorithms._registry.cache_clear()
    datasets.packages._create.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns what makes a package installed: its module's text and its entry points."""

    def installed(text, package="toys", **points):
        module = f"toys_{uuid.uuid4().hex}"
        points = {
            group: {name: value.replace("M:", f"{module}:") for name, value in of.items()}
            for group, of in ((_DATASETS, points.get("tasks", {})),
                              (_ALGORITHMS, points.get("kinds", {})))
        }  # fmt: skip
        folder = tmp_path / package
        plugin_package.write(folder, package, "2.5", points, {f"{module}.py": text})
        monkeypatch.syspath_prepend(folder)
        _forget()

    yield installed
    monkeypatch.undo()
    _forget()


_TASK = """
from tests import toy
def create(name, base_random_seed=0):
    import dataclasses
    return dataclasses.replace(toy.scalar_task({"a": [1.0]}), dataset=name)
create.setting = "cross_device"
"""


def _create(name, **options):
    return datasets.create_task(datasets.DataOptions(name, **options))


def test_a_data_set_is_found_and_gets_what_it_takes(install):
    seeds = "def create(name, base_random_seed=0):\n    print('seed', base_random_seed)"
    install(
        _TASK.replace("def create(name, base_random_seed=0):", seeds), tasks={"toy": "M:create"}
    )
    assert "toy" in datasets.names() and datasets.setting("toy") == "cross_device"
    assert _create("toy", base_random_seed=3).facts["package"] == "toys 2.5"
    assert interface.create_task("toy").facts["package"] == "toys 2.5"
    with refused("toys 2.5", "data_file"):
        _create("toy", data_file="x.csv")
    with refused("only_digits", True, "dataset_name=emnist"):
        _create("toy", only_digits=True)
    with refused("dataset_name", "toi", advice="'toy'"):
        datasets.check_name("toi")


@pytest.mark.parametrize(
    ("old", "new", "found", "expected"),
    [
        ("from tests", "import nothing_of_that_name; from tests",
         "ModuleNotFoundError: No module named 'nothing_of_that_name'", ""),
        ("create", "other", "AttributeError", ""),
        ('"cross_device"', '"devices"', "'devices'", "'cross_device' or 'cross_silo'"),
        ("create.setting", "create.other", "None", "'cross_device' or 'cross_silo'"),
        ('"cross_device"', '"cross_silo"', "setting='cross_device'", "'toy', 'cross_silo'"),
        ("=name)", "='x')", "dataset='x'", "'toy', 'cross_device'"),
        ("return", "return 1 #", "int", "a Task"),
    ],
)  # fmt: skip
def test_a_broken_data_set_is_a_line_and_the_others_stay(install, old, new, found, expected):
    text = _TASK.replace(old, new)
    install(text, tasks={"toy": "M:create"})
    with refused("plug-in toys 2.5, data set 'toy' (", found, expected):
        _create("toy")
    datasets.check_options(datasets.DataOptions("school"))
    assert datasets.setting("school") == "cross_silo" and "toy" in datasets.names()


def test_names_that_are_taken_or_none(install):
    install(_TASK, tasks={"school": "M:create", "My toy": "M:create", "toy": "M:create"})
    for make in (datasets.check_name, interface.create_task):
        with refused("data set 'school' (", "this project's own"):
            make("school")
    with refused("data set 'My toy'", "'My toy'", "small letters"):
        _create("My toy")
    assert _create("toy").dataset == "toy"
    install(_TASK, package="others", tasks={"toy": "M:create"})
    with refused("data set 'toy'", "others and toys", "one"):
        _create("toy")


_CLASS = """
import dataclasses
from typing import ClassVar
from motley_tff.algorithms import FedAvg, FineTuning
from motley_tff.algorithms.card import Card, parameter

@dataclasses.dataclass(frozen=True)
class Toy(FedAvg):
    card: ClassVar[Card] = Card("toy", "A toy", ("finetuning_trainer",), "a toy")
    strength: float = parameter(0.5, "Strength of toy", flag="strength")
"""


def test_an_algorithm_is_found_behind_ours(install):
    install(_CLASS, kinds={"toy": "M:Toy"})
    assert algorithms.plugged() == {"toy": "toys 2.5"} and algorithms.REFUSED == {}
    assert list(algorithms.CARDS)[-1] == "toy" and "toy" in algorithms.TRAINING
    assert "toy" in algorithms.offered_by("finetuning_trainer")
    assert "toy" not in algorithms.offered_by("knn_per_trainer")
    assert names.title("toy+finetuning") == "A toy + FT"
    assert algorithms.origin(algorithms.TRAINING["toy"]) == "toys 2.5"
    assert algorithms.origin(algorithms.FedAvg) is None
    ours = [n for n in algorithms.CARDS if n != "toy"]
    assert sorted([*ours, "toy"], key=names.rank)[-1] == "toy"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("import dataclasses", "import nothing_of_that_name", "ModuleNotFoundError"),
        ("@dataclasses.dataclass(frozen=True)", "", "a class under @dataclasses"),
        ("card: ClassVar[Card] = Card(", "other: ClassVar[Card] = Card(", "no card of its own"),
        ('Card("toy"', 'Card("tyo"', "'tyo' in its card, expected 'toy'"),
        ('("finetuning_trainer",)', "()", "() in its card, expected a tuple of finetuning_trainer"),
        ('"finetuning_trainer",', '"hypcluster_trainer",', "the trainer 'hypcluster_trainer'"),
        ('"finetuning_trainer",', '"mtl_trainer",', "a SiloAlgorithm, as mtl_trainer makes"),
        ("Toy(FedAvg)", "Toy(FineTuning)", None),
        ("Toy(FedAvg)", "Toy", "a FedAvg or FineTuning, as finetuning_trainer makes"),
        (' = parameter(0.5, "Strength of toy", flag="strength")', "", "TypeError"),
        ("    strength", "    def __post_init__(self):\n        raise ValueError\n    strength",
         "ValueError"),
        ("0.5, ", "True, ", "the default True of its option 'strength'"),
        ("0.5, ", "-1.0, ", "the default -1.0 of its option 'strength', expected a number"),
        ('"strength")', '"Strength!")', "the flag 'Strength!'"),
    ],
)  # fmt: skip
def test_a_broken_algorithm_is_a_line_and_the_others_stay(install, old, new, said):
    install(_CLASS.replace(old, new), kinds={"toy": "M:Toy"})
    if said is None:
        assert "toy" in algorithms.PERSONALIZATIONS and algorithms.REFUSED == {}
        return
    assert "toy" not in algorithms.CARDS and "fedavg" in algorithms.TRAINING
    assert said in algorithms.REFUSED["toy"]
    assert "plug-in toys 2.5, algorithm 'toy'" in algorithms.REFUSED["toy"]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (_CLASS.replace("import dataclasses", "import nothing_at"), "toy", "nothing_at"),
        (_CLASS.replace('"strength")', '"total_rounds")'), "toy",
         "--total_rounds, which finetuning_trainer has with another meaning"),
        (_CLASS.replace('"strength")', '"finetune_every")'), "toy", "--finetune_every, which"),
        (_CLASS.replace('"strength")', '"algorithm")'), "toy", "--algorithm, which finetuning"),
        (_CLASS.replace('0.5, "Strength of toy", flag="strength"',
                        '0.5, "Other", flag="proximal_strength", upper=1'), "toy",
         "--proximal_strength, which fedprox has with another meaning"),
        (_CLASS.replace('"toy",', '"fedavg",'), "fedavg", "this project's own"),
    ],
)  # fmt: skip
def test_a_trainer_says_why_it_does_not_offer_an_algorithm(install, text, name, said, tmp_path):
    install(text, kinds={name: "M:Toy"})
    with in_process.opened("finetuning_trainer") as run:
        with refused("algorithm", name, advice=said) as error:
            run(tmp_path, "x", f"--algorithm={name}", "--total_rounds=1")
        assert "toys 2.5" in str(error.value)
        if said == "nothing_at":  # Which the others do not notice.
            flags = ("--total_rounds=1", "--finetune_max_epochs=0", "--backend=sequential")
            run(tmp_path, "y", "--algorithm=fedsgd", *flags)


def test_nothing_goes_on_under_another_version(install, tmp_path):
    install(_CLASS, kinds={"toy": "M:Toy"})
    given = ("--algorithm=toy", "--total_rounds=1", "--finetune_max_epochs=0")
    with in_process.opened("finetuning_trainer") as run:
        path = run(tmp_path, "x", *given, "--backend=sequential") / "run.json"
        record = json.loads(path.read_text())
        assert record["plugins"] == {"algorithm": "toys 2.5"}
        path.write_text(json.dumps(record | {"status": "stopped", "plugins": {"algorithm": "x 1"}}))
        with refused(str(path.parent), "toys 2.5", "x 1"):
            run(tmp_path, "x", *given, "--backend=sequential")


def test_a_sweeps_plan_has_the_versions_of_its_packages(install):
    """It does not go on under another plan."""
    install(_TASK + _CLASS, tasks={"rooms": "M:create"}, kinds={"toy": "M:Toy"})
    fixed, tried = {"algorithm": "toy"}, {"strength": ("0.5",)}
    grid = grids.Grid("toy", "rooms", "finetuning_trainer", fixed, {}, tried)
    assert plans.Plan(grid, 1).identity()["plugins"] == {"toy": "toys 2.5", "rooms": "toys 2.5"}


def test_runs_do_not_hang_on_what_is_installed_beside_them(install):
    """A flag of a package's algorithm is on record for that algorithm alone."""
    personal = _CLASS.replace("Toy(FedAvg)", "Kin(KnnPer)").replace("FineTuning", "KnnPer")
    personal = personal.replace('"toy"', '"kin"').replace("finetuning_", "knn_per_")
    install(_CLASS + personal.replace('flag="strength"', 'flag="kinship"'),
            kinds={"toy": "M:Toy", "kin": "M:Kin"})  # fmt: skip
    assert algorithms.REFUSED == {}

    def decides(trainer, *given):
        needed = ["x", "--experiment_name=x", "--dataset_name=school"]
        flags.FLAGS([*needed, *given])
        found = config.deciding_flags(trainer)
        flags.FLAGS.unparse_flags()
        for flag in given:
            flags.FLAGS[flag[2:].partition("=")[0]].unparse()
        return found

    with in_process.opened("finetuning_trainer"):
        decided = functools.partial(decides, "finetuning_trainer")
        assert "strength" not in decided() and "proximal_strength" in decided()
        assert decided("--algorithm=toy")["strength"] == 0.5
    with in_process.opened("knn_per_trainer"):
        decided = functools.partial(decides, "knn_per_trainer")
        assert not {"kinship", "personalization"} & {*decided()}
        assert decided("--personalization=kin")["kinship"] == 0.5
