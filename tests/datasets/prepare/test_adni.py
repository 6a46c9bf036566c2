"""From DICOM, XML and CSV to the array file: a small archive, and everything that can be wrong."""

import collections
import datetime
import json

import numpy as np
import pytest
from pydicom.dataset import Dataset

import datasets
from datasets.prepare import adni as prepare_adni, adni_dicom, adni_tables
from datasets.readers import adni_files
from tests.datasets import adni_archive as archive
from tests.datasets.conftest import run_command
from tests.errors import refused

VENDORS = ("GE MEDICAL SYSTEMS", "Siemens/CTI")
SUBJECTS = [f"{10 + i % 2:03d}_S_{200 + i:04d}" for i in range(8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight subjects at two vendors, the first scanned twice; a third vendor has no label."""
    root = tmp_path_factory.mktemp("adni")
    for i, subject in enumerate(SUBJECTS):
        archive.series(root / "dicom", subject, 1000 + i, "2011-06-02")
        archive.metadata(root / "xml", subject, 1000 + i, "2011-06-02", VENDORS[i % 2])
    archive.series(root / "dicom", SUBJECTS[0], 990, "2013-06-05")
    archive.metadata(root / "xml", SUBJECTS[0], 990, "2013-06-05", VENDORS[0])
    archive.series(root / "dicom", "012_S_0999", 1099, "2011-06-02")
    archive.metadata(root / "xml", "012_S_0999", 1099, "2011-06-02", "HERMES")
    rows = [(200 + i, "2011-06-01", 1.0 + i / 10) for i in range(8)]
    archive.labels(root / "av45.csv", [(200, "6/5/2013", 1.55), *reversed(rows)])
    return root


def _sources(root):
    return prepare_adni.Sources(root / "dicom", root / "xml", root / "av45.csv")


def test_archive_to_array_file_to_task(folder, tmp_path):
    report = prepare_adni.prepare(_sources(folder), tmp_path / "new" / "adni.npz")
    assert report["vendors"] == {
        "GE MEDICAL SYSTEMS": {"subjects": 4, "scans": 5, "slices": 35},
        "HERMES": {"subjects": 0, "scans": 0, "slices": 0},
        "Siemens/CTI": {"subjects": 4, "scans": 4, "slices": 28},
    }
    assert report["skipped"] == {"scans: a subject without a label row": 1}
    with np.load(tmp_path / "new" / "adni.npz", allow_pickle=False) as arrays:
        assert arrays["vendors"].tolist() == ["GE MEDICAL SYSTEMS", "HERMES", "Siemens/CTI"]
        suvr = dict(zip(arrays["scan_0"].tolist(), arrays["suvr_0"].tolist(), strict=True))
        images, scans = arrays["images_0"], arrays["scan_0"]
        assert set(arrays["subject_2"]) == set(SUBJECTS[1::2])
    # The later of the first subject's visits has the lower image id.
    assert suvr == {"I1000": 1.0, "I990": 1.55, "I1002": 1.2, "I1004": 1.4, "I1006": 1.6}
    assert images.dtype == np.uint8 and images.max(axis=(1, 2)).min() == 255
    # Slices 50 to 56, in order: of 40 columns, the bright one is number % 16 + 12.
    mine = images[scans == "I1000"].sum(axis=1).argmax(axis=1)
    np.testing.assert_allclose(mine, (np.arange(50, 57) % 16 + 12) * 0.8, atol=1)
    task = datasets.create("adni", data_dir=str(tmp_path / "new"))
    assert task.train.ids == task.test.ids == VENDORS
    assert task.facts["clients_left_out"] == {"no labelled scan": ["HERMES"]}
    assert task.facts["preparation"]["slices_of_a_scan"] == [50, 56]


def _command(root, tmp_path, *flags):
    """Returns the report that the command prints when it takes one slice of each scan."""
    printed = run_command(
        prepare_adni, f"--dicom_dir={root / 'dicom'}", f"--metadata_dir={root / 'xml'}",
        f"--suvr_csv={root / 'av45.csv'}", f"--output={tmp_path / 'a.npz'}", "--first_slice=50",
        "--last_slice=50", *flags,
    )  # fmt: skip
    return json.loads(printed.removeprefix(f"{tmp_path / 'a.npz'}: "))


def test_the_commands_choice_of_scans_and_of_labels(tmp_path):
    """Of two scans of the processing step that is asked for, one has a label of another year."""
    rows = []
    steps = ("Other Step", "Other Step", archive.PROCESSING)
    for i, (step, year) in enumerate(zip(steps, (2011, 2012, 2011), strict=True)):
        archive.series(tmp_path / "dicom", SUBJECTS[i], 1000 + i, "2011-06-02", [49, 50])
        archive.metadata(tmp_path / "xml", SUBJECTS[i], 1000 + i, "2011-06-02", VENDORS[0], step)
        rows.append((200 + i, f"{year}-06-01", 1.0 + i))
    archive.labels(tmp_path / "av45.csv", rows)
    asked = "--processing=other step"
    by_date = _command(tmp_path, tmp_path, asked, "--join=date")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["scan_0"].tolist() == ["I1000"]
    in_order = _command(tmp_path, tmp_path, asked, "--join=visit_order")
    assert [p["vendors"][VENDORS[0]]["slices"] for p in (by_date, in_order)] == [1, 2]
    assert in_order["scans_far_from_their_label"] == 1
    assert f"metadata files: processing step {archive.PROCESSING!r}" in by_date["skipped"]


@pytest.mark.parametrize(
    ("changes", "where", "problem", "expected"),
    [
        ({"dicom_dir": "nowhere"}, "dicom_dir", "nowhere", "a folder, and nothing is"),
        ({"metadata_dir": "av45.csv"}, "metadata_dir", "av45.csv", "a folder, and a file is"),
        ({"first_slice": 57}, "first_slice", 57, "last_slice=56"),
        ({"first_slice": 90, "last_slice": 91}, "", "no labelled slice", ""),
        ({"processing": "Another Step"}, "", "processing step 'AV45 Coreg", ""),
    ],
)
def test_sources_that_do_not_fit(folder, tmp_path, changes, where, problem, expected):
    is_path = ("dicom_dir", "metadata_dir", "suvr_csv")
    changed = {name: folder / v if name in is_path else v for name, v in changes.items()}
    sources = _sources(folder)._replace(**changed)
    with refused(where, problem, expected):
        prepare_adni.prepare(sources, tmp_path / "a.npz")
    assert list(tmp_path.iterdir()) == []


# --- slices ---------------------------------------------------------------------------------------


def _slices(paths, first=2, last=4):
    skipped = collections.Counter()
    return adni_dicom.read_slices(paths, first, last, skipped), dict(skipped)


def test_instance_numbers_order_files_of_other_names_and_one_of_many_frames(tmp_path):
    brains = [archive.brain(number) for number in range(1, 7)]
    for name, number in (("c", 2), ("a", 3), ("b", 4), ("d", 5)):
        archive.dicom(tmp_path / f"{name}.dcm", brains[number - 1], number)
    shrunk = [adni_files.shrink(brain) for brain in brains]
    images, skipped = _slices(sorted(tmp_path.iterdir()))
    np.testing.assert_array_equal(images, shrunk[1:4])
    assert skipped == {}
    archive.dicom(tmp_path / "x_1_S1_I5.dcm", np.stack(brains), number=1, frames=6)
    images, skipped = _slices([tmp_path / "x_1_S1_I5.dcm"], 5, 7)
    np.testing.assert_array_equal(images, shrunk[4:])
    assert skipped == {"slices: missing from their scan": 1}


def _enhanced(path, brains, rescales, places=None, shared=None):
    """Writes frames of an enhanced object, which stand in the file as their rescaling undoes."""
    stored = [
        (b / slope - offset / slope) for b, (slope, offset) in zip(brains, rescales, strict=True)
    ]
    groups = []
    for i, rescale in enumerate(rescales):
        group, content = Dataset(), Dataset()
        if shared is None:
            group.PixelValueTransformationSequence = [_rescaling(*rescale)]
        if places is not None:
            content.InStackPositionNumber = places[i]
            group.FrameContentSequence = [content]
        groups.append(group)
    of_all = Dataset()
    of_all.PixelValueTransformationSequence = [_rescaling(*(shared or (7, -7000)))]
    archive.dicom(
        path, np.rint(stored), frames=len(brains), RescaleSlope="3", RescaleIntercept="-300",
        PerFrameFunctionalGroupsSequence=groups, SharedFunctionalGroupsSequence=[of_all],
    )  # fmt: skip


def _rescaling(slope, offset):
    step = Dataset()
    step.RescaleSlope, step.RescaleIntercept, step.RescaleType = slope, offset, "US"
    return step


def test_frames_are_rescaled_as_each_says_or_as_all_do(tmp_path):
    """A frame's own functional group comes first, then that of all, then the file's."""
    path, brains = tmp_path / "x_I5.dcm", [archive.brain(n) for n in range(1, 5)]
    expected = [adni_files.shrink(b) for b in brains]
    for shared in (None, (2, -100)):
        rescales = [(1, 0), (2, 0), (1, -200), (4, -400)] if shared is None else [shared] * 4
        _enhanced(path, brains, rescales, shared=shared)
        images, skipped = _slices([path], 1, 4)
        np.testing.assert_array_equal(images, expected)
        assert skipped == {}


def test_frames_are_where_the_stack_has_them(tmp_path):
    path, brains = tmp_path / "x_I5.dcm", [archive.brain(n) for n in range(1, 4)]
    # Second and third place by the stack; by the file, where two frames have one place.
    for places, which in (([3, 1, 2], [2, 0]), ([1, 1, 2], [1, 2]), ([0, 1, 2], [1, 2])):
        _enhanced(path, brains, [(1, 0)] * 3, places)
        np.testing.assert_array_equal(
            _slices([path], 2, 3)[0], [adni_files.shrink(brains[i]) for i in which]
        )


def test_more_frames_declared_than_anybody_has(tmp_path):
    """Looking at each of two thousand million frames takes many minutes."""
    path = tmp_path / "x_1_S1_I5.dcm"
    archive.dicom(path, np.stack([archive.brain(1)] * 3), frames=2**31 - 1)
    images, skipped = _slices([path], 2, 3)
    assert images == [] and sum(skipped.values()) == 2


def test_broken_files_are_counted_by_reason(tmp_path):
    archive.dicom(tmp_path / "x_2_S1_I5.dcm", archive.brain(2))
    whole = (tmp_path / "x_2_S1_I5.dcm").read_bytes()
    (tmp_path / "x_3_S1_I5.dcm").write_bytes(whole[:-100])
    (tmp_path / "x_4_S1_I5.dcm").write_bytes(b"no DICOM at all" * 100)
    (tmp_path / "x_5_S1_I5.dcm").write_bytes(b"")
    archive.dicom(tmp_path / "x_6_S1_I5.dcm", 0 * archive.brain(6))
    archive.dicom(tmp_path / "x_7_S1_I5.dcm", archive.brain(7), PhotometricInterpretation="RGB")
    archive.dicom(tmp_path / "x_8_S1_I5.dcm", archive.brain(8), Rows=65535)
    archive.dicom(tmp_path / "x_9_S1_I5.dcm", np.stack([archive.brain(3)] * 2), frames=2)
    archive.dicom(tmp_path / "other.dcm", archive.brain(2), 2)
    archive.dicom(tmp_path / "nameless.dcm", archive.brain(2))
    (tmp_path / "text.dcm").write_bytes(b"no DICOM")
    images, skipped = _slices(sorted(tmp_path.iterdir()), 2, 9)
    assert len(images) == 1
    assert skipped == {
        "files: a slice number that another file of the image has": 1,
        "files: cannot be read as DICOM": 1,
        "files: no InstanceNumber and no slice number in the name": 1,
        "slices: blank": 1,
        "slices: a file of several frames beside others of the scan": 1,
        "slices: not 1 to 4096 pixels a side": 1,
        "slices: not grey with black as zero (MONOCHROME2)": 1,
        "slices: their pixels cannot be decoded": 3,
    }


@pytest.mark.parametrize("kept", [0, 131, 400])
def test_a_truncated_single_file(tmp_path, kept):
    archive.dicom(tmp_path / "I5.dcm", np.stack([archive.brain(1)] * 4), frames=4)
    (tmp_path / "I5.dcm").write_bytes((tmp_path / "I5.dcm").read_bytes()[:kept])
    images, skipped = _slices([tmp_path / "I5.dcm"])
    assert images == [] and sum(skipped.values()) >= 3


def test_files_without_an_image_id_are_counted(tmp_path):
    for name in ("a.dcm", "I12/a.DCM", "x_I13.dcm", "I12/notes.txt", "about.xml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    skipped = collections.Counter()
    images = adni_dicom.find_images(tmp_path, skipped)
    assert {i: [p.name for p in paths] for i, paths in images.items()} == {
        12: ["a.DCM"],
        13: ["x_I13.dcm"],
    }
    assert sum(skipped.values()) == 2


# --- tables ---------------------------------------------------------------------------------------


def _metadata(folder, processing="Uniform Resolution"):
    skipped = collections.Counter()
    return adni_tables.read_metadata(folder, processing, skipped), dict(skipped)


def test_metadata_of_processed_and_original_images(tmp_path):
    archive.metadata(tmp_path, "002_S_0295", 240520, "2011-06-02", " Philips  Medical\nSystems")
    (tmp_path / "original.xml").write_text(
        "<project><subject><subjectIdentifier>002_S_0413</subjectIdentifier><study><series>"
        "<dateAcquired>6/12/2012</dateAcquired><imagingProtocol><imageUID>77</imageUID>"
        "<protocolTerm><protocol term='Manufacturer'>GEMS</protocol></protocolTerm>"
        "</imagingProtocol></series></study></subject></project>"
    )
    known, skipped = _metadata(tmp_path)
    day = datetime.date(2011, 6, 2)
    assert known == {
        240520: adni_tables.ImageInfo(240520, "002_S_0295", "Philips Medical Systems", day),
        77: adni_tables.ImageInfo(77, "002_S_0413", "GEMS", datetime.date(2012, 6, 12)),
    }
    assert known[240520].rid == 295 and skipped == {}


def test_metadata_that_cannot_be_used_are_counted(tmp_path):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True)
    )
    bad = {
        "bomb": f"{bomb}]><idaxs>&j;</idaxs>",
        "external": '<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>',
        "cut": "<idaxs><project>",
        "empty": "",
        "encoding": "<?xml version='1.0' encoding='no-such'?><x/>",
        "subject": "<x><subjectIdentifier>nobody</subjectIdentifier></x>",
        "vendor": "<x><subjectIdentifier>002_S_0001</subjectIdentifier></x>",
        "id": "<x><subjectIdentifier>002_S_0001</subjectIdentifier>"
        "<protocol term='Manufacturer'>CPS</protocol></x>",
    }
    for name, text in bad.items():
        (tmp_path / f"{name}.xml").write_text(text)
    archive.metadata(tmp_path / "a", "002_S_0001", 5, "2011-06-02", "CPS")
    archive.metadata(tmp_path / "b", "002_S_0001", 5, "2011-06-02", "CPS")
    archive.metadata(tmp_path / "c", "002_S_0001", 6, "2011-06-02", "CPS", "Uniform 6mm Res")
    known, skipped = _metadata(tmp_path)
    assert list(known) == [5]
    assert skipped == {
        "metadata files: an image that another file describes": 1,
        "metadata files: no imageUID": 1,
        "metadata files: no protocol with the term Manufacturer": 1,
        "metadata files: no subjectIdentifier such as 002_S_0295": 1,
        "metadata files: not well-formed XML without a document type": 5,
        "metadata files: processing step 'Uniform 6mm Res'": 1,
    }


def test_labels_keep_the_place_of_rows_without_a_number(tmp_path):
    path = archive.labels(
        tmp_path / "a.csv",
        [(7, "2014-01-01", 1.3), (7, "2010-01-01", 1.1), (7, "2012-01-01", ""), ("x", "", 1.0),
         (8, "", 1.5), (8, "2010-01-01", 1.4), (7, "2010-01-01", 9), (9, "2010-01-01", "inf")],
    )  # fmt: skip
    skipped = collections.Counter()
    labels = adni_tables.read_labels(path, skipped)
    assert {rid: [row.suvr for row in rows] for rid, rows in labels.items()} == {
        7: [1.1, None, 1.3],
        8: [1.5, 1.4],  # A row without a date: as they stand.
        9: [None],
    }
    assert dict(skipped) == {
        "label rows: a RID that is no number": 1,
        "label rows: an SUVR that is no number above 0": 2,
        "label rows: another row of the same subject and day": 1,
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"RID,OTHER\n1,2\n", "columns RID, OTHER"),
        (b"RID,SUMMARYSUVR_WHOLECEREBNORM\n1,much\n", "no row with a number"),
        (b"\xff\xfe\x00\x01", "no rows"),
    ],
)
def test_tables_that_are_none(tmp_path, content, problem):
    (tmp_path / "a.csv").write_bytes(content)
    with refused(str(tmp_path / "a.csv"), problem):
        adni_tables.read_labels(tmp_path / "a.csv", collections.Counter())


def _day(text):
    return text and datetime.date.fromisoformat(text)


_JOINS = {
    "visit_order": (
        [(3, "2012-01-01"), (9, "2010-01-01"), (5, "2014-01-01"), (6, "2014-01-01"), (7, None)],
        [("2010-01-05", 1.1), ("2013-01-01", 1.2), ("2014-01-01", None)],
        adni_tables.Joined({9: 1.1, 3: 1.2}, 1),
        {"another image of the same subject and day", "no SUVR at that visit",
         "more scans than the subject has label rows"},
    ),
    "date": (
        [(3, "2012-01-01"), (9, "2010-01-01"), (5, "2014-01-01"), (7, None)],
        [("2012-02-01", 1.2), ("2014-01-01", None)],
        adni_tables.Joined({3: 1.2}, 0),
        {"no SUVR at that visit", "no date in the metadata", "no label row within 90 days"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", adni_tables.JOINS)
def test_visits_join(rule):
    images, rows, joined, reasons = _JOINS[rule]
    infos = [adni_tables.ImageInfo(i, "002_S_0007", "CPS", _day(day)) for i, day in images]
    labels = [adni_tables.Label(_day(day), suvr) for day, suvr in rows]
    skipped = collections.Counter()
    assert adni_tables.join(infos, {7: labels}, rule, skipped) == joined
    assert skipped == {f"scans: {reason}": 1 for reason in reasons}


def test_dates():
    for text in ("2011-06-02 07:56:36.0", "6/2/2011", "20110602", "2011-06-02T00:00", "06/02/11"):
        assert adni_tables.parse_date(text) == datetime.date(2011, 6, 2)
    for text in ("", "someday", "2011-13-01", "NaN"):
        assert adni_tables.parse_date(text) is None
