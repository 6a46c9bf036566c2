"""Writes a small collection as ADNI's archive hands it out: DICOM, XML, CSV; made-up pictures."""

import numpy as np
import pydicom
from pydicom import uid

PROCESSING = "AV45 Coreg, Avg, Std Img and Vox Siz, Uniform Resolution"
SIDE = 40


def brain(number, level=100):
    """Returns a slice uint16 [40, 40] whose bright column tells its number."""
    image = np.zeros((SIDE, SIDE), np.uint16)
    image[8:32, 8:32] = level
    image[8:32, number % 16 + 12] = 4 * level
    return image


def dicom(path, pixels, number=None, frames=None, **attributes):
    """Writes one file of the PET kind; `number` is its InstanceNumber."""
    meta = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = uid.PositronEmissionTomographyImageStorage
    meta.MediaStorageSOPInstanceUID = uid.generate_uid()
    meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    data = pydicom.dataset.FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID = meta.MediaStorageSOPClassUID
    data.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    data.Modality = "PT"
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.Rows, data.Columns = pixels.shape[-2:]
    data.BitsAllocated = data.BitsStored = 16
    data.HighBit, data.PixelRepresentation = 15, 0
    data.RescaleSlope, data.RescaleIntercept = "0.25", "0"
    if number is not None:
        data.InstanceNumber = number
    if frames is not None:
        data.NumberOfFrames = frames
    data.PixelData = pixels.astype("<u2").tobytes()
    for name, value in attributes.items():
        setattr(data, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    data.save_as(path, enforce_file_format=True)


def folder_of(root, subject, image_id, day):
    return root / subject / "Coreg,_Avg,_Std" / f"{day}_08_00_00.0" / f"I{image_id}"


def series(root, subject, image_id, day, numbers=range(49, 58)):
    """Writes a scan with a file a slice, named as the archive names them."""
    for number in numbers:
        name = f"ADNI_{subject}_PT_AV45_br_raw_{day}_{number}_S1{image_id}_I{image_id}.dcm"
        dicom(folder_of(root, subject, image_id, day) / name, brain(number), number)


def metadata(root, subject, image_id, day, vendor, processing=PROCESSING):
    """Writes what the archive says of a processed image; made from two others here."""
    root.mkdir(parents=True, exist_ok=True)
    originals = "".join(
        f"<relatedImageDetail><originalRelatedImage><imageUID>{image_id - i}</imageUID>"
        f"<description>PET</description><protocolTerm><protocol term='Manufacturer'>{vendor}"
        "</protocol><protocol term='Mfg Model'>X1</protocol></protocolTerm>"
        "</originalRelatedImage></relatedImageDetail>"
        for i in (1, 2)
    )
    (root / f"ADNI_{subject}_AV45_S1{image_id}_I{image_id}.xml").write_text(
        "<?xml version='1.0' encoding='UTF-8'?>"
        "<idaxs xmlns='http://ida.loni.usc.edu'><project xmlns=''>"
        f"<projectIdentifier>ADNI</projectIdentifier><subject><subjectIdentifier>{subject}"
        "</subjectIdentifier><visit><visitIdentifier>ADNI2 Year 1</visitIdentifier></visit>"
        f"<study><series><dateAcquired>{day} 08:00:00.0</dateAcquired><seriesLevelMeta>"
        f"<derivedProduct><imageUID>{image_id}</imageUID><processedDataLabel>{processing}"
        f"</processedDataLabel></derivedProduct>{originals}</seriesLevelMeta></series></study>"
        "</subject></project></idaxs>",
        encoding="utf-8",
    )


def labels(path, rows):
    """Writes UC Berkeley's table of (RID, day, SUVR) rows."""
    lines = ["RID,VISCODE,EXAMDATE,SUMMARYSUVR_WHOLECEREBNORM,SUMMARYSUVR_COMPOSITE_REFNORM"]
    lines += [f'"{rid}","v0","{day}","{suvr}","0.8"' for rid, day, suvr in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
