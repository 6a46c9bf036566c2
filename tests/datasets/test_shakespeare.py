"""Shakespeare: ids and cuts by hand and by TFF's baseline, both splits, files whole and broken."""

import h5py
import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets import shakespeare
from datasets.kinds import next_words
from datasets.options import DataOptions
from datasets.partition import dealing
from tests.datasets import conftest
from tests.errors import refused

_SNIPPETS = "ROLE_0/snippets"
SNIPPETS = [
    "Yonder comes my master, your brother.",
    "",
    "Hath heard your praises; and this night he means\nTo burn the lodging where you use to lie,\n"
    "And you within it. If he fail of that,\nHe will have other means: $ [1] \xe9",
]


def roles(count=10, length=300):
    """Returns roles who say letters, a few more each."""
    train, test = {}, {}
    for number in range(count):
        text = (chr(ord("a") + number) + "bcd ") * (length + number)
        train[f"ROLE_{number}"] = [text[: 150 + number], text[150 + number : 200]]
        test[f"ROLE_{number}"] = [text[200 : length + number]]
    return shakespeare.Plays(train, test)


def create(path, **options):
    return shakespeare.create_task(DataOptions("shakespeare", data_file=str(path), **options))


def write_hdf5(folder, plays=None):
    for plays_of, name in zip(plays or roles(), ("train", "test"), strict=True):
        with h5py.File(folder / f"shakespeare_{name}.h5", "w") as file:
            for role, snippets in plays_of.items():
                texts = [text.encode() if isinstance(text, str) else text for text in snippets]
                file[f"examples/{role}/snippets"] = np.array(texts)
    return folder / "shakespeare_train.h5"


def text_of(rows):
    """Returns what a text's rows predict."""
    ids = rows[:, 1:].ravel()
    return "".join(shakespeare.CHARACTERS[i - 1] for i in ids[ids != shakespeare.PAD])


def tff_rows(snippets):
    """Returns (read, predicted) rows as TFF's baseline makes them."""
    from tensorflow_federated.python.simulation.baselines import client_spec
    from tensorflow_federated.python.simulation.baselines.shakespeare import (
        char_prediction_preprocessing as tff_preprocessing,
    )

    spec = client_spec.ClientSpec(num_epochs=1, batch_size=100, shuffle_buffer_size=1)
    rows = tf.data.Dataset.from_tensor_slices({"snippets": snippets})
    (batch,) = tff_preprocessing.create_preprocess_fn(spec)(rows)
    # Ours are in the order of `CHARACTERS`; the first and the last three stand for the same.
    ours = [0, *(shakespeare.CHARACTERS.index(c) + 1 for c in tff_preprocessing.CHAR_VOCAB)]
    ours += [shakespeare.OOV, shakespeare.BOS, shakespeare.EOS]
    return [np.array(ours)[side.numpy()] for side in batch]


def test_snippets_are_cut_as_tffs_baseline_does():
    rows = shakespeare.cut_snippets([shakespeare.encode(text) for text in SNIPPETS])
    read, predicted = tff_rows([SNIPPETS[0], "", SNIPPETS[2].replace("\xe9", "~")])
    np.testing.assert_array_equal(rows[:, :-1], read)
    np.testing.assert_array_equal(rows[:, 1:], predicted)


@pytest.mark.parametrize("length", [1, 79, 80, 81, 160, 161])
def test_a_text_is_cut_so_that_each_character_is_predicted_once(length):
    ids = np.arange(1, length + 1, dtype=np.int32) % 86 + 1
    rows = shakespeare.cut_text(ids)
    assert len(rows) == -(-length // 80) and rows[0, 0] == shakespeare.BOS
    predicted = rows[:, 1:].ravel()
    np.testing.assert_array_equal(predicted[:length], ids)
    assert not predicted[length:].any()
    np.testing.assert_array_equal(rows[1:, 0], rows[:-1, -1])


def test_a_role_is_halved_by_characters_after_its_snippets_are_joined():
    plays = roles()
    task = shakespeare.create_task_from_data(plays)
    for role in (*task.valid.ids, *task.test.ids):
        parts = task.splits["valid" if role in task.valid.ids else "test"].fetch(role)
        first, second = (text_of(parts[p]["tokens"]) for p in ("personalization", "evaluation"))
        assert first + second == "\n".join([*plays.train[role], *plays.test[role]])
        assert len(second) - len(first) in (0, 1)
    assert set(task.train.ids).isdisjoint({*task.valid.ids, *task.test.ids})


def test_who_says_little_is_left_out_and_named():
    plays = roles()
    plays.train["SHORT"] = ["x" * 199]
    task = shakespeare.create_task_from_data(plays)
    assert task.facts["clients_left_out"] == {"fewer than 200 characters": ["SHORT"]}
    task = shakespeare.create_task_from_data(plays, min_characters=199)
    assert not task.facts["clients_left_out"]


def test_by_snippets_all_roles_train_and_are_tested_on_others():
    plays = roles()
    plays.train["EMPTY"], plays.test["EMPTY"] = ["x" * 300], [""]
    task = next_words.with_unigram(shakespeare.create_task_from_data(plays, "snippets"))
    assert set(task.train.ids) == {*plays.train} and "EMPTY" not in task.test.ids
    for role in task.test.ids:
        for part, snippets in (("personalization", plays.train), ("evaluation", plays.test)):
            rows = task.test.fetch(role)[part]["tokens"]
            expected = shakespeare.cut_snippets(
                [shakespeare.encode(text) for text in snippets[role]]
            )
            np.testing.assert_array_equal(rows, expected)
        np.testing.assert_array_equal(
            task.train.fetch(role)["train"]["tokens"],
            task.test.fetch(role)["personalization"]["tokens"],
        )
        halves = task.valid.fetch(role)
        joined = [halves[part]["tokens"] for part in ("personalization", "evaluation")]
        np.testing.assert_array_equal(
            np.concatenate(joined), task.train.fetch(role)["train"]["tokens"]
        )
    options = DataOptions("shakespeare", shakespeare_split="snippets", max_clients=4)
    few = dealing.apply(task, options)
    assert len(few.train) == 4 and {*few.train.ids} >= {*few.valid.ids} == {*few.test.ids}


def test_what_always_saying_ones_own_most_frequent_character_scores():
    plays = roles()
    for role in plays.train:
        plays.train[role], plays.test[role] = ["e" * 60 + "x" * 50], ["y" * 22 + "e" * 77]
    task = next_words.with_unigram(shakespeare.create_task_from_data(plays))
    # 210 characters with the line's end: the second half begins 6 before the test snippet.
    (value,) = {*task.reference.values()}
    assert value == pytest.approx(77 / 105)


def test_the_model_is_tffs():
    from tensorflow_federated.python.simulation.baselines.shakespeare import (
        char_prediction_models as tff_models,
    )

    theirs = tff_models.create_recurrent_model(90, 6)
    ours = shakespeare.new_model()
    rows = np.array([[shakespeare.BOS, 5, 9, 3, 0, 0], [shakespeare.BOS, 1, 2, 80, 4, 86]])
    ours(rows)
    assert [w.shape for w in ours.weights] == [w.shape for w in theirs.weights]
    assert ours.count_params() == 820_522
    ours.set_weights(theirs.get_weights())
    is_real = rows != shakespeare.PAD
    np.testing.assert_allclose(ours(rows)[is_real], theirs(rows)[is_real], atol=1e-5)


def test_metrics_and_loss_leave_padding_out():
    task = shakespeare.create_task_from_data(roles())
    labels = tf.constant([[1, 5, shakespeare.OOV, shakespeare.EOS, 0]])
    logits = tf.one_hot([[1, 6, shakespeare.OOV, shakespeare.EOS, 0]], 90)
    weights = [metric.function(labels, logits)[1].numpy().tolist() for metric in task.metrics]
    assert weights == [[[1, 1, 0, 0, 0]], [[1, 1, 1, 1, 0]]]
    assert task.loss(labels, logits)[1].numpy().tolist() == [[1, 1, 1, 1, 0]]
    assert task.loss is next_words.token_cross_entropy


def test_both_forms_of_tffs_file_are_the_same_task(tmp_path):
    plays = roles()
    of_hdf5 = create(write_hdf5(tmp_path, plays))
    examples = {
        (role, split): [
            {"snippets": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))}
            for text in snippets
        ]
        for split, said in zip(("train", "test"), plays, strict=True)
        for role, snippets in said.items()
    }
    of_sqlite = create(conftest.write_tables(tmp_path / "shakespeare.sqlite", examples))
    in_memory = shakespeare.create_task_from_data(plays)
    for task in (of_hdf5, of_sqlite):
        conftest.assert_same_clients(in_memory, task)
    assert (of_hdf5.facts["source"], of_sqlite.facts["source"]) == ("hdf5", "sqlite")
    from_folder = datasets.create("shakespeare", data_dir=str(tmp_path))
    assert from_folder.facts["files"] == [str(tmp_path / "shakespeare.sqlite")]


def with_in_place_of(place, value=None):
    """Returns what puts a value, or a group, in place of what stands below `examples`."""

    def damage(folder):
        with h5py.File(folder / "shakespeare_train.h5", "a") as file:
            del file[f"examples/{place}"]
            if value is None:
                file.create_group(f"examples/{place}/lines")
                file[f"examples/{place}"][b"\xe9"] = 1  # Such a name does not compare with text.
            else:
                file[f"examples/{place}"] = value

    return damage


def without_examples(folder):
    with h5py.File(folder / "shakespeare_train.h5", "w") as file:
        file["x"] = 1


def a_name_not_utf8(folder):
    with h5py.File(folder / "shakespeare_train.h5", "a") as file:
        file["examples"].move("ROLE_0", b"caf\xe9")


@pytest.mark.parametrize(
    ("damage", "place", "problem", "expected"),
    [
        (with_in_place_of("ROLE_0"), " role ROLE_0", "KeyError", "snippets, text"),
        (with_in_place_of(_SNIPPETS, [b"caf\xe9 "]), " role ROLE_0", "0xe9", "UTF-8"),
        (a_name_not_utf8, r" role b'caf\xe9'", "AttributeError", "UTF-8"),
        (with_in_place_of(_SNIPPETS, np.arange(3)), " role ROLE_0", "TypeError", "snippets"),
        (with_in_place_of(_SNIPPETS, "one"), " role ROLE_0", "shape ()", "snippets"),
        (with_in_place_of(_SNIPPETS, h5py.Empty("S10")), " role ROLE_0", "", "snippets"),
        (with_in_place_of("ROLE_0", np.zeros(3)), " role ROLE_0", "ValueError", "snippets"),
        (without_examples, "", "KeyError", "a group examples"),
        (lambda folder: (folder / "shakespeare_test.h5").unlink(), "", "no shakespeare_test.h5",
         "both"),
    ],
)  # fmt: skip
def test_broken_files_are_refused(tmp_path, damage, place, problem, expected):
    path = write_hdf5(tmp_path)
    damage(tmp_path)
    with refused(f"train.h5{place}", problem, expected):
        create(path)


@pytest.mark.parametrize(
    ("options", "place", "expected"),
    [
        ({"shakespeare_split": "snippets", "min_characters": 5}, "min_characters", "split=roles"),
        ({"shakespeare_split": "snippets", "partition": "iid"}, "partition", "split=roles"),
        ({"shakespeare_split": "snippets", "evaluation_partition": "iid"}, "evaluation_partition",
         "split=roles"),
        ({"min_characters": 10**6}, "min_characters", "not 0"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(options, place, expected):
    with refused(place, options[place], expected):
        datasets.create("shakespeare", use_synthetic_data=True, **options)
