"""The process of one task: trains a group of a sweep's runs in compiled calls and writes its rows.

    python -m launch.sweeps.train_group DIRECTORY TASK

The same flags, algorithms, streams and rules of choice as a trainer for each run would have.
"""

import dataclasses
import functools
import importlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import datasets
from datasets.options import DataOptions
from launch.sweeps import plans, results
from launch.sweeps.plans import Plan, SweepRun, SweepTask
from motley_tff import algorithms, commandline
from motley_tff.algorithms import kept_optimizers
from motley_tff.core import candidates
from motley_tff.experiment import defaults, run_directory
from motley_tff.experiment.config import RunConfig
from motley_tff.files import csv_files
from motley_tff.tables import columns
from trainers import config


def main(directory: str, number: str) -> None:
    """Trains the runs of one task of the sweep in `directory`."""
    folder = pathlib.Path(directory)
    plan = plans.load(folder)
    task = plan.tasks[int(number)]
    importlib.import_module(f"trainers.{plan.grid.trainer}")  # Declares its flags.
    commandline.parse([plan.grid.trainer, *plan.arguments(task.runs[0], folder)])
    flags = config.read(plan.grid.trainer)
    create = functools.partial(_create, flags.data)
    GroupTraining(folder, plan, task, flags.run, create, flags.selects_round).run()


def _create(data: DataOptions, seed: int) -> Any:
    return datasets.create_task(dataclasses.replace(data, base_random_seed=seed))


class GroupTraining:
    """Trains the runs of a task together, which has a group, by a trainer's configuration.

    Args:
      run: The configuration, but for the group's own settings.
      create: Makes the data set of a seed.
      selects_round: Whether the best round by validation data is reported.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        plan: Plan,
        task: SweepTask,
        run: RunConfig,
        create: Callable[[int], Any],
        selects_round: bool = False,
    ):
        """Makes the data sets of all seeds and the weights that runs start from."""
        # TensorFlow: 2.3 s; after the flags are right.
        from motley_tff.evaluation import further_metrics
        from motley_tff.experiment import runner

        runner.limit_threads(1)  # As many calls run side by side as there are cores.
        assert task.group is not None
        self._directory, self._plan, self._task, self._group = directory, plan, task, task.group
        self._config, self._selects_round = run, selects_round
        evaluation = run.loop.evaluation
        self._tasks = {
            seed: further_metrics.with_metrics(create(seed), evaluation)
            for seed in task.group.seeds
        }
        results.begun_path(directory, task).touch()
        self._first = self._tasks[task.group.seeds[0]]
        self._run = defaults.resolve(
            run, self._first.setting, len(self._first.train), self._first.is_own_data
        )
        self._choice = self._run.loop.evaluation.choice()
        # Drawn here: algorithms are also built inside graphs.
        self._starts, self._diverged = self._initial_weights()
        setting = dict(task.group.settings[0])
        template = self._configured(self._first, setting).algorithm.build(
            self._first, self._starts[0]
        )
        self._personalization = self._run.build_personalization(self._first, template)

    def run(self) -> None:
        """Trains, takes each run's best round, and writes the results."""
        metric, best = self._first.metric, self._best_rounds()
        rows = []
        for run, scored in best.items():
            if scored.has_diverged:
                rows.append(results.failed_run(run, results.DIVERGED))
                continue
            summary = self._rows(run, scored, "summary")
            tuning = self._first.chosen_by if self._first.chooses_by else None
            of_run = results.of_run(run, summary, metric.name, metric.higher_is_better, tuning)
            rows.append(of_run)
        # Those of settings that may be the sweep's best.
        near = self._points_near_the_best(rows)
        clients = [
            row
            for run, scored in sorted(best.items(), key=lambda item: item[0])
            if run.point in near
            for row in (() if scored.has_diverged else self._rows(run, scored, "clients"))
        ]
        extra = tuple(metric.name for metric in self._first.metrics[1:])
        names = columns.names("clients", **columns.of_task(self._first.setting, extra))
        path = results.clients_path(self._directory, self._task, self._task.runs[0])
        csv_files.write(path, names, clients)
        files = self._first.facts.get("files", ())  # Told from others by their digests.
        digests = {os.path.basename(path): run_directory.digest(str(path)) for path in files}
        data = {"data_files": digests, "options": self._first.facts.get("options", {})}
        content = {"runs": rows, "status": "finished", **data}
        results.save(results.path_of(self._directory, self._task), content)

    def _initial_weights(self) -> tuple[list[Any], set[int]]:
        """Returns (each run's first weights, who diverged on the way to them).

        Both in the order of settings, then seeds.
        """
        from motley_tff.experiment import grid, warm_start  # With TensorFlow, 1.8 s.

        group, algorithm = self._group, self._run.algorithm
        k, before = algorithm.num_models, self._run.warm_start
        if k is None:
            drawn = {seed: t.model.initial_weights(seed) for seed, t in self._tasks.items()}
            return [drawn[seed] for _ in group.settings for seed in group.seeds], set()
        algorithm.check_clients(self._first)
        models = {s: warm_start.random_models(t, s, k) for s, t in self._tasks.items()}
        start = before.algorithm(algorithm)

        def build(task: Any, initial_weights: Any, hparams: Mapping[str, Any]) -> Any:
            return algorithms.with_values(start, hparams).build(task, initial_weights)

        return grid.warm_starts(self._tasks, group, build, models, before.total_rounds)

    def _best_rounds(self) -> dict[SweepRun, Any]:
        """Returns each run, in the order of the task, after the round that a trainer reports."""
        from motley_tff.experiment import grid, schedule  # With TensorFlow, 1.8 s.

        loop, settings = self._run.loop, self._group.settings
        keys = [(*setting.values(), seed) for setting in settings for seed in self._group.seeds]
        runs = dict(zip(keys, self._task.runs, strict=True))
        summaries: dict[SweepRun, list[dict[str, str]]] = {run: [] for run in self._task.runs}
        best: dict[SweepRun, Any] = {}

        def is_over(setting: Mapping[str, float], seed: int) -> bool:
            rows = summaries[runs[(*setting.values(), seed)]]
            return schedule.is_over(loop, self._first, rows)

        for scored in grid.run(
            self._tasks, self._group, self._build, self._starts, self._personalization,
            loop, loop.rounds_per_evaluation if self._selects_round else None,
            self._diverged, self._run.backend.memory_limit_gb * 1e9, is_over,
        ):  # fmt: skip
            run = runs[(*scored.setting.values(), scored.seed)]
            summaries[run] += self._rows(run, scored, "summary")
            chosen = candidates.best_round(summaries[run], *self._first.chosen_by)
            # A training loss that is not finite ends the run there, whatever it was before.
            if scored.has_diverged or chosen == str(scored.round_number):
                best[run] = scored
        return best

    def _rows(self, run: SweepRun, scored: Any, table: str) -> list[dict[str, str]]:
        """Returns a run's rows of `summary` or `clients` at its best round, as the table's text."""
        from motley_tff.evaluation import tables  # With TensorFlow, 2.0 s.

        labels = self._personalization.candidates
        rows = tables.rows(
            self._tasks[run.seed], labels, scored.scores, *self._choice,
            hurt_margin=self._run.loop.evaluation.hurt_margin,
            estimates_hurt=table == "clients",
        )  # fmt: skip
        keys = {
            "run_id": run.run_id, "dataset": self._first.dataset,
            "algorithm": self._run.algorithm_name, "base_random_seed": run.seed,
            "round": scored.round_number,
        }  # fmt: skip
        return [
            {name: csv_files.cell(value) for name, value in {**keys, **row}.items()}
            for row in rows[table]
        ]

    def _points_near_the_best(self, rows: Sequence[Mapping[str, Any]]) -> set[int]:
        """Returns the settings that may be the sweep's best, or have its best baseline: all where
        other seeds have a say.
        """
        if not plans.joins_seeds(self._plan.grid):
            return {run.point for run in self._task.runs}
        points = np.array([run.point for run in self._task.runs]).reshape(
            -1, len(self._group.seeds)
        )
        near: set[int] = set()
        for choose_by in {self._plan.grid.choose_by, "baseline"}:
            grid = dataclasses.replace(self._plan.grid, choose_by=choose_by)
            values = results.validation_means(grid, rows).reshape(points.shape).mean(axis=1)
            values = values if self._first.chosen_by[0] else -values
            best = max(values[np.isfinite(values)], default=np.nan)  # Which nothing is near.
            near.update(points[values >= best - results.NEAR * abs(best), 0].tolist())
        return near

    def _build(self, task: Any, initial_weights: Any, hparams: Mapping[str, Any]) -> Any:
        whole = self._configured(task, hparams)
        return whole.scheduled(kept_optimizers.build(whole.algorithm, task, initial_weights))

    def _configured(self, task: Any, hparams: Mapping[str, Any]) -> RunConfig:
        """Returns the configuration of the runs of a setting."""
        algorithm = algorithms.with_values(self._config.algorithm, hparams)
        # After a setting's own rates, which others may depend on.
        run = dataclasses.replace(self._config, algorithm=algorithm)
        return defaults.resolve(run, task.setting, is_own_data=task.is_own_data)


run = functools.partial(commandline.run_main, main, ("DIRECTORY", "TASK"))

if __name__ == "__main__":
    run()
