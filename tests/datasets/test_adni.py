"""ADNI: both forms on disk, both splits, the CNN, the synthetic scanners, and broken files."""

import json

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from hypothesis import given, strategies as st

import datasets
from datasets import adni
from datasets.models import adni_cnn
from datasets.readers import adni_files
from motley_tff.core import functional_model
from tests.errors import refused


def _scans(subjects, slices=2, seed=0, suvr=None):
    rng = np.random.default_rng(seed)
    n = slices * len(subjects)
    names = np.repeat(np.array(subjects), slices)
    suvr = np.repeat(1.0 + np.arange(len(subjects)) / 10, slices) if suvr is None else suvr
    return adni_files.Scans(rng.integers(1, 256, (n, 32, 32), np.uint8), suvr, names, names)


def _people(first, count):
    return [f"{i:03d}_S_{i:04d}" for i in range(first, first + count)]


def _create(path=None, **options):
    file = None if path is None else str(path)
    return datasets.create_task(datasets.DataOptions("adni", data_file=file, **options))


# --- model and task -------------------------------------------------------------------------------


def test_model():
    model = functional_model.from_keras(adni_cnn.AdniCnn, np.zeros((1, 32, 32, 1), np.float32))
    assert model.num_weights == 2_150_273 and model.shapes[-2:] == ((512, 1), (1,))
    assert model.is_last_layer == (False,) * 6 + (True,) * 2
    weights, x = model.initial_weights(0), tf.random.stateless_uniform([3, 32, 32, 1], [1, 2])
    expected = tf.squeeze(model.embed(weights, x) @ weights[-2] + weights[-1], -1)
    np.testing.assert_allclose(model.predict(weights, x, False, None), expected, atol=1e-6)


def test_task():
    task = adni.create_task_from_data({"CPS": _scans(_people(0, 5))}, 0)
    assert task.setting == "cross_silo" and not task.drop_remainder
    assert [(m.name, m.higher_is_better) for m in task.metrics] == [("squared_error", False)]
    values, weights = task.loss(tf.constant([1.0, 0.0]), tf.constant([3.0, 1.0]))
    assert values.numpy().tolist() == [4, 1] and weights.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_each_slice_is_scaled_by_its_own_maximum(dtype):
    pixels = np.zeros((3, 32, 32), dtype)
    pixels[0, 0, :2], pixels[1, 5, 5] = (50, 200), 3
    examples = {"pixels": tf.constant(pixels), "target": tf.zeros(3)}
    x, _ = adni.preprocess(examples, True, tf.constant([1, 2]))
    assert x.shape == (3, 32, 32, 1) and x.dtype == tf.float32
    np.testing.assert_allclose(x[0, 0, :3, 0], [0.25, 1.0, 0.0])
    assert float(x[1, 5, 5, 0]) == 1.0
    assert not np.any(x[2])  # A batch's padding: zeros, not "not a number".


# --- splits ---------------------------------------------------------------------------------------


def test_split_by_subject():
    subjects = {"CPS": np.repeat(_people(0, 20), 3), "GEMS": np.array(_people(20, 3))}
    rows, other = adni.split_by_subject(subjects, 100), adni.split_by_subject(subjects, 1100)
    counts = {v: [len(set(subjects[v][r])) for r in parts.values()] for v, parts in rows.items()}
    assert counts == {"CPS": [16, 2, 2], "GEMS": [1, 1, 1]}
    assert set(other["CPS"]["test"]) != set(rows["CPS"]["test"])


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, unique=True), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
)
def test_a_subject_of_two_vendors_is_in_one_part(people, seed):
    everyone = np.array(_people(0, 31))
    subjects = {f"vendor_{i}": np.repeat(everyone[who], 2) for i, who in enumerate(people)}
    parts_of = {}
    for vendor, parts in adni.split_by_subject(subjects, seed).items():
        assert sorted(np.concatenate(list(parts.values()))) == list(range(len(subjects[vendor])))
        for part, rows in parts.items():
            for subject in subjects[vendor][rows]:
                parts_of.setdefault(subject, set()).add(part)
    assert {len(parts) for parts in parts_of.values()} == {1}


def test_split_as_published():
    suvr = np.repeat([1.0, 1.1, 1.2, 1.3, 1.4], 7)
    rows = adni.split_as_published(suvr, 100)
    assert {part: len(r) for part, r in rows.items()} == {"train": 28, "valid": 3, "test": 4}
    # Slices of one scan validate and test; that is the rule's weakness.
    assert set(suvr[rows["valid"]]) == set(suvr[rows["test"]])
    assert not set(suvr[rows["train"]]) & set(suvr[rows["test"]])
    for few in ([1.0] * 9, [1.0, 1.0, 1.2]):
        rows = adni.split_as_published(np.array(few), 0)
        assert {part: len(r) for part, r in rows.items()} in (
            {"train": len(few), "valid": 0, "test": 0},
            {"train": 1, "valid": 1, "test": 1},
        )


def test_rules_by_option():
    vendors = {"CPS": _scans(_people(0, 10), 7)}
    for rule, crossing in (("subject", 0), ("published", 2)):
        facts = adni.create_task_from_data(vendors, 3, rule).facts
        assert (facts["adni_split"], facts["subjects_in_several_parts"]) == (rule, crossing)
    with refused("adni_split", "random", "subject, published"):
        adni.create_task_from_data(vendors, 3, "random")


@pytest.mark.parametrize("rule", ["subject", "published"])
def test_small_and_unlabelled_vendors(rule):
    single = _scans(_people(20, 2), 1, suvr=np.array([1.0, 1.0]))
    vendors = {"CPS": _scans(_people(0, 10)), "HERMES": _scans([]), "MiE": single}
    task = adni.create_task_from_data(vendors, 0, rule)
    assert task.train.ids == ("CPS", "MiE") and task.valid.ids == task.test.ids == ("CPS",)
    assert len(task.train.fetch("MiE")["train"]["target"]) == 2
    assert task.facts["clients_left_out"] == {"no labelled scan": ["HERMES"]}
    (listed,) = task.facts["clients_not_evaluable"].values()
    assert listed == ["MiE"]


def test_vendors_whose_subjects_already_have_a_part():
    a, b, c = _people(0, 3), _people(3, 3), _people(6, 2)
    small = {"A": np.array(a), "B": np.array(b), "C": np.array(c)}
    rows = adni.split_by_subject(small, 0)
    part_of = {(v, p): small[v][r[0]] for v in ("A", "B") for p, r in rows[v].items()}
    kept_out = [part_of[v, part] for v in ("A", "B") for part in ("valid", "test")]
    # C's two subjects train; so D of one that validates and C's two cannot be whole.
    vendors = {v: _scans(s) for v, s in small.items()}
    vendors |= {"D": _scans([part_of["A", "valid"], *c]), "E": _scans(kept_out)}
    task = adni.create_task_from_data(vendors, 0)
    assert task.train.ids == ("A", "B", "C", "D") and task.test.ids == ("A", "B")
    assert task.facts["clients_left_out"] == {
        "all its subjects validate or test another vendor": ["E"]
    }
    assert list(task.facts["clients_not_evaluable"].values()) == [["C", "D"]]
    assert task.facts["slices_not_used"] == {"D": 2}
    assert task.facts["subjects_in_several_parts"] == 0
    assert [len(e["target"]) for e in task.train.fetch("D").values()] == [4, 0, 0]


@pytest.mark.parametrize(("count", "found"), [(0, "no labelled scan of 1"), (2, "1 silos")])
def test_nothing_to_split(count, found):
    with refused(finding=found):
        adni.create_task_from_data({"CPS": _scans(_people(0, count))}, 0)


# --- the array file -------------------------------------------------------------------------------


def _arrays(**changes):
    scans = {"GE MEDICAL SYSTEMS": _scans(_people(0, 5)), "Siemens/CTI": _scans(_people(5, 5))}
    arrays = {"vendors": np.array([*scans, "HERMES"])}
    for i, mine in enumerate([*scans.values(), _scans([])]):
        arrays |= {
            f"images_{i}": mine.images,
            f"suvr_{i}": mine.suvr.astype(np.float64),
            f"subject_{i}": np.array(mine.subjects, np.str_),
            f"scan_{i}": np.array(mine.scans, np.str_),
        }
    arrays |= changes
    return {name: array for name, array in arrays.items() if array is not None}


def _npz(path, **changes):
    np.savez(path, **_arrays(**changes))
    return path


def test_array_file(tmp_path):
    (tmp_path / "adni").mkdir()
    report = np.array(json.dumps({"skipped": {"scans: x": 3}}))
    images = _arrays()["images_0"].astype(np.float32) / 255
    path = _npz(tmp_path / "adni" / "adni.npz", report=report, images_0=images)
    task, other = (_create(data_dir=str(tmp_path), base_random_seed=seed) for seed in (100, 1100))
    assert task.train.ids == task.test.ids == ("GE MEDICAL SYSTEMS", "Siemens/CTI")
    assert task.facts["files"] == [str(path)] and task.facts["source"] == "npz"
    assert task.facts["clients_left_out"] == {"no labelled scan": ["HERMES"]}
    assert task.facts["preparation"] == {"skipped": {"scans: x": 3}}
    json.dumps(task.facts)
    first, two = (t.test.fetch("Siemens/CTI")["test"] for t in (task, other))
    assert not np.array_equal(first["target"], two["target"])
    assert first["pixels"].dtype == np.float32  # Floats of one vendor make all floats.


BAD_ARRAYS = {
    "no vendors": ({"vendors": None}, "", "arrays ['images_0',", "vendors"),
    "a vendor twice": (
        {"vendors": np.array(["a", "a ", "b"])}, " vendors", ["a", "a", "b"], "different"
    ),
    "no images": ({"images_1": None}, " vendor 'Siemens/CTI'", "images_1", ""),
    "larger images": (
        {"images_0": np.zeros((10, 64, 64), np.uint8)}, "' images", "[10, 64, 64]", "32, 32]"
    ),
    "fewer labels": ({"suvr_0": np.ones(9)}, "' suvr", "[9]", "floats [10]"),
    "labels not finite": ({"suvr_0": np.full(10, np.nan)}, "' suvr", "nan", "above 0"),
    "labels beyond float32": ({"suvr_0": np.full(10, 1e300)}, "' suvr", 1e300, "float32"),
    "negative labels": ({"suvr_0": -np.ones(10)}, "' suvr", -1.0, "above 0"),
    "subjects as numbers": ({"subject_0": np.arange(10)}, "' subject", "int64", "text"),
    "pixels not finite": (
        {"images_0": np.full((10, 32, 32), np.nan, np.float32)}, "' images", "nan", "at least 0"
    ),
    "report": ({"report": np.array("{")}, " report", "", "JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_other_arrays_end_in_one_line(tmp_path, case):
    changes, place, problem, expected = BAD_ARRAYS[case]
    with refused(place, problem, expected) as caught:
        _create(_npz(tmp_path / "bad.npz", **changes))
    assert str(caught.value).count("bad.npz") == 1


def test_missing_files(tmp_path):
    with refused("adni", "no adni.npz or labels.csv", advice="use_synthetic_data"):
        _create(data_dir=str(tmp_path))
    (tmp_path / "a.txt").write_text("")
    with refused("a.txt", expected=".npz or .csv"):
        _create(tmp_path / "a.txt")


# --- PNGs -----------------------------------------------------------------------------------------


def _png_folder(folder, rows=(), header="vendor,file,subject,scan,suvr"):
    """Writes five subjects' PNGs of two vendors in different modes, and more rows."""
    lines = [header]
    for vendor in ("SIEMENS", "Siemens_CTI"):
        (folder / vendor).mkdir(parents=True)
        for i in range(5):
            pixels = np.zeros((160, 160), np.uint8)
            pixels[80:, : 32 * (i + 1)] = 200
            image = PIL.Image.fromarray(pixels)
            if i == 1:
                image = PIL.Image.fromarray(pixels.astype(np.uint16) * 100)
            image = image.convert("RGB") if i == 2 else image
            image.save(folder / vendor / f"{i}.png")
            name = vendor.replace("_", "/")
            lines.append(f"{name},{vendor}/{i}.png,{i:03d}_S_{i:04d}_{vendor},I{i},{1 + i / 10}")
    lines += rows
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return folder / "labels.csv"


def test_png_folder(tmp_path):
    (tmp_path / "adni" / "HERMES").mkdir(parents=True)
    for name in ("HERMES/1", "HERMES/2", "MiE_1"):
        PIL.Image.new("L", (32, 32), 9).save(tmp_path / "adni" / f"{name}.png")
    PIL.Image.new("L", (32, 32), 0).save(tmp_path / "adni" / "blank.png")
    _png_folder(
        tmp_path / "adni", ["MiE,MiE_1.png,S_1,I1,", "SIEMENS,blank.png,S_2,I2,1.5"]
    )  # fmt: skip
    task = _create(data_dir=str(tmp_path))
    assert task.train.ids == task.test.ids == ("SIEMENS", "Siemens/CTI")
    assert task.facts["images_left_out"] == {"no label": 3, "blank": 1}
    assert task.facts["clients_left_out"] == {"no labelled scan": ["HERMES", "MiE"]}
    seen = {}
    for examples in task.train.fetch("Siemens/CTI").values():
        for image, suvr in zip(examples["pixels"], examples["target"], strict=True):
            seen[round(float(suvr), 1)] = image
    assert sorted(seen) == [1.0, 1.1, 1.2, 1.3, 1.4]
    for i in range(5):
        image = seen[round(1 + i / 10, 1)]
        assert image.shape == (32, 32) and image.max() == 255
        expected = 16 * 32 * (i + 1) / 5
        assert (image > 127).sum() == pytest.approx(expected, abs=16)


@pytest.mark.parametrize(
    ("row", "place", "problem", "expected"),
    [
        ("CPS,gone.png,S,I,1.0", "", "'gone.png'", "folder"),
        ("CPS,SIEMENS/0.png,S,I,1.0", "", "'SIEMENS/0.png' a second time", "once"),
        ("CPS,broken.png,S,I,1.0", " broken.png", "truncated", "PNG"),
        ("CPS,wide.png,S,I,1.0", " wide.png", "5000 x 1 pixels", "PNG"),
        ("CPS,deep.png,S,I,1.0", " deep.png", "RGB pixels of more than 8 bits", ""),
        ("CPS,../outside.png,S,I,1.0", "", "'../outside.png'", "folder"),
        ("CPS,SIEMENS/x.png,S,I,high", " suvr", "'high'", "above 0"),
        ("CPS,SIEMENS/x.png,S,I,1e300", " suvr", "'1e300'", "above 0"),
        ("CPS,SIEMENS/x.png,,I,1.0", "", "empty cell for subject", ""),
    ],
)
def test_bad_tables_and_images_end_in_one_line(tmp_path, row, place, problem, expected):
    path = _png_folder(tmp_path / "a", [row])
    (tmp_path / "a" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 100)
    PIL.Image.new("L", (5000, 1), 9).save(tmp_path / "a" / "wide.png")
    deep = tf.io.encode_png(np.full((32, 32, 3), 3000, np.uint16)).numpy()
    (tmp_path / "a" / "deep.png").write_bytes(deep)
    with refused(f"labels.csv row 12{place}", problem, expected):
        _create(path)


def test_shrink():
    image = np.full((64, 96), -5.0)
    image[:32] = 1e-3
    small = adni_files.shrink(image)
    assert small.dtype == np.uint8 and small.shape == (32, 32)
    assert (small[:15] == 255).all() and (small[17:] == 0).all()
    for blank in (np.zeros((8, 8)), np.full((8, 8), -1.0), np.full((8, 8), np.nan)):
        assert adni_files.shrink(blank) is None


# --- synthetic scanners ---------------------------------------------------------------------------


def test_a_scanners_uptake_and_its_group_decide_the_brightness():
    scanners, by_group = adni.synthesize(5), [[], [], []]
    for vendor, scans in scanners.vendors.items():
        assert 40 <= len(scans.suvr) <= 160 and scans.images.max(axis=(1, 2)).min() == 255
        light = scans.images.astype(float).sum(axis=(1, 2)) / (scans.images > 0).sum(axis=(1, 2))
        assert np.corrcoef(light, scans.suvr)[0, 1] > 0.85
        low = scans.images[np.abs(scans.suvr - 1.0) < 0.1].astype(float)
        # At the brain's left and right edge is nothing but cortex.
        middle = low[:, 14:18].reshape(len(low), -1)
        edges = [row[np.flatnonzero(row)[[1, -2]]].mean() for row in middle]
        group = scanners.facts["client_groups"][vendor]
        by_group[int(group.removeprefix("group_"))].append(np.mean(edges))
    first, other = (made.vendors["scanner_00"].images for made in (scanners, adni.synthesize(6)))
    assert not np.array_equal(first[:40], other[:40]) and [*map(len, by_group)] == [3, 3, 3]
    assert max(by_group[0]) < min(by_group[1]) and max(by_group[1]) < min(by_group[2])
