r"""Turns ADNI's PET scans into one array file by scanner vendor.

    python -m datasets.prepare.adni --dicom_dir=ADNI --metadata_dir=ADNI_metadata \
        --suvr_csv=UCBERKELEYAV45.csv --output=DATA/adni/adni.npz

From the archive (https://ida.loni.usc.edu, under ADNI's access agreement): the AV45 PET images with
the processing step "Coreg, Avg, Std Img and Vox Siz, Uniform Resolution" as DICOM, their metadata
as XML, and UC Berkeley's table of AV45 results as CSV. An image's id (`I240520`) leads from its
files to its metadata, the subject's number (RID) from there to the table, where the i-th visit's
row belongs to the subject's i-th scan. Slices 50 to 56 of each scan, 32x32 grey, are written by the
manufacturer that the metadata name, with SUMMARYSUVR_WHOLECEREBNORM as the label.

What cannot be used is counted by reason, printed, and kept in the output. That holds subjects' ids
and pictures of their brains: keep it as the agreement says.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from datasets.prepare import adni_tables, client_database
from datasets.prepare.client_database import Skipped
from datasets.readers import adni_files, files
from motley_tff import commandline
from motley_tff.core import errors
from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS

_MOST_SLICES = 10_000
_PROCESSING = "Coreg, Avg, Std Img and Vox Siz, Uniform Resolution"
_SCANS_PER_LINE = 500


class Sources(NamedTuple):
    """What a file is made of."""

    dicom_dir: Path
    metadata_dir: Path
    suvr_csv: Path
    first_slice: int = 50  # From 1.
    last_slice: int = 56
    processing: str = _PROCESSING  # Part of the step's name; empty for any.
    join: str = adni_tables.JOINS[0]


def define_flags() -> None:
    """Declares the command's flags; not at import, which tests and other commands do."""
    flags.DEFINE_string("dicom_dir", None, "Folder of the DICOM files.", required=True)
    flags.DEFINE_string("metadata_dir", None, "Folder of the metadata (.xml).", required=True)
    flags.DEFINE_string("suvr_csv", None, "UC Berkeley's table of AV45 results.", required=True)
    flags.DEFINE_string("output", None, "The file to write; ends in .npz.", required=True)
    for name, default in (("first", 50), ("last", 56)):
        flags.DEFINE_integer(
            f"{name}_slice", default, f"{name.title()} slice of a scan to take.", lower_bound=1,
            upper_bound=_MOST_SLICES,
        )  # fmt: skip
    flags.DEFINE_string(
        "processing", _PROCESSING, "Skip images whose processing step does not contain this."
    )
    flags.DEFINE_enum(
        "join", adni_tables.JOINS[0], adni_tables.JOINS,
        "A scan's label: the row of the same visit in order, as Motley did, or of the nearest date "
        f"within {adni_tables.MAX_DAYS_APART} days.",
    )  # fmt: skip


def main() -> None:
    """Prepares what the flags name and prints what was kept and what was not."""
    sources = Sources(**{name: FLAGS[name].value for name in Sources._fields})
    report = prepare(sources, Path(os.path.expanduser(FLAGS.output)))
    print(f"{FLAGS.output}: {json.dumps(report, indent=2)}")


def prepare(sources: Sources, output: Path) -> dict[str, Any]:
    """Writes or replaces the array file and returns the report; UserError if nothing is usable."""
    sources = _checked(sources, output)
    # Here and not above: a wrong flag should not wait for pydicom.
    from datasets.prepare import adni_dicom

    skipped = Skipped()
    labels = adni_tables.read_labels(sources.suvr_csv, skipped)
    paths = adni_dicom.find_images(sources.dicom_dir, skipped)
    known = adni_tables.read_metadata(sources.metadata_dir, sources.processing, skipped)
    images = _with_files(known, paths, skipped)
    joined = adni_tables.join(images, labels, sources.join, skipped)
    vendors: dict[str, list[Any]] = {v: [] for v in sorted({info.vendor for info in images})}
    for number, info in enumerate(images, 1):
        if info.image_id in joined.suvr:
            bounds = sources.first_slice, sources.last_slice
            scan = joined.suvr[info.image_id], info.subject, f"I{info.image_id}"
            slices = adni_dicom.read_slices(paths[info.image_id], *bounds, skipped)
            vendors[info.vendor].extend((image, *scan) for image in slices)
        if number % _SCANS_PER_LINE == 0:
            print(f"{number:,} of {len(images):,} scans read", flush=True)
    if not any(vendors.values()):
        problem = f"no labelled slice ({dict(skipped.most_common(5))})"
        expected = "images, their metadata and labels of the same subjects"
        raise UserError(str(sources.dicom_dir), problem, expected)
    arrays = {vendor: adni_files.stack(slices) for vendor, slices in vendors.items()}
    report = _report(sources, arrays, joined.far_apart, skipped)
    adni_files.write(output, arrays, report)
    return report


def _with_files(
    known: Mapping[int, adni_tables.ImageInfo], files: Mapping[int, Any], skipped: Skipped
) -> list[adni_tables.ImageInfo]:
    """Returns the images that have both, by subject and image id, and counts the others."""
    unmatched = {
        "scans: files without metadata that can be used": files.keys() - known.keys(),
        "scans: metadata without files": known.keys() - files.keys(),
    }
    skipped.update({reason: len(ids) for reason, ids in unmatched.items() if ids})
    matched = [known[image_id] for image_id in known.keys() & files.keys()]
    return sorted(matched, key=lambda info: (info.subject, info.image_id))


def _checked(sources: Sources, output: Path) -> Sources:
    """Returns the sources with `~` expanded, after checking that they are there."""
    sources = sources._replace(
        dicom_dir=files.existing("dicom_dir", sources.dicom_dir, "a folder"),
        metadata_dir=files.existing("metadata_dir", sources.metadata_dir, "a folder"),
        suvr_csv=files.existing("suvr_csv", sources.suvr_csv, "a CSV file"),
    )
    if sources.first_slice > sources.last_slice:
        expected = f"at most {errors.name('last_slice')}={sources.last_slice}"
        raise UserError(errors.name("first_slice"), sources.first_slice, expected)
    client_database.check_output(output, ".npz")
    return sources


def _report(
    sources: Sources, arrays: Mapping[str, adni_files.Scans], far_apart: int, skipped: Skipped
) -> dict[str, Any]:
    vendors = {
        vendor: {
            "subjects": len(set(scans.subjects.tolist())),
            "scans": len(set(scans.scans.tolist())),
            "slices": len(scans.suvr),
        }
        for vendor, scans in arrays.items()
    }
    return {
        "slices_of_a_scan": [sources.first_slice, sources.last_slice],
        "join": sources.join,
        "vendors": vendors,
        "scans_far_from_their_label": far_apart,
        "skipped": dict(sorted(skipped.items())),
    }


if __name__ == "__main__":
    define_flags()
    commandline.run_main(main)
