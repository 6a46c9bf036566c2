"""CIFAR-10: the official binary files, folders, what is no such thing, and who gets what."""

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import datasets
from datasets import cifar10
from datasets.models import lenet
from datasets.options import DataOptions
from tests.errors import refused

_SILOS = {"partition": "iid", "setting": "cross_silo", "num_clients": 3}


@pytest.fixture
def small_batches(monkeypatch):
    """Batches of 20 records in place of 10,000."""
    monkeypatch.setattr(cifar10, "_RECORDS", 20)


def _write(folder, change=lambda name, records: records):
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir(parents=True)
    rng, everything = np.random.default_rng(0), []
    for name in cifar10._BATCHES:
        records = rng.integers(0, 256, (20, 3073)).astype(np.uint8)
        records[:, 0] %= 10
        everything.append(records)
        (batches / name).write_bytes(change(name, records).tobytes())
    return np.concatenate(everything)


def _create(folder, **options):
    return datasets.create("cifar10", data_dir=str(folder), **{**_SILOS, **options})


def test_reads_the_official_files(tmp_path, small_batches):
    records = _write(tmp_path)
    pixels, labels = cifar10.read_batches(tmp_path / "cifar-10-batches-bin")
    assert pixels.shape == (120, 32, 32, 3) and labels.tolist() == records[:, 0].tolist()
    # Planes of red, green and blue, rows from the top.
    planes = records[7, 1:].reshape(3, 32, 32)
    np.testing.assert_array_equal(pixels[7, 3, 5], planes[:, 3, 5])
    for folder in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        task = _create(folder)
        assert sum(task.train.sizes.values()) == task.facts["pictures"] == 120
        assert len(task.facts["files"]) == 6


@pytest.mark.parametrize(
    ("change", "problem", "expected"),
    [
        (lambda name, records: records[:-1], "58,387 bytes", ""),
        (lambda name, records: np.full_like(records, 10), "label 10 in record 0", "0 to 9"),
    ],
)
def test_batches_that_are_none(tmp_path, small_batches, change, problem, expected):
    _write(tmp_path, change)
    with refused("data_batch_1.bin", problem, expected):
        _create(tmp_path)


def test_a_missing_batch_and_the_pickled_archive(tmp_path, small_batches):
    _write(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with refused("cifar-10-batches-bin", "data_batch_3.bin", advice="unpack"):
        _create(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").unlink()
    for folder in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        with refused("cifar-10-batches-bin", "data_batch_1.bin, data_batch_3.bin"):
            _create(folder)
    other = tmp_path / "other"
    (other / "cifar-10-batches-py").mkdir(parents=True)
    with refused(str(other), "pickled", "cifar-10-batches-bin"):
        _create(other)
    with refused("other/cifar-10-batches-py", "nothing", "cifar-10-batches-bin"):
        _create(other / "cifar-10-batches-py")
    with refused("cifar10", "no folder", advice="data_dir"):
        datasets.create("cifar10", **_SILOS)
    with refused("data_file", "x.bin", "cifar-10-batches-bin", "data_dir"):
        datasets.create("cifar10", data_file="x.bin", **_SILOS)


def _folder(root, size=(32, 32), mode="RGB", parts=("train", "test"), classes=("cat", "dog")):
    rng = np.random.default_rng(0)
    for part in parts:
        for name in classes:
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(8):
                array = rng.integers(0, 256, (*size, 3)).astype(np.uint8)
                picture = PIL.Image.fromarray(array).convert(mode)
                picture.save(folder / f"{i}.{'jpg' if mode == 'CMYK' else 'png'}")
    (root / "train" / ".DS_Store").write_bytes(b"x")
    (root / "readme.txt").write_text("x")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK"])
def test_reads_folders_of_classes_and_one_grey_picture(tmp_path, mode):
    _folder(tmp_path, mode=mode)
    PIL.Image.new("L", (32, 32), 7).save(tmp_path / "train" / "cat" / "grey.png")
    task = _create(tmp_path)
    assert task.facts["pictures"] == 33 and task.label_names == ("cat", "dog")
    assert task.model.shapes[-1] == (2,)


@pytest.mark.parametrize(
    ("kind", "damage", "place", "problem", "expected"),
    [
        ({"mode": "L"}, None, "", "32x32 pixels, grey", "32x32 in colour"),
        ({"size": (30, 32)}, None, "", "32x30 pixels, in colour", "32x32"),
        ({"classes": ("cat",)}, None, "", "one class, 'cat'", "two classes"),
        ({}, lambda root: PIL.Image.new("RGB", (64, 64)).save(root / "train/cat/0.png"), "",
         "64x64", "one size"),
        ({}, lambda root: (root / "train/stray.txt").touch(), "stray.txt", "a file", "train/<"),
        ({}, lambda root: (root / "test/cat").rename(root / "test/cats"), "",
         "'cat' in one of train and test", ""),
        ({}, lambda root: [(root / part / "cow").mkdir() for part in ("train", "test")],
         "train/cow", "no pictures", ""),
    ],
)  # fmt: skip
def test_folders_of_other_pictures(tmp_path, kind, damage, place, problem, expected):
    _folder(tmp_path, **kind)
    if damage is not None:
        damage(tmp_path)
    with refused(place or str(tmp_path), problem, expected):
        _create(tmp_path)


@pytest.mark.parametrize(("setting", "number"), [("cross_silo", 10), ("cross_device", 100)])
def test_how_many_clients_if_nothing_is_said(setting, number):
    options = DataOptions("cifar10", partition="iid", setting=setting, use_synthetic_data=True)
    task = datasets.create_task(options)
    assert len({i for c in task.splits.values() for i in c.ids}) == number
    assert task.setting == setting


def test_lenet_has_the_weights_of_the_paper():
    task = datasets.create("cifar10", use_synthetic_data=True, **_SILOS)
    assert task.model.num_weights == 62_006
    sizes = [int(np.prod(shape)) for shape in task.model.shapes]
    # Divi et al.'s "400, 120, 84": 400 is the first dense layer's input.
    assert sizes == [450, 6, 2400, 16, 48000, 120, 10080, 84, 840, 10]
    assert sum(task.model.is_last_layer) == 2


def test_lenets_filters_of_zeros_change_nothing():
    rng = np.random.default_rng(0)
    model, layers = lenet.LeNet(10), tf.keras.layers
    h = x = rng.normal(size=(3, 32, 32, 3)).astype("float32")
    untrained = model(x)
    for ours in (model.conv_1, model.conv_2):
        plain = layers.Conv2D(ours.filters, 5, activation="relu")
        plain.build(h.shape)
        plain.set_weights([ours.kernel.numpy(), rng.normal(size=ours.filters)])
        ours.set_weights(plain.get_weights())
        h = layers.MaxPool2D()(plain(h))
    expected = model.head(model.dense_2(model.dense_1(layers.Flatten()(h))))
    assert not np.allclose(model(x), untrained)
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("count", "first"), [(0, None), (1, "logits"), (2, "dense_2"), (5, "conv_1")]
)
def test_last_layers_are_counted_from_the_end(count, first):
    model = datasets.create("cifar10", use_synthetic_data=True, **_SILOS).model
    chosen = [n for n, is_own in zip(model.names, model.last_layers(count), strict=True) if is_own]
    assert len(chosen) == 2 * count and (not chosen or first in chosen[0])
    with pytest.raises(ValueError, match="5 layers with weights, not 6"):
        model.last_layers(6)
    assert isinstance(lenet.LeNet(10).last_layer, tuple)
