"""What a sweep does: points, runs, and tasks of one process each; a function of the grid alone.

A point is a combination of the grid's values, a run a point under a seed. Runs that the vectorized
backend can train in one call are grouped (`run_groups`); every other run is a trainer of its own.
"""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import datasets
import motley_tff
from datasets.options import DataOptions, Setting
from launch.sweeps import grids
from motley_tff import algorithms
from motley_tff.algorithms import FedAvg, FineTuning, OptimizerConfig
from motley_tff.backends import choice, run_groups
from motley_tff.core import options
from motley_tff.core.errors import UserError
from motley_tff.experiment.config import EvaluationConfig, LoopConfig, WarmStartConfig
from trainers import algorithm_flags, optimizer_flags
from trainers.algorithm_flags import ExperimentOptions

# Results of another form of `tasks/*.json`, or in another order, are refused.
_FORM = 3
# Clients with small dense models. A user's table has a call for each seed: its rows that train say
# what its columns and labels become.
_STACKED_DATASETS = ("school", "vehicle", "table")
_OF_ONE_SEED = ("table",)
_STACKED_MODELS = frozenset({"linear", "mlp"})
# Flags that nothing but arithmetic depends on: they may differ inside a compiled call.
TRACED = (
    "client_learning_rate", "server_learning_rate", "personal_learning_rate", "lambda",
)  # fmt: skip
# {dataclass: its fields that `train_group` does not read}: a grid with one of these flags is run by
# its trainer, as is one with a flag of a dataclass that is not listed (backends, `RunConfig`). The
# other fields of these, and all of algorithms, may be in a group. Add new fields here.
_ALONE: Mapping[type, tuple[str, ...]] = {
    # A group's rounds have equally many clients; see `_COHORTS`, too.
    LoopConfig: ("dropout_rate",),
    # It is scored once, on all of the personalization set, and every silo takes its model.
    EvaluationConfig: ("personalization_fractions", "acceptance"),
    # It is scored on silos' own examples, and its models are new.
    ExperimentOptions: (
        "evaluate_ood", "ood_examples", "path_to_initial_model_weights",
        "path_to_initial_model_weights_list",
    ),
    # Its warm start has the rates of what follows, and trains each model by itself.
    WarmStartConfig: (
        "client_learning_rate", "server_learning_rate", "server_adam_epsilon", "initialization",
    ),
}  # fmt: skip
# Not of groups of several seeds, whose cohorts are all silos.
_COHORTS = frozenset(
    options.name_of(LoopConfig, field).flag
    for field in (
        "clients_per_train_round", "clients_fraction", "valid_clients_per_evaluation",
        "test_clients_per_evaluation", "final_evaluation_clients",
    )
)  # fmt: skip
# Every candidate's scores of every run are kept until a call ends.
_MAX_SCORES_A_CALL = 2560


class SweepRun(NamedTuple):
    """One run: which point of the grid, under which seed."""

    point: int
    seed: int

    @property
    def run_id(self) -> str:
        """Its name in tables, and of its directory."""
        return f"p{self.point:04d}_s{self.seed}"


class SweepTask(NamedTuple):
    """What one process does: the runs of a compiled call, or of a trainer (without a group).

    A group's runs are in the order of points, then seeds.
    """

    number: int
    runs: tuple[SweepRun, ...]
    group: run_groups.RunGroup | None

    @property
    def name(self) -> str:
        """Its name in files."""
        return f"{self.number:04d}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A sweep: a grid under the seeds 100, 1100, 2100, ... as in the published silo code.

    `model_dir` is where a model of the user's own is; runs look for it there.
    """

    grid: grids.Grid
    num_seeds: int
    data_dir: str | None = None
    use_synthetic_data: bool = False
    data_file: str | None = None
    model_dir: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(100 + 1000 * r for r in range(self.num_seeds))

    @property
    def setting(self) -> Setting | None:
        """What the clients of data are that can be either; None of other data."""
        if self.grid.dataset not in datasets.EITHER_SETTING:
            return None
        chosen: Any = self.grid.fixed.get("setting")
        return datasets.setting(self.grid.dataset, chosen, self.grid.trainer)

    @property
    def num_runs(self) -> int:
        """How many runs there are."""
        return self.grid.num_points * self.num_seeds

    @functools.cached_property
    def tasks(self) -> list[SweepTask]:
        """All tasks, in a fixed order: runs of their own go seed by seed, more seeds come last."""
        if not is_grouped(self.grid):
            runs = (SweepRun(p, seed) for seed in self.seeds for p in range(self.grid.num_points))
            return [SweepTask(number, (run,), None) for number, run in enumerate(runs)]
        numbers = {_key(point): number for number, point in enumerate(self.grid.points)}
        together = [self.seeds] if joins_seeds(self.grid) else [(seed,) for seed in self.seeds]
        most = max_settings(self.grid)
        groups = [
            group
            for seeds in together
            for group in run_groups.group(self.grid.points, seeds, TRACED, most)
        ]
        tasks: list[SweepTask] = []
        for group in groups:
            points = [numbers[_key({**group.fixed, **setting})] for setting in group.settings]
            group_runs = tuple(SweepRun(point, seed) for point in points for seed in group.seeds)
            tasks.append(SweepTask(len(tasks), group_runs, group))
        return tasks

    def arguments(self, run: SweepRun, directory: pathlib.Path) -> list[str]:
        """Returns the flags of a run's trainer in the sweep's directory, one an argument."""
        flags = {
            "experiment_name": run.run_id,
            "root_output_dir": str(directory / "runs"),
            "dataset_name": self.grid.dataset,
            "base_random_seed": str(run.seed),
            **({"data_dir": self.data_dir} if self.data_dir else {}),
            **({"data_file": self.data_file} if self.data_file else {}),
            **({"use_synthetic_data": "true"} if self.use_synthetic_data else {}),
            **self.grid.fixed_of(self.grid.points[run.point]),
            **{flag: ",".join(values) for flag, values in self.grid.inside.items()},
            **self.grid.points[run.point],
        }
        return [f"--{flag}={value}" for flag, value in flags.items()]

    def command(self, task: SweepTask, directory: pathlib.Path) -> list[str]:
        """Returns the argument list of a task's process."""
        if task.group is not None:
            module = "launch.sweeps.train_group"
            return [sys.executable, "-m", module, str(directory), str(task.number)]
        trainer = [sys.executable, "-m", f"trainers.{self.grid.trainer}"]
        return [*trainer, *self.arguments(task.runs[0], directory)]

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a task's process, by which it finds a model of the user's own."""
        if self.model_dir is None:
            return {}
        places = [self.model_dir, os.environ.get("PYTHONPATH", "")]
        return {"PYTHONPATH": os.pathsep.join(filter(None, places))}

    def identity(self) -> dict[str, Any]:
        """Returns what has to be the same for results to belong together, as JSON has it."""
        grid = dataclasses.asdict(self.grid)
        del grid["paper"]
        # Pairs: the order of flags says which point is which, and JSON files sort their keys.
        grid |= {
            name: [[flag, list(v) if isinstance(v, tuple) else v] for flag, v in grid[name].items()]
            for name in grids.SECTIONS
        }
        if settings := grid.pop("settings"):
            grid["settings"] = [[list(pair) for pair in sorted(s.items())] for s in settings]
        return {
            "form": _FORM,
            "version": motley_tff.__version__,
            "results_version": motley_tff.RESULTS_VERSION,
            "grid": grid,
            "seeds": self.num_seeds,
            "use_synthetic_data": self.use_synthetic_data,
            **({"plugins": used} if (used := _plugins(self.grid)) else {}),
        }


def _plugins(grid: grids.Grid) -> dict[str, str]:
    """Returns what a grid names of installed packages, and their versions."""
    flags = ("algorithm", "personalization")
    names = {value for flag in flags for value in (grid.fixed.get(flag), *grid.tried.get(flag, ()))}
    plugins = {name: origin for name, origin in algorithms.plugged().items() if name in names}
    plugin = datasets.packages.installed().get(grid.dataset)
    return plugins if plugin is None else {**plugins, grid.dataset: plugin.origin}


def load(directory: pathlib.Path) -> Plan:
    """Returns the plan of the sweep in a directory; UserError if none was begun there."""
    try:
        return from_record(json.loads((directory / "run.json").read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        expected = "run.json, which says what to train"
        advice = "start motley_sweep without --dry_run: it writes the file and starts the tasks"
        raise UserError(str(directory), None, expected, advice) from error


def from_record(record: Mapping[str, Any]) -> Plan:
    """Returns the plan that `run.json` holds, without what it says of the paper; UserError if its
    tasks have other numbers, as those of a job that was queued before an update.
    """
    plan = record["plan"]
    if plan.get("form") != _FORM:
        other = "a sweep that another version of motley_sweep began"
        advice = "continue with that version, or begin the sweep anew in another directory"
        raise UserError("", other, "one that this version began", advice)
    sections = {
        name: {flag: tuple(v) if isinstance(v, list) else v for flag, v in plan["grid"][name]}
        for name in grids.SECTIONS
    }
    settings = tuple(dict(setting) for setting in plan["grid"].get("settings", ()))
    grid = grids.Grid(**{**plan["grid"], **sections, "settings": settings})
    data_dir, data_file = record["data_dir"], record.get("data_file")
    is_synthetic, model_dir = plan["use_synthetic_data"], record.get("model_dir")
    return Plan(grid, plan["seeds"], data_dir, is_synthetic, data_file, model_dir)


def is_grouped(grid: grids.Grid) -> bool:
    """Returns whether the vectorized backend trains this grid's runs together."""
    if grid.settings or grid.trainer not in algorithms.DEFAULTS:
        return False
    flags = {*grid.fixed, *grid.inside, *grid.grid}
    values = [*grid.fixed.items(), *((f, v) for f in grid.grid for v in grid.grid[f])]
    optimizers = {value for flag, value in values if flag.endswith("_optimizer")}
    # TFF's RMSprop compares its rate with 0, which a tensor cannot be.
    if grid.dataset not in _STACKED_DATASETS or "rmsprop" in optimizers:
        return False
    known = of_groups(grid.trainer)
    if grid.dataset in _OF_ONE_SEED:
        # A warm start draws cohorts of its own.
        if grid.trainer == "hypcluster_trainer":
            return False
        known |= _COHORTS
    default = grid.fixed.get("algorithm", algorithms.DEFAULTS[grid.trainer])
    trained = [algorithms.TRAINING[name] for name in grid.grid.get("algorithm", (default,))]
    # A grid that names another personalization than the trainer's first is not grouped.
    kinds = [*trained, *list(algorithms.personalizations_of(grid.trainer).values())[:1]]
    return (
        all(kind.card.can_be_grouped for kind in kinds)
        and (grid.fixed.get("total_rounds") != "0" or "num_warmstart_fedavg_rounds" in grid.fixed)
        and {*map(optimizer_flags.first_name, flags)} <= known
        and _has_small_models(values)
        and _has_rates(grid, trained, flags)
    )


def _has_rates(grid: grids.Grid, trained: Sequence[type[FedAvg]], flags: Collection[str]) -> bool:
    """Returns whether a grid gives all rates that are else tried out, by each run's trainer."""
    if grid.dataset not in datasets.USERS_DATA:
        return True
    name = "server_optimizer"
    servers = grid.grid.get(name, (grid.fixed.get(name, FedAvg().server.name),))
    tried = {
        optimizer
        for kind in trained
        for server in servers
        for optimizer in kind(server_optimizer=OptimizerConfig(server)).tried_optimizers
    }
    return {name.replace("_optimizer", "_learning_rate") for name in tried} <= {*flags}


def _has_small_models(values: Sequence[tuple[str, str]]) -> bool:
    """Returns whether all models are dense and small, as far as they are known before the data:
    but for their first layer.
    """
    models = {value for flag, value in values if flag == "model"}
    try:
        sizes = [list(map(int, v.split(","))) for flag, v in values if flag == "model_sizes"]
    except ValueError:  # Its trainer will say what is wrong.
        return False
    largest = max((sum(a * b for a, b in itertools.pairwise(s)) for s in sizes), default=0)
    return models <= _STACKED_MODELS and largest <= choice.MOST_STACKED_WEIGHTS


def joins_seeds(grid: grids.Grid) -> bool:
    """Returns whether runs under several seeds are trained together."""
    return is_grouped(grid) and grid.dataset not in _OF_ONE_SEED


def of_groups(trainer: str) -> set[str]:
    """Returns the flags that `train_group` knows; a grid with any other one is run by its trainer.

    Of data these are their seed, and what its data sets alone have: what all have deals, caps or
    leaves out.
    """
    first_on_top = list(algorithms.personalizations_of(trainer).values())[:1]
    kinds = [*algorithms.offered_by(trainer).values(), *first_on_top]
    known = {"algorithm", *(o.name.flag for kind in kinds for o in options.options(kind, trainer))}
    known.update(
        option.name.flag
        for kind in algorithm_flags.beside(trainer)
        for option in options.options(kind, trainer)
        if kind in _ALONE and option.field not in _ALONE[kind]
    )
    of_data = (o for o in options.options(DataOptions) if {*o.owners} & {*_STACKED_DATASETS})
    data_seed = options.name_of(DataOptions, "data_seed").flag
    return (known | {data_seed, *(option.name.flag for option in of_data)}) - _COHORTS


def max_settings(grid: grids.Grid) -> int:
    """Returns how many settings are trained in one call; fewer where each has many candidates."""
    flags = {**grid.fixed, **{flag: values[-1] for flag, values in grid.grid.items()}}
    epochs, rates = (
        options.name_of(FineTuning, field).flag for field in ("max_epochs", "learning_rates")
    )
    is_tuned = grid.trainer in FineTuning.card.trainers
    num_epochs = int(flags.get(epochs, FineTuning.max_epochs)) if is_tuned else 1
    candidates = 1 + num_epochs * len(grid.inside.get(rates, ("",)))
    return max(1, min(run_groups.MAX_SETTINGS, _MAX_SCORES_A_CALL // candidates))


def _key(point: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, float(v) if name in TRACED else v) for name, v in sorted(point.items()))
