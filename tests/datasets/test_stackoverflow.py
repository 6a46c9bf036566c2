import datetime
import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from datasets import stackoverflow
from datasets.kinds import next_words
from datasets.options import DataOptions
from datasets.synthetic import posts as synthetic_posts
from motley_tff import interface
from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.experiment.config import BackendConfig
from tests.datasets import conftest
from tests.errors import refused

SPLIT_OF = {"1": "train", "2": "heldout", "3": "heldout"}
WORDS = ["the", "a", "is", "of", "model", "table", "."]
KEY = tf.zeros([2], tf.int32)


def create(path=None, **options):
    file = None if path is None else str(path)
    return stackoverflow.create_task(DataOptions("stackoverflow", data_file=file, **options))


def encoded(sentences, words=WORDS):
    table = next_words.word_table(list(words), oov=10_001)
    ids = next_words.encode(tf.constant(sentences), table, 20, 10_002, 10_003)
    return ids.numpy()


def examples(sentences, dates):
    n = len(sentences)
    return {
        "creation_date": np.array(dates, object),
        "score": np.arange(n, dtype=np.int64),
        "tokens": np.array(sentences, object),
    }


def dated(number):
    return f"2016-05-04 03:02:{number:02d} UTC"


write = conftest.write_sqlite


def write_counts(path, words=WORDS, name=stackoverflow.COUNTS_NAME):
    """Writes word counts as TFF's archive has them."""
    lines = "".join(f"{word}\t{1000 - i}\n" for i, word in enumerate(words)).encode()
    with tarfile.open(path, "w:bz2") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(lines)
        archive.addfile(member, io.BytesIO(lines))


@pytest.fixture(scope="module")
def tff_clients():
    """Three clients train (one has more than counts), four are held out, one tests in TFF's sense.

    The first held-out one's dates are out of order, two of them differ in milliseconds only.
    """
    dates = [f"2016-05-04 03:02:01{f} UTC" for f in (".25", "", ".3", ".25")] + [dated(0)]
    years = [f"{day} UTC" for day in (
        "2017-01-01 00:00:00", "2016-12-31 23:59:59.999", "2016-12-31 23:59:59")]  # fmt: skip
    held_out = [f"{w} is the table ." for w in ("late", "a", "the", "model", "first")]
    clients = {
        "111": examples(["the model is a table .", "nothing"], [dated(2), dated(1)]),
        "222": examples([f"a {i}" for i in range(1030)], [dated(1)] * 1030),
        "o'neil": examples(["of the table"], [dated(1)]),
        "10": examples(held_out, dates),
        "20": examples(["a model", "the table", "of"], years),
        "30": examples(["the one sentence"], [dated(1)]),
        "40": examples(["a model", "the table"], [dated(2), dated(1)]),
        "555": examples(["not used"], [dated(1)]),
    }
    split_of = dict.fromkeys(("111", "222", "o'neil"), "train")
    split_of |= dict.fromkeys(("10", "20", "30", "40"), "heldout") | {"555": "test"}
    return clients, split_of


@pytest.fixture(scope="module")
def tff_dir(tmp_path_factory, tff_clients):
    """A data folder as TFF and Keras fill it."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "datasets").mkdir()
    write(folder / "stackoverflow.sqlite", *tff_clients)
    name = f"../data/{stackoverflow.COUNTS_NAME}"
    write_counts(folder / "datasets" / stackoverflow.COUNTS_ARCHIVE, name=name)
    return folder


@pytest.fixture(scope="module")
def tff_task(tff_dir):
    return create(data_dir=str(tff_dir))


# --- model ----------------------------------------------------------------------------------------


def test_outputs_are_those_of_tff_baselines_model(tff_task):
    from tensorflow_federated.python.simulation.baselines.stackoverflow import (
        word_prediction_models,
    )

    published = word_prediction_models.create_recurrent_model(vocab_size=10_004)
    model = tff_task.model
    assert model.num_weights == 4_050_748 and sum(model.is_last_layer) == 2
    weights = model.initial_weights(3)
    published.set_weights(weights)
    x = encoded(["the a is of", "model", "table is the a model of " * 5])[:, :-1]
    outputs = model.predict(weights, tf.constant(x), False, KEY)
    assert outputs.shape == (3, 20, 10_004)
    np.testing.assert_allclose(
        outputs.numpy()[x > 0], published(x.astype(np.float32)).numpy()[x > 0], atol=1e-5
    )
    # A token is represented by the LSTM's output.
    h = model.embed(weights, tf.constant(x))
    assert h.shape == (3, 20, 670)
    logits = (h @ weights[4] + weights[5]) @ weights[6] + weights[7]
    np.testing.assert_allclose(logits, outputs, rtol=1e-4, atol=1e-6)


# --- TFF's file -----------------------------------------------------------------------------------


def test_tff_file_is_split_as_published(tff_task):
    assert tff_task.train.in_graph
    assert tff_task.train.ids == ("111", "222", "o'neil")
    order = [("10", "20", "30", "40")[i] for i in np.random.RandomState(13).permutation(4)]
    # 10,000 of 38,758, here 1 of 4; the client of one sentence is in none.
    assert tff_task.valid.ids == (order[0],)
    assert tff_task.test.ids == tuple(i for i in order[1:] if i != "30")
    assert tff_task.facts["clients_left_out"] == {"fewer than 2 examples: cannot be halved": ["30"]}
    assert tff_task.facts["beyond_1024_sentences"] == {"clients": 1, "sentences_left_out": 6}
    assert tff_task.facts["vocabulary"] == {"asked": 10_000, "found": 7}
    assert tff_task.facts["source"] == "sqlite"
    # Nothing of the archive is unpacked.
    assert len([*Path(tff_task.facts["files"][0]).parent.rglob("*")]) == 3


def test_tff_clients_are_read_as_they_are(tff_task, tff_clients):
    clients = tff_clients[0]
    for client_id in tff_task.train.ids:
        tokens = tff_task.train.fetch(client_id)["train"]["tokens"]
        np.testing.assert_array_equal(tokens, encoded(clients[client_id]["tokens"][:1024].tolist()))
        assert tokens.dtype == tf.int32


def test_older_half_personalizes(tff_task):
    clients = next(c for c in (tff_task.valid, tff_task.test) if "10" in c.index)
    for parts in (clients.fetch("10"), tf.function(clients.load)(tf.constant("10"))):
        np.testing.assert_array_equal(
            parts["personalization"]["tokens"],
            encoded(["first is the table .", "a is the table ."]),
        )
        # Two have the same date: they stay in their order.
        np.testing.assert_array_equal(
            parts["evaluation"]["tokens"],
            encoded(["late is the table .", "model is the table .", "the is the table ."]),
        )
    clients = next(c for c in (tff_task.valid, tff_task.test) if "20" in c.index)
    parts = clients.fetch("20")
    np.testing.assert_array_equal(parts["personalization"]["tokens"], encoded(["of"]))
    newer = encoded(["the table", "a model"])
    np.testing.assert_array_equal(parts["evaluation"]["tokens"], newer)


def test_evaluated_clients_keep_the_first_1024_before_sorting(tmp_path):
    n = 1100
    last = datetime.datetime(2016, 5, 4)
    dates = [f"{last - datetime.timedelta(seconds=i)} UTC" for i in range(n)]
    clients = {
        "1": examples(["the a"] * 2, dates[:2]),
        "2": examples([WORDS[i % 7] for i in range(n)], dates),
        "3": examples(["the a"] * 2, dates[:2]),
    }
    write(tmp_path / "so.sqlite", clients, SPLIT_OF)
    write_counts(tmp_path / stackoverflow.COUNTS_ARCHIVE)
    task = create(tmp_path / "so.sqlite")
    clients = next(c for c in (task.valid, task.test) if "2" in c.index)
    parts = clients.fetch("2")
    assert [len(parts[p]["tokens"]) for p in ("personalization", "evaluation")] == [512, 512]
    newest_first = [WORDS[i % 7] for i in range(1024)]
    np.testing.assert_array_equal(
        parts["personalization"]["tokens"], encoded(newest_first[::-1][:512])
    )


@pytest.mark.parametrize("date", ["yesterday", "2016-05-04T03:02:01.1"])
def test_other_dates_fail_with_a_user_error(tmp_path, date):
    said = examples(["the a"] * 2, [dated(1), date])
    write(tmp_path / "so.sqlite", dict.fromkeys("123", said), SPLIT_OF)
    write_counts(tmp_path / stackoverflow.COUNTS_ARCHIVE)
    with refused("so.sqlite client '", "cannot be read", "creation_date"):
        create(tmp_path / "so.sqlite")


@pytest.mark.slow
def test_clients_of_a_database_in_tffs_worker_and_the_sequential_backend_agree(tff_task):
    sgd = optimizers.OptimizerConfig("sgd", 1.0, {})
    in_tff, expected = (
        interface.run(
            tff_task, FedAvg(sgd, sgd, 1, 2), rounds=1, clients_per_round=2, backend=backend
        ).clients
        for backend in map(BackendConfig, ("tff", "sequential"))
    )
    for column in ("baseline_loss", "personalized_loss", "baseline", "personalized"):
        np.testing.assert_allclose(in_tff[column], expected[column], rtol=1e-5, atol=1e-6)


# --- word counts ----------------------------------------------------------------------------------


def test_word_counts_are_found_where_tff_and_users_put_them(tmp_path):
    database = tmp_path / "a" / "stackoverflow.sqlite"
    for folder in ("a", "b/datasets", "b/stackoverflow"):
        path = tmp_path / folder / stackoverflow.COUNTS_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one 3\ntwo 2\nthree 1\n")
        found = stackoverflow.load_word_counts(database, str(tmp_path / "b"), 2)
        assert found == (path, ["one", "two"])
        path.unlink()


BAD_COUNTS = {
    "one column": (b"the 3\na\n", " line 2", "'a'"),
    "no number": (b"the three\n", " line 1", "'the three'"),
    "not UTF-8": (b"\xff\xfe 3\n", "", "utf-8"),
    "empty": (b"", "", "no words"),
    "one endless line": (b"a" * 100_000, " line 1", "a" * 40),
}


@pytest.mark.parametrize("case", BAD_COUNTS)
def test_bad_word_counts_end_in_one_line(tmp_path, case):
    content, place, problem = BAD_COUNTS[case]
    path = tmp_path / stackoverflow.COUNTS_NAME
    path.write_bytes(content)
    with refused(f"{path}{place}", problem, "a word and a count"):
        stackoverflow.load_word_counts(tmp_path / "x.sqlite", None, 10)


def test_truncated_archive_and_one_without_the_file(tmp_path):
    path = tmp_path / stackoverflow.COUNTS_ARCHIVE
    write_counts(path, [f"word{i}" for i in range(5000)])
    path.write_bytes(path.read_bytes()[:-200])
    with refused(str(path)):  # As an archive, or in the middle of a line.
        stackoverflow.load_word_counts(tmp_path / "x.sqlite", None, 10_000)
    write_counts(path, name="other")
    with refused(str(path), "no file stackoverflow.word_count"):
        stackoverflow.load_word_counts(tmp_path / "x.sqlite", None, 10)
    path.write_bytes(b"the 3\n")
    with refused(str(path), "of another kind", "a word and a count"):
        stackoverflow.load_word_counts(tmp_path / "x.sqlite", None, 10)


# --- what is missing ------------------------------------------------------------------------------


def test_no_word_counts(tmp_path, tff_dir, monkeypatch):
    monkeypatch.setattr(stackoverflow, "_KERAS_DIR", str(tmp_path / "keras"))
    shutil.copy(tff_dir / "stackoverflow.sqlite", tmp_path)
    with refused("stackoverflow.sqlite", "no stackoverflow.word_count or") as caught:
        create(data_dir=str(tmp_path))
    assert stackoverflow.COUNTS_URL in str(caught.value)


def test_other_splits_and_other_fields(tmp_path):
    path = tmp_path / "x.sqlite"
    write(path, {"1": {"tokens": np.arange(3)}}, {"1": "train"})
    with refused(str(path), "['train']", "'heldout'"):
        create(path)
    write(path, {i: {"n": np.arange(3)} for i in "123"}, SPLIT_OF)
    write_counts(tmp_path / stackoverflow.COUNTS_ARCHIVE)
    with refused(f"{path} client '1'", "cannot be read", "tokens"):
        create(path)
    path.write_bytes(path.read_bytes()[:5000])
    with refused(str(path), "5000 bytes"):
        create(path)


# --- users in memory ------------------------------------------------------------------------------


def posts(*sentences, newest_first=False):
    dates = [dated(i) for i in range(len(sentences))]
    return synthetic_posts.Posts(list(sentences), dates[::-1] if newest_first else dates)


@pytest.fixture(scope="module")
def hand_made():
    """Twenty users (ids, posts, task); permuted, two validate and the next three test."""
    order = [f"u{i:02d}" for i in np.random.RandomState(13).permutation(20)]
    data = {client_id: posts("the table of the model", "the table") for client_id in sorted(order)}
    # 'table' is the older half's word; 'is' is none that training clients use.
    data[order[0]] = posts("table the table", "is", "is the the", "table is")
    data[order[1]] = posts("the table", "xyzzy plugh")
    data[order[2]] = posts("table", "the", newest_first=True)
    data[order[3]] = posts("the")
    data[order[4]] = posts("xyzzy", "the table")
    return order, data, next_words.with_unigram(stackoverflow.create_task_from_data(data))


def test_vocabulary_counts_training_users(hand_made):
    order, data, task = hand_made
    assert task.facts["vocabulary"] == {"asked": 10_000, "found": 4}
    # Every training user has all four; ties go to the more frequent, then by the alphabet.
    words = ["the", "table", "model", "of"]
    tokens = task.train.fetch(order[7])["train"]["tokens"]
    np.testing.assert_array_equal(tokens, encoded(data[order[7]].tokens, words))


def test_most_common_words():
    users = [["b b b c", "b"], ["a c"], ["a  d", "d"]]
    assert next_words.most_common_words(users, 10) == ["a", "c", "b", "d"]
    assert next_words.most_common_words(users, 2) == ["a", "c"]
    with refused(finding="no words"):
        next_words.most_common_words([[""]], 10)


def test_unigram_by_hand(hand_made):
    order, _, task = hand_made
    assert next_words.unigram_accuracy(task, "valid") == {order[0]: pytest.approx(1 / 3)}
    # The older half says 'the', the newer 'table'; nothing known in the older half scores nothing.
    assert next_words.unigram_accuracy(task, "test") == {order[2]: 0.0, order[4]: 0.0}
    assert task.facts["unigram_accuracy"] == {"valid": pytest.approx(1 / 3), "test": 0.0}
    assert task.reference == {order[0]: pytest.approx(1 / 3), order[2]: 0.0, order[4]: 0.0}


# --- synthetic users ------------------------------------------------------------------------------


def test_synthetic_users_are_dated_and_their_group_shows():
    posts, groups = stackoverflow.synthesize(5)
    own = {
        name: set().union(*topic.words.values()) for name, topic in synthetic_posts.TOPICS.items()
    }
    for client_id, mine in posts.items():
        assert mine.creation_dates == sorted(mine.creation_dates)
        assert 12 <= len(mine.tokens) <= 30
        said = " ".join(mine.tokens).split(" ")
        counts = {name: sum(word in words for word in said) for name, words in own.items()}
        assert counts[groups[client_id]] > 0.3 * sum(counts.values())


def test_synthetic_topics_drift():
    posts, groups = stackoverflow.synthesize(1, num_users=300)
    shares = []
    for half in (slice(None, 6), slice(-6, None)):
        words = [
            any(w in words for words in topic.words.values())
            for i, mine in posts.items()
            for topic in [synthetic_posts.TOPICS[groups[i]]]
            for s in mine.tokens[half]
            for w in s.split()
        ]
        shares.append(np.mean(words))
    assert shares[0] > shares[1] + 0.01
