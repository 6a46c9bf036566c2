"""Pictures of a folder and of an archive, and what is none."""

import io
import os
import struct

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import datasets
from datasets.models import cnn
from datasets.options import DataOptions
from motley_tff.experiment import run_directory
from tests.errors import refused

_SIDE = 6


def _picture(path, value=0, mode="L", size=(_SIDE, _SIDE)):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new(mode, size, value).save(path)


@pytest.fixture
def folder(tmp_path):
    """Twelve clients of four pictures, two of each of two labels; grey is 10 * client + label."""
    for client in range(12):
        for label in (0, 1):
            for i in range(2):
                _picture(tmp_path / f"{client:02d}/{label}/{i}.png", 10 * client + label)
    return tmp_path


def _create(folder, **options):
    return datasets.create_task(DataOptions("images", data_dir=str(folder), **options))


def test_a_folders_clients_labels_and_pixels(folder):
    (folder / "03" / ".DS_Store").write_text("x")
    (folder / "03" / "1" / "Thumbs.db").write_text("x")
    task = _create(folder)
    assert task.facts["pictures"] == 48 and task.facts["files_left_out"] == 2
    assert task.label_names == ("0", "1") and task.facts["shape"] == [_SIDE, _SIDE, 1]
    for client in task.train.ids:
        examples = task.train.fetch(client)["train"]
        grey = examples["pixels"][:, 0, 0, 0]
        assert grey.tolist() == (10 * int(client) + examples["label"]).tolist()
    x, y = task.preprocess({"pixels": np.full((2, 1, 1, 1), 255, np.uint8), "label": [0, 1]}, 0, 0)
    assert x.numpy().max() == 1.0 and y == [0, 1]


def test_one_coloured_picture_makes_all_coloured_and_what_is_transparent_is_white(folder):
    _picture(folder / "05" / "1" / "7.png", (0, 0), "LA")
    _picture(folder / "05" / "1" / "8.png", (0, 255), "LA")
    _picture(folder / "05" / "1" / "9.png", (200, 0, 0), "RGB")
    task = _create(folder, setting="cross_silo")
    assert task.facts["shape"] == [_SIDE, _SIDE, 3] and len(task.train) == 12
    assert set(task.test.fetch("00")) == {"train", "valid", "test"}
    pixels = np.concatenate([p["pixels"] for p in task.train.fetch("05").values()])
    assert sorted({tuple(p) for p in pixels[:, 0, 0].tolist()}) == [
        (0, 0, 0), (50, 50, 50), (51, 51, 51), (200, 0, 0), (255, 255, 255),
    ]  # fmt: skip


def test_pictures_of_two_sizes_are_scaled_if_asked(folder):
    _picture(folder / "05" / "1" / "9.png", 7, size=(9, 4))
    with refused(str(folder), "of 6x6 and of 9x4 pixels", "one size", "image_size") as caught:
        _create(folder)
    assert "9.png" in caught.value.finding
    assert _create(folder, image_size=8).facts["shape"] == [8, 8, 1]


def _npz(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (40, 5, 5), np.uint8),
        "labels": np.arange(40) % 3,
        "client_id": np.repeat([f"{i:03d}" for i in range(10)], 4),
        **changes,
    }
    np.savez(path, **{name: a for name, a in arrays.items() if a is not None})
    return str(path)


def test_an_archive_with_groups(tmp_path):
    groups = np.repeat(["left", "right"], 20)
    file = _npz(tmp_path / "a.npz", group=groups)
    task = datasets.create_task(DataOptions("images", data_file=file))
    assert task.facts["client_groups"]["004"] == "left" and task.label_names == ("0", "1", "2")
    scaled = datasets.create_task(DataOptions("images", data_file=file, image_size=10))
    assert scaled.facts["shape"] == [10, 10, 1]


@pytest.mark.parametrize(
    ("changes", "place", "parts"),
    [
        ({"client_id": None}, "", {"expected": "['client_id']"}),
        ({"images": np.zeros((40, 5, 5))}, " images", {"finding": "type float64"}),
        ({"images": np.zeros((40, 5, 5, 4), np.uint8)}, " images", {"expected": "1 or 3 channels"}),
        ({"labels": np.zeros((40, 1), int)}, " labels", {"finding": "type int64, shape [40, 1]"}),
        ({"client_id": np.array(["a"] * 39 + [" "])}, " image 39", {"finding": "no client_id"}),
        ({"labels": np.array(["none"] * 38 + ["", "b"])}, " image 38", {"finding": "no label"}),
        ({"client_id": np.zeros(40, int)}, "", {}),
        ({"group": np.arange(40)}, " client 000", {"finding": "(0, 1, 2)", "expected": "one"}),
    ],
)
def test_what_is_no_archive_of_pictures(tmp_path, changes, place, parts):
    file = _npz(tmp_path / "a.npz", **changes)
    with refused(f"{file}{place}", **parts) as caught:
        datasets.create_task(DataOptions("images", data_file=file))
    assert str(caught.value).count(file) == 1


def _eps(path):
    """Writes what Pillow would hand to Ghostscript, as a program."""
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 6\n%%EndComments\n")


@pytest.mark.parametrize(
    ("make", "name", "problem", "expected"),
    [
        (lambda path: path.write_text("no picture"), "05/1/x.png", "Unidentified", "a picture"),
        (_eps, "05/1/x.png", "Unidentified", "a picture"),
        (os.mkfifo, "05/1/x.png", "a pipe", "a picture"),
        (os.mkdir, "05/1/more", "a folder", "a picture"),
        (lambda path: path.write_text("x"), "readme.txt", "a file", "a folder"),
        (lambda path: _picture(path / "0.png"), "05/\udcff", "no UTF-8", ""),
    ],
)
def test_what_is_no_folder_of_pictures(folder, make, name, problem, expected):
    make(folder / name)
    with refused(ascii(str(folder / name)).strip("'"), problem, expected):
        _create(folder)


def test_no_pictures_and_too_large_ones(folder, tmp_path, monkeypatch):
    (tmp_path / "none").mkdir()
    with refused(str(tmp_path), "no pictures", "<client>/<label>/<file>"):
        _create(tmp_path / "none")
    (tmp_path / "none").rmdir()
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 30)
    with refused(".png", "too large"):
        _create(folder)


def _png(*shape):
    """Returns a PNG of 16 bits that holds values of 12."""
    ramp = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape)
    return tf.io.encode_png(ramp * (4095 // ramp.max())).numpy()


def _pages(kind, **options):
    pages = [PIL.Image.new("RGB", (_SIDE, _SIDE), (value, 0, 0)) for value in (0, 100, 200)]
    file = io.BytesIO()
    pages[0].save(file, kind, save_all=True, append_images=pages[1:], **options)
    return file.getvalue()


def _tiff(*shape):
    file = io.BytesIO()
    PIL.Image.fromarray(np.full(shape, 3000, np.uint16)).save(file, "TIFF")
    return file.getvalue()


def _coloured_tiff(is_planar):
    """Returns 6 x 6 pixels of 3 x 16 bits, which Pillow reads and does not write."""
    bits = struct.pack("<3H", 16, 16, 16)
    places = struct.pack("<6I", *(range(200, 416, 72) if is_planar else (200, 0, 0)), 72, 72, 72)
    strips = ((273, 4, 3, 150), (279, 4, 3, 162)) if is_planar else ((273, 4, 1, 200),)
    tags = [(256, 4, 1, 6), (257, 4, 1, 6), (258, 3, 3, 144), (262, 3, 1, 2), (277, 3, 1, 3),
            (284, 3, 1, 1 + is_planar), *strips]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    head = struct.pack("<4sIH", b"II*\0", 8, len(tags)) + entries
    return (head.ljust(144, b"\0") + bits + places).ljust(200, b"\0") + bytes(216)


_DEEP, _SEVERAL = "of more than 8 bits", "3 pages or frames"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *((_png(_SIDE, _SIDE, channels), _DEEP) for channels in (1, 2, 3, 4)),
        *((kind + b" 6 6 65535 " + body, _DEEP) for kind, body in (
            (b"P6", bytes(216)), (b"P5", bytes(72)), (b"P3", b"3000 " * 108))),
        (b"Pf 6 6 1.0 " + bytes(144), _DEEP),
        (_tiff(_SIDE, _SIDE), _DEEP),
        (_coloured_tiff(is_planar=False), _DEEP),
        (_coloured_tiff(is_planar=True), _DEEP),
        *((_pages(kind), _SEVERAL) for kind in ("TIFF", "GIF", "PNG", "WEBP")),
    ],
)  # fmt: skip
def test_what_pillow_would_cut_is_refused(folder, content, problem):
    path = folder / "05" / "1" / "x"
    path.write_bytes(content)
    with refused(str(path), problem) as caught:
        _create(folder)
    assert caught.value.where == str(path)


def test_a_phones_jpeg_with_a_preview_and_a_netpbm_that_says_its_largest_value(folder):
    (folder / "05" / "1" / "x").write_bytes(_pages("MPO", quality=95))
    (folder / "05" / "1" / "y").write_bytes(b"P6 6 6 15 " + bytes([15, 5, 0]) * 36)
    parts = _create(folder, setting="cross_silo").train.fetch("05").values()
    pixels = np.concatenate([part["pixels"] for part in parts])
    colours = {tuple(colour) for colour in pixels[:, 0, 0].tolist()}
    assert colours == {(50, 50, 50), (51, 51, 51), (0, 0, 0), (255, 85, 0)}


def test_a_folder_that_changed_below_is_another(folder):
    before = run_directory.digest(str(folder))
    (folder / "03" / "1" / "0.png").rename(folder / "03" / "0" / "7.png")
    after = run_directory.digest(str(folder))
    _picture(folder / "05" / os.fsdecode(b"\xff") / "0.png")
    assert len({before, after, run_directory.digest(str(folder))}) == 3


def test_pictures_that_memory_cannot_hold(folder, monkeypatch):
    free = type("Free", (), {"available": 3 * 48 * _SIDE * _SIDE - 1})
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    with refused(str(folder), "48 pictures", advice="image_size"):
        _create(folder)
    free.available += 1
    assert _create(folder).facts["pictures"] == 48


def test_blocks_leave_about_seven_pixels_a_side():
    sizes = {side: cnn.default_sizes(side) for side in (4, 28, 32, 64, 224)}
    assert sizes[4] == (32, 128) and sizes[28] == sizes[32] == (32, 64, 128)
    assert sizes[64] == (32, 64, 128, 128) and sizes[224] == (32, 64, 128, 256, 256, 128)
