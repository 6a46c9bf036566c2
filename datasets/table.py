"""Your table: a column says whose each row is, another what to predict; devices or silos.

Card
  Source: the file of --data_file: CSV, Parquet (`readers/rows.py`) or LEAF's JSON (`users_table`).
    --client_column, --label_column; --feature_columns are all other columns but --ignore_columns,
    if not given; --categorical_columns are taken as categories though they are numbers. Or
    synthetic shops.
  Licence: your own.
  Clients: as the column says, their ids as text; with --setting=cross_silo silos, else devices.
    Synthetic: 40 shops, 20 to 120 customers each, in two planted groups.
  Fields: `features` float32 [columns]; `label` int32, the class, or `target` float32. Numbers are
    imputed by their mean and standardized, a category becomes a column each, 0 or 1; a missing one
    is a category, too. Dates are days since 1970 (--date_format). Columns, categories and classes
    come from all training parts; means and deviations from the rows of the training clients
    (devices), or each silo's training part. A category that is not there has zeros everywhere; a
    class that is not there counts as wrong and not in the loss. Labels are classes, or numbers if
    there are more than 20 different ones or one is not whole (--label_kind). A number is scaled to
    0..1 by the least and largest training label.
  Model: linear, zero initial weights, or --model=mlp. Classes: cross entropy; `accuracy`, and of
    two `roc_auc`. Numbers: half the squared error; `squared_error` of the scaled label, and
    `absolute_error` in its own unit.
  Split: devices are permuted with seed 13: 12% valid, 15% test, the rest train; the latter two
    personalize on the first half of their shuffled rows. Silos: 70% of the rows train, 15% valid,
    15% test, by the run's seed. With --time_column rows are in that order instead: the older half
    personalizes; a silo's oldest rows train and its newest test. In silos training drops an epoch's
    short last batch.
  Citation: your own.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf

from datasets import packages
from datasets.kinds import classification, silos
from datasets.models import choice, linear, mlp
from datasets.options import MISSING_WORDS, DataOptions
from datasets.partition import assignment
from datasets.readers import dates, rows as rows_lib, users_table
from motley_tff.core import clients as clients_lib, errors, random_streams, task as task_lib
from motley_tff.core.errors import UserError

# From so many different whole numbers on a label is taken for a number and no class.
_MAX_WHOLE_CLASSES = 20
_MAX_CATEGORIES, _MAX_FEATURES = 1000, 20_000
_MAX_NUMBER = 1e30  # Its square is still a float64's, itself a float32's.
_MAX_NAMED = 20
_SYNTHETIC_SHOPS = 40
_LABEL_KIND = errors.name("label_kind")

_MODELS: Mapping[str, choice.Architecture] = {
    "linear": choice.Architecture(
        lambda facts, sizes: linear.Linear(_num_classes(facts), facts.mean_label)
    ),
    "mlp": choice.Architecture(
        lambda facts, sizes: mlp.Mlp(_num_classes(facts), sizes or (64, 64), facts.mean_label),
        "units",
        None,
    ),
}


class Labels(NamedTuple):
    """What is to be predicted.

    Attributes:
      values: int32 [n], places in `classes`, -1 of one that is not there; or float32, scaled.
      classes: The classes' names; None of numbers.
      low, high: Of numbers, the training labels' least and largest.
      mean: Of numbers, the mean of the scaled training labels.
    """

    values: np.ndarray
    classes: tuple[str, ...] | None
    low: float = 0.0
    high: float = 1.0
    mean: float = 0.0


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on a file's rows, or synthetic ones; UserError says what is wrong."""
    if options.use_synthetic_data:
        frame, groups = synthesize(options.seed)
        facts = {"source": "synthetic", "client_groups": groups}
        own = dataclasses.replace(
            options, client_column="shop", label_column="bought", time_column=None,
            feature_columns=None, categorical_columns=(), decimal=None, group_column=None,
        )  # fmt: skip
        return create_task_from_data(frame, own, facts)
    path = users_table.find(options.data_file)
    frame = users_table.read(path, options.delimiter)
    facts = users_table.facts(path)
    with errors.at(path):
        return create_task_from_data(frame, options, facts)


def raw_examples(options: DataOptions) -> dict[str, dict[str, np.ndarray]]:
    """Returns each client's cells as they stand in the file."""
    path = users_table.find(options.data_file)
    frame = users_table.read(path, options.delimiter)
    with errors.at(path):
        features, label = _used_columns(frame, options)
        return rows_lib.examples(frame, options, [*features, label])


def create_task_from_data(
    frame: pd.DataFrame, options: DataOptions, facts: Mapping[str, Any] | None = None
) -> task_lib.Task:
    """Returns the task on a table's cells, all text; `options` say what columns are, the setting,
    the seed, shares, the kind of label and the model. UserError if columns are missing or are none
    to learn from, or too few clients or rows are left.
    """
    names, label = _used_columns(frame, options)
    is_unlabelled = rows_lib.is_missing(frame[label], options.missing_labels)
    counts = {"rows_without_label_left_out": int(is_unlabelled.sum())}
    notes = rows_lib.row_number_notes(frame[names], options.ignore_columns)
    frame = frame[~is_unlabelled].reset_index(drop=True)
    if frame.empty:
        raise rows_lib.column_error(frame[label], "no label", "some")
    by_client, by_time = dates.of_clients(frame, options), options.time_column is not None
    facts = {**(facts or {}), **rows_lib.group_facts(frame, options)}
    strata = _strata(frame[label], options) if options.stratify else None
    rows = assignment.assign(by_client, options, by_time, strata, facts)
    features, feature_facts = _features(frame[names], options, rows)
    labels = _labels(frame[label], options, rows.train)
    field = "target" if labels.classes is None else "label"
    if (unknown := int((labels.values == -1).sum())) and labels.classes is not None:
        counts["rows_with_a_label_of_no_training_part"] = unknown
    if labels.classes is not None and options.missing_values is None:
        notes += rows_lib.label_notes(frame[label])
    clients, client_facts = rows.clients_with({"features": features, field: labels.values})
    all_facts = {
        **facts,
        "rows": len(frame),
        **{name: count for name, count in counts.items() if count},
        **({"notes": notes} if notes else {}),
        **feature_facts,
        **client_facts,
    }
    return _task(clients, labels, features.shape[1], options, all_facts)


def _used_columns(frame: pd.DataFrame, options: DataOptions) -> tuple[list[str], str]:
    """Returns the columns that predict, and the one that is predicted; UserError if there are no
    such, or others that options name are not there.
    """
    rows_lib.check_columns(frame.columns, options, "client_column", "label_column")
    label, field = options.label_column or "", errors.name("feature_columns")
    others = (
        options.client_column, label, options.time_column, options.group_column,
        *options.ignore_columns,
    )  # fmt: skip
    names = list(options.feature_columns or (name for name in frame if name not in others))
    if not names:
        raise UserError("", "no column to predict from", advice=f"give {field}")
    if unused := [name for name in options.categorical_columns if name not in names]:
        categorical = errors.name("categorical_columns")
        advice = f"add it to {field}, or leave it out"
        raise UserError(categorical, unused[0], "a column that predicts", advice)
    return names, label


# --- what a model sees ----------------------------------------------------------------------------


def _features(
    frame: pd.DataFrame, options: DataOptions, rows: assignment.Assignment
) -> tuple[np.ndarray, dict[str, Any]]:
    """Returns float32 [n, columns that a model sees] of the columns that predict, and facts."""
    words, numbers, categories = options.missing_cells, {}, {}
    date_columns: list[str] = []
    for name in frame:
        values = None
        if name not in options.categorical_columns:
            values = rows_lib.numbers(frame[name], words, options.decimal)
            if values is None and options.date_format is not None:
                values = dates.days(frame[name], words, options.date_format)
                date_columns += [] if values is None else [name]
        if values is None:
            texts = frame[name].str.strip()
            categories[name] = texts.where(~rows_lib.is_missing(texts, words), "")
        else:
            if (too_large := np.abs(values) > _MAX_NUMBER).any():
                advice = "write it in another unit, or leave the cell empty"
                problem, expected = f"{values[too_large][0]:g}", f"at most {_MAX_NUMBER:g}"
                raise rows_lib.column_error(frame[name], problem, expected, advice)
            numbers[name] = values
    _check_categories(categories, options)
    if options.date_format is not None and not date_columns and options.time_column is None:
        name = errors.name("date_format")
        raise UserError(name, options.date_format, "a column of dates", "leave it out")
    width = len(numbers) + sum(cells.nunique() for cells in categories.values())
    _check_width(len(frame), len(numbers) + len(categories), width)
    blocks = []
    if numbers:
        blocks.append(scaled(np.stack(list(numbers.values()), axis=1), rows.fitted))
    facts: dict[str, Any] = {"number_columns": list(numbers)}
    if date_columns:
        facts["date_columns_in_days_since_1970"] = date_columns
    if categories:
        known = pd.DataFrame({
            name: pd.Categorical(cells, sorted(cells.iloc[rows.train].unique()))
            for name, cells in categories.items()
        })  # fmt: skip
        blocks.append(pd.get_dummies(known, dtype=np.float32).to_numpy())
        facts["category_columns"] = {name: len(known[name].cat.categories) for name in known}
        unseen = known.isna().sum()
        if unseen.any():
            facts["cells_with_a_category_of_no_training_part"] = unseen[unseen > 0].to_dict()
    return np.concatenate(blocks, axis=1), facts


def _check_width(num_rows: int, num_columns: int, width: int) -> None:
    columns = f"{num_columns} columns that become, with their categories, {width:,} features"
    advice = f"leave columns out with {errors.name('ignore_columns')}"
    if width > _MAX_FEATURES:
        raise UserError("", columns, f"at most {_MAX_FEATURES:,}", advice)
    # As blocks, together, and by client.
    needed = 3 * num_rows * width * np.dtype(np.float32).itemsize
    rows_lib.check_memory(f"{columns} of {num_rows:,} rows", needed, f"{advice}, or rows")


def _check_categories(categories: Mapping[str, pd.Series], options: DataOptions) -> None:
    """Refuses a column that is free text, an identifier or a date rather than a category, or that
    has numbers but for a few texts. What leaves all such columns out is said with the first.
    """
    named = options.categorical_columns
    different = {name: c[c != ""].drop_duplicates() for name, c in categories.items()}
    problems = {}
    for name, cells in categories.items():
        distinct = different[name]
        if dates.looks_like_dates(distinct):
            problem = f"dates, such as {distinct.iloc[0][:30]!r}, which predict nothing as they are"
            problems[name] = (problem, "", _of_dates(name, distinct))
        elif name not in named and _has_numbers_but_few(distinct):
            continue
        elif _is_no_category(distinct, len(cells), name in named):
            example = _other_than_number(distinct)
            problem = (
                f"{len(distinct):,} different texts in {len(cells):,} rows, such as {example!r}"
            )
            problems[name] = (problem, "categories that come again", "")
    for name, cells in categories.items():
        if name not in problems and name not in named and _has_numbers_but_few(different[name]):
            other = f"or the column in {errors.name('categorical_columns')}"
            raise _mixed(cells, _other_than_number(different[name]), other)
    for name, (problem, expected, advice) in problems.items():
        leave_out = f"leave it out of {errors.name('feature_columns')}"
        if options.feature_columns is None:
            every = ",".join([*options.ignore_columns, *problems])
            leave_out = f"leave it out with {errors.name('ignore_columns')}={every}"
        raise rows_lib.column_error(categories[name], problem, expected, f"{advice}{leave_out}")


def _of_dates(name: str, distinct: pd.Series) -> str:
    """Returns how a column of dates could be used."""
    as_numbers, time = dates.advice(distinct), errors.name("time_column")
    as_time = f"{time}={name} for the order of rows, or "
    return f"give {as_numbers} for numbers, {as_time}" if as_numbers else f"give {as_time}"


def _has_numbers_but_few(distinct: pd.Series) -> bool:
    is_number = pd.to_numeric(distinct, errors="coerce").notna()
    return len(distinct) > _MAX_WHOLE_CLASSES and is_number.mean() > 0.8


def _is_no_category(distinct: pd.Series, num_rows: int, is_named: bool) -> bool:
    """Returns whether a column's texts are too many to come again."""
    number, is_many = len(distinct), len(distinct) > _MAX_WHOLE_CLASSES
    return number > _MAX_CATEGORIES or (not is_named and is_many and number > 0.8 * num_rows)


def _mixed(cells: pd.Series, text: str, other: str) -> UserError:
    missing = errors.name("missing_values")
    advice = f"leave such cells empty, name them in {missing}, {other}"
    return rows_lib.column_error(cells, f"numbers, but {text!r} among them", advice=advice)


def scaled(numbers: np.ndarray, fitted: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Returns numbers, float64 [n, columns] with not-a-number where missing, as float32: imputed by
    the mean, standardized. Each of `fitted` has the rows that mean and deviation come from and
    those that they scale; a column without a value in the former is 0 in the latter.
    """
    (trains, owners), (used, places) = map(_joined, zip(*fitted, strict=True))
    groups = pd.DataFrame(numbers[trains]).groupby(owners)
    means, sizes = groups.mean(), groups.size()
    # An imputed cell has no error, but counts.
    deviations = groups.std(ddof=0) * np.sqrt(groups.count().div(sizes, axis=0))
    # What differs by rounding alone is constant, and only centred, as by scikit-learn.
    rounding = means.abs().mul(sizes * np.finfo(np.float64).eps, axis=0)
    deviations = deviations.mask(deviations <= rounding, 1.0)
    result = np.zeros(numbers.shape, np.float32)
    with np.errstate(over="ignore"):  # Said below.
        cells = (numbers[used] - means.to_numpy()[places]) / deviations.to_numpy()[places]
        result[used] = np.where(np.isnan(cells), 0.0, cells)
    if not np.isfinite(result).all():
        problem = "numbers too large to be scaled as float32"
        raise UserError("", problem, advice="give smaller ones")
    return result


def _joined(of_groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of all groups, and the number of each row's group."""
    groups = np.arange(len(of_groups))
    return np.concatenate(of_groups), np.repeat(groups, [len(rows) for rows in of_groups])


def _labels(cells: pd.Series, options: DataOptions, train: np.ndarray) -> Labels:
    """Returns the labels, as classes or numbers; UserError if they leave nothing to learn."""
    kind = options.label_kind
    numbers = None if kind == "classes" else rows_lib.numbers(cells, (), options.decimal)
    if kind == "numbers" and numbers is None:
        expected = f"a column without labels such as {_other_than_number(cells)!r}"
        missing = f"name what stands for no label in {errors.name('missing_values')}"
        raise UserError(_LABEL_KIND, kind, expected, f"give {_LABEL_KIND}=classes, or {missing}")
    are_numbers = numbers is not None and _are_numbers(numbers[train])
    if numbers is not None and (kind == "numbers" or are_numbers):
        low, high = float(numbers[train].min()), float(numbers[train].max())
        if low == high:
            problem = f"{low:g} as every training label"
            raise rows_lib.column_error(cells, problem, "labels that differ")
        values = ((numbers - low) / (high - low)).astype(np.float32)
        return Labels(values, None, low, high, float(values[train].mean()))
    texts = _named(cells, numbers)
    if kind is None:
        _check_are_classes(texts)
    other = "" if numbers is None else f", or {_LABEL_KIND}=numbers"
    advice = f"give another {errors.name('label_column')}{other}"
    known = classification.classes_in(f"column {cells.name!r}", texts.iloc[train], advice)
    return Labels(pd.Categorical(texts, known).codes.astype(np.int32), tuple(known))


def _named(cells: pd.Series, numbers: np.ndarray | None) -> pd.Series:
    """Returns the name of each row's class: 1 and 1.0 are one, called as it is first."""
    texts = cells.str.strip()
    return texts if numbers is None else texts.groupby(numbers, sort=False).transform("first")


def _strata(cells: pd.Series, options: DataOptions) -> np.ndarray | None:
    """Returns the name of each row's class, None if labels are numbers."""
    kind = options.label_kind
    numbers = None if kind == "classes" else rows_lib.numbers(cells, (), options.decimal)
    if numbers is not None and (kind == "numbers" or _are_numbers(numbers)):
        return None
    return _named(cells, numbers).to_numpy()


def _check_are_classes(cells: pd.Series) -> None:
    """Refuses labels that are numbers but for a few texts, or for what often says that there is no
    number.
    """
    distinct = cells.drop_duplicates()
    numbers = pd.to_numeric(distinct, errors="coerce")
    others = distinct[numbers.isna()]
    are_few = len(distinct) > _MAX_WHOLE_CLASSES and len(others) < 0.2 * len(distinct)
    are_none = _are_numbers(numbers.dropna()) and rows_lib.is_missing(others, MISSING_WORDS).all()
    if len(others) and (are_few or are_none):
        raise _mixed(cells, others.iloc[0][:30], f"or give {_LABEL_KIND}=classes")


def _are_numbers(values: np.ndarray | pd.Series) -> bool:
    distinct = np.unique(values)
    return len(distinct) > _MAX_WHOLE_CLASSES or bool((distinct % 1 != 0).any())


def _other_than_number(cells: pd.Series) -> str:
    others = cells[pd.to_numeric(cells, errors="coerce").isna()]
    return str((others if len(others) else cells).iloc[0])[:30]


# --- the task -------------------------------------------------------------------------------------


def _num_classes(facts: choice.ModelFacts) -> int | None:
    return None if facts.predicts_numbers else facts.num_outputs


def _task(
    clients: Mapping[str, clients_lib.Clients],
    labels: Labels,
    width: int,
    options: DataOptions,
    facts: Mapping[str, Any],
) -> task_lib.Task:
    classes = labels.classes
    num_outputs = len(classes or ()) or 1
    model_facts = choice.ModelFacts(
        num_outputs, (width,), predicts_numbers=not classes, mean_label=labels.mean
    )
    example = np.zeros((1, width), np.float32)
    fields: dict[str, Any]
    if classes is not None:
        fields = classification.fields(classes, clients)
        label_facts = {"num_classes": len(classes), "classes": list(classes[:_MAX_NAMED])}
    else:
        absolute = functools.partial(_absolute_error, labels.high - labels.low)
        fields = {
            **clients,
            "loss": silos.half_squared_error,
            "metrics": (
                task_lib.Metric("squared_error", silos.squared_error, higher_is_better=False),
                task_lib.Metric("absolute_error", absolute, higher_is_better=False),
            ),
            "neighbours": "regression",
            "prediction": silos.predicted_number,
            "label_unit": labels.high - labels.low,
        }
        label_facts = {"label_range": [labels.low, labels.high]}
    return task_lib.Task(
        dataset="table",
        setting=packages.setting("table", options.setting),
        model=choice.build(options, _MODELS, model_facts, example),
        preprocess=classification.hand_on("features", "label" if classes else "target"),
        drop_remainder=options.setting == "cross_silo",
        facts={**facts, **label_facts},
        **fields,
    )


def _absolute_error(
    unit: float, targets: tf.Tensor, outputs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    errors = unit * tf.abs(outputs - targets)
    return errors, tf.ones_like(errors)


def synthesize(seed: int, num_shops: int = _SYNTHETIC_SHOPS) -> tuple[pd.DataFrame, dict[str, str]]:
    """Returns customers of shops, of which two groups want opposite things, and each shop's group.

    Columns `shop`, `bought` (yes or no), `age`, `price` (some missing), `colour`.
    """
    frames, groups = [], {}
    for i in range(num_shops):
        rng = random_streams.generator(seed, "synthetic_data", 1, i)
        group, shop, n = int(rng.random() < 0.4), f"{i:03d}", int(rng.integers(20, 121))
        age, price = rng.uniform(18, 80, n), rng.lognormal(3.0, 0.5, n)
        colour = rng.choice(["red", "green", "blue"], n, p=(0.5, 0.3, 0.2))
        standard = np.stack([(age - 49) / 18, (price - 22) / 12, colour == "red"], axis=1)
        wish = np.array([1.0, -1.0, 1.0]) * (1 - 2 * group) + rng.normal(0, 0.5, 3)
        bought = standard @ wish + rng.logistic(0, 0.5, n) > 0
        prices = np.where(rng.random(n) < 0.05, "", np.round(price, 2).astype(str))
        frames.append(pd.DataFrame({
            "shop": shop, "bought": np.where(bought, "yes", "no"), "age": age.round().astype(str),
            "price": prices, "colour": colour,
        }))  # fmt: skip
        groups[shop] = f"group_{group}"
    return pd.concat(frames, ignore_index=True), groups
