"""Slices of DICOM series: a folder of files with one slice each, or one file with many frames."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pydicom
from pydicom import pixels

from datasets.prepare.client_database import Skipped, Unusable
from datasets.readers import adni_files

# As the archive names files: ..._<number of the slice>_S<series>_I<image>.dcm
_ARCHIVE_NAME = re.compile(r"_([0-9]{1,6})_S[0-9]+_I[0-9]+\Z")
_IMAGE_ID = re.compile(r"(?:^|_)I([0-9]{1,18})\Z")

# A file, and which of its frames, from 0; None of a file of one.
Place = tuple[Path, int | None]


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
    InstanceNumber; a frame's is its place in the stack if all frames say it, else in the file.
    """
    images = []
    places = _frames(paths[0], last) if len(paths) == 1 else {}
    places = places or _files(paths, skipped)
    for number in range(first, last + 1):
        try:
            if number not in places:
                raise Unusable("missing from their scan")
            image = adni_files.shrink(_pixels(*places[number]))
            if image is None:
                raise Unusable("blank")
            images.append(image)
        except Unusable as reason:
            skipped[f"slices: {reason}"] += 1
    return images


def _frames(path: Path, last: int) -> dict[int, Place]:
    """Returns `{number: place}` of a file's frames up to the last; none if it is of a single one,
    or no DICOM.
    """
    try:
        header = _header(path)
        number, in_stack = int(header.get("NumberOfFrames") or 1), _places_in_stack(header)
    except (Unusable, AttributeError, TypeError, ValueError):
        return {}
    if number == 1:
        return {}
    if len(in_stack) == number and {*in_stack} == {*range(1, number + 1)}:
        return {place: (path, frame) for frame, place in enumerate(in_stack) if place}
    # A file may declare more of them than memory has room for.
    return {frame + 1: (path, frame) for frame in range(min(number, last))}


def _files(paths: Sequence[Path], skipped: Skipped) -> dict[int, Place]:
    """Returns `{number: place}` of files that are a slice each."""
    places: dict[int, Place] = {}
    for path in paths:
        try:
            if (number := _number(path)) in places:
                raise Unusable("a slice number that another file of the image has")
            places[number] = path, None
        except Unusable as reason:
            skipped[f"files: {reason}"] += 1
    return places


def _places_in_stack(header: pydicom.Dataset) -> list[int | None]:
    """Returns each frame's place in the stack of an enhanced object, from 1; None if it says none.

    DICOM PS3.3, C.7.6.16.2.2, Frame Content.
    """
    contents = (frame.get("FrameContentSequence") for frame in _functional_groups(header))
    return [content[0].get("InStackPositionNumber") if content else None for content in contents]


def _functional_groups(header: pydicom.Dataset) -> Sequence[pydicom.Dataset]:
    return header.get("PerFrameFunctionalGroupsSequence") or ()


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


def _pixels(path: Path, frame: int | None) -> np.ndarray:
    """Returns a frame as numbers [rows, columns], in the units of its rescaling; None is the only
    one.
    """
    try:
        header = pydicom.dcmread(path)
        sides = int(header.Rows), int(header.Columns)
        if not all(0 < side <= adni_files.MAX_SIDE for side in sides):
            raise Unusable(f"not 1 to {adni_files.MAX_SIDE} pixels a side")
        if header.get("PhotometricInterpretation") != "MONOCHROME2":
            raise Unusable("not grey with black as zero (MONOCHROME2)")
        if frame is None and int(header.get("NumberOfFrames") or 1) > 1:
            raise Unusable("a file of several frames beside others of the scan")
        values = pixels.pixel_array(header, index=frame or 0)
        if values.shape != sides:
            raise Unusable("not one grey picture a frame")
        return pixels.apply_rescale(values, _transformation(header, frame or 0))
    except Unusable:
        raise
    except Exception as error:  # as above, and each decoder its own
        raise Unusable("their pixels cannot be decoded") from error


def _transformation(header: pydicom.Dataset, frame: int) -> pydicom.Dataset:
    """Returns what says how a frame is rescaled: in enhanced objects its own functional group, or
    that of all frames (DICOM PS3.3, C.7.6.16.2.9); in others the file itself.
    """
    of_all = header.get("SharedFunctionalGroupsSequence") or ()
    for group in (*_functional_groups(header)[frame : frame + 1], *of_all[:1]):
        if group.get("PixelValueTransformationSequence"):
            return group.PixelValueTransformationSequence[0]
    return header
