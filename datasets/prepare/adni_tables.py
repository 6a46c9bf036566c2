"""ADNI's tables: what the metadata XML says of each image, UC Berkeley's SUVRs, and their join."""

import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from defusedxml import ElementTree as safe_xml

from datasets.prepare.client_database import Skipped, Unusable
from datasets.readers import adni_files
from motley_tff.core.errors import UserError

SUVR, RID = "SUMMARYSUVR_WHOLECEREBNORM", "RID"
# The first one that a file has; without any, a subject's rows count as ordered.
_DATE_COLUMNS = ("EXAMDATE", "SCANDATE")
# Metadata of one image have a few kB.
_MAX_XML_BYTES = 2**24
# A scan and its label are days apart, not months; visits are a year or two apart.
MAX_DAYS_APART = 90
JOINS = ("visit_order", "date")


class ImageInfo(NamedTuple):
    """One image of the collection."""

    image_id: int  # The archive's number of it, without the `I` of file names.
    subject: str  # Such as `002_S_0295`.
    vendor: str  # The scanner's manufacturer as the metadata spell it.
    date: datetime.date | None  # When it was acquired, if the metadata say so.

    @property
    def rid(self) -> int:
        """The subject's number in ADNI's tables."""
        return int(self.subject.rpartition("_")[2])


class Label(NamedTuple):
    """One row of the labels: its date and its SUVR, None if that is no number above 0."""

    date: datetime.date | None
    suvr: float | None


class Joined(NamedTuple):
    """`{image id: SUVR}`, and how many are more than `MAX_DAYS_APART` days from their label."""

    suvr: dict[int, float]
    far_apart: int


def read_metadata(folder: Path, processing: str, skipped: Skipped) -> dict[int, ImageInfo]:
    """Returns `{image id: what is known}` of every `.xml` under a folder, and counts by reason what
    is left out: images of another processing step, too, unless `processing` is empty.
    """
    images: dict[int, ImageInfo] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() == ".xml"):
        try:
            info = parse_metadata(_parse(path), path.stem, processing)
            if info.image_id in images:
                raise Unusable("an image that another file describes")
            images[info.image_id] = info
        except Unusable as reason:
            skipped[f"metadata files: {reason}"] += 1
    return images


def _parse(path: Path) -> ElementTree.Element:
    if path.stat().st_size > _MAX_XML_BYTES:
        raise Unusable(f"more than {_MAX_XML_BYTES // 2**20} MB")
    try:
        # No document type at all: a few lines of entities in one can stand for gigabytes.
        return safe_xml.parse(path, forbid_dtd=True).getroot()
    except (ElementTree.ParseError, ValueError, LookupError, OSError) as error:
        raise Unusable("not well-formed XML without a document type") from error


def parse_metadata(root: ElementTree.Element, stem: str, processing: str) -> ImageInfo:
    """Returns what one file says of its image; Unusable if something is missing, or the processing
    step is another one.

    A processed image (`derivedProduct`) has its id and processing step there and the scanner under
    the `relatedImageDetail` it was made from; an original has both under `imagingProtocol`. The
    file's name without suffix ends in the image's id, `_I240520`, as a last resort.
    """
    subject = _first(_texts(root, "subjectIdentifier"))
    if not re.fullmatch(r"\w*_[0-9]{1,9}", subject, re.ASCII):
        raise Unusable("no subjectIdentifier such as 002_S_0295")
    step = _first(_texts(root, "processedDataLabel"))
    if step and processing.lower() not in step.lower():
        raise Unusable(f"processing step {step[:80]!r}")
    vendor = _first(_texts(root, "protocol", term="manufacturer"))
    if not vendor:
        raise Unusable("no protocol with the term Manufacturer")
    # The images that a processed one was made from have ids, too.
    ids = [
        *_texts(root, "derivedProduct//{*}imageUID"),
        *_texts(root, "imagingProtocol//{*}imageUID"),
    ]
    ids = [text for text in ids if re.fullmatch("I?[0-9]{1,18}", text)]
    ids += re.findall(r"_I([0-9]{1,18})\Z", stem)
    if not ids:
        raise Unusable("no imageUID")
    date = parse_date(_first(_texts(root, "dateAcquired")))
    return ImageInfo(int(ids[0].removeprefix("I")), subject, vendor, date)


def _texts(root: ElementTree.Element, path: str, term: str = "") -> list[str]:
    """Returns the texts of the elements of a path below one, whatever their namespace, that have an
    attribute `term` if one is asked for.
    """
    elements = root.findall(f".//{{*}}{path}")
    return [
        " ".join((element.text or "").split())
        for element in elements
        if not term or element.get("term", "").strip().lower() == term
    ]


def _first(texts: list[str]) -> str:
    return next(filter(None, texts), "")


def parse_date(text: str) -> datetime.date | None:
    """Returns the day of `2011-06-02 07:56:36.0`, `6/2/2011` or `20110602`; None for others."""
    day = text.strip().partition(" ")[0].partition("T")[0]
    for form in ("%Y-%m-%d", "%m/%d/%Y", "%Y%m%d", "%m/%d/%y"):
        try:
            return datetime.datetime.strptime(day, form).date()
        except ValueError:
            continue
    return None


def read_labels(path: Path, skipped: Skipped) -> dict[int, list[Label]]:
    """Returns UC Berkeley's table as `{RID: rows in visit order}`: by date where all of a subject's
    rows have one, else as in the file. A row without a usable SUVR keeps its place, and labels
    nothing. UserError if it is no such table or has no row that can be used.
    """
    rows: dict[int, list[Label]] = {}
    for _, row in adni_files.read_csv(path, (RID, SUVR)):
        date = next((parse_date(row[c]) for c in _DATE_COLUMNS if row.get(c)), None)
        label = Label(date, adni_files.positive_number(row[SUVR]))
        try:
            if not re.fullmatch(r"[0-9]{1,9}(\.0)?", row[RID]):
                raise Unusable("a RID that is no number")
            visits = rows.setdefault(int(float(row[RID])), [])
            if date is not None and date in [visit.date for visit in visits]:
                raise Unusable("another row of the same subject and day")
            visits.append(label)
            if label.suvr is None:
                raise Unusable("an SUVR that is no number above 0")
        except Unusable as reason:
            skipped[f"label rows: {reason}"] += 1
    if not any(visit.suvr for visits in rows.values() for visit in visits):
        raise UserError(str(path), f"no row with a number for {RID} and {SUVR}", "some")
    for visits in rows.values():
        if all(visit.date for visit in visits):
            visits.sort(key=lambda visit: str(visit.date))
    return rows


def join(
    images: Sequence[ImageInfo], labels: Mapping[int, Sequence[Label]], rule: str, skipped: Skipped
) -> Joined:
    """Finds each image's SUVR. By `visit_order`, as Motley did, a subject's i-th scan has its i-th
    row; by `date` that of the nearest day, at most `MAX_DAYS_APART` days away.
    """
    joined = Joined({}, 0)
    subjects: dict[int, list[ImageInfo]] = {}
    for image in sorted(images, key=_visit):
        scans = subjects.setdefault(image.rid, [])
        try:
            if scans and image.date is not None and scans[-1].date == image.date:
                raise Unusable("another image of the same subject and day")  # No visit of its own.
            scans.append(image)
            row = _label(image, len(scans) - 1, labels.get(image.rid, ()), rule)
            if row.suvr is None:
                raise Unusable("no SUVR at that visit")
        except Unusable as reason:
            skipped[f"scans: {reason}"] += 1
            continue
        joined.suvr[image.image_id] = row.suvr
        is_far = (_days_apart(image, row) or 0) > MAX_DAYS_APART
        joined = joined._replace(far_apart=joined.far_apart + is_far)
    return joined


def _visit(image: ImageInfo) -> tuple[Any, ...]:
    """Returns what orders scans: by subject, then those of a date by it, then by id."""
    return image.rid, image.date is None, image.date or datetime.date.min, image.image_id


def _label(image: ImageInfo, index: int, rows: Sequence[Label], rule: str) -> Label:
    """Returns the row of a subject's i-th scan."""
    if not rows:
        raise Unusable("a subject without a label row")
    if rule == "visit_order":
        if index >= len(rows):
            raise Unusable("more scans than the subject has label rows")
        return rows[index]
    if image.date is None:
        raise Unusable("no date in the metadata")
    apart = ((_days_apart(image, row), i) for i, row in enumerate(rows))
    near = [(days, i) for days, i in apart if days is not None and days <= MAX_DAYS_APART]
    if not near:
        raise Unusable(f"no label row within {MAX_DAYS_APART} days")
    return rows[min(near)[1]]


def _days_apart(image: ImageInfo, row: Label) -> int | None:
    if image.date is None or row.date is None:
        return None
    return abs((image.date - row.date).days)
