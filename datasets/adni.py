"""ADNI: amyloid uptake (SUVR) from slices of PET scans, by scanner vendor; a cross-silo task.

Card
  Source: AV45 PET scans of the Alzheimer's Disease Neuroimaging Initiative with the UC Berkeley
    labels, as `adni.npz` (`datasets.prepare.adni` makes it of DICOM, XML and CSV), or as PNGs with
    a table `labels.csv` beside them: columns vendor, file (relative to the table), subject, scan,
    suvr (empty: no label). Or synthetic scanners.
  Licence: an access agreement (https://adni.loni.usc.edu/terms-of-use/); never part of this suite.
  Clients: 9 scanner vendors with labelled scans of 11 in the metadata; 5,405 +- 4,822 slices each.
    A vendor without a labelled scan is dropped and named in the task's facts.
    Synthetic: 9 scanners; 40 to 160 slices each, in three planted groups.
  Fields: `pixels` [32, 32], uint8 or float32, scaled by the slice's own maximum to [0, 1];
    `target` float32, the scan's SUVR.
  Model: a CNN of 2,150,273 weights; loss and metric are the whole squared error, not half of it.
  Split: 80% train, the rest half valid, half test, by the run's seed; by subject, also where a
    subject was scanned by two vendors. The published rule, `adni_split="published"`, cuts by the
    vendor's distinct SUVR values and then by slice, so that slices of one scan can be in both valid
    and test. Training keeps an epoch's short last batch; Motley's batches are of 64.
  Citation: Landau et al. 2013, "Amyloid-beta imaging with Pittsburgh compound B and florbetapir";
    Wu et al. 2022, "Motley" (https://arxiv.org/abs/2206.09262). ADNI asks to be acknowledged.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets.kinds import silos
from datasets.models import adni_cnn
from datasets.options import DataOptions
from datasets.partition import splits
from datasets.readers import adni_files, files
from datasets.readers.adni_files import SIDE, Scans
from motley_tff.core import (
    errors,
    functional_model,
    options as options_lib,
    random_streams,
    task as task_lib,
)
from motley_tff.core.errors import UserError

_PATHS = ("adni/adni.npz", "adni.npz", "adni/labels.csv", "labels.csv")
_ADVICE = (
    "put adni.npz (about 30 MB; python -m datasets.prepare.adni makes it) or labels.csv and its "
    "PNGs there or in its folder adni"
)
# Few enough that twenty rounds of multi-task training take well under a minute on two cores.
_SYNTHETIC_SCANNERS = 9
_SLICES_PER_SCAN = 2
# How bright a group of scanners shows a cortex that takes up as much as white matter, and how much
# they all sharpen contrasts. Chosen by trial: after twenty rounds at default rates, seeds 0 to 4,
# FedAvg's mean error is 0.030 to 0.046, that of models trained alone 0.010 to 0.013.
_GAINS = (0.5, 1.0, 1.6)
_POWER = 2.5
# A vessel this much brighter than white matter is in every slice. Slices are scaled by their
# maximum: it keeps the brain itself dark, and default learning rates from diverging.
_VESSEL = 6.0

# {part: row numbers}
Rows = dict[str, np.ndarray]


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on the file, PNGs or synthetic scanners; UserError if none or broken."""
    seed, rule = options.seed, options.adni_split
    if options.use_synthetic_data:
        collection = synthesize(seed)
        return create_task_from_data(collection.vendors, seed, rule, collection.facts)
    path = files.require(options, _PATHS, "adni.npz or labels.csv", _ADVICE)
    if path.suffix not in (".npz", ".csv"):
        raise UserError(str(path), expected="a file of ADNI that ends in .npz or .csv")
    read = adni_files.read if path.suffix == ".npz" else adni_files.read_folder
    collection = read(path)
    with errors.at(path):
        return create_task_from_data(collection.vendors, seed, rule, collection.facts)


def create_task_from_data(
    vendors: Mapping[str, Scans],
    seed: int,
    adni_split: str = DataOptions.adni_split,
    facts: Mapping[str, Any] | None = None,
) -> task_lib.Task:
    """Returns the task on `{client id: labelled slices, none or more}` in memory, split by the rule
    `adni_split`. UserError if no vendor has labelled slices, or none can be split.
    """
    options_lib.checked(DataOptions("adni", adni_split=adni_split))  # type: ignore[arg-type]
    some = {vendor: scans for vendor, scans in vendors.items() if len(scans.suvr)}
    if not some:
        raise UserError("", f"no labelled scan of {len(vendors)} vendors", "some")
    if adni_split == "subject":
        rows = split_by_subject({vendor: scans.subjects for vendor, scans in some.items()}, seed)
    else:
        rows = {vendor: split_as_published(scans.suvr, seed) for vendor, scans in some.items()}
    return _task(some, rows, {
        **(facts or {}),
        "adni_split": adni_split,
        **_left_out(vendors, rows),
        "subjects_in_several_parts": _crossing(some, rows),
    })  # fmt: skip


def split_by_subject(subjects: Mapping[str, np.ndarray], seed: int) -> dict[str, Rows]:
    """Splits `{vendor: whose slice each row is}`, at least one row each, into `{vendor: {part:
    rows}}`: all slices of a subject, whoever scanned it, are in the same part.

    The vendor with fewest subjects first: a subject that already has a part keeps it, the others
    fill valid and test up to a tenth of the vendor's subjects each, at least one, and then train.
    The seed decides their order. A vendor of fewer than three has no valid and test rows.
    """
    everyone = np.unique(np.concatenate(list(subjects.values())))
    order = [str(s) for s in everyone[np.random.RandomState(seed).permutation(len(everyone))]]
    of_vendor = {vendor: set(map(str, values)) for vendor, values in subjects.items()}
    part_of: dict[str, str] = {}
    for vendor in sorted(subjects, key=lambda v: (len(of_vendor[v]), v)):
        _assign([s for s in order if s in of_vendor[vendor]], part_of)
    return {
        vendor: {
            part: np.flatnonzero([part_of[str(s)] == part for s in values])
            for part in splits.SPLITS
        }
        for vendor, values in subjects.items()
    }


def _assign(subjects: Sequence[str], part_of: dict[str, str]) -> None:
    """Gives each of a vendor's subjects a part; those that have one keep it."""
    n = len(subjects)
    held_out = max(2, -(-n // 5)) if n >= 3 else 0
    taken = [part_of[s] for s in subjects if s in part_of]
    free = [s for s in subjects if s not in part_of]
    for part, quota in (("valid", held_out // 2), ("test", held_out - held_out // 2)):
        lacking = max(0, quota - taken.count(part))
        part_of.update(dict.fromkeys(free[:lacking], part))
        free = free[lacking:]
    part_of.update(dict.fromkeys(free, "train"))


def split_as_published(suvr: np.ndarray, seed: int) -> Rows:
    """Splits one vendor's SUVRs, float [n], into `{part: rows}` by Motley's rule: 80% of its
    distinct values train; the slices of the others are shuffled and halved, so that those of one
    scan can be in valid and in test. All rows train if a part would be empty.
    """
    rng = np.random.RandomState(seed)
    values = rng.permutation(np.unique(suvr))
    trains = np.isin(suvr, values[: 4 * len(values) // 5])
    rest = rng.permutation(np.flatnonzero(~trains))
    half = len(rest) // 2
    if not trains.any() or half == 0:
        return splits.train_only(np.arange(len(suvr)))
    return {"train": np.flatnonzero(trains), "valid": rest[:half], "test": rest[half:]}


def _left_out(vendors: Mapping[str, Scans], rows: Mapping[str, Rows]) -> dict[str, Any]:
    """Returns which clients do not take part and why, and how many slices are not used."""
    out = {
        "no labelled scan": [vendor for vendor in vendors if vendor not in rows],
        "all its subjects validate or test another vendor": [
            vendor for vendor, parts in rows.items() if not len(parts["train"])
        ],
    }
    unused = {
        vendor: len(parts["valid"]) + len(parts["test"])
        for vendor, parts in rows.items()
        if len(parts["train"]) and not _is_whole(parts)
    }
    return {
        "clients_left_out": {reason: ids for reason, ids in out.items() if ids},
        "slices_not_used": {vendor: count for vendor, count in unused.items() if count},
    }


def _is_whole(parts: Rows) -> bool:
    return all(len(parts[part]) for part in splits.SPLITS)


def _crossing(vendors: Mapping[str, Scans], rows: Mapping[str, Rows]) -> int:
    """Returns how many subjects have slices in more than one part."""
    parts_of: dict[str, set[str]] = {}
    for vendor, parts in rows.items():
        for part, of_part in parts.items():
            for subject in np.unique(vendors[vendor].subjects[of_part]):
                parts_of.setdefault(str(subject), set()).add(part)
    return sum(len(parts) > 1 for parts in parts_of.values())


def preprocess(
    examples: Mapping[str, tf.Tensor], training: bool, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (slices float32 [batch, 32, 32, 1], each from 0 to 1, targets float32 [batch])."""
    del training, key  # no augmentation
    pixels = tf.cast(examples["pixels"], tf.float32)
    brightest = tf.reduce_max(pixels, axis=[1, 2], keepdims=True)
    return tf.math.divide_no_nan(pixels, brightest)[..., tf.newaxis], examples["target"]


def _task(
    vendors: Mapping[str, Scans], rows: Mapping[str, Rows], facts: Mapping[str, Any]
) -> task_lib.Task:
    # One type for all: TFF's clients and stacked ones must agree.
    dtype = np.result_type(*(scans.images.dtype for scans in vendors.values()))
    data = {
        vendor: _parts(vendors[vendor], parts, dtype)
        for vendor, parts in rows.items()
        if len(parts["train"])
    }
    scanners = splits.with_evaluated(
        data,
        "too few subjects or values for three parts: trains, but is not evaluated",
        "a vendor of 3 subjects or more with labelled scans",
    )
    error = silos.squared_error
    return task_lib.Task(
        dataset="adni",
        setting="cross_silo",
        model=functional_model.from_keras(
            adni_cnn.AdniCnn, np.zeros((1, SIDE, SIDE, 1), np.float32)
        ),
        loss=error,
        metrics=(task_lib.Metric("squared_error", error, higher_is_better=False),),
        preprocess=preprocess,
        train=scanners.train,
        valid=scanners.evaluated,
        test=scanners.evaluated,
        neighbours="predictions",
        prediction=silos.predicted_number,
        label_unit=1.0,
        facts={**facts, **scanners.facts},
    )


def _parts(scans: Scans, rows: Rows, dtype: np.dtype) -> splits.Parts:
    images, suvr = scans.images.astype(dtype, copy=False), scans.suvr.astype(np.float32)
    # A silo that is not evaluated has its other parts empty, so that nobody scores it by accident.
    used = rows if _is_whole(rows) else splits.train_only(rows["train"])
    return {part: {"pixels": images[taken], "target": suvr[taken]} for part, taken in used.items()}


def synthesize(seed: int, num_scanners: int = _SYNTHETIC_SCANNERS) -> adni_files.Collection:
    """Returns scanners that show the same brains with different contrast, in three planted groups.

    A slice is a brain of white matter, which takes up tracer at the rate 1, a cortex around it that
    takes up SUVR times as much, ventricles of any darkness, and a bright vessel. A scanner shows
    the cortex as gain * SUVR^2.5 above a pedestal: the same brightness means another SUVR at
    another scanner, and nothing else in a slice tells a single model which scanner it was.
    """
    shared = random_streams.generator(seed, "synthetic_data", 0)
    # Every group has about a third, whatever the number.
    groups = shared.permutation(np.arange(num_scanners) % len(_GAINS))
    vendors, names = {}, {}
    for i, group in enumerate(groups):
        rng = random_streams.generator(seed, "synthetic_data", 1, i)
        vendor = f"scanner_{i:02d}"
        gain = _GAINS[group] * np.exp(rng.normal(0.0, 0.05))
        vendors[vendor] = _scan_subjects(rng, vendor, gain, rng.uniform(0.0, 0.1))
        names[vendor] = f"group_{group}"
    return adni_files.Collection(vendors, {"source": "synthetic", "client_groups": names})


def _scan_subjects(rng: np.random.Generator, vendor: str, gain: float, pedestal: float) -> Scans:
    examples = []
    for j in range(int(np.clip(rng.lognormal(3.7, 0.4), 20, 80))):
        # Most brains have little amyloid, some have much.
        level = rng.normal(1.4, 0.15) if rng.random() < 0.45 else rng.normal(1.0, 0.07)
        suvr = float(np.clip(level, 0.8, 1.9))
        brain = _Brain(*rng.uniform((0.68, -0.08, 0.25), (0.78, 0.08, 0.6)))
        for _ in range(_SLICES_PER_SCAN):
            image = _slice(rng, brain, suvr, gain, pedestal)
            examples.append((image, suvr, f"{vendor}_{j:02d}", f"{vendor}_{j:02d}_0"))
    return adni_files.stack(examples)


class _Brain(NamedTuple):
    """What differs between brains beside the SUVR."""

    inner: float  # Radius at which the cortex ends, of 1.
    shift: float  # How far the brain lies off the image's centre, of 1.
    fluid: float  # How bright the ventricles are beside white matter, at every scanner.


def _slice(
    rng: np.random.Generator, brain: _Brain, suvr: float, gain: float, pedestal: float
) -> np.ndarray:
    """Returns a slice uint8 [32, 32] as a scanner shows it."""
    size = rng.uniform(0.78, 0.95)
    sides = np.linspace(-1, 1, SIDE)
    x, y = (sides[None, :] - brain.shift) / (0.85 * size), sides[:, None] / size
    radius = np.hypot(x, y)
    cortex = gain * (suvr * np.exp(rng.normal(0.0, 0.02))) ** _POWER
    shown = pedestal + (1 - pedestal) * np.where(radius > brain.inner, cortex, 1.0)
    shown[np.hypot((np.abs(x) - 0.15) / 0.12, y / 0.3) < 1] = brain.fluid
    shown *= rng.normal(1.0, 0.06, shown.shape) * (radius < 1)
    shown[np.hypot(x, y - 0.85) < 0.12] = _VESSEL
    image = adni_files.shrink(np.minimum(shown, _VESSEL))
    assert image is not None  # The vessel shines in every slice.
    return image
