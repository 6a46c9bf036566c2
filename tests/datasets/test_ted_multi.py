"""The TedMulti task: ids, halves, metrics, its SQLite form and its synthetic twin."""

import collections
import shutil

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets import ted_multi
from datasets.prepare import ted_multi as prepare_ted_multi
from datasets.synthetic import talks as synthetic_talks
from tests.datasets import conftest, ted_lines
from tests.errors import refused

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


def save(path, talks=TALKS, field="tokens"):
    """Writes the task's files: TFF's writer and a CSV by hand."""
    split_of = {c: s for s, clients in talks.items() for c in clients}
    said = {c: {field: list(talks[s][c])} for c, s in split_of.items()}
    conftest.write_sqlite(path, said, split_of)
    rows = "".join(f"{word},20\n" for word in VOCABULARY)
    path.with_name(f"{path.stem}_vocabulary.csv").write_text(f"word,num_clients\n{rows}")
    return path


@pytest.fixture(scope="module")
def task():
    return ted_multi.create_task_from_data(TALKS, VOCABULARY)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return save(tmp_path_factory.mktemp("saved") / "ted_multi.sqlite")


def test_halves_are_in_the_order_of_the_talk(task):
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


def test_accuracy_leaves_out_padding_unknown_words_and_ends(task):
    y = tf.constant([[1, 2, OOV, 3, EOS, 0]])
    said = [1, 3, OOV, 3, EOS, 0]
    logits = tf.one_hot([said], EOS + 1)
    sums = {}
    for metric in task.metrics:
        values, weights = metric.function(y, logits)
        sums[metric.name] = (float(tf.reduce_sum(values * weights)), float(sum(weights[0])))
        assert metric.higher_is_better
    assert sums == {
        "accuracy": (2.0, 3.0),
        "accuracy_with_end_of_sentence": (3.0, 4.0),
        "accuracy_with_end_of_sentence_and_unknown_words": (4.0, 5.0),
    }
    assert task.metric.name == "accuracy"
    losses, weights = task.loss(y, logits)
    # The loss counts padding, as published: Keras's, of a layer whose mask is dropped.
    np.testing.assert_array_equal(weights, np.ones((1, 6)))
    np.testing.assert_allclose(losses[0, 1], np.log(8 + np.e), rtol=1e-6)


def test_clients_that_cannot_be_used_are_left_out_by_name():
    talks = {
        **TALKS,
        "train": {**TALKS["train"], "en-one": ["cat"], "en-none": []},
        "valid": {**TALKS["valid"], "es-one": ["gato"]},
    }
    task = ted_multi.create_task_from_data(talks, VOCABULARY)
    assert task.facts["clients_left_out"] == {
        "no examples": ["en-none"],
        "fewer than 2 examples: cannot be halved": ["es-one"],
    }
    assert task.train.ids == ("en-a", "es-a", "en-one")


def test_sqlite_by_tffs_writer_gives_what_memory_gives(path, task):
    saved = create(path, mask_padding=True)
    assert saved.train.in_graph
    conftest.assert_same_clients(saved, task)
    for facts in (saved.facts, task.facts):
        assert facts["client_groups"] == {"en-a": "en", "es-a": "es", "en-b": "en", "es-c": "es"}
    assert saved.facts["vocabulary_size"] == 5 and saved.facts["prepared"] is None
    assert saved.model.num_weights == 4_769_824 - 96 * (15_814 - 5)
    # No neighbour of kNN-Per and no label of the doctor's is padding, whatever the loss counts.
    y, logits = tf.constant([[1, EOS, 0]]), tf.zeros([1, 3, EOS + 1])
    for variant, counted in ((task, 1), (saved, 0)):
        np.testing.assert_array_equal(variant.loss(y, logits)[1], [[1, 1, counted]])
        np.testing.assert_array_equal(variant.entry_weights(y, logits), [[1, 1, 0]])


def test_what_the_command_prepares(tmp_path):
    for split in ("train", "dev", "test"):
        rows = [
            {"talk_name": f"talk_{split}", "en": f"the cat {i}", "es": f"el gato {i}"}
            for i in range(20)
        ]
        ted_lines.write_tsv(tmp_path / f"all_talks_{split}.tsv", rows)
    paths = prepare_ted_multi.find_files([str(tmp_path / "*.tsv")])
    settings = prepare_ted_multi.Thresholds(1, 20)
    report = prepare_ted_multi.prepare(paths, tmp_path / "ted_multi", settings)
    task = create(data_dir=str(tmp_path))
    assert task.facts["prepared"] == report
    # In both training clients: the numbers 0 to 19; in one: cat, el, gato, the.
    words = [*sorted(map(str, range(20))), "cat", "el", "gato", "the"]
    first = task.train.fetch("en-talk_train")["train"]["tokens"][0]
    np.testing.assert_array_equal(first[:5], [26, words.index("the") + 1, 21, 1, 27])


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


def test_broken_files(tmp_path, path):
    path = shutil.copy(path, tmp_path / "ted_multi.sqlite")
    csv_path = tmp_path / "ted_multi_vocabulary.csv"
    for content, problem, expected in (
        (b"", "nothing", "header"),
        (b"word,num_clients\n", "0 rows with 0 words", "column word"),
        (b"word,num_clients\nthe,3\nthe,2\n", "2 rows with 1 words", "column word"),
        (b"name\nthe\n", "1 rows with 0 words", "column word"),
        (b"word\n\xff\n", "0xff", "UTF-8"),
    ):
        csv_path.write_bytes(content)
        with refused(str(csv_path), problem, expected):
            create(path)
    csv_path.unlink()
    with refused(str(csv_path), "no file", advice="again"):
        create(path)


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
