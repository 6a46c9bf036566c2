import io
import pathlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from datasets import landmark
from datasets.models import mobilenet_v2
from datasets.options import DataOptions
from datasets.partition import splits
from datasets.synthetic import photographers as synthetic_photographers
from motley_tff.algorithms import FedAvg, optimizers
from motley_tff.backends import base, sequential
from tests.datasets import conftest
from tests.errors import refused

# Of twelve clients, permuted by seed 13, the first validates and the second tests.
IDS = sorted(str(i) for i in range(12))
ORDER = [IDS[i] for i in np.random.RandomState(13).permutation(12)]
VALID, TEST, LARGE, EMPTY = ORDER[0], ORDER[1], ORDER[2], ORDER[3]
_FEW_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2))
SIZES = {**dict.fromkeys(IDS, 3), VALID: 7, TEST: 70, LARGE: 70, EMPTY: 0}


def jpeg(rng, height=20, width=30):
    coarse = rng.integers(0, 255, (4, 6, 3), dtype=np.uint8)
    image = PIL.Image.fromarray(coarse).resize((width, height))
    out = io.BytesIO()
    image.save(out, "JPEG")
    return out.getvalue()


def photographs(rng, n):
    """Images of several sizes, labels that number them."""
    return [(jpeg(rng, 20 + i % 5, 30 + i % 7), i) for i in range(n)]


def record(image, label):
    """What TFF's gldv2 writes: a `tf.train.Example` with these two features."""
    example = tf.train.Example()
    example.features.feature["image/encoded_jpeg"].bytes_list.value.append(image)
    example.features.feature["class"].int64_list.value.append(label)
    return example.SerializeToString()


def write(path: pathlib.Path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


@pytest.fixture(scope="module", autouse=True)
def small_model():
    """Fewer blocks of every kind: most of the time went into tracing them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mobilenet_v2, "_ROWS", _FEW_BLOCKS)
        yield


@pytest.fixture(scope="module")
def taken():
    rng = np.random.default_rng(0)
    return {client_id: photographs(rng, n) for client_id, n in SIZES.items()}


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory, taken):
    """The folders that `gldv2.load_data(cache_dir=...)` leaves."""
    folder = tmp_path_factory.mktemp("cache")
    for client_id, photos in taken.items():
        write(folder / "gld160k" / "train" / client_id, [record(*photo) for photo in photos])
    write(folder / "gld160k" / "test.tfRecord", [record(*taken[VALID][0])])
    return folder


@pytest.fixture(scope="module")
def task(cache_dir):
    return create(cache_dir)


@pytest.fixture
def unchecked(monkeypatch):
    """As if the files were too large to be decoded at the start."""
    monkeypatch.setattr(landmark, "_MAX_BYTES_DECODED_AT_START", -1)


def create(folder=None, **options):
    folder = None if folder is None else str(folder)
    return landmark.create_task(DataOptions("landmark", data_dir=folder, **options))


def few_clients(folder, **changed):
    """Writes nine clients of three images, named as they are permuted: a validates, b tests."""
    names = [None] * 9
    for place, name in zip(np.random.RandomState(13).permutation(9), "abcdefghi", strict=True):
        names[place] = name
    rng = np.random.default_rng(1)
    for place, name in enumerate(names):
        default = [record(*photo) for photo in photographs(rng, 3)]
        write(folder / "gld160k" / "train" / f"{place}{name}", changed.get(name, default))
    return {name: f"{place}{name}" for place, name in enumerate(names)}


def test_splits_and_facts(task, cache_dir):
    assert [*task.valid.ids, *task.test.ids] == [VALID, TEST]
    assert list(task.train.ids) == [i for i in ORDER[2:] if i != EMPTY]
    assert task.facts["clients_left_out"] == {"no examples": [EMPTY]}
    assert task.facts["images_left_out"] == {}
    assert task.facts["num_records"] == sum(SIZES.values())
    assert task.facts["files"] == [str(cache_dir / "gld160k" / "train")]
    assert task.model.shapes[-1] == (2028,)
    assert task.metric.name == "accuracy" and task.metric.higher_is_better


def test_clients_are_what_tff_reads(task, cache_dir, taken):
    import tensorflow_federated as tff
    from tensorflow_federated.python.simulation.datasets import vision_datasets_utils

    # With TFF 0.87's reader of one file: its loader of the folder calls that with an argument too
    # few, and answers the error with a download of everything.
    loaded = tff.simulation.datasets.FilePerUserClientData.create_from_dir(
        str(cache_dir / "gld160k" / "train"),
        lambda path: vision_datasets_utils.load_tfrecord(path, "test"),
    )
    assert loaded.client_ids == IDS
    client_id = task.train.ids[1]
    expected = list(loaded.create_tf_dataset_for_client(client_id))
    examples = task.train.fetch(client_id)["train"]
    assert examples["label"].dtype == tf.int32
    assert len(examples["label"]) == len(expected)
    for i, example in enumerate(expected):
        np.testing.assert_array_equal(
            tf.io.decode_jpeg(examples["image"][i]), example["image/decoded"]
        )
        assert int(examples["label"][i]) == taken[client_id][i][1]
        assert example["class"].numpy().tolist() == [taken[client_id][i][1]]


def test_only_training_is_limited_to_64_images(task):
    labels = task.train.fetch(LARGE)["train"]["label"].numpy()
    np.testing.assert_array_equal(labels, np.arange(70))
    assert task.max_train_examples == 64
    halves = task.test.fetch(TEST)
    expected = splits.halve({"label": np.arange(70)})
    for part in ("personalization", "evaluation"):
        np.testing.assert_array_equal(halves[part]["label"], expected[part]["label"])


def test_memory_and_files_give_the_same_clients(task, taken):
    photos = {
        client_id: {
            "image": np.array([p[0] for p in taken[client_id]], object),
            "label": np.array([p[1] for p in taken[client_id]], np.int64),
        }
        for client_id in IDS
    }
    conftest.assert_same_clients(landmark.create_task_from_data(photos), task)


def broken(taken):
    image = taken[VALID][0][0]
    return {
        "empty": b"",
        "text": b"not an image",
        "cut in its header": image[:50],
        "only its first bytes": image[:3],
        "cut in the middle": image[: len(image) // 2],
        "without its last bytes": image[:-2],
    }


def test_images_that_do_not_decode_are_left_out_and_counted(tmp_path, taken):
    good = record(*taken[VALID][1])
    bad = [record(image, 1) for image in broken(taken).values()]
    outside = [record(taken[VALID][0][0], label) for label in (-1, 2028, 2**40)]
    unlabelled = tf.train.Example().SerializeToString()
    ids = few_clients(
        tmp_path,
        a=[bad[0], good, bad[1], good],
        c=[*bad, good, unlabelled],
        d=[*outside, good],
        e=bad,
    )
    (tmp_path / "gld160k" / "train" / ".listing").write_text("x")
    (tmp_path / "gld160k" / "train" / "old").mkdir()
    task = create(tmp_path)
    assert task.facts["files_ignored"] == [".listing", "old"]
    assert task.facts["images_left_out"] == {
        "images that do not decode": {ids["c"]: 7, ids["a"]: 2, ids["e"]: 6},
        "images with a label outside the range": {ids["d"]: 3},
    }
    assert task.facts["clients_left_out"] == {"no examples": [ids["e"]]}
    for name in "cd":
        assert task.train.fetch(ids[name])["train"]["label"].numpy().tolist() == [1]
    assert [len(p["label"]) for p in task.valid.fetch(ids["a"]).values()] == [1, 1]


def test_large_data_are_checked_when_loaded(tmp_path, taken, unchecked, capfd):
    good, bad = record(*taken[VALID][1]), record(b"text", 1)
    ids = few_clients(tmp_path, b=[bad, bad], c=[good, bad, good])
    task = create(tmp_path)
    assert task.facts["images_left_out"] is None
    capfd.readouterr()
    assert len(task.train.fetch(ids["c"])["train"]["label"]) == 2
    assert f'client "{ids["c"]}" has 3 images, of which 1 are left out' in capfd.readouterr().err
    task.train.fetch(ids["d"])
    assert capfd.readouterr().err == ""
    with refused(f"client '{ids['b']}'", "none of its images"):
        task.test.fetch(ids["b"])


@pytest.mark.slow
def test_training_on_large_data_reads_headers_and_decodes_what_it_draws(
    tmp_path, taken, unchecked, monkeypatch
):
    """An image that is broken behind its header is met when it is drawn, and says whose it is."""
    monkeypatch.setattr(landmark, "IMAGE_SIZE", 32)
    kinds = broken(taken)
    of_header = ("empty", "text", "cut in its header", "only its first bytes")
    bad = [record(kinds[kind], 1) for kind in of_header]
    behind = record(kinds["without its last bytes"], 1)
    good = record(*taken[VALID][1])
    ids = few_clients(tmp_path, c=[*bad, good, behind])
    task = create(tmp_path)
    assert len(task.train.fetch(ids["c"])["train"]["label"]) == 2
    sgd = optimizers.OptimizerConfig("sgd", 0.1, {})
    algorithm = FedAvg(sgd, sgd, 1, 2).build(task, task.model.initial_weights(0))
    process = sequential.SequentialBackend().training(task, algorithm)
    cohort = base.Round(1, (ids["c"],), np.array([3, 4], np.int32))
    with refused(f"client '{ids['c']}'", "nvalid JPEG"):
        process.next(process.initialize(), [cohort])


def test_labels_of_the_small_variant(tmp_path):
    rng = np.random.default_rng(2)
    for i in range(9):
        folder = tmp_path / "landmark" / "gld23k" / "train"
        write(folder / str(i), [record(jpeg(rng), label) for label in (0, 202, 203)])
    task = create(tmp_path, gld23k=True)
    assert task.facts["num_classes"] == 203
    assert task.model.shapes[-1] == (203,)
    counts = task.facts["images_left_out"]["images with a label outside the range"]
    assert counts == {str(i): 1 for i in range(9)}


def test_truncated_file(tmp_path):
    ids = few_clients(tmp_path)
    path = tmp_path / "gld160k" / "train" / ids["f"]
    path.write_bytes(path.read_bytes()[:-5])
    with refused(str(path), f"{path.stat().st_size} bytes", "TFRecord 2"):
        create(tmp_path)
    path.write_text("user_id,image_id,class\n")
    with refused(str(path), "23 bytes", "TFRecord 0"):
        create(tmp_path)


def test_damaged_record(tmp_path, monkeypatch):
    ids = few_clients(tmp_path)
    path = tmp_path / "gld160k" / "train" / ids["f"]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with refused(str(path), "corrupted", "TFRecords"):
        create(tmp_path)
    monkeypatch.setattr(landmark, "_MAX_BYTES_DECODED_AT_START", -1)
    task = create(tmp_path)
    with refused(f"client '{ids['f']}'", "cannot be read"):
        task.train.fetch(ids["f"])


def test_a_folder_of_the_other_variant(tmp_path):
    (tmp_path / "gld23k" / "train").mkdir(parents=True)
    with refused("landmark", "gld160k/train", advice="give gld23k, as there is gld23k/train"):
        create(tmp_path)
    with refused("gld23k/train", "no files"):
        create(tmp_path, gld23k=True)


def test_batches(task):
    examples = task.test.fetch(TEST)["evaluation"]
    rows = {field: values[:3] for field, values in examples.items()}
    for training in (True, False):
        x, y = task.preprocess(rows, training, tf.constant([1, 2]))
        assert x.shape == (3, 128, 128, 3)
        assert -1 <= tf.reduce_min(x) < tf.reduce_max(x) <= 1
        np.testing.assert_array_equal(y, rows["label"])


def test_regions_have_their_own_landmarks():
    album = synthetic_photographers.take_photos(0, 24, 2028)
    own = {
        name: {label for (region, _), label in album.labels.items() if region == name}
        for name in synthetic_photographers.REGIONS
    }
    assert len(set(album.labels.values())) == 48
    at_home = [np.isin(p["label"], list(own[album.groups[i]])) for i, p in album.photos.items()]
    assert 0.85 < np.concatenate(at_home).mean() < 0.99
    sizes = {PIL.Image.open(io.BytesIO(p["image"][0])).size for p in album.photos.values()}
    assert sizes == {(128, 128), (160, 128), (128, 160)}
