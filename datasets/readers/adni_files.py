"""ADNI on disk: one array file, or PNGs with a table of labels. No TensorFlow here.

The array file is an `.npz` without pickles: `vendors` (text [k]) and for vendor i the arrays
`images_i` (uint8 or float32 [n, 32, 32]), `suvr_i` (floats [n]), `subject_i` and `scan_i` (text
[n]); n is 0 for a vendor without a labelled scan. `report` (optional) is what was left out when the
file was made, as JSON.
"""

import collections
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from datasets.readers import files, picture_files, rows
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import array_files

SIDE = 32
COLUMNS = ("vendor", "file", "subject", "scan", "suvr")
# Slices have 128 to 400 pixels a side; what is far larger is no slice, and would fill the memory.
MAX_SIDE = 4096
_LARGEST = float(np.finfo(np.float32).max)
_FIELDS = ("images", "suvr", "subject", "scan")


class Scans(NamedTuple):
    """One vendor's labelled slices."""

    images: np.ndarray  # uint8 or float32 [n, 32, 32], 0 = no uptake; any positive scale.
    suvr: np.ndarray  # float [n], the standardized uptake value ratio of the slice's scan.
    subjects: np.ndarray  # Text [n], whose brain it is.
    scans: np.ndarray  # Text [n], which scan of it.


class Collection(NamedTuple):
    """What was found on disk: `{vendor: slices}`, vendors without any among them, and facts."""

    vendors: dict[str, Scans]
    facts: dict[str, Any]


def shrink(image: np.ndarray) -> np.ndarray | None:
    """Returns a slice [height, width] as uint8 [32, 32] with 255 for its brightest pixel; None if
    nothing in it is above zero or a value is not finite. Values below zero, which reconstruction
    leaves in PET images, count as zero.
    """
    grey = np.maximum(np.asarray(image, np.float32), 0.0)
    if not np.isfinite(grey).all() or grey.max() <= 0:
        return None
    if grey.shape != (SIDE, SIDE):
        # Pillow widens the filter to cover what a small pixel stands for: no aliasing.
        scaled = Image.fromarray(grey / grey.max())
        grey = np.asarray(scaled.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    brightest = grey.max()
    return np.rint(grey * (255.0 / brightest)).astype(np.uint8) if brightest > 0 else None


def write(path: Path, vendors: Mapping[str, Scans], report: Mapping[str, Any]) -> None:
    """Writes the array file, whole or not at all; UserError if it cannot be written."""
    arrays: dict[str, np.ndarray] = {
        "vendors": np.array(list(vendors), dtype=np.str_),
        "report": np.array(json.dumps(report)),
    }
    for i, scans in enumerate(vendors.values()):
        values = dict(zip(_FIELDS, scans, strict=True))
        arrays |= {f"{field}_{i}": array for field, array in values.items()}
    array_files.save(path, arrays, zipfile.ZIP_DEFLATED)


def read(path: Path) -> Collection:
    """Reads an array file; UserError if it is of another kind, damaged, or has other arrays."""
    arrays = files.read_npz(path)
    facts: dict[str, Any] = {"source": "npz", "files": [str(path)]}
    with errors.at(path):
        scans = {name: _scans(arrays, i, name) for i, name in enumerate(_vendors(arrays))}
        if "report" in arrays:
            with errors.at("report"), files.readable_as("JSON", ValueError):
                facts["preparation"] = files.parse_json(str(arrays["report"]))
    return Collection(scans, facts)


def _vendors(arrays: Mapping[str, np.ndarray]) -> list[str]:
    vendors = arrays.get("vendors")
    if vendors is None or vendors.dtype.kind != "U" or vendors.ndim != 1:
        expected = "vendors (text [k]) and images_i, suvr_i, subject_i, scan_i of each"
        advice = "make the file with python -m datasets.prepare.adni"
        raise UserError("", f"arrays {sorted(arrays)[:8]}", expected, advice)
    names = [" ".join(name.split()) for name in vendors.tolist()]
    if len(set(names)) != len(names) or "" in names:
        raise UserError("vendors", names, "different names")
    return names


def _scans(arrays: Mapping[str, np.ndarray], index: int, vendor: str) -> Scans:
    place = f"vendor {vendor!r}"
    missing = [f"{f}_{index}" for f in _FIELDS if f"{f}_{index}" not in arrays]
    if missing:
        raise UserError(place, f"no arrays {', '.join(missing)}")
    images, suvr, subjects, scans = (arrays[f"{field}_{index}"] for field in _FIELDS)
    with errors.at(place):
        if images.dtype not in (np.uint8, np.float32) or images.shape[1:] != (SIDE, SIDE):
            raise files.other_array("images", images, f"uint8 or float32 [n, {SIDE}, {SIDE}]")
        for name, array, kind in zip(_FIELDS[1:], (suvr, subjects, scans), "fUU", strict=True):
            if array.dtype.kind != kind or array.shape != images.shape[:1]:
                words = "floats" if kind == "f" else "text"
                expected = f"{words} [{len(images)}] as there are images"
                raise files.other_array(name, array, expected)
    if (is_wrong := ~((suvr > 0) & (suvr <= _LARGEST))).any():
        raise UserError(f"{place} suvr", suvr[is_wrong][0], "numbers above 0, of float32")
    if images.dtype != np.uint8 and (is_wrong := ~(np.isfinite(images) & (images >= 0))).any():
        raise UserError(f"{place} images", images[is_wrong][0], "numbers of at least 0")
    return Scans(images, suvr, subjects, scans)


def read_folder(labels: Path) -> Collection:
    """Reads PNGs and the table `labels.csv` beside them: columns vendor, file (relative to the
    table's folder, such as `SIEMENS/I240520_50.png`), subject, scan and suvr, empty for no label.
    UserError if a column is missing, a value is none, or an image is missing or broken.
    """
    left_out = collections.Counter[str]()
    examples: dict[str, list[tuple[np.ndarray, float, str, str]]] = {}
    listed: set[str] = set()
    for number, row in read_csv(labels, COLUMNS):
        scans = examples.setdefault(row["vendor"], [])
        with errors.at(f"{labels} row {number}"):
            suvr = _suvr(row, listed)
            image = None if suvr is None else shrink(_png(labels.parent, row["file"]))
        if suvr is None or image is None:
            left_out["no label" if suvr is None else "blank"] += 1
        else:
            scans.append((image, suvr, row["subject"], row["scan"]))
    folders = {Path(file).parts[0] for file in listed}
    for path in sorted(labels.parent.glob("*/*.png")):
        if path.relative_to(labels.parent).as_posix() not in listed:
            left_out["no label"] += 1
            # A folder that the table does not mention is a vendor of its own.
            if path.parent.name not in folders:
                examples.setdefault(path.parent.name, [])
    facts: dict[str, Any] = {"source": "png", "files": [str(labels)]}
    if left_out:
        facts["images_left_out"] = dict(left_out)
    return Collection({vendor: stack(examples[vendor]) for vendor in sorted(examples)}, facts)


def _suvr(row: Mapping[str, str], listed: set[str]) -> float | None:
    """Returns a row's SUVR, None if it has none, and adds its file to those listed."""
    if empty := [name for name in COLUMNS if name != "suvr" and not row[name]]:
        raise UserError("", f"an empty cell for {', '.join(empty)}")
    if row["file"] in listed:
        raise UserError("", f"the file {row['file']!r} a second time", "each file once")
    listed.add(row["file"])
    suvr = positive_number(row["suvr"])
    if row["suvr"] and suvr is None:
        expected = "a number above 0, or nothing for an image without label"
        raise UserError("suvr", repr(row["suvr"][:40]), expected)
    return suvr


def read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (number of a row, the header's being 1; {column: stripped cell}); UserError as
    `rows.read`, or if columns are missing.
    """
    frame = rows.read(path)
    if missing := ", ".join(name for name in columns if name not in frame):
        raise UserError(str(path), f"the columns {', '.join(frame)[:200]}", f"also {missing}")
    cells = frame.apply(lambda column: column.str.strip())
    yield from enumerate(cells.to_dict("records"), 2)


def positive_number(text: str) -> float | None:
    """Returns a number above 0 that float32 has, or None if the text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= _LARGEST else None


def _png(folder: Path, file: str) -> np.ndarray:
    """Returns an image's grey values as float32 [height, width]."""
    path = folder / file
    if ".." in Path(file).parts or Path(file).is_absolute() or not path.is_file():
        raise UserError("", f"the file {file!r}", "a file that is in the table's folder")
    # Pillow raises whatever a broken file makes it trip over.
    with (
        errors.at(file),
        files.readable_as("a PNG of a slice", Exception),
        Image.open(path, formats=("PNG",)) as image,
    ):
        if max(image.size) > MAX_SIDE:
            raise ValueError(f"{image.size[0]} x {image.size[1]} pixels")
        picture_files.check_kind(image, takes_deep_grey=True)
        # 16-bit grey keeps its depth; colours and palettes become 8-bit grey.
        grey = image if image.mode.startswith(("I", "L;")) else image.convert("L")
        return np.asarray(grey, np.float32)


def stack(examples: Sequence[tuple[np.ndarray, float, str, str]]) -> Scans:
    """Returns (image uint8 [32, 32], suvr, subject, scan) tuples, none or more, as arrays."""
    images, suvr, subjects, scans = zip(*examples, strict=True) if examples else ((), (), (), ())
    return Scans(
        np.array(images, np.uint8).reshape(-1, SIDE, SIDE),
        np.array(suvr, np.float64),
        np.array(subjects, np.str_),
        np.array(scans, np.str_),
    )
