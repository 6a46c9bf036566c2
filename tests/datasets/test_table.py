"""Tables of a few rows, by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import special
from sklearn import impute, metrics, pipeline, preprocessing

import datasets
from datasets import table
from datasets.options import DataOptions
from motley_tff import BackendConfig, interface
from motley_tff.algorithms import FedAvg, FineTuning, KnnPer
from tests.errors import refused

_DEVICES = DataOptions("table")
_SILOS = DataOptions("table", setting="cross_silo")


def _frame(num_clients=10, rows=4, **columns):
    """Returns a table of clients c0, c1, ... with the columns x (0, 1, 2, ...) and y (two)."""
    n = num_clients * rows
    cells = {
        "who": [f"c{i // rows}" for i in range(n)],
        "x": [str(i) for i in range(n)],
        "y": ["no" if i % 2 else "yes" for i in range(n)],
        **columns,
    }
    return pd.DataFrame(cells)


def _task(frame, options=_DEVICES, **columns):
    of_columns = {"client_column": "who", "label_column": "y", **columns}
    return table.create_task_from_data(frame, dataclasses.replace(options, **of_columns))


def _of(task, split, part, field):
    clients = task.splits[split]
    return {i: clients.fetch(i)[part][field] for i in clients.ids}


def test_devices_are_scaled_by_training_clients_alone():
    task = _task(_frame())
    raw = np.concatenate([np.arange(4) + 4 * int(i[1:]) for i in task.train.ids])
    assert (len(task.train), len(task.valid), len(task.test)) == (8, 1, 1)
    for split, parts in (("train", 1), ("test", 2)):
        for client in task.splits[split].ids:
            fetched = task.splits[split].fetch(client).values()
            scaled = np.sort(np.concatenate([part["features"][:, 0] for part in fetched]))
            own = np.arange(4) + 4 * int(client[1:])
            np.testing.assert_allclose(scaled, (own - raw.mean()) / raw.std(), rtol=1e-6)
            assert len(fetched) == parts


def test_a_column_of_groups_names_domains_and_predicts_nothing():
    lands = [["north", "south"][int(i) // 4 % 2] for i in range(40)]
    frame = _frame(land=lands, z=[str(i % 3) for i in range(40)])
    task = _task(frame, group_column="land", test_clients=("group=south",))
    assert {*task.test.ids} == {"c1", "c3", "c5", "c7", "c9"}
    assert task.facts["client_groups"] == {f"c{i}": ["north", "south"][i % 2] for i in range(10)}
    assert task.facts["number_columns"] == ["x", "z"] and "category_columns" not in task.facts
    # What scales is of clients that train, here of one domain.
    raw = np.concatenate([np.arange(4) + 4 * int(i[1:]) for i in task.train.ids])
    fetched = task.test.fetch("c1")
    scaled = np.concatenate([part["features"][:, 0] for part in fetched.values()])
    expected = (np.arange(4, 8) - raw.mean()) / raw.std()
    np.testing.assert_allclose(np.sort(scaled), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("cells", "place", "problem"),
    [
        (["a", "b"] + ["a"] * 38, "column 'land' client c0", "several groups (a, b)"),
        (["a", "NA"] + ["a"] * 38, "column 'land'", "no group in 1 of 40 rows, the first in row 3"),
    ],
)
def test_groups_that_clients_cannot_have(cells, place, problem):
    with refused(place, problem):
        _task(_frame(land=cells), group_column="land")


def test_a_seed_of_data_keeps_parts_under_other_seeds_of_training():
    def parts(seed, data_seed=None):
        options = dataclasses.replace(_SILOS, base_random_seed=seed, data_seed=data_seed)
        return _of(_task(_frame(rows=20), options), "test", "train", "features")["c0"].tolist()

    assert parts(5, data_seed=3) == parts(7, data_seed=3) == parts(3) != parts(5)
    made = [
        interface.create_task("table", use_synthetic_data=True, max_clients=4, **seeds).facts
        for seeds in ({"base_random_seed": 1, "data_seed": 0}, {})
    ]
    assert [facts["base_random_seed"] for facts in made] == [0, 0]
    assert made[0]["rows"] == made[1]["rows"]


@pytest.mark.parametrize("options", [_DEVICES, _SILOS])
def test_stratified_parts_keep_the_shares_of_classes(options):
    """Of 20 rows of each client 5 are no; 1 and 1.0 are one class."""
    labels = ["no", "yes", "yes", "yes"] * 50
    task = _task(_frame(rows=20, y=labels), dataclasses.replace(options, stratify=True))
    others = _task(_frame(rows=20, y=labels), options)
    halves = {"personalization": (10, (2, 3)), "evaluation": (10, (2, 3))}
    parts = {"train": (14, (3, 4)), "valid": (3, (0, 1)), "test": (3, (0, 1))}
    is_same = []
    for client in task.test.ids:
        fetched, plain = task.test.fetch(client), others.test.fetch(client)
        for part, (size, may_be) in (halves if options is _DEVICES else parts).items():
            assert len(fetched[part]["label"]) == size == len(plain[part]["label"])
            assert np.sum(fetched[part]["label"] == 0) in may_be
        total = np.concatenate([part["features"] for part in fetched.values()])
        assert len(np.unique(total)) == 20
        is_same += [np.array_equal(fetched[p]["label"], plain[p]["label"]) for p in fetched]
    assert not all(is_same)
    texts = ["1", "1.0", "2", "2.0"] * 50
    numbered = _task(_frame(rows=20, y=texts), dataclasses.replace(options, stratify=True))
    for part in halves if options is _DEVICES else {"train": 0}:
        counts = np.bincount(numbered.test.fetch(numbered.test.ids[0])[part]["label"])
        assert abs(counts[0] - counts[1]) <= 1


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"y": [f"{i / 7:.2f}" for i in range(40)]}, "labels of classes"),
        ({"time_column": "when", "when": [str(i) for i in range(40)]}, "not in the order of time"),
    ],
)
def test_what_is_not_stratified(columns, expected):
    cells = {name: values for name, values in columns.items() if isinstance(values, list)}
    named = {name: value for name, value in columns.items() if name not in cells}
    with refused("stratify", True, expected):
        _task(_frame(**cells), dataclasses.replace(_DEVICES, stratify=True), **named)


def test_dates_become_numbers():
    """A column of days is as one of numbers, up to a shift."""
    start = pd.Timestamp("2024-01-25")
    when = [(start + pd.Timedelta(days=i)).strftime("%d/%m/%Y") for i in range(40)]
    task = _task(_frame(when=when), date_format="day_first")
    assert task.facts["date_columns_in_days_since_1970"] == ["when"]
    features = _of(task, "train", "train", "features")
    for values in features.values():  # x counts rows, too.
        np.testing.assert_allclose(values[:, 1], values[:, 0], rtol=1e-5)
    plain = _task(_frame(when=[str(i) for i in range(40)]))
    np.testing.assert_allclose(_of(plain, "train", "train", "features")["c1"], features["c1"], 1e-5)
    with refused("date_format", "day_first", "a column of dates"):
        _task(_frame(), date_format="day_first")


def test_one_flag_leaves_out_all_that_is_refused():
    frame = _frame(name=[f"name {i}" for i in range(40)], old=["a"] * 40, when=["31.1.2024"] * 40)
    ignored = {"ignore_columns": ("old",)}
    with refused("column 'name'", "40 different", advice="ignore_columns") as caught:
        _task(frame, **ignored)
    assert caught.value.advice.endswith("=old,name,when")
    _task(frame, ignore_columns=("old", "name", "when"))
    named = ("x", "name")
    with refused("column 'name'", "40 different", advice="feature_columns"):
        _task(frame, feature_columns=named)


def test_few_clients_are_advised_to_be_silos():
    advice = "cross_silo"
    with refused("", "2 clients", advice=advice):
        _task(_frame(num_clients=2))
    alone = pd.concat([_frame(2), _frame(9, rows=1).assign(who=[f"s{i}" for i in range(9)])])
    with refused("", "no valid client", advice=advice):
        _task(alone.reset_index(drop=True))
    # Silos could not be split, either.
    with refused("", "no valid client", advice="add clients"):
        _task(_frame(num_clients=10, rows=1))


@pytest.mark.parametrize(("num_clients", "setting"), [(19, None), (20, None), (19, "cross_silo")])
def test_below_twenty_devices_there_is_a_note(num_clients, setting):
    frame = _frame(num_clients=num_clients, rows=8)
    task = datasets.create("table", data=frame, client="who", label="y", setting=setting)
    notes = [note for note in task.facts.get("notes", ()) if "--setting=cross_silo" in note]
    assert len(notes) == (num_clients == 19 and setting is None)
    assert all("(15), choose settings (2) and are reported (2)" in note for note in notes)


def test_columns_that_are_ignored_predict_nothing():
    names = [f"name {i}" for i in range(40)]
    task = _task(_frame(name=names, z=["1", "2"] * 20), ignore_columns=("name", "x"))
    assert task.facts["number_columns"] == ["z"] and "category_columns" not in task.facts
    with refused("ignore_columns", "nam", "column of the table", "'name'"):
        _task(_frame(name=names), ignore_columns=("nam",))


def test_a_column_that_numbers_the_rows_is_warned_of():
    columns = {"z": [*map(str, range(39)), "40"], "n": [f"{i + 7}.0" for i in range(40)]}
    (of_x, of_n) = _task(_frame(**columns)).facts["notes"]
    assert of_x.endswith("--ignore_columns=x") and of_n.endswith("--ignore_columns=n")
    assert "notes" not in _task(_frame(**columns), ignore_columns=("x", "n")).facts


def test_silos_are_imputed_and_scaled_by_their_own_training_part():
    # Seed 0 cuts seven rows into test [6, 2], valid [0], train [1, 3, 5, 4].
    x = ["1", "9", "10", "", "3", "5", "8"] + [str(i) for i in range(7)]
    task = _task(_frame(2, 7, x=x, y=[str(i / 2) for i in range(14)]), _SILOS)
    assert task.facts["label_range"] == [0.5, 6.0]  # Of rows 1 to 12.
    parts = task.train.fetch("c0")
    features = {part: examples["features"][:, 0] for part, examples in parts.items()}
    # Of 9, 5, 3 and the mean in place of the missing one: 17 / 3; variance 56 / 9 * 3 / 4 = 14 / 3.
    expected = {"train": [9, 17 / 3, 5, 3], "valid": [1], "test": [8, 10]}
    for part, numbers in expected.items():
        scaled = (np.array(numbers) - 17 / 3) / np.sqrt(14 / 3)
        np.testing.assert_allclose(features[part], scaled, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(7,), (1, 2, 5, 40, 300)])
def test_numbers_are_scaled_as_scikit_learn_scales_those_of_each_group(sizes):
    rng, starts = np.random.default_rng(1), np.cumsum(sizes) - sizes
    cells = rng.normal(1e6, 3, size=(sum(sizes), 4))
    cells[rng.random(cells.shape) < 0.3] = np.nan
    cells[:, 1] = 0.1  # A constant one.
    rows = [rng.permutation(np.arange(s, s + n)) for s, n in zip(starts, sizes, strict=True)]
    fitted = [(part[: 1 + len(part) // 2], part) for part in rows]
    # Missing where a group trains, there where it is evaluated.
    cells[fitted[-1][0], 2], cells[rows[-1][-1], 2] = np.nan, 7.0
    scaled = table.scaled(cells, fitted)
    for train, used in fitted:
        has_values = ~np.isnan(cells[train]).all(axis=0)
        assert (scaled[used][:, ~has_values] == 0).all()
        scaler = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
        expected = scaler.fit(cells[train][:, has_values]).transform(cells[used][:, has_values])
        np.testing.assert_allclose(scaled[used][:, has_values], expected, rtol=1e-6, atol=1e-6)
    assert np.abs(scaled).max() > 1 and np.abs(scaled[:, 1]).max() < 1e-6


def test_categories_are_those_of_training_clients_and_others_are_counted():
    plain = _task(_frame(colour=["red", "blue", "NA", "red"] * 10))
    (client,) = plain.test.ids
    assert plain.facts["category_columns"] == {"colour": 3}  # Missing is one, too.
    frame = _frame(colour=["red", "blue", "NA", "red"] * 10)
    frame.loc[frame.who == client, "colour"] = "green"
    task = _task(frame)
    assert task.facts["cells_with_a_category_of_no_training_part"] == {"colour": 4}
    for part in task.test.fetch(client).values():
        assert (part["features"][:, 1:] == 0).all()
    for features in _of(task, "train", "train", "features").values():
        assert (features[:, 1:].sum(axis=1) == 1).all()


def test_a_label_of_no_training_client_counts_as_wrong_and_not_in_the_loss():
    frame = _frame()
    (client,) = _task(frame).test.ids
    frame.loc[frame.who == client, "y"] = "maybe"
    task = _task(frame)
    assert task.facts["rows_with_a_label_of_no_training_part"] == 4
    assert task.label_names == ("no", "yes")
    labels = np.array([-1, 0, 1], np.int32)
    logits = np.array([[3.0, 1.0], [2.0, 0.0], [2.0, 0.0]], np.float32)
    losses, weights = task.loss(labels, logits)
    assert weights.numpy().tolist() == [0, 1, 1]
    np.testing.assert_allclose(losses[1:], [np.log1p(np.exp(-2)), 2 + np.log1p(np.exp(-2))], 1e-6)
    correct, weights = task.metric.function(labels, logits)
    assert correct.numpy().tolist() == [0, 1, 0] and weights.numpy().tolist() == [1, 1, 1]


def _run(task, personalization, folder):
    params = FedAvg(train_epochs=1, train_batch_size=100)
    task = dataclasses.replace(task, exports_scores=True)
    return interface.run(
        task, params, personalization, rounds=1, clients_per_round=3,
        backend=BackendConfig(name="sequential"), root_output_dir=str(folder),
    )  # fmt: skip


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("personalization", [FineTuning(max_epochs=2), KnnPer()])
def test_labels_of_no_training_part_neither_train_nor_rank(personalization, tmp_path):
    plain = _frame(12, 20)
    (client, *_) = _task(plain).test.ids
    frame, places = plain.copy(), np.flatnonzero(plain.who == client)[::3]
    frame.loc[places, "y"] = "maybe"
    task = _task(frame)
    result = _run(task, personalization, tmp_path)
    row = result.clients.set_index("client_id").loc[f"table:{client}"]
    assert np.isfinite([row.baseline_loss, row.personalized_loss, row.personalized]).all()
    labels = task.test.fetch(client)["evaluation"]["label"]
    known = (labels >= 0).sum()
    assert 0 < known < len(labels)
    scores = pd.read_csv(tmp_path / "run" / "scores.csv")
    scores = scores[scores.client_id == f"table:{client}"]
    assert len(scores) == known
    expected = metrics.roc_auc_score(scores.label, scores.baseline_score)
    assert row.baseline_roc_auc == pytest.approx(expected)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("options", "personalization"), [(_DEVICES, FineTuning(max_epochs=2)), (_SILOS, KnnPer())]
)
def test_scores_of_each_class_against_the_rest(options, personalization, tmp_path):
    rng = np.random.default_rng(2)
    y = rng.choice(["a", "b", "c"], 300)
    y[rng.random(300) < 0.02] = "rare"
    x = rng.normal(size=300) + (y == "b")
    task = _task(_frame(10, 30, x=x.round(6).astype(str), y=y), options)
    clients = _run(task, personalization, tmp_path).clients.set_index(["split", "client_id"])
    scores = pd.read_csv(tmp_path / "run" / "scores.csv")
    assert list(scores["class"].unique()) == list(task.label_names) and len(task.label_names) > 2
    for key, rows in scores.groupby(["split", "client_id"], sort=False):
        # A client's examples come in the same order under every class.
        labels, baseline, personalized = (
            rows[name].to_numpy().reshape(len(task.label_names), -1)
            for name in ("label", "baseline_score", "personalized_score")
        )
        assert (labels.sum(axis=0) == 1).all()
        for model, of_class in (("baseline", baseline), ("personalized", personalized)):
            hits = labels.argmax(axis=0) == of_class.argmax(axis=0)
            assert hits.mean() == pytest.approx(clients.loc[key][model], abs=1e-6)
        losses = -special.log_expit(baseline[labels == 1])
        assert losses.mean() == pytest.approx(clients.loc[key].baseline_loss, rel=1e-4)
    summary = pd.read_csv(tmp_path / "run" / "summary.csv").set_index("split").loc["test"]
    pooled = [
        metrics.roc_auc_score(of_class.label, of_class.personalized_score)
        for _, of_class in scores[scores.split == "test"].groupby("class")
        if of_class.label.nunique() == 2
    ]
    assert summary.personalized_roc_auc_pooled == pytest.approx(np.mean(pooled))


def test_scores_of_too_many_classes_are_refused():
    task = _task(_frame(y=[f"{'abc'[i % 3]}" for i in range(40)]))
    with refused() as caught:
        dataclasses.replace(task, exports_scores=True, scored_classes=101)
    assert "101" in str(caught.value)


def test_numbers_are_scaled_by_training_labels_and_told_in_their_unit():
    y = [f"{10 + i / 2:g}" for i in range(40)]
    task = _task(_frame(y=y))
    low, high = task.facts["label_range"]
    train = np.concatenate([*_of(task, "train", "train", "target").values()])
    assert (train.min(), train.max()) == (0, 1)
    raw = sorted(10 + i / 2 for i in range(40) if f"c{i // 4}" in task.train.ids)
    assert (low, high) == (raw[0], raw[-1])
    squared, absolute = (metric.function for metric in task.metrics)
    targets, outputs = np.array([0.5], np.float32), np.array([0.25], np.float32)
    assert float(squared(targets, outputs)[0]) == pytest.approx(0.0625)
    assert float(absolute(targets, outputs)[0]) == pytest.approx(0.25 * (high - low))
    assert float(task.loss(targets, outputs)[0]) == pytest.approx(0.03125)
    # A client that trains alone from 0 would hardly get to labels of 0.5 with a few steps.
    weights = task.model.initial_weights(0)
    start = task.model.predict(weights, np.zeros((1, 1), np.float32), False, None)
    assert float(start[0]) == pytest.approx(np.mean(train), rel=1e-6)


@pytest.mark.parametrize(
    ("y", "kind", "names"),
    [
        (["1", "2"] * 20, None, ("1", "2")),
        (["10", "9"] * 20, None, ("9", "10")),
        (["0", "1", "0.0", "1.0"] * 10, None, ("0", "1")),
        (["1", "2.5"] * 20, None, ()),
        ([str(i) for i in range(40)], None, ()),
        (["10", "9.5"] * 20, "classes", ("9.5", "10")),
        (["1", "2"] * 20, "numbers", ()),
        (["1", "x"] * 20, None, ("1", "x")),
    ],
)
def test_what_labels_are(y, kind, names):
    task = _task(_frame(y=y), dataclasses.replace(_DEVICES, label_kind=kind))
    assert tuple(task.label_names) == names
    expected = "accuracy" if names else "squared_error"
    assert task.metric.name == expected
    assert [m.name for m in task.metrics if m.ranks] == (["roc_auc"] if len(names) == 2 else [])


def test_the_older_half_personalizes_and_the_newest_rows_test():
    when = [f"2024-01-{1 + (7 * i) % 28:02d}" for i in range(40)]
    x = [str((7 * i) % 28) for i in range(40)]
    frame = _frame(x=x, when=when)
    task = _task(frame, time_column="when")
    for split in ("valid", "test"):
        for client in task.splits[split].ids:
            parts = {p: e["features"][:, 0] for p, e in task.splits[split].fetch(client).items()}
            assert parts["personalization"].max() < parts["evaluation"].min()
    silos = _task(_frame(2, 20, x=x, when=when), _SILOS, time_column="when")
    for client in silos.train.ids:
        train, valid, test = (e["features"][:, 0] for e in silos.train.fetch(client).values())
        assert train.max() <= valid.min() and valid.max() <= test.min()
        assert (len(train), len(valid), len(test)) == (14, 3, 3)


def test_small_clients_are_counted_and_named():
    frame = pd.concat([_frame(12), _frame(1, 1).assign(who="0042")])
    task = _task(frame, _SILOS)
    (ids,) = task.facts["clients_not_evaluable"].values()
    assert ids == ["0042"] and "0042" in task.train.ids and "0042" not in task.test.ids
    many = pd.concat([_frame(40), *(_frame(1, 1).assign(who=f"s{i}") for i in range(40))])
    left = _task(many).facts["clients_left_out"]
    assert all(i.startswith("s") for ids in left.values() for i in ids) and left


def _naming(*words, **options):
    return dataclasses.replace(_DEVICES, missing_values=words, **options)


@pytest.mark.parametrize("word", ["none", "NA", "null", "-", "?", "NaN", "n/a", "#N/A"])
def test_a_class_may_be_called_as_what_is_missing_elsewhere(word):
    frame = _frame(rows=8, x=["1", "2"] * 40, y=[word, "yes", " " + word, "no", ""] * 16)
    task = _task(frame)
    assert task.label_names == tuple(sorted({word, "yes", "no"}))
    assert task.facts["rows"] == 64 and task.facts["rows_without_label_left_out"] == 16
    assert task.facts["notes"] == [
        f"32 of 64 rows have the label {word!r}, which is a class as others; if they have no "
        f"label, give --missing_values={word}"
    ]
    other = _task(frame, _naming("other"))
    assert other.label_names == task.label_names and "notes" not in other.facts
    named = _task(frame, _naming("other", f" {word.swapcase()} "))
    assert named.label_names == ("no", "yes")
    assert named.facts["rows"] == 32 and named.facts["rows_without_label_left_out"] == 48


def test_what_is_named_as_missing_is_so_in_every_column():
    frame = _frame(x=["1", "NA", "-9", "3"] * 10, colour=["red", "none", "?", "-9"] * 10)
    plain, named = _task(frame), _task(frame, _naming("-9", "na"))
    assert plain.facts["category_columns"] == {"colour": 3}  # red, -9 and what is missing.
    assert named.facts["category_columns"] == {"colour": 4}
    # Of 1, 3 and two imputed by 2 the variance is 1 / 2.
    for client in named.train.ids:
        x = named.train.fetch(client)["train"]["features"][:, 0]
        np.testing.assert_allclose(x, [-(2**0.5), 0, 0, 2**0.5], rtol=1e-6)
    who = _frame().who.replace("c2", "NA")
    with refused("column 'who'", "'NA' in place of a client in 4 of", advice="missing_values"):
        _task(_frame(who=who))
    splits = _task(_frame(who=who), _naming("?")).splits.values()
    assert "NA" in set().union(*(clients.ids for clients in splits))
    times = _frame(when=["-1", *map(str, range(39))])
    _task(times, time_column="when")
    with refused("column 'when'", "1 of 40 rows"):
        _task(times, _naming("-1"), time_column="when")


def test_numbers_with_a_word_among_them_are_not_taken_for_classes():
    numbers = [str(i % 5 + 0.5) for i in range(39)]
    frame = _frame(y=[*numbers, "NA"])
    with refused("column 'y'", "'NA'", advice="missing_values"):
        _task(frame)
    with refused("label_kind", "numbers", "'NA'", "missing_values"):
        _task(frame, dataclasses.replace(_DEVICES, label_kind="numbers"))
    task = _task(frame, _naming("NA"))
    assert task.label_names == () and task.facts["rows_without_label_left_out"] == 1
    classes = _task(frame, dataclasses.replace(_DEVICES, label_kind="classes"))
    assert classes.facts["num_classes"] == 6
    assert _task(_frame(y=["0", "1", "NA", "1"] * 10)).label_names == ("0", "1", "NA")


@pytest.mark.parametrize(
    ("cells", "options", "parts"),
    [
        ({"y": ["a"] * 40}, {}, {"finding": "'a' as every", "expected": "differ"}),
        ({"y": [""] * 40}, {}, {"finding": "no label"}),
        ({"y": ["0.5"] * 40}, {}, {"finding": "0.5 as every", "expected": "differ"}),
        (
            {"y": [f"k{i}" for i in range(2000)]},
            {},
            {"finding": "1,600 classes, such as 'k0'", "expected": "1,000"},
        ),
        ({"when": ["2024-01-31"] * 40}, {}, {"finding": "dates,", "advice": "time_column"}),
        (
            {"when": ["31.01.2024"] * 40},
            {},
            {"finding": "dates,", "advice": "day_first for numbers"},
        ),
        (
            {"note": [f"note {i}" for i in range(40)]},
            {},
            {"finding": "40 different texts", "advice": "ignore_columns"},
        ),
        ({"x": ["=A1"] * 40}, {}, {"finding": "formulas"}),
        ({"x": ["1e300", "-1e300"] * 20}, {}, {"finding": "1e+300", "expected": "1e+30"}),
        (
            {"x": [*map(str, range(39)), "n.a."]},
            {},
            {"finding": "'n.a.'", "advice": "categorical_columns"},
        ),
        (
            {"y": [*map(str, range(39)), "n.a."]},
            {},
            {"finding": "'n.a.'", "advice": "label_kind"},
        ),
        ({}, {"label_kind": "numbers"}, {"where": "label_kind", "expected": "'yes'"}),
        ({}, {"categorical_columns": ("y",)}, {"where": "categorical_columns", "finding": "y"}),
        ({"who": ["a"] * 40}, {}, {"where": "", "finding": "1 client"}),
        ({"who": ["a", "b"] * 20}, {}, {"where": "", "finding": "2 client"}),
        ({"x": None}, {}, {"where": "", "finding": "no column", "advice": "feature_columns"}),
    ],
)
def test_what_cannot_be_learnt(cells, options, parts):
    rows = max((len(values) // 10 for values in cells.values() if values), default=4)
    frame = _frame(rows=rows, **cells).dropna(axis=1)
    with refused(**{"where": f"column {next(iter(cells), '')!r}", **parts}):
        _task(frame, **options)


def test_decimal_commas_between_semicolons_are_the_same_table(tmp_path):
    eighths = [str(i / 8) for i in range(40)]
    frame = _frame(x=eighths, y=eighths, when=eighths)
    written = {"point": frame, "comma": frame.apply(lambda cells: cells.str.replace(".", ","))}
    path, tasks = tmp_path / "t.csv", []
    for name, marks in (
        ("point", {}),
        ("comma", {}),
        ("comma", {"decimal": ",", "delimiter": ";"}),
    ):
        written[name].to_csv(path, sep=";", index=False)
        options = DataOptions("table", data_file=str(path), time_column="when", **marks)
        of_columns = {"client_column": "who", "label_column": "y"}
        tasks.append(datasets.create_task(dataclasses.replace(options, **of_columns)))
    for client in tasks[0].train.ids:
        first, *others = (task.train.fetch(client)["train"] for task in tasks)
        for field in ("features", "target"):
            np.testing.assert_array_equal(first[field], others[0][field])
            np.testing.assert_array_equal(first[field], others[1][field])
    with refused(f"{path} column 'when'", "'0,0'", "numbers"):
        datasets.create_task(dataclasses.replace(options, decimal=".", **of_columns))


def test_errors_about_a_file_begin_with_it(tmp_path):
    (tmp_path / "t.csv").write_text("who,y,x\n" + "a,1,2\nb,1,2\nc,1,2\n" * 9)
    options = {"data_file": str(tmp_path / "t.csv"), "client_column": "who", "label_column": "y"}
    with refused(f"{tmp_path / 't.csv'} column 'who'", "'a'"):
        datasets.create("table", missing_values=("a",), **options)
    with refused(f"{tmp_path / 't.csv'} column 'who'", "'b'"):
        table.raw_examples(DataOptions("table", missing_values=("b",), **options))


def test_raw_examples_are_the_files_cells(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,y,x\n007,a,1\nb,b,=2\n007,b, 3\n")
    options = DataOptions("table", data_file=str(path), client_column="who", label_column="y")
    cells = datasets.raw_examples(options)
    assert {i: {c: v.tolist() for c, v in columns.items()} for i, columns in cells.items()} == {
        "007": {"x": ["1", "3"], "y": ["a", "b"]},
        "b": {"x": ["=2"], "y": ["b"]},
    }
