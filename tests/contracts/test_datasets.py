"""What every data set keeps to, also of installed packages, on its synthetic twin if it has one."""

import dataclasses
import importlib
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets import description
from datasets.options import NAMED_DEVICES, DataOptions
from datasets.partition import dealing
from motley_tff.algorithms import scoring
from motley_tff.core import client_work, clients as clients_lib, learning
from tests import synthetic
from tests.contracts import in_process
from tests.errors import refused
from tests.trainers import programs


def _names():
    installed = datasets.packages.installed()
    for name in datasets.names():
        is_ours = name in datasets.REGISTRY
        if is_ours or datasets.packages.takes(installed[name], "use_synthetic_data"):
            yield name


@pytest.fixture(scope="module", params=_names())
def name(request):
    return request.param


@pytest.fixture(scope="module")
def task(name):
    return synthetic.task(name)


@pytest.mark.parametrize("name", datasets.REGISTRY)
def test_the_module_opens_with_a_card(name):
    module = importlib.import_module(datasets.REGISTRY[name])
    for heading in ("Source:", "Licence:", "Clients:", "Fields:", "Split:", "Citation:"):
        assert heading in module.__doc__, heading


def _options_of(name):
    return {"partition": "iid"} if name in datasets.DEALT else {}


# A user's own data are asked for before anything is looked for.
@pytest.mark.parametrize("name", sorted(datasets.REGISTRY.keys() - set(datasets.USERS_DATA)))
def test_missing_data_end_in_one_line_that_says_what_to_put_where(name, tmp_path, monkeypatch):
    module = importlib.import_module(datasets.REGISTRY[name])
    if hasattr(module, "_URL"):
        monkeypatch.setattr(module, "_URL", "http://127.0.0.1:9/file")
    with refused(advice="use_synthetic_data") as caught:
        datasets.create(name, data_dir=str(tmp_path), **_options_of(name))
    assert str(tmp_path) in str(caught.value) and not list(tmp_path.iterdir())
    for field in ("data_dir", "data_file"):
        with refused(field, str(tmp_path / "gone")):
            datasets.create(name, **{field: str(tmp_path / "gone")}, **_options_of(name))


@pytest.mark.parametrize(
    ("name", "suffixes"),
    [
        ("celeba", (".sqlite",)), ("emnist", (".sqlite", ".npz", ".json", ".csv")),
        ("mnist", (".npz",)), ("school", (".mat",)), ("sent140", (".csv",)),
        ("shakespeare", (".sqlite", ".h5", ".csv")), ("stackoverflow", (".sqlite", ".xml")),
        ("ted_multi", (".sqlite",)), ("vehicle", (".mat",)),
    ],
)  # fmt: skip
def test_a_file_of_something_else_ends_in_one_line_that_names_it(name, suffixes, tmp_path):
    for suffix in suffixes:
        path = tmp_path / f"ted_multi{suffix}"
        for content in (b"", b"no data\n"):
            path.write_bytes(content)
            expected = ".sqlite" if suffix in (".csv", ".xml") and name != "sent140" else ""
            with refused("ted_multi", expected=expected) as caught:
                datasets.create(name, data_file=str(path))
            assert str(tmp_path) in str(caught.value)


def test_splits(task, name):
    assert task.dataset == name
    sets = {split: set(clients.ids) for split, clients in task.splits.items()}
    assert all(sets.values())
    if name in datasets.REGISTRY.keys() - datasets.DEALT:
        assert set(task.facts["client_groups"]) == set.union(*sets.values())
    if task.setting == "cross_device":
        assert not (sets["train"] & sets["valid"] | sets["valid"] & sets["test"])
        assert not sets["train"] & sets["test"]
    else:
        assert sets["valid"] == sets["test"] <= sets["train"]


# Those that are slow to make share their way of splitting with one that is not.
_SLOWLY_MADE = ("celeba", "emnist", "landmark", "mnist", "sent140")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOWLY_MADE)) for name in NAMED_DEVICES
])  # fmt: skip
def test_clients_are_held_out_by_name(name):
    """All of a group are tested, a training client validates, and none of them trains."""
    task = synthetic.task(name)
    groups = task.facts["client_groups"]
    group = groups[task.test.ids[0]]
    first = next(i for i in task.train.ids if groups[i] != group)
    named = synthetic.task(name, valid_clients=(first,), test_clients=(f"group={group}",))
    sets = {split: set(clients.ids) for split, clients in task.splits.items()}
    members = {i for ids in sets.values() for i in ids if groups[i] == group}
    # Who cannot be scored may train, and the other way round.
    may_differ = {i for t in (task, named) for ids in t.facts.get("clients_left_out", {}).values()
                  for i in ids}  # fmt: skip
    assert set(named.test.ids) - may_differ == members - may_differ
    assert named.valid.ids == (first,)
    assert set(named.train.ids) - may_differ == set.union(*sets.values()) - members - {first}
    assert not {*named.train.ids} & {*named.test.ids, first}
    assert {groups[i] for i in named.test.ids} == {group}
    assert named.facts["held_out"] == {"valid": [first], "test": [*named.test.ids]}
    assert [line.partition(" ")[0] for line in named.facts["notes"][-2:]] == [
        f"--valid_clients={first}", f"--test_clients=group={group}"
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(datasets.REGISTRY.keys() - {*NAMED_DEVICES}))
def test_silos_and_examples_without_owners_have_no_clients_to_hold_out(name):
    assert datasets.setting(name) == "cross_silo" or name in datasets.DEALT
    with refused("test_clients", ("x",)):
        datasets.check_options(synthetic.options_of(name, test_clients=("x",)))


def test_every_evaluated_client_has_examples(task):
    for split in ("valid", "test"):
        clients = task.splits[split]
        for client_id in clients.ids:
            parts = clients.fetch(client_id)
            for part in (task.personalization_part(split), task.evaluation_part(split)):
                sizes = {len(values) for values in parts[part].values()}
                assert len(sizes) == 1 and sizes.pop() > 0


def test_sizes_are_those_of_the_clients(task):
    for clients in task.splits.values():
        for client_id in clients.ids[:5]:
            parts = clients.fetch(client_id).values()
            assert clients.sizes[client_id] == sum(map(clients_lib.num_rows, parts))


@pytest.fixture(scope="module")
def scored(task):
    """Four training examples in a batch, and what a new model says of them."""
    examples = task.train.fetch(task.train.ids[0])["train"]
    rows = {field: tf.convert_to_tensor(values[:4]) for field, values in examples.items()}
    key = tf.constant([1, 2])
    x, y = task.preprocess(rows, False, key)
    outputs = task.model.predict(task.model.initial_weights(0), x, False, key)
    return client_work.Batch(x, y, tf.ones([4]), key), outputs.numpy()


def test_loss_and_metrics_have_an_entry_an_example(task, scored):
    batch, outputs = scored
    for function in learning.entry_functions(task).values():
        values, weights = function(batch.y, tf.constant(outputs))
        assert values.shape == weights.shape and len(values) == 4
        assert np.all(np.isfinite(values)) and np.all(weights >= 0)


def _scores(task, batch, outputs, labels=(1.0, 0.0, 1.0, 0.0)):
    """Every metric of these outputs, also those that compare examples, of two classes."""
    outputs = tf.constant(outputs)
    sums = learning.add(task, batch, outputs, learning.zero_sums(task))
    scores = learning.scores(task, sums)
    if scoring.ranking(task):
        of_examples = scoring.kept_of_examples(task, outputs)
        kept = scoring.RankedExamples(tf.constant(labels), of_examples, tf.constant(4))
        scores |= scoring.ranking_metrics(task, kept, 0)
    return {name: float(score) for name, score in scores.items() if name != "loss"}


def test_no_metric_has_a_score_of_outputs_that_are_not_finite(task, scored):
    batch, outputs = scored
    worst = {metric.name: metric.worst for metric in task.metrics}
    for bad in (np.nan, np.inf, -np.inf):
        one = outputs.copy()
        one.reshape(4, -1)[0, 0] = bad
        if (task.scored_classes or task.score) and task.scored_classes <= 100:
            exported = dataclasses.replace(task, exports_scores=True)
            assert np.isnan(scoring.kept_of_examples(exported, tf.constant(one))[0]).all()
        assert _scores(task, batch, one) == worst
        assert _scores(task, batch, np.full_like(outputs, bad)) == worst
        # What stands in rows that are padding says nothing.
        padded = batch._replace(mask=tf.constant([0.0, 1.0, 1.0, 1.0]))
        entries = learning.entry_functions(task)
        expected = {n: v for n, v in _scores(task, padded, outputs).items() if n in entries}
        found = {n: v for n, v in _scores(task, padded, one).items() if n in entries}
        assert found == expected
    assert np.isfinite([*_scores(task, batch, np.zeros_like(outputs)).values()]).all()


def test_no_metric_has_a_score_of_nothing(task, scored):
    batch, outputs = scored
    nothing = batch._replace(mask=tf.zeros([4]))
    assert np.isnan([*_scores(task, nothing, outputs, labels=(1.0,) * 4).values()]).all()
    # Nor of nothing that a model made which diverged.
    bad = np.full_like(outputs, np.nan)
    assert np.isnan([*_scores(task, nothing, bad, labels=(1.0,) * 4).values()]).all()


# How examples are dealt and cut; whoever is evaluated has a score then.
_DEALT = {
    "natural": {},
    "iid": {"partition": "iid", "num_clients": 4},
    "dirichlet": {"partition": "dirichlet:0.1", "num_clients": 4},
    "evaluation_iid": {"evaluation_partition": "iid"},
    "max_examples": {"max_examples_per_client": 4},
}


@pytest.mark.parametrize("how", _DEALT)
def test_every_evaluated_client_has_a_score(task, scored, how):
    options = DataOptions(task.dataset, use_synthetic_data=True, max_clients=4, **_DEALT[how])
    few = dealing.cut(task, DataOptions(task.dataset, max_clients=8))
    if how == "dirichlet" and task.label_field is None:
        with refused("partition", options.partition, "iid"):
            dealing.apply(few, options)
        return
    dealt = dealing.apply(few, options)
    key, shape = tf.constant([1, 2]), scored[1].shape[1:]
    for split in ("valid", "test"):
        clients = dealt.splits[split]
        for client_id in clients.ids:
            rows = clients.fetch(client_id)[dealt.evaluation_part(split)]
            x, y = dealt.preprocess({f: tf.constant(v) for f, v in rows.items()}, False, key)
            outputs = tf.zeros([len(y), *shape])
            batch = client_work.Batch(x, y, tf.ones([len(y)]), key)
            sums = learning.add(dealt, batch, outputs, learning.zero_sums(dealt))
            assert np.isfinite(learning.scores(dealt, sums)[dealt.metric.name]), (split, client_id)


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in _names()), ("text", {"label_column": "topic"})]
)
def test_what_the_doctor_says_of_it(name, options):
    """An example, whose words are its label's alone, and how labels differ."""
    task = synthetic.task(name, **options)
    said = description.sample(task)
    assert set(said) == set(task.train.fetch(task.train.ids[0])["train"])
    named = {f for f, t in said.items() if isinstance(t, str) and re.match(r"[\[\d-].* \(", t)}
    assert named <= {task.label_field or "tokens"} and bool(named) <= bool(task.label_names)
    shares = description.label_shares(task, num_clients=2)
    assert 0 <= shares.distance <= 1 and shares.shares.max() > 0


_FEW = (
    "--total_rounds=1", "--final_evaluation_clients=1", "--backend=sequential",
    "--max_examples_per_client=6",
)  # fmt: skip
# {data set: (trainer, flags of its own work)}, where it is not fine-tuning
_TRAINERS = {
    "adni": ("mtl_trainer", "--algorithm=ditto"),
    "celeba": ("hypcluster_trainer", "--num_clusters=2"),
    "table": ("knn_per_trainer", "--coefficients=0.5"),
}
# Landmarks take minutes.
_QUICK = [name for name in _names() if name != "landmark"]


@pytest.mark.parametrize("name", _QUICK)
def test_a_round_of_a_trainer(name, tmp_path):
    task = synthetic.task(name)
    trainer, own = _TRAINERS.get(name, ("finetuning_trainer", "--finetune_max_epochs=1"))
    flags = [f"--dataset_name={name}", *_FEW, own]
    if name in datasets.DEALT:
        flags += ["--partition=dirichlet:1", "--num_clients=3"]
    if task.is_own_data:
        flags.append("--client_learning_rate=0.1")  # Or several are tried first.
    is_silos = task.setting == "cross_silo"
    flags.append("--max_clients=2" if is_silos else "--clients_per_train_round=1")
    with (
        mock.patch.object(datasets, "create_task", lambda options: dealing.cut(task, options)),
        in_process.opened(trainer) as run,
    ):
        run(tmp_path, "x", *flags)
    clients = programs.table(tmp_path, "x", "clients")
    assert set(clients.split) == {"valid", "test"} and set(clients.dataset) == {name}
    assert np.isfinite(clients[["baseline", "personalized", "baseline_loss"]]).all().all()
    if not is_silos:
        assert clients.groupby("split").size().tolist() == [1, 1]
    summary = programs.table(tmp_path, "x", "summary").set_index("split")
    for split, rows in clients.groupby("split"):
        assert summary.num_clients[split] == len(rows)
        assert summary.baseline_mean[split] == pytest.approx(rows.baseline.mean(), rel=1e-6)
        assert summary.pct_clients_hurt[split] == pytest.approx(100 * rows.is_hurt.mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", _QUICK)
def test_the_seed_decides(name):
    def first(task):
        return task.train.fetch(task.train.ids[0])["train"]

    def made(**options):
        return datasets.create_task(synthetic.options_of(name, **options))

    one, same, other = first(synthetic.task(name)), first(made()), first(made(base_random_seed=7))
    kept = first(made(base_random_seed=7, data_seed=0))
    for field in one:
        np.testing.assert_array_equal(one[field], same[field])
        np.testing.assert_array_equal(one[field], kept[field])
    assert any(
        np.shape(one[f]) != np.shape(other[f]) or not np.array_equal(one[f], other[f]) for f in one
    )


def test_tasks_check_themselves(task):
    with pytest.raises(ValueError, match="lack the parts"):
        dataclasses.replace(
            task,
            setting="cross_silo" if task.setting == "cross_device" else "cross_device",
        )
    with pytest.raises(ValueError, match="metric"):
        dataclasses.replace(task, metrics=())
