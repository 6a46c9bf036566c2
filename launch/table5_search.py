"""Trains the grids of `motley_table5` and chooses on validation data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff import algorithms, metrics
from motley_tff.algorithms import fedavg, finetuning, optimizers, personal
from motley_tff.backends import run_groups
from motley_tff.core import candidates, grid
from motley_tff.core import task as task_lib
from motley_tff.metrics import client_values

# What may differ in one compiled call; `mocha_outer` changes how many passes there are.
_TRACED = ("client", "server", "personal", "lambda")
# Rates of what a row does not tune: FedAvg beside local training and Mocha is a baseline only.
_BASELINE = {"client": 0.01, "server": 3.0}

Found = tuple[str, Mapping[str, float], float, float, float, float | None, int]


class Search:
    """Searches one data set's grids.

    Args:
      tasks: The task under each seed.
      batch_size: Examples a batch.
      total_rounds: Rounds of every run.
      finetune_epochs: Most fine-tuning epochs.
      finetune_every: Fine-tune from the model before the first round and after so many.
      show: Told how far it is.
    """

    def __init__(
        self,
        tasks: Mapping[int, task_lib.Task],
        batch_size: int,
        total_rounds: int,
        finetune_epochs: int,
        finetune_every: int,
        show: Callable[[str], None],
    ):
        self._tasks, self._batch_size, self._total_rounds = tasks, batch_size, total_rounds
        self._epochs, self._every, self._show = finetune_epochs, finetune_every, show
        self._task = next(iter(tasks.values()))
        self._higher = self._task.metric.higher_is_better
        # Drawn here: algorithms are also built inside graphs.
        self._initial = {s: task.model.initial_weights(s) for s, task in tasks.items()}
        self._best_fedavg: Mapping[str, float] | None = None

    def best(self, name: str, rates: Sequence[float], points: Sequence[dict[str, Any]]) -> Found:
        """Returns (name, setting, mean, std over silos, std of the mean over seeds, % hurt, runs).

        Args:
          name: `local`, `fedavg`, `finetuning`, `ditto` or `mocha`.
          rates: The fine-tuning rates.
          points: The settings to try.
        """
        if name == "finetuning":
            return self._finetuning(rates, points)
        found = self._search(name, points)
        best = self._choose(found)
        if name == "fedavg":
            self._best_fedavg = best
        runs = found[_key(best)]
        column = 0 if name == "fedavg" else 1
        test = [self._values(one, "test")[:, column] for one in runs]
        return self._row(name, best, test, None, len(points) * len(self._tasks))

    def _search(self, name, points) -> dict[Any, list[grid.Scored]]:
        """Returns every setting's runs, a run a seed."""
        found: dict[Any, list[grid.Scored]] = {}
        groups = run_groups.group(points, list(self._tasks), _TRACED)
        for number, group in enumerate(groups, 1):
            self._show(f"{name}: call {number} of {len(groups)}")
            build = self._builder(name, group.fixed)
            personalization = self._scoring(build)
            for one in grid.run(self._tasks, group, build, personalization, self._total_rounds):
                found.setdefault(_key({**group.fixed, **one.setting}), []).append(one)
        return found

    def _scoring(self, build):
        template = build(self._task, next(iter(self._tasks)), dict.fromkeys(_TRACED, 1.0))
        if template.personal_model is None:
            return self._finetuned((1.0,), epochs=0)
        return personal.build(self._task, template)

    def _builder(self, name: str, fixed: Mapping[str, Any]) -> grid.Build:
        def build(task, seed, hparams):
            values = {**_BASELINE, **fixed, **hparams}
            sgd = optimizers.OptimizerConfig("sgd", values["client"])
            server = optimizers.OptimizerConfig("fedavgm", values["server"], {"momentum": 0.9})
            params = fedavg.Params(sgd, server, train_batch_size=self._batch_size)
            initial = self._initial[seed]
            if name in ("fedavg", "finetuning"):
                return fedavg.build(task, params, initial)
            own = {flag: values[flag] for flag in algorithms.MULTI_TASK[name]}
            rate = optimizers.OptimizerConfig("sgd", values["personal"])
            return algorithms.build_multi_task(name, task, params, rate, initial, own)

        return build

    def _choose(self, found) -> dict[str, float]:
        """Returns the setting of best validation mean over silos and seeds."""

        def score(runs):
            values = [self._values(one, "valid")[:, -1].mean() for one in runs]
            mean = float(np.mean(values))
            worst = -np.inf if self._higher else np.inf
            return mean if np.isfinite(mean) else worst

        return dict((max if self._higher else min)(found, key=lambda k: score(found[k])))

    def _values(self, one: grid.Scored, split: str) -> np.ndarray:
        return one.scores[split].values[self._task.metric.name].astype(np.float64)

    def _row(self, name, setting, test, hurt, num_runs) -> Found:
        means = [values.mean() for values in test]
        stds = [values.std() for values in test]
        return (
            name,
            setting,
            float(np.mean(means)),
            float(np.mean(stds)),
            float(np.std(means)),
            hurt,
            num_runs,
        )

    def _finetuned(self, rates, epochs):
        sgd = optimizers.OptimizerConfig("sgd", 1.0)
        params = finetuning.Params(sgd, tuple(rates), epochs, self._batch_size)
        return finetuning.build(self._task, params)

    def _finetuning(self, rates, points) -> Found:
        """Fine-tunes from several rounds of the best FedAvg; each silo has its rate and epoch."""
        if self._best_fedavg is None:
            self._best_fedavg = self._choose(self._search("fedavg", points))
        (group,) = run_groups.group([self._best_fedavg], list(self._tasks), _TRACED)
        build = self._builder("fedavg", group.fixed)
        personalization = self._finetuned(rates, self._epochs)
        best: dict[int, tuple[float, np.ndarray, np.ndarray]] = {}
        for one in grid.run(
            self._tasks, group, build, personalization, self._total_rounds, self._every
        ):
            self._show(f"finetuning: round {one.round_number}, seed {one.seed}")
            valid, test = self._values(one, "valid"), self._values(one, "test")
            chosen = candidates.choose(valid, self._higher, "per_client", include_baseline=False)
            mean = candidates.take(valid, chosen).mean()
            score = mean if self._higher else -mean
            if one.seed not in best or score > best[one.seed][0]:
                best[one.seed] = (score, candidates.take(test, chosen), test[:, 0])
        tuned = [mine for _, mine, _ in best.values()]
        hurt = [self._pct_hurt(before, mine) for _, mine, before in best.values()]
        name, runs = "finetuning", len(points) * len(self._tasks)
        return self._row(name, self._best_fedavg, tuned, float(np.mean(hurt)), runs)

    def _pct_hurt(self, before: np.ndarray, mine: np.ndarray) -> float:
        ids = np.array(self._task.test.ids)
        sizes = np.ones(len(ids), np.int64)
        values = client_values.ClientValues(ids, before, mine, self._higher, sizes)
        return metrics.POPULATION["pct_clients_hurt"](values)


def _key(setting: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(setting.items()))
