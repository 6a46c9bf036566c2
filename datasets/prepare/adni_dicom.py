"""Slices of DICOM series: a folder of files with one slice each, or one file with many frames."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pydicom
from pydicom import pixels

from datasets import adni_files
from datasets.prepare.client_database import Skipped, Unusable

# As the archive names files: ..._<number of the slice>_S<series>_I<image>.dcm
_ARCHIVE_NAME = re.compile(r"_([0-9]{1,6})_S[0-9]+_I[0-9]+\Z")
_IMAGE_ID = re.compile(r"(?:^|_)I([0-9]{1,18})\Z")


def find_images(folder: Path, skipped: Skipped) -> dict[int, list[Path]]:
    """Returns `{image id: .dcm files, sorted}`, the id from the end of a file's (`..._I240520.dcm`)
    or its folder's name; counts files without one, and of other kinds.
    """
    images: dict[int, list[Path]] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix.lower() == ".xml":
            continue  # The archive puts metadata into the same tree.
        if path.suffix.lower() != ".dcm":
            skipped["files: not .dcm"] += 1
            continue
        named = _IMAGE_ID.search(path.stem) or _IMAGE_ID.search(path.parent.name)
        if named is None:
            skipped["files: no image id such as I240520 in their name or their folder's"] += 1
            continue
        images.setdefault(int(named[1]), []).append(path)
    return images


def read_slices(paths: Sequence[Path], first: int, last: int, skipped: Skipped) -> list[np.ndarray]:
    """Returns the slices `first` to `last`, uint8 [32, 32] each; counts those that are missing,
    broken or blank. A slice's number is in its file's name, as the archive writes them, or its
    InstanceNumber; a frame's is its place in the file, from 1.
    """
    images = []
    for source in _sources(paths, first, last, skipped):
        try:
            if source is None:
                raise Unusable("missing from their scan")
            image = adni_files.shrink(_pixels(*source))
            if image is None:
                raise Unusable("blank")
            images.append(image)
        except Unusable as reason:
            skipped[f"slices: {reason}"] += 1
    return images


def _sources(
    paths: Sequence[Path], first: int, last: int, skipped: Skipped
) -> Iterator[tuple[Path, int] | None]:
    """Yields (file, frame from 0) of each wanted slice, None where there is none."""
    slices: dict[int, list[tuple[Path, int]]] = {}
    if len(paths) == 1:
        try:
            frames = int(_header(paths[0]).get("NumberOfFrames") or 1)
        except (Unusable, TypeError, ValueError):
            frames = 0
            skipped["files: cannot be read as DICOM"] += 1
        if frames != 1:
            # A file may declare more of them than memory has room for.
            there = range(first, min(frames, last) + 1)
            slices = {number: [(paths[0], number - 1)] for number in there}
            paths = ()
    for path in paths:
        try:
            slices.setdefault(_number(path), []).append((path, 0))
        except Unusable as reason:
            skipped[f"files: {reason}"] += 1
    for number in range(first, last + 1):
        same = slices.get(number, [])
        if len(same) > 1:
            skipped["files: a slice number that another file of the image has"] += len(same) - 1
        yield same[0] if same else None


def _number(path: Path) -> int:
    named = _ARCHIVE_NAME.search(path.stem)
    if named:
        return int(named[1])
    try:
        return int(_header(path)["InstanceNumber"].value)
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable("no InstanceNumber and no slice number in the name") from error


def _header(path: Path) -> pydicom.Dataset:
    try:
        return pydicom.dcmread(path, stop_before_pixels=True)
    except Exception as error:  # pydicom raises whatever a broken file makes it trip over
        raise Unusable("cannot be read as DICOM") from error


def _pixels(path: Path, frame: int) -> np.ndarray:
    """Returns a frame as numbers [rows, columns], in the units of its rescaling."""
    try:
        header = pydicom.dcmread(path)
        sides = int(header.Rows), int(header.Columns)
        if not all(0 < side <= adni_files.MAX_SIDE for side in sides):
            raise Unusable(f"not 1 to {adni_files.MAX_SIDE} pixels a side")
        if header.get("PhotometricInterpretation") != "MONOCHROME2":
            raise Unusable("not grey with black as zero (MONOCHROME2)")
        values = pixels.pixel_array(header, index=frame)
        if values.shape != sides:
            raise Unusable("not one grey picture a frame")
        return pixels.apply_rescale(values, header)
    except Unusable:
        raise
    except Exception as error:  # as above, and each decoder its own
        raise Unusable("their pixels cannot be decoded") from error
