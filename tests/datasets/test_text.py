"""Texts of a few words: pieces, vocabulary, classes, by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from datasets import text
from datasets.kinds import next_words
from datasets.options import DataOptions
from datasets.partition import dealing
from tests.errors import refused

_DEVICES = DataOptions("text", client_column="who", text_column="what")
_SILOS = dataclasses.replace(_DEVICES, setting="cross_silo")
_CLASSES = dataclasses.replace(_DEVICES, label_column="kind")


def _frame(num_clients=10, rows=4, **columns):
    n = max([num_clients * rows, *map(len, columns.values())])
    cells = {
        "who": [f"c{i // rows}" for i in range(n)],
        "what": ["The cat, the dog!" if i % 2 else "a dog sat" for i in range(n)],
        "kind": ["x" if i % 2 else "y" for i in range(n)],
        **columns,
    }
    return pd.DataFrame(cells)


def _words(task, client, part, split="train"):
    tokens = task.splits[split].fetch(client)[part]["tokens"]
    return [" ".join(task.label_names[i] for i in row if i) for row in tokens]


def test_words_are_lower_case_and_marks_are_words():
    task = text.create_task_from_data(_frame(), _DEVICES)
    first = _words(task, task.train.ids[0], "train")
    assert first[1] == "<bos> the cat , the dog ! <eos>" and first[0] == "<bos> a dog sat <eos>"
    assert text._WORD.findall("It's 3.5 über_all... o’clock?") == [
        "It's", "3", ".", "5", "über", "all", ".", ".", ".", "o’clock", "?",
    ]  # fmt: skip


def test_long_texts_are_cut_into_pieces_that_stay_together():
    long = " ".join(["dog"] * 45)
    frame = _frame(what=[long, "a dog sat"] * 20)
    task = text.create_task_from_data(frame, _DEVICES)
    pieces = [len(row.split()) - 1 for row in _words(task, task.train.ids[0], "train")]
    assert pieces == [20, 20, 6, 4] * 2
    for client in task.test.ids:
        for part in ("personalization", "evaluation"):
            of_part = _words(task, client, part, "test")
            assert sum("dog dog" in row for row in of_part) % 3 == 0 and len(of_part) > 1


def test_the_first_1024_pieces_of_a_client_count():
    frame = _frame(rows=4, what=[" ".join(["dog"] * 20 * 256), "a dog sat"] * 20)
    task = text.create_task_from_data(frame, _DEVICES)
    assert {len(_words(task, i, "train")) for i in task.train.ids} == {514}
    assert not {name for name in task.facts if name.startswith("texts_")}
    more = _frame(rows=10, what=[" ".join(["dog"] * 20 * 256), "a dog sat"] * 50)
    cut = text.create_task_from_data(more, _DEVICES)
    # Three long ones and three short ones are 771 pieces; the fourth long one is too many.
    assert cut.facts["texts_left_out_beyond_1024_pieces"] == 10 * 4
    assert {len(_words(cut, i, "train")) for i in cut.train.ids} == {771}


def test_four_books_of_each_author_are_enough():
    frame = _frame(what=[" ".join(["dog", "sat"] * 10 * 300)] * 40)
    task = text.create_task_from_data(frame, _SILOS)
    assert task.facts["texts_cut_after_256_pieces"] == 40 and len(task.test) == 10
    first = task.test.fetch(task.test.ids[0])
    assert {part: len(first[part]["tokens"]) for part in first} == {
        "train": 512, "valid": 256, "test": 256,
    }  # fmt: skip


def test_the_vocabulary_is_what_two_training_clients_share():
    plain = text.create_task_from_data(_frame(), _DEVICES)
    rare, tested = plain.train.ids[0], plain.test.ids[0]
    frame = _frame()
    frame.loc[frame.who == rare, "what"] = "alone sat"
    frame.loc[frame.who == tested, "what"] = "secret cat"
    task = text.create_task_from_data(frame, _DEVICES)
    assert set(task.label_names) == {
        "", "the", "cat", ",", "dog", "!", "a", "sat", "<oov>", "<bos>", "<eos>",
    }  # fmt: skip
    assert _words(task, rare, "train")[0] == "<bos> <oov> sat <eos>"
    assert _words(task, tested, "evaluation", "test")[0] == "<bos> <oov> cat <eos>"


def test_older_texts_personalize():
    frame = _frame(what=["a dog", "the cat"] * 20, when=["4", "1", "3", "2"] * 10)
    task = text.create_task_from_data(frame, dataclasses.replace(_DEVICES, time_column="when"))
    for client in task.test.ids:
        assert set(_words(task, client, "personalization", "test")) == {"<bos> the cat <eos>"}
        assert set(_words(task, client, "evaluation", "test")) == {"<bos> a dog <eos>"}


@pytest.mark.parametrize("options", [_DEVICES, _SILOS])
def test_clients_that_cannot_be_scored_are_left_out_and_named(options):
    ids = text.create_task_from_data(_frame(20), options).test.ids
    frame = _frame(20)
    frame.loc[frame.who == ids[0], "what"] = "zzz"
    task = next_words.with_unigram(text.create_task_from_data(frame, options))
    assert [ids[0]] in task.facts["clients_left_out"].values()
    assert ids[0] not in task.test.ids
    # Devices have the unigram as a reference, too.
    scored = {*task.valid.ids, *task.test.ids} if options is _DEVICES else set()
    assert set(task.reference) == scored
    assert set(task.facts["unigram_accuracy"]) == {"valid", "test"}


@pytest.mark.parametrize("setting", [_DEVICES, _SILOS])
@pytest.mark.parametrize(
    "options",
    [{}, {"partition": "iid", "num_clients": 12}, {"evaluation_partition": "iid"},
     {"max_examples_per_client": 3}, {"max_clients": 30}],
)  # fmt: skip
def test_who_has_no_known_word_after_dealing_and_cutting_is_left_out(setting, options):
    # Of eight texts of a client none, two, four or six are known words.
    texts = ["the dog" if 3 * i % 8 < 2 * (i // 8 % 4) else f"only{i // 8}" for i in range(320)]
    task = text.create_task_from_data(_frame(40, 8, what=texts), setting)
    options = dataclasses.replace(setting, **options)
    everybody = dealing.apply(task, options)

    def can_be_scored(client):
        return all(
            {"the", "dog"}
            & {w for row in _words(everybody, client, part, split) for w in row.split()}
            for split in (["valid", "test"] if setting is _SILOS else [_split(everybody, client)])
            for part in [everybody.evaluation_part(split)]
        )

    scored = next_words.with_unigram(everybody)
    left_out = {i for ids in scored.facts["clients_left_out"].values() for i in ids}
    for split in ("valid", "test"):
        expected = [i for i in everybody.splits[split].ids if can_be_scored(i)]
        assert list(scored.splits[split].ids) == expected
        assert {*everybody.splits[split].ids} - {*expected} <= left_out
    assert options.max_examples_per_client is None or left_out


def _split(task, client):
    return "valid" if client in task.valid.ids else "test"


def test_classes_of_a_texts_first_words():
    frame = _frame(what=["dog " * 70, "a dog sat"] * 20)
    task = text.create_task_from_data(frame, _CLASSES)
    assert task.label_names == ("x", "y") and task.metrics[1].name == "roc_auc"
    examples = task.train.fetch(task.train.ids[0])["train"]
    assert examples["tokens"].shape == (4, 64) and (examples["tokens"][0] > 0).all()
    assert (examples["tokens"][1] > 0).sum() == 4  # With the end.
    assert examples["label"].tolist() == [1, 0, 1, 0]


def test_bags_of_words_are_means_of_the_words_that_are_there():
    task = text.create_task_from_data(_frame(), dataclasses.replace(_CLASSES, model_sizes=(2,)))
    embedding = np.arange(2.0 * task.model.shapes[0][0], dtype=np.float32).reshape(-1, 2)
    weights = (embedding, np.eye(2, dtype=np.float32), np.zeros(2, np.float32))
    x = np.array([[1, 4, 0, 0]], np.int32)
    outputs = task.model.predict(weights, x, False, None)
    np.testing.assert_allclose(outputs, [[(2 + 8) / 2, (3 + 9) / 2]])


def test_texts_without_words_or_labels_are_counted():
    frame = _frame()
    frame.loc[3, "what"], frame.loc[5, "kind"], frame.loc[6, "kind"] = " --- ", " ", "None"
    task = text.create_task_from_data(frame, _CLASSES)
    assert task.facts["texts_without_words_left_out"] == 1
    assert task.facts["texts_without_label_left_out"] == 1 and task.facts["texts"] == 38
    assert "None" in task.label_names and "label 'None', which is" in task.facts["notes"][0]
    frame.loc[7, "what"] = "none"  # A word, unless it is named as missing.
    facts = text.create_task_from_data(frame, _CLASSES).facts
    assert facts["texts_without_words_left_out"] == 1
    named = dataclasses.replace(_CLASSES, missing_values=("none",))
    task = text.create_task_from_data(frame, named)
    assert task.facts["texts_without_words_left_out"] == 2
    assert task.facts["texts_without_label_left_out"] == 2 and "None" not in task.label_names


@pytest.mark.parametrize(
    ("cells", "options", "where", "problem"),
    [
        ({"what": ["---"] * 40}, _DEVICES, "column 'what'", "no words"),
        ({"kind": [""] * 40}, _CLASSES, "column 'what'", "a label in column 'kind'"),
        ({"kind": ["a"] * 40}, _CLASSES, "column 'kind'", "'a' as every"),
        ({"what": [f"w{i}" for i in range(40)]}, _DEVICES, "", "no word that two training clients"),
        ({}, dataclasses.replace(_DEVICES, text_column="texts"), "text_column", "texts"),
        ({"who": ["a"] * 40}, _DEVICES, "", None),
    ],
)
def test_what_cannot_be_learnt(cells, options, where, problem):
    with refused(where, problem):
        text.create_task_from_data(_frame(**cells), options)


def test_lstm_models_of_both_kinds():
    options = dataclasses.replace(_DEVICES, model="lstm", model_sizes=(3, 5))
    next_word = text.create_task_from_data(_frame(), options)
    num_ids = len(next_word.label_names)
    assert next_word.model.shapes[:2] == ((num_ids, 3), (3, 20))
    task = text.create_task_from_data(_frame(), dataclasses.replace(options, label_column="kind"))
    weights = task.model.initial_weights(0)
    x = np.array([[1, 2, 3, 0, 0] + [0] * 59], np.int32)
    shorter = task.model.predict(weights, x[:, :3], False, None)
    np.testing.assert_allclose(task.model.predict(weights, x, False, None), shorter, atol=1e-6)
