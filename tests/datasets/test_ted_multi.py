"""The TedMulti task: ids, halves, metrics, its SQLite form and its synthetic twin."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets import synthetic_talks, ted_multi
from datasets.prepare import ted_multi as prepare_ted_multi
from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, sequential
from motley_tff.core import random_streams
from motley_tff.core.errors import UserError
from tests.datasets import ted_lines
from tests.datasets.conftest import write_sqlite

VOCABULARY = ("the", "cat", "sat", "gato", "come")
OOV, BOS, EOS = 6, 7, 8
TALKS = {
    "train": {"en-a": ["the cat sat", "the dog"], "es-a": ["gato come", "come"]},
    "valid": {"en-b": ["cat", "the cat", "sat"]},
    "test": {"es-c": ["come gato", "gato", "sat", "gato gato", "come come"]},
}


def create(path=None, **options):
    file = None if path is None else str(path)
    return datasets.create_task(datasets.DataOptions("ted_multi", data_file=file, **options))


def ids(*words):
    """A sentence's ids, the rest padding."""
    return [*words, *[0] * (21 - len(words))]


def save(path, talks=None, vocabulary=VOCABULARY):
    """Writes the task's files: TFF's writer and a CSV by hand."""
    talks = talks or TALKS
    split_of = {c: s for s, clients in talks.items() for c in clients}

    def dataset(client_id):
        said = tf.constant(talks[split_of[client_id]][client_id])
        return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(tokens=said))

    import tensorflow_federated as tff

    tff.simulation.datasets.save_to_sql_client_data(
        list(split_of), dataset, str(path), split_names_by_client_id=split_of
    )
    rows = "".join(f"{word},20\n" for word in vocabulary)
    path.with_name(f"{path.stem}_vocabulary.csv").write_text(f"word,num_clients\n{rows}")
    return path


def test_ids_of_sentences():
    task = ted_multi.create_task_from_data(TALKS, VOCABULARY)
    tokens = task.train.fetch("en-a")["train"]["tokens"]
    np.testing.assert_array_equal(tokens, [ids(BOS, 1, 2, 3, EOS), ids(BOS, 1, OOV, EOS)])
    assert tokens.dtype == np.int32
    x, y = task.preprocess({"tokens": tf.constant(tokens)}, True, tf.zeros([2], tf.int32))
    np.testing.assert_array_equal(x[0], ids(BOS, 1, 2, 3, EOS)[:20])
    np.testing.assert_array_equal(y[0], ids(1, 2, 3, EOS)[:20])


@pytest.mark.parametrize("length", [19, 20, 25])
def test_only_twenty_words_of_a_sentence_count(length):
    long = " ".join(["cat"] * length)
    task = ted_multi.create_task_from_data({**TALKS, "train": {"en-a": [long]}}, VOCABULARY)
    tokens = task.train.fetch("en-a")["train"]["tokens"]
    assert tokens.shape == (1, 21)
    expected = [BOS, *[2] * 20] if length >= 20 else [BOS, *[2] * 19, EOS]
    np.testing.assert_array_equal(tokens[0], expected)


def test_halves_are_in_the_order_of_the_talk():
    task = ted_multi.create_task_from_data(TALKS, VOCABULARY)
    parts = task.test.fetch("es-c")
    first = [ids(BOS, 5, 4, EOS), ids(BOS, 4, EOS)]
    rest = [ids(BOS, 3, EOS), ids(BOS, 4, 4, EOS), ids(BOS, 5, 5, EOS)]
    np.testing.assert_array_equal(parts["personalization"]["tokens"], first)
    np.testing.assert_array_equal(parts["evaluation"]["tokens"], rest)
    parts = task.valid.fetch("en-b")
    assert [len(parts[p]["tokens"]) for p in ("personalization", "evaluation")] == [1, 2]


def test_the_cap_of_512_holds_in_training_only():
    many = [f"{'the' if i < 512 else 'cat'} sat" for i in range(600)]
    talks = {s: {f"en-{s}": many} for s in ("train", "valid", "test")}
    task = ted_multi.create_task_from_data(talks, VOCABULARY)
    tokens = task.train.fetch("en-train")["train"]["tokens"]
    assert len(tokens) == 512 and (tokens[:, 1] == 1).all()
    assert task.facts["training_examples_beyond_512"] == {"clients": 1, "examples": 88}
    for split in ("valid", "test"):
        parts = task.splits[split].fetch(f"en-{split}")
        assert [len(parts[p]["tokens"]) for p in ("personalization", "evaluation")] == [300, 300]


def test_accuracy_leaves_out_padding_unknown_words_and_ends():
    task = ted_multi.create_task_from_data(TALKS, VOCABULARY)
    y = tf.constant([[1, 2, OOV, 3, EOS, 0]])
    said = [1, 3, OOV, 3, EOS, 0]
    logits = tf.one_hot([said], EOS + 1)
    found = {}
    for metric in task.metrics:
        values, weights = metric.function(y, logits)
        found[metric.name] = (float(tf.reduce_sum(values * weights)), float(sum(weights[0])))
        assert metric.higher_is_better
    assert found == {
        "accuracy": (2.0, 3.0),
        "accuracy_with_end_of_sentence": (3.0, 4.0),
        "accuracy_with_end_of_sentence_and_unknown_words": (4.0, 5.0),
    }
    assert task.metric.name == "accuracy"
    losses, weights = task.loss(y, logits)
    # The loss counts padding, as published.
    np.testing.assert_array_equal(weights, np.ones((1, 6)))
    np.testing.assert_allclose(losses[0, 1], np.log(8 + np.e), rtol=1e-6)


def test_the_unigram_to_beat_stands_in_the_facts():
    task = ted_multi.create_task_from_data(TALKS, VOCABULARY)
    # Valid: `cat`, once in three words. Test: `gato`, twice in five.
    assert task.facts["unigram_accuracy"] == {"valid": pytest.approx(1 / 3), "test": 0.4}
    valid, test = (task.splits[name].ids[0] for name in ("valid", "test"))
    assert task.reference == {valid: pytest.approx(1 / 3), test: 0.4}


def test_clients_that_cannot_be_used_are_left_out_by_name():
    talks = {
        "train": {**TALKS["train"], "en-one": ["cat"], "en-none": []},
        "valid": {**TALKS["valid"], "es-one": ["gato"]},
        "test": {
            **TALKS["test"],
            "en-one_more": ["sat"],
            "es-none": [],
            "es-unknown": ["come", "perro"],
        },
    }
    task = ted_multi.create_task_from_data(talks, VOCABULARY)
    assert task.facts["clients_left_out"] == {
        "no examples": ["en-none", "es-none"],
        "fewer than 2 examples: cannot be halved": ["en-one_more", "es-one"],
        "no word of the vocabulary in the half that evaluates": ["es-unknown"],
    }
    assert task.test.ids == ("es-c",)
    assert task.train.ids == ("en-a", "es-a", "en-one")
    assert task.facts["clients_by_language"]["train"] == {"en": 2, "es": 1}
    with pytest.raises(UserError, match="no valid client is left of 1"):
        ted_multi.create_task_from_data({**talks, "valid": {"es-one": ["gato"]}}, VOCABULARY)
    unknown = {"es-unknown": ["come", "perro"]}
    with pytest.raises(
        UserError, match="no word of the vocabulary in .* of any of 1 valid clients"
    ):
        ted_multi.create_task_from_data({**talks, "valid": unknown}, VOCABULARY)


def test_clients_know_their_language(tmp_path):
    expected = {"en-a": "en", "es-a": "es", "en-b": "en", "es-c": "es"}
    task = ted_multi.create_task_from_data(TALKS, VOCABULARY)
    assert task.facts["client_groups"] == expected
    assert create(save(tmp_path / "ted_multi.sqlite")).facts["client_groups"] == expected


def test_the_loss_is_that_of_a_keras_model_that_drops_its_mask():
    """As the published code trains: Keras's loss of a layer's output that has no mask."""
    task = ted_multi.create_task_from_data(TALKS, VOCABULARY)
    rng = np.random.default_rng(0)
    y = tf.constant([[1, 2, EOS, 0, 0], [3, 4, 5, 1, 2]])
    logits = tf.constant(rng.normal(size=(2, 5, EOS + 1)), tf.float32)
    expected = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, logits)
    values, weights = task.loss(y, logits)
    found = tf.reduce_sum(values * weights) / tf.reduce_sum(weights)
    assert float(found) == pytest.approx(float(expected), rel=1e-6)


def test_padding_may_be_left_out_of_the_loss(tmp_path):
    path = save(tmp_path / "ted_multi.sqlite")
    y, logits = tf.constant([[1, EOS, 0]]), tf.zeros([1, 3, EOS + 1])
    for mask_padding, expected in ((False, [[1, 1, 1]]), (True, [[1, 1, 0]])):
        task = create(path, mask_padding=mask_padding)
        np.testing.assert_array_equal(task.loss(y, logits)[1], expected)
        # No neighbour of kNN-Per and no label of the doctor's is padding, whatever the loss counts.
        np.testing.assert_array_equal(task.entry_weights(y, logits), [[1, 1, 0]])


@pytest.mark.slow
def test_sqlite_by_tffs_writer_gives_what_memory_gives(tmp_path):
    task = create(save(tmp_path / "ted_multi.sqlite"))
    expected = ted_multi.create_task_from_data(TALKS, VOCABULARY)
    for split, clients in task.splits.items():
        assert clients.in_graph
        assert set(clients.ids) == set(TALKS[split])
        for client_id in clients.ids:
            in_graph = tf.function(clients.load)(tf.constant(client_id))
            for parts in (clients.fetch(client_id), in_graph):
                want = dict(expected.splits[split].fetch(client_id))
                tf.nest.map_structure(np.testing.assert_array_equal, dict(parts), want)
    assert task.facts["vocabulary_size"] == 5
    assert task.facts["prepared"] is None
    assert task.model.num_weights == 4_769_824 - 96 * (15_814 - 5)


@pytest.mark.slow
def test_tffs_worker_agrees_with_this_process(tmp_path):
    """A round of two clients, loaded by id where they train."""
    from motley_tff.backends.tff import backend as tff_backend
    from motley_tff.backends.tff.runtime import tff_runtime

    task = create(save(tmp_path / "ted_multi.sqlite"))
    params = FedAvg(
        optimizers.OptimizerConfig("sgd", 0.1),
        optimizers.OptimizerConfig("sgd", 1.0),
        train_batch_size=2,
    )
    initial = task.model.initial_weights(0)
    algorithm = params.build(task, initial)
    one = base.Round(1, task.train.ids, random_streams.key(0, "local_training", 1))
    with tff_runtime():
        found = []
        for backend in (sequential.SequentialBackend(), tff_backend.TffBackend()):
            process = backend.training(task, algorithm)
            state = process.run(process.initialize(), [one], lambda *_: None)
            end = process.weights(state)
            found.append([w - i for w, i in zip(end, initial, strict=True)])
    still = []
    for name, ours, theirs in zip(task.model.names, *found, strict=True):
        largest = np.abs(ours).max()
        # Of each array's largest change a thousandth, and a float's last bit.
        np.testing.assert_allclose(theirs, ours, atol=1e-3 * largest + 1e-7, err_msg=name)
        if largest < 1e-5:
            still.append(name.split("/", 1)[1])
    # The same for all keys adds the same to all scores: it has no gradient.
    assert still == ["key/bias:0"]


def test_what_the_command_prepares(tmp_path):
    for split in ("train", "dev", "test"):
        rows = [
            {"talk_name": f"talk_{split}", "en": f"the cat {i}", "es": f"el gato {i}"}
            for i in range(20)
        ]
        ted_lines.write_tsv(tmp_path / f"all_talks_{split}.tsv", rows)
    found = prepare_ted_multi.find_files([str(tmp_path / "*.tsv")])
    settings = prepare_ted_multi.Settings(1, 20)
    report = prepare_ted_multi.prepare(found, tmp_path / "ted_multi", settings)
    task = create(data_dir=str(tmp_path))
    assert task.facts["prepared"] == report
    assert [c.ids for c in task.splits.values()] == [
        (f"en-talk_{s}", f"es-talk_{s}") for s in ("train", "dev", "test")
    ]
    # In both training clients: the numbers 0 to 19; in one: cat, el, gato, the.
    first = task.train.fetch("en-talk_train")["train"]["tokens"][0]
    words = [*sorted(map(str, range(20))), "cat", "el", "gato", "the"]
    np.testing.assert_array_equal(
        first, ids(25 + 1, words.index("the") + 1, words.index("cat") + 1, 1, 25 + 2)
    )


def test_real_talks(real_data_dir, tmp_path):
    ted_lines.write_joined_talks(real_data_dir / "ted", tmp_path)
    found = prepare_ted_multi.find_files([str(tmp_path / "*.tsv")])
    report = prepare_ted_multi.prepare(found, tmp_path, prepare_ted_multi.Settings(5, 20))
    # 1,922 talks, eight a client; the last two make a client that is too small.
    assert report["kept"] == {
        "train": {"clients": 344, "examples": 11008},
        "valid": {"clients": 68, "examples": 2176},
        "test": {"clients": 68, "examples": 2176},
    }
    task = create(tmp_path / "ted_multi.sqlite")
    assert task.facts["clients_by_language"]["test"] == {"en": 34, "es": 34}
    assert 0.02 < task.facts["unigram_accuracy"]["test"] < 0.12
    assert collections.Counter(task.facts["client_groups"].values()) == {"en": 240, "es": 240}
    # Entities without their signs, among the most frequent words as in Motley's vocabulary.
    assert {"quot", "aposs", "apost"} < set(task.label_names[:60])


def test_synthetic_task():
    task = create(use_synthetic_data=True)
    assert task.model.num_weights == 4_769_824
    assert [len(c) for c in task.splits.values()] == [67, 10, 13]
    groups = task.facts["client_groups"]
    assert collections.Counter(groups.values()) == {"en": 58, "es": 32}
    assert all(client_id.startswith(f"{group}-") for client_id, group in groups.items())
    assert set(groups) == {i for c in task.splits.values() for i in c.ids}
    oov = task.facts["vocabulary_size"] + 1
    assert all((task.test.fetch(i)["evaluation"]["tokens"] != oov).all() for i in task.test.ids)


def test_synthetic_languages_differ_and_share_names_and_numbers():
    talks = ted_multi.synthesize(0)
    assert len(set(talks.vocabulary)) == len(talks.vocabulary) == synthetic_talks.NUM_WORDS
    used = {
        group: collections.Counter(
            w
            for client_id, said in talks.sentences.items()
            if talks.groups[client_id] == group
            for sentence in said
            for w in sentence.split(" ")
        )
        for group in ("en", "es")
    }
    shared = set(used["en"]) & set(used["es"])
    numbers = {w for w in shared if w.isdigit()}
    assert 10 < len(numbers) < len(shared) < 0.2 * len(used["es"])
    assert not {w for w, _ in used["en"].most_common(10)} & set(used["es"])
    assert set().union(*used.values()) <= set(talks.vocabulary)


def test_synthetic_talks_come_back_to_their_topic():
    """A talk's later half repeats more words of its earlier half than of another talk's."""
    talks = ted_multi.synthesize(1)
    english = [said for i, said in talks.sentences.items() if i.startswith("en-")]
    words = [
        tuple({w for s in half for w in s.split(" ")} for half in (said[:8], said[8:]))
        for said in english
        if len(said) >= 12
    ]
    own = np.mean([len(a & b) / len(b) for a, b in words])
    others = np.mean([len(words[i - 1][0] & b) / len(b) for i, (_, b) in enumerate(words)])
    assert own > 1.2 * others


def test_no_data(tmp_path):
    with pytest.raises(UserError) as caught:
        create(data_dir=str(tmp_path))
    for word in (str(tmp_path), "ted_multi.sqlite", "352 MB", "datasets.prepare.ted_multi"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_files(tmp_path):
    path = save(tmp_path / "ted_multi.sqlite")
    csv_path = tmp_path / "ted_multi_vocabulary.csv"
    for content, message in (
        (b"", "is empty"),
        (b"word,num_clients\n", "found 0 rows with 0 words"),
        (b"word,num_clients\nthe,3\nthe,2\n", "found 2 rows with 1 words"),
        (b"name\nthe\n", "found 1 rows with 0 words"),
        (b"word\n\xff\n", "not a UTF-8 CSV file"),
    ):
        csv_path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            create(path)
    csv_path.unlink()
    with pytest.raises(UserError, match=r"_vocabulary\.csv: found no such file.*again"):
        create(path)
    path.write_bytes(path.read_bytes()[:5000])
    csv_path.write_text("word\nthe\n")
    with pytest.raises(UserError, match="truncated"):
        create(path)


def test_sqlite_of_other_examples(tmp_path):
    path = tmp_path / "other.sqlite"
    (tmp_path / "other_vocabulary.csv").write_text("word\nthe\n")
    write_sqlite(path, {c: {"label": np.arange(4)} for c in "abc"}, "train")
    with pytest.raises(UserError, match=r"found splits \['train'\], expected 'valid'"):
        create(path)
    with_splits = {c: {"label": np.arange(4)} for c in ("train", "valid", "test")}
    import tensorflow_federated as tff

    tff.simulation.datasets.save_to_sql_client_data(
        list(with_splits),
        lambda c: tf.data.Dataset.from_tensor_slices(collections.OrderedDict(with_splits[c])),
        str(path),
        allow_overwrite=True,
        split_names_by_client_id={c: c for c in with_splits},
    )
    with pytest.raises(UserError, match=r"other\.sqlite: .*expected examples with a string tokens"):
        create(path)
