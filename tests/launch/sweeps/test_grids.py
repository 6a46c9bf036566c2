"""Reading grids: what is wrong is said with its line; the shipped ones say what Appendix F says."""

import json
import pathlib
import re

import pytest
import yaml

import datasets
from launch.sweeps import grids, plans
from motley_tff.experiment import run_directory
from tests.errors import refused
from tests.trainers import programs
from trainers import TRAINERS

FOLDER = programs.ROOT / "launch" / "grids"
EXPERIMENTS = programs.ROOT / "launch" / "experiments"
GRID = """\
algorithm: ditto
dataset: school
trainer: mtl_trainer
fixed:
  algorithm: ditto
  total_rounds: 2
grid:
  lambda: [0.1, 1e-4]
  personal_learning_rate: [0.01]
"""


@pytest.fixture()
def file(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_values_stay_what_was_written(file):
    grid = grids.read(file(GRID))
    assert grid.grid == {"lambda": ("0.1", "1e-4"), "personal_learning_rate": ("0.01",)}
    assert grid.fixed == {"algorithm": "ditto", "total_rounds": "2"}
    assert (grid.num_points, grid.choose_by, grid.paper) == (2, "personalized", {})


SETTINGS = """\
algorithm: radar
dataset: school
trainer: finetuning_trainer
fixed:
  train_epochs: 10
  server_adam_epsilon: 0.01
settings:
  - {algorithm: fedsgd, train_epochs: 1}
  - {algorithm: fedavg, server_optimizer: adam, server_adam_beta_1: 0.5}
grid:
  client_learning_rate: [0.1, 0.2]
"""


def test_settings_take_the_place_of_fixed_flags(file):
    grid = grids.read(file(SETTINGS))
    assert grid.num_points == len(grid.points) == 4
    plan = plans.Plan(grid, 1)
    arguments = [plan.arguments(task.runs[0], pathlib.Path("x"))[4:] for task in plan.tasks]
    assert sorted(map(sorted, arguments)) == sorted(
        sorted(["--algorithm=" + algorithm, *flags, f"--client_learning_rate={rate}"])
        for rate in ("0.1", "0.2")
        for algorithm, flags in (
            ("fedsgd", ["--train_epochs=1"]),
            ("fedavg", ["--train_epochs=10", "--server_optimizer=adam",
                        "--server_adam_beta_1=0.5", "--server_adam_epsilon=0.01"]),
        )
    )  # fmt: skip
    assert list(grid.tried) == [
        "algorithm", "train_epochs", "server_optimizer", "server_adam_beta_1",
        "client_learning_rate",
    ]  # fmt: skip
    assert grid.described(2) == {
        "train_epochs": "10", "algorithm": "fedavg", "server_optimizer": "adam",
        "server_adam_beta_1": "0.5", "client_learning_rate": "0.1",
    }  # fmt: skip
    record = json.loads(json.dumps({"plan": plan.identity(), "data_dir": None}))
    assert plans.from_record(record) == plan
    assert plan.identity() == record["plan"]
    fewer = grids.read(file(SETTINGS), {"train_epochs": "3"})
    assert fewer.fixed["train_epochs"] == "3" and "train_epochs" not in fewer.tried


@pytest.mark.parametrize(
    ("old", "new", "where", "content"),
    [
        ("\n  - {algorithm: fedsgd, train_epochs: 1}\n  - {algorithm: fedavg, "
         "server_optimizer: adam, server_adam_beta_1: 0.5}", " 3", "line 7 settings", None),
        ("  - {algorithm: fedsgd, train_epochs: 1}", "  - fedsgd", "line 8 a setting", None),
        ("train_epochs: 1}", "client_learning_rate: 1}", "line 8 --client_learning_rate", "grid"),
        ("train_epochs: 1}", "data_dir: x}", "line 8 --data_dir", "motley_sweep"),
        ("train_epochs: 1}", "server_adam_beta_1: 0.5}", "line 8 --server_adam_beta_1", "sgd"),
        ("fedavg, server_optimizer: adam, server_adam_beta_1: 0.5", "fedsgd, train_epochs: 1",
         "line 9", "twice"),
        ("server_optimizer: adam, server_adam_beta_1: 0.5", "train_epochs: 2",
         "line 6 --server_adam_epsilon", "--server_optimizer=sgd"),
    ],
)  # fmt: skip
def test_settings_that_are_none(file, old, new, where, content):
    assert old in SETTINGS
    with refused(where, content):
        grids.read(file(SETTINGS.replace(old, new)))


OPTIMIZERS = """\
algorithm: fedavg
dataset: school
trainer: finetuning_trainer
fixed:
  total_rounds: 2
  server_adam_epsilon: 0.01
  server_fedavgm_momentum: 0.5
grid:
  server_optimizer: [sgd, adam, fedavgm]
"""


def test_fixed_flags_of_an_optimizer_are_for_its_runs(file):
    plan = plans.Plan(grids.read(file(OPTIMIZERS)), 1)
    arguments = [plan.arguments(task.runs[0], pathlib.Path("x"))[4:] for task in plan.tasks]
    assert sorted(arguments) == [
        ["--total_rounds=2", "--server_adam_epsilon=0.01", "--server_optimizer=adam"],
        ["--total_rounds=2", "--server_fedavgm_momentum=0.5", "--server_optimizer=fedavgm"],
        ["--total_rounds=2", "--server_optimizer=sgd"],
    ]


@pytest.mark.parametrize(
    ("old", "new", "where", "content", "advice"),
    [
        ("sgd, adam, fed", "sgd, yogi, fed", "line 6 --server_adam_epsilon",
         "--server_optimizer=sgd or yogi or fedavgm", "adam alone"),
        ("grid:", "grid:\n  server_adam_beta_1: [0.8, 0.9]", "line 9 --server_adam_beta_1",
         "--server_optimizer=sgd or adam or fedavgm", "adam alone"),
        ("fixed:", "fixed:\n  server_adam_beta1: 0.9", "line 5 --server_adam_beta1",
         "no such flag", "--server_adam_beta_1?"),
        ("fixed:", "fixed:\n  client_optimizer: yogi\n  client_yogi_beta1: 0.9\n"
         "  client_yogi_beta_1: 0.9", "line 7 --client_yogi_beta_1", "--client_yogi_beta1", ""),
    ],
)  # fmt: skip
def test_optimizers_flags_that_no_run_or_not_every_run_takes(
    file, old, new, where, content, advice
):
    assert old in OPTIMIZERS
    with refused(where, content, advice=advice):
        grids.read(file(OPTIMIZERS.replace(old, new)))


def changed(old, new):
    assert old in GRID
    return GRID.replace(old, new)


@pytest.mark.parametrize(
    ("text", "where", "parts"),
    [
        (changed("trainer:", "trainr:"), "line 3", {"finding": "trainr", "advice": "trainer?"}),
        (changed("mtl_trainer", "mlt_trainer"), "line 3 trainer", {"advice": "mtl_trainer?"}),
        (changed("dataset: school", "dataset: schol"), "line 2 dataset_name",
         {"finding": "schol", "advice": "'school'"}),
        (changed("lambda: [0.1, 1e-4]", "lambda: 0.1"), "line 8 lambda", {"expected": "a list"}),
        (changed("[0.1, 1e-4]", "[0.1, 1.0e-1]"), "line 8 lambda", {"finding": "1.0e-1"}),
        (changed("[0.1, 1e-4]", "[0.1, null]"), "line 8 lambda", {"expected": "one value"}),
        (changed("lambda:", "lamda:"), "line 8 --lamda", {"advice": "--lambda?"}),
        (changed("[0.1, 1e-4]", "[0.1, -1]"), "line 8 regularization",
         {"finding": "-1", "expected": "at least 0"}),
        (changed("fixed:", "inside:\n  train_epochs: [1, 2]\nfixed:"), "line 5 train_epochs",
         {"finding": "1,2"}),
        (changed("total_rounds: 2", "export_scores: maybe"), "line 6 --export_scores",
         {"finding": "maybe", "expected": "true or false"}),
        (changed("total_rounds: 2", "lambda: 1"), "line 8 --lambda", {"finding": "in grid"}),
        (changed("total_rounds: 2", "algorithm: local"), "line 6",
         {"finding": "a second algorithm"}),
        (GRID + "paper:\n  personalized_mean: [a, 2]\n", "line 11 personalized_mean",
         {"expected": "[mean, std over seeds]"}),
        (changed("lambda:", "tuning_metric: [loss, accuracy]\n  lambda:"), "line 8 --tuning_metric",
         {"expected": "one for all runs", "advice": "fixed"}),
        (GRID + "choose_by: test\n", "line 10 choose_by",
         {"finding": "test", "expected": "personalized, baseline, nothing"}),
        (GRID + "  - 3: [\n", "line 10", {"finding": "no YAML"}),
        (GRID.partition("fixed")[0] + "grid: {}\n", "line 4 grid", {"expected": "key: value"}),
        ("", "", {"finding": "empty"}),
        (GRID.partition("grid")[0], "grid", {"expected": "a flag and its values"}),
        (changed("dataset: school\n", ""), "", {"finding": "no key dataset"}),
        (f"{GRID}paper: {'[' * 2000}", "", {"finding": "too deeply"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line_if_it_has_one(file, text, where, parts):
    path = file(text)
    with refused(f"{path} {where}".rstrip(), **parts):
        grids.read(path)


def test_flags_that_a_sweep_itself_gives_are_refused(file):
    for flag in (
        "experiment_name", "root_output_dir", "dataset_name", "base_random_seed", "data_dir",
        "data_file", "use_synthetic_data", "tensorboard", "flagfile", "verbosity", "help",
    ):  # fmt: skip
        with refused(f"line 6 --{flag}", "motley_sweep"):
            grids.read(file(changed("total_rounds: 2", f"{flag}: 2")))


def test_files_that_are_none(tmp_path, monkeypatch):
    monkeypatch.chdir(programs.ROOT)
    with refused("dito.school.yaml", advice="launch/grids/ditto.school.yaml?"):
        grids.read(tmp_path / "dito.school.yaml")
    monkeypatch.chdir(programs.ROOT / "launch" / "grids")  # From elsewhere, the way from there.
    with refused(advice=" ditto.school.yaml?"):
        grids.read(pathlib.Path("launch/grids/ditto.school.yaml"))
    with refused(str(tmp_path), "Is a directory"):
        grids.read(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"algorithm: \xe9\n")
    with refused("latin.yaml", "UTF-8"):
        grids.read(tmp_path / "latin.yaml")


# --- the paper's ----------------------------------------------------------------------------------

_FILE = pathlib.Path(__file__).with_name("appendix_f.yaml")
APPENDIX_F = yaml.safe_load(_FILE.read_text(encoding="utf-8"))


def _numbers(values):
    return [v if v in ("true", "false") else pytest.approx(float(v), rel=1e-8) for v in values]


@pytest.mark.parametrize("name", APPENDIX_F)
def test_the_papers_grids(name):
    grid = grids.parse(FOLDER / f"{name}.yaml")
    paper = APPENDIX_F[name]
    values = paper["values"]
    searched = {**grid.grid, **grid.inside}
    assert {flag: _numbers(searched[flag]) for flag in searched} == {
        flag: [v if isinstance(v, str) else float(v) for v in values[flag]] for flag in values
    }
    theirs = grid.paper.get("best", {})
    assert {flag: _numbers([theirs[flag]])[0] for flag in theirs} == paper.get("best", {})
    assert name == f"{grid.algorithm}.{grid.dataset}"
    if "table" in paper:
        mean, std, hurt = paper["table"]
        assert grid.paper["personalized_mean"][0] == mean
        assert grid.paper["personalized_std"][0] == std
        assert grid.paper.get("pct_clients_hurt", [None])[0] == hurt


_NOT_MOTLEYS = ("celeba", "sent140", "shakespeare")


def test_every_shipped_grid_is_checked_and_there_is_one_for_each_that_the_paper_tunes():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(APPENDIX_F)
    for name in datasets.REGISTRY.keys() - {*datasets.EITHER_SETTING, *_NOT_MOTLEYS}:
        silo = name in datasets.CROSS_SILO
        tuned = ["local", "finetuning", "hypcluster", "knn_per", *(["ditto"] if silo else [])]
        for algorithm in tuned:
            assert f"{algorithm}.{name}" in APPENDIX_F


def test_trainers_take_the_flags_of_the_shipped_grids():
    paths = (*FOLDER.glob("*.yaml"), *EXPERIMENTS.rglob("*.yaml"))
    assert {grids.read(path).trainer for path in paths} == {*TRAINERS}


PICKY = """\
algorithm: compared
dataset: school
trainer: mtl_trainer
grid:
  personal_learning_rate: [0.1, 0.2]
settings:
  - {algorithm: ditto, server_learning_rate: 10}
  - {algorithm: mr_mtl, server_optimizer: sgd}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("server_optimizer: sgd", "server_learning_rate: 10"),
        ("personal_learning_rate: [0.1, 0.2]", "server_sgd_momentum: [0, 0.5]"),
        ("mr_mtl, server", "per_fedavg, personal_optimizer: adam, server"),
        ("mtl_trainer\ngrid:\n  personal_l", "finetuning_trainer\nfixed: {server_optimizer: adam}\n"
         "grid:\n  algorithm: [fedavg, fedstc]\n  client_l"),
    ],
)  # fmt: skip
def test_a_setting_whose_algorithm_would_not_be_itself_is_refused(file, old, new):
    assert grids.read(file(PICKY)).num_points == 4  # Each setting's optimizer is its own.
    text = PICKY.partition("settings")[0] if "finetuning" in new else PICKY
    assert old in text
    with refused("mine.yaml") as caught:
        grids.read(file(text.replace(old, new)))
    assert " line " not in str(caught.value.where)  # The file is well-formed.


def test_a_flag_given_on_the_command_line_is_searched_no_more():
    fixed = {"lambda": "0.3", "partition": "dirichlet:0.9"}
    grid = grids.read(EXPERIMENTS / "divi" / "ditto.cifar10.yaml", fixed)
    assert {**grid.fixed, **fixed} == grid.fixed
    assert list(grid.grid) == ["personal_learning_rate"]


def test_settings_that_a_fixed_flag_makes_equal_are_one():
    grid = grids.read(EXPERIMENTS / "fedeval" / "radar.mnist.yaml", {"partition": "iid"})
    assert grid.num_points == len({tuple(sorted(point.items())) for point in grid.points}) == 17
    assert grids.read(EXPERIMENTS / "fedeval" / "radar.mnist.yaml").num_points == 22


@pytest.mark.parametrize(
    ("fixed", "where", "advice"),
    [
        ({"lambda": "-3"}, ".yaml, --fixed regularization", ""),
        ({"data_dir": "x"}, "--fixed --data_dir", "leave it out"),
        ({"partition": "classes:0"}, ".yaml, --fixed", ""),
        ({"totl_rounds": "3"}, ".yaml, --fixed --totl_rounds", "--total_rounds?"),
        ({"num_clusters": "3"}, ".yaml, --fixed --num_clusters", "hypcluster_trainer's"),
    ],
)
def test_flags_that_the_command_line_cannot_fix(fixed, where, advice):
    with refused(where, advice=advice):
        grids.read(EXPERIMENTS / "divi" / "ditto.cifar10.yaml", fixed)


def test_results_of_other_flags_have_a_directory_of_their_own():
    fixed = grids.fixed_flags(["--partition=classes:2+lognormal:0,2", "total_rounds=20"])
    assert fixed == {"partition": "classes:2+lognormal:0,2", "total_rounds": "20"}
    name = grids.directory_name(FOLDER / "ditto.cifar10.yaml", fixed)
    assert name == "ditto.cifar10.partition_classes_2_lognormal_0_2.total_rounds_20"
    many = {f"flag_{i}": str(i) for i in range(40)}
    long, other = (
        grids.directory_name(FOLDER / "ditto.cifar10.yaml", {**many, "last": last}) for last in "ab"
    )
    assert len(long) == len(other) == 128 and long != other
    run_directory.check_name(long)
    assert long.startswith("ditto.cifar10.flag_0_0.flag_1_1.")
    for texts, content in ((["x"], "x"), (["a=1", "a=2"], "a")):
        with refused("fixed", content):
            grids.fixed_flags(texts)


def test_which_runs_report_their_best_round(file):
    grid = grids.read(file(changed("[0.01]", "[0.01]\n  reported_round: [last, best]")))
    assert [grid.selects_round(point) for point in (0, 1)] == [False, True]


def test_the_grid_of_the_page_is_read(file):
    page = (programs.ROOT / "launch" / "README.md").read_text()
    (grid,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    parsed = grids.read(file(grid))
    assert (parsed.dataset, dict(parsed.grid)) == (
        "table",
        {"client_learning_rate": ("0.03", "0.1", "0.3")},
    )
