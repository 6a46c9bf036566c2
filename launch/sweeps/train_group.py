"""The process of one task: trains a group of a sweep's runs in compiled calls and keeps the rows.

    python -m launch.sweeps.train_group DIRECTORY TASK

The same flags, algorithms, streams and rules of choice as a trainer for each run would have.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from launch.sweeps import plans, results
from motley_tff import commandline
from motley_tff.core import candidates
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files
from motley_tff.tables import schema

FLAGS = flags.FLAGS


def main(directory: str, number: str) -> None:
    """Trains the runs of one task of the sweep in `directory`."""
    folder = pathlib.Path(directory)
    try:
        record = (folder / "run.json").read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(
            f"{folder}: found no run.json, which says what to train; motley_sweep writes it (not "
            "with --dry_run) and starts its tasks itself"
        ) from error
    plan = plans.from_record(json.loads(record))
    task = plan.tasks[int(number)]
    trainer = importlib.import_module(f"trainers.{plan.grid.trainer}")
    commandline.parse([trainer.__name__, *plan.arguments(task.runs[0], folder)])
    _Group(folder, plan, task).run()


class _Kept(NamedTuple):
    """A run after the round that is best so far on validation data."""

    score: float
    round_number: int
    scores: Mapping[str, Any]
    has_diverged: bool


class _Group:
    def __init__(self, directory: pathlib.Path, plan: plans.Plan, task: plans.Task):
        import datasets
        from trainers import assembly, data_flags

        assembly.limit_threads(1)  # As many calls run side by side as there are cores.
        if task.group is None:
            raise ValueError(f"Task {task.name} is no group.")
        self._directory, self._plan, self._task, self._group = directory, plan, task, task.group
        options = data_flags.options(FLAGS)
        self._tasks = {
            seed: datasets.create_task(dataclasses.replace(options, base_random_seed=seed))
            for seed in task.group.seeds
        }
        self._first = self._tasks[task.group.seeds[0]]
        # Drawn here: algorithms are also built inside graphs.
        self._initial = {seed: one.model.initial_weights(seed) for seed, one in self._tasks.items()}
        template = self._build(self._first, task.group.seeds[0], dict(task.group.settings[0]))
        self._personalization, self._name = personalization(FLAGS, self._first, template)

    def run(self) -> None:
        """Trains, takes each run's best round, and writes what came of it."""
        metric = self._first.metric
        kept = dict(zip(self._task.runs, self._best_rounds(), strict=True))
        rows = []
        for run, one in kept.items():
            if one.has_diverged:
                rows.append(results.failed_run(run, results.DIVERGED))
                continue
            summary = [self._cells(run, one, row) for row in self._report(one).summary]
            rows.append(results.of_run(run, summary, metric.name, metric.higher_is_better))
        self._write_clients(kept, rows)
        content = {"runs": rows, "status": "finished", "data_files": self._data_files()}
        results.save(results.path_of(self._directory, self._task), content)

    def _best_rounds(self) -> list[_Kept]:
        """Returns each run, in the order of the task, after its round of best validation mean."""
        from motley_tff.experiment import grid

        best: dict[tuple[Any, ...], _Kept] = {}
        every = FLAGS.finetune_every if "finetune_every" in FLAGS else None
        for one in grid.run(
            self._tasks, self._group, self._build, self._personalization, FLAGS.total_rounds,
            every, lambda number: commandline.raise_if_ended(),
        ):  # fmt: skip
            run = (*one.setting.values(), one.seed)
            new = _Kept(
                self._validation(one.scores), one.round_number, one.scores, one.has_diverged
            )
            # A round whose mean is not finite gives way to any other, as in a trainer; a training
            # loss that is not ends the run there, whatever it was before.
            if (
                one.has_diverged
                or run not in best
                or new.score > best[run].score
                or np.isnan(best[run].score)
            ):
                best[run] = new
        settings = [tuple(setting.values()) for setting in self._group.settings]
        return [best[(*setting, seed)] for setting in settings for seed in self._group.seeds]

    def _validation(self, scores: Mapping[str, Any]) -> float:
        """Returns the validation mean as tables have it, made such that higher is better."""
        metric = self._first.metric
        values = scores["valid"].values[metric.name].astype(np.float64)
        tuning, include_baseline = choice(FLAGS)
        chosen = candidates.choose(values, metric.higher_is_better, tuning, include_baseline)
        mean = float(csv_files.cell(candidates.take(values, chosen).mean()) or "nan")
        return mean if metric.higher_is_better else -mean

    def _report(self, one: _Kept) -> Any:
        from motley_tff.experiment import evaluation

        return evaluation.report(
            self._first, self._personalization.candidates, one.scores, *choice(FLAGS)
        )

    def _cells(self, run: plans.Run, one: _Kept, row: Mapping[str, Any]) -> dict[str, str]:
        """Returns a row with the keys of its run, as the text of a table."""
        keys = {
            "run_id": run.run_id,
            "dataset": self._first.dataset,
            "algorithm": self._name,
            "base_random_seed": run.seed,
            "round": one.round_number,
        }
        return {name: csv_files.cell(value) for name, value in {**keys, **row}.items()}

    def _write_clients(
        self, kept: Mapping[plans.Run, _Kept], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Writes the clients of the settings that may be the sweep's best."""
        extra = tuple(metric.name for metric in self._first.metrics[1:])
        near = self._points_near_the_best(rows)
        clients = [
            self._cells(run, one, row)
            for run, one in sorted(kept.items())
            if run.point in near
            for row in self._report(one).clients
        ]
        columns = schema.clients(self._first.setting, extra)
        path = results.clients_path(self._directory, self._task, self._task.runs[0])
        csv_files.write(path, columns, clients)

    def _points_near_the_best(self, rows: Sequence[Mapping[str, Any]]) -> set[int]:
        points = np.array([run.point for run in self._task.runs]).reshape(-1, self._plan.num_seeds)
        values = results.validation_means(self._plan.grid, rows).reshape(points.shape).mean(axis=1)
        values = values if self._first.metric.higher_is_better else -values
        if not np.isfinite(values).any():
            return set()
        best = np.nanmax(np.where(np.isfinite(values), values, np.nan))
        return set(points[values >= best - results.NEAR * abs(best), 0].tolist())

    def _data_files(self) -> dict[str, str]:
        """Returns what tells the data files from others."""
        from motley_tff.experiment import run_directory

        files = self._first.facts.get("files", ())
        return {os.path.basename(path): run_directory.digest(str(path)) for path in files}

    def _build(self, task: Any, seed: int, hparams: Mapping[str, Any]) -> Any:
        values = with_values(FLAGS, {**self._group.fixed, **hparams})
        return training(values, task, self._initial[seed])


class _Values:
    """Flags, some of which have values that no flag can have: tensors of a compiled call."""

    def __init__(self, values: flags.FlagValues, own: Mapping[str, Any]):
        self._values, self._own = values, own

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return types.SimpleNamespace(value=self._own[name])
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        return self[name].value


def with_values(values: flags.FlagValues, own: Mapping[str, Any]) -> Any:
    """Returns flags of which some have other values; those of a group's fixed flags are parsed.

    Args:
      values: The parsed flags.
      own: `{flag: value}`; text is parsed as the flag would.
    """
    parsed = {
        name: values[name].parser.parse(value) if isinstance(value, str) else value
        for name, value in own.items()
    }
    return _Values(values, parsed)


def training(values: Any, task: Any, initial_weights: Any) -> Any:
    """Returns the training algorithm that a trainer builds from these flags."""
    from trainers import assembly, optimizer_flags

    if "personal_optimizer" not in FLAGS:
        return assembly.training_algorithm(values, task, initial_weights)
    rate = optimizer_flags.config("personal", values)
    return assembly.multi_task_algorithm(values, task, rate, initial_weights)


def personalization(values: Any, task: Any, template: Any) -> tuple[Any, str]:
    """Returns (how a trainer scores with these flags, the algorithm's name in its tables)."""
    from motley_tff.algorithms import personal
    from trainers import assembly

    if template.personal_model is not None:
        return personal.build(task, template), template.name
    return assembly.fine_tuning(values, task), f"{template.name}+finetuning"


def choice(values: Any) -> tuple[Any, bool]:
    """Returns (whose validation score chooses a candidate, whether the baseline may be chosen)."""
    if "finetune_tuning" not in FLAGS:
        return "global", False
    return values.finetune_tuning, values.include_baseline_candidate


def run() -> None:
    """Entry point of the process."""
    commandline.run_main(main, ("DIRECTORY", "TASK"))


if __name__ == "__main__":
    run()
