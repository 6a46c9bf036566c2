r"""Compares the suite at its defaults with scikit-learn, on the rows of a table of your own.

    ./launch/run python launch/experiments/own_tables/against_scikit_learn.py \
        --data_file=my.csv --client_column=who --label_column=what --ignore_columns=row

The suite trains each client alone (`--total_rounds=0`) and FedAvg + fine-tuning, both at default
settings, and takes what is better on validation clients. So does scikit-learn: a pooled ridge or
logistic regression is fitted on the rows of the training clients, and one of each client's own on
its personalization rows. Strengths, and which of the two, are chosen on validation clients. Both
see the same rows and the same features, of the same task. With several --seeds all of that is
repeated with other halves of each client's rows, and a client's value is the mean.

A client's value is its error: the squared error of the label scaled to 0..1, or the share of rows
with a wrong class. The last line has the suite's mean error less that of scikit-learn over test
clients, relative to the latter, with a paired 95% interval (Student's t). The script ends with 1 if
its upper end is above --tolerance.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from scipy import stats
from sklearn import exceptions, linear_model

import motley_tff as motley
from motley_tff import commandline
from motley_tff.core.task import Task
from motley_tff.files import text_tables

FLAGS = flags.FLAGS
_STRENGTHS = tuple(10.0 ** np.arange(-4, 5))
# Features [rows, columns] and labels [rows].
Rows = tuple[np.ndarray, np.ndarray]

flags.DEFINE_string("data_file", None, "The table, a CSV.", required=True)
flags.DEFINE_string("client_column", None, "The column of clients.", required=True)
flags.DEFINE_string("label_column", None, "The column to predict.", required=True)
flags.DEFINE_list("ignore_columns", [], "Columns that are left out.")
flags.DEFINE_integer("seeds", 5, "How many seeds: 0, 1, ...", lower_bound=1)
flags.DEFINE_float("tolerance", 0.05, "How much worse the suite may be.", lower_bound=0)


class Way(NamedTuple):
    """A way to predict: `{client: error}` of validation and of test clients."""

    name: str
    valid: dict[str, float]
    test: dict[str, float]


def main() -> int:
    """Trains both, prints a table; returns 1 if the suite is worse beyond the tolerance."""
    pairs = [_chosen(seed) for seed in range(FLAGS.seeds)]
    ours, theirs = ([way.test for way in ways] for ways in zip(*pairs, strict=True))
    mean, low, high = relative_difference(_means(ours), _means(theirs))
    interval = f"{100 * mean:+.1f}% ({100 * low:+.1f} to {100 * high:+.1f}%)"
    print(f"suite less scikit-learn, {len(ours[0])} clients, {FLAGS.seeds} seeds: {interval} of "
          f"the latter's mean error, {_mean(_means(theirs)):.5g}")  # fmt: skip
    return int(high > FLAGS.tolerance)


def _chosen(seed: int) -> tuple[Way, Way]:
    """Returns the suite's choice and scikit-learn's, and prints a table."""
    task = motley.create_task(
        "table",
        data_file=FLAGS.data_file,
        client_column=FLAGS.client_column,
        label_column=FLAGS.label_column,
        ignore_columns=tuple(FLAGS.ignore_columns),
        base_random_seed=seed,
    )
    local, federated = (of_suite(task, rounds, seed) for rounds in (0, 100))
    peers = [of_pooled(task), of_each(task)]
    rows = [(f"seed {seed}", "validation", "test")]
    rows += [(w.name, f"{_mean(w.valid):.5g}", f"{_mean(w.test):.5g}")
             for w in (local, federated, *peers)]  # fmt: skip
    print("", *text_tables.aligned(rows, gap="   "), "", sep="\n", flush=True)
    ours, theirs = (min(w, key=lambda way: _mean(way.valid)) for w in ((local, federated), peers))
    return ours, theirs


def relative_difference(
    ours: dict[str, float], theirs: dict[str, float]
) -> tuple[float, float, float]:
    """Returns the mean of the clients' differences over the other's mean error, and the ends of its
    95% interval.
    """
    clients = sorted(ours.keys() & theirs.keys())
    differences = np.array([ours[i] - theirs[i] for i in clients]) / _mean(theirs)
    half = stats.t.ppf(0.975, len(clients) - 1) * stats.sem(differences)
    return differences.mean(), differences.mean() - half, differences.mean() + half


def of_suite(task: Task, rounds: int, seed: int) -> Way:
    """Returns the errors of clients' own models, at default settings."""
    result = motley.run(task, motley.algorithms.FedAvg(), rounds=rounds, seed=seed)
    rates, clients = result.learning_rates, result.clients
    ids = clients.client_id.str.partition(":")[2]
    errors = 1.0 - clients.personalized if task.metric.higher_is_better else clients.personalized
    by_split = [dict(zip(ids[clients.split == s], errors[clients.split == s], strict=True))
                for s in ("valid", "test")]  # fmt: skip
    name = "FedAvg + fine-tuning" if rounds else "local training"
    chosen = [f"{rate:g}" for rate in rates.learning_rate[rates.is_chosen]]
    candidate = clients.candidate[clients.split == "test"].iloc[0]
    return Way(f"suite: {name}, {', '.join([*chosen, candidate])}", *by_split)


def of_pooled(task: Task) -> Way:
    """Returns the errors of one model of the training clients' rows."""
    parts = [rows_of(task, "train", i, "train") for i in task.train.ids]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    models = {strength: fitted(task, (x, y), strength) for strength in _STRENGTHS}
    return _best_strength(task, "pooled", lambda split, i, strength: models[strength])


def of_each(task: Task) -> Way:
    """Returns the errors of models of clients' own personalization rows."""

    def own(split: str, client_id: str, strength: float) -> Any:
        return fitted(task, rows_of(task, split, client_id, "personalization"), strength)

    return _best_strength(task, "of each client", own)


def _best_strength(task: Task, name: str, model: Callable[[str, str, float], Any]) -> Way:
    """Returns the errors at the strength that is best on validation clients."""

    def errors(split: str, strength: float) -> dict[str, float]:
        ids = task.splits[split].ids
        return {
            i: error(task, model(split, i, strength), rows_of(task, split, i, "evaluation"))
            for i in ids
        }

    valid = {strength: errors("valid", strength) for strength in _STRENGTHS}
    best = min(_STRENGTHS, key=lambda strength: _mean(valid[strength]))
    return Way(f"scikit-learn: {name}, strength {best:g}", valid[best], errors("test", best))


def rows_of(task: Task, split: str, client_id: str, part: str) -> Rows:
    """Returns a client's rows as the suite's models see them."""
    examples = task.splits[split].fetch(client_id)[part]
    label = "target" if "target" in examples else "label"
    return np.asarray(examples["features"], np.float64), np.asarray(examples[label])


def fitted(task: Task, rows: Rows, strength: float) -> Any:
    """Returns a ridge or logistic regression; of rows of one class, that class."""
    x, y = rows
    if not task.metric.higher_is_better:
        return linear_model.Ridge(alpha=strength).fit(x, y)
    if len({*y}) == 1:
        return y[0]
    model = linear_model.LogisticRegression(C=1.0 / strength, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        return model.fit(x, y)


def error(task: Task, model: Any, rows: Rows) -> float:
    """Returns a model's mean error on rows."""
    x, y = rows
    predicted = model.predict(x) if hasattr(model, "predict") else model
    return float(
        np.mean((predicted != y) if task.metric.higher_is_better else (predicted - y) ** 2)
    )


def _means(of_seeds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {i: float(np.mean([errors[i] for errors in of_seeds])) for i in of_seeds[0]}


def _mean(errors: dict[str, float]) -> float:
    return float(np.mean([*errors.values()]))


if __name__ == "__main__":
    commandline.run_main(main)
