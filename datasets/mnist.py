"""MNIST: handwritten digits by their writer, or dealt to silos or devices by their labels.

Card
  Source: an `.npz` of `images`, `labels` and `writer_id` as for EMNIST: by writer; else Keras's
    `mnist.npz` of `x_train`, `y_train`, `x_test` and `y_test`, which has no writers; else LEAF's
    JSON by its users; from --data_dir, its folder mnist or Keras's cache, else a download of 11 MB.
    Or synthetic writers.
  Licence: MNIST: CC BY-SA 3.0 as its authors say; an `.npz` by writer: its own.
  Clients: writers, or, with another `--partition` than natural, whom its images are dealt to, 100
    if nothing is said; silos or devices. FedEval's one class a client, ten clients a class:
    `--setting=cross_silo --partition=classes:1 --evaluation_partition=iid`, here of all 70,000
    images, which FedEval calls medium; with --max_examples_per_client=300 small.
    Synthetic: 40 writers, about 50 digits each, in four planted groups.
  Fields: `pixels` uint8 [28, 28, 1], background 0, ink 255; `label` int32, 0 to 9.
  Model: FedEval's perceptron (512, 512; 669,706 weights), without its dropout; or --model=lenet,
    cnn or linear; accuracy.
  Split: of silos 70% train, 15% validate, 15% test, or as --val_split and --test_split say
    (FedEval: 0.1 and 0.1); devices as writers of EMNIST.
  Citation: LeCun et al. 1998, "Gradient-based learning applied to document recognition"; as
    clients: Chai et al. 2022, FedEval (https://arxiv.org/abs/2011.09655).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datasets import emnist, images, packages
from datasets.kinds import classification
from datasets.models import choice, cnn, lenet, linear, mlp
from datasets.options import DataOptions
from datasets.partition import assignment, dealing
from datasets.readers import files, leaf_files
from motley_tff.core import errors, task as task_lib
from motley_tff.core.errors import UserError

NUM_CLASSES, NUM_CLIENTS = 10, 100
_SHAPE = (28, 28, 1)
_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
# As Keras has it.
_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
_NAME, _KERAS_DIR = "mnist.npz", "~/.keras/datasets"
_FOLDERS = ("", "mnist", "emnist")
_ADVICE = (
    f"put Keras's {_NAME}, or an .npz by writer (images, labels, writer_id), or LEAF's .json there"
)
_KERAS_ARRAYS = ("x_train", "y_train", "x_test", "y_test")

# Pixels [n, 28, 28], labels [n] and owners [n], if anybody knows these.
_Digits = tuple[np.ndarray, np.ndarray, np.ndarray | None]

_MODELS: Mapping[str, choice.Architecture] = {
    "mlp": choice.Architecture(
        lambda facts, sizes: mlp.Mlp(facts.num_outputs, sizes or (512, 512)), "units", None
    ),
    "lenet": choice.Architecture(lambda facts, sizes: lenet.LeNet(facts.num_outputs)),
    "cnn": choice.Architecture(
        lambda facts, sizes: cnn.Cnn(facts.num_outputs, max(facts.input_shape[:2]), sizes),
        "filters of each block, then units",
        None,
    ),
    "linear": choice.Architecture(lambda facts, sizes: linear.Linear(facts.num_outputs)),
}


synthesize = images.synthesize


def create_task(options: DataOptions) -> task_lib.Task:
    """Returns the task on what is found: synthetic writers, an `.npz` by writer, Keras's, a
    download. UserError says what to put where.
    """
    if options.use_synthetic_data:
        pictures = synthesize(options.seed)
        facts = {"source": "synthetic", "client_groups": pictures.groups}
        labels, writers = pictures.labels.astype(np.int32), pictures.client_ids
        return create_task_from_data(pictures.pixels, labels, writers, options, facts)
    path = _find(options)
    digits: _Digits
    if leaf_files.is_leaf(path):
        digits = emnist.read_leaf(path, NUM_CLASSES)
        facts = leaf_files.facts(path)
    else:
        with errors.at(path):
            digits = _checked(files.read_npz(path))
        facts = {"source": "npz", "files": [str(path)]}
    pixels, labels, owners = digits
    with errors.at(path):
        return create_task_from_data(pixels[..., np.newaxis], labels, owners, options, facts)


def create_task_from_data(
    pixels: np.ndarray,
    labels: np.ndarray,
    writer_ids: np.ndarray | None,
    options: DataOptions,
    facts: Mapping[str, Any] | None = None,
) -> task_lib.Task:
    """Returns the task on images in memory.

    Args:
      pixels: uint8 [n, 28, 28, 1], 0 = background.
      labels: int32 [n], 0 to 9.
      writer_ids: Integers or strings [n]; None if nobody knows them: the images are then dealt.

    Raises:
      UserError: If clients would be too few or too small, or nobody owns what is not dealt.
    """
    examples = {"pixels": pixels, "label": labels}
    if writer_ids is None:
        if options.partition == "natural":
            expected = "iid, classes:1 or another, as nobody owns these digits"
            raise UserError(errors.name("partition"), options.partition, expected)
        dealt = dealing.deal(examples, "label", options, options.num_clients or NUM_CLIENTS)
        clients, client_facts = dealt.clients, dealt.facts
    else:
        rows = assignment.assign(assignment.by_owner(writer_ids), options, False, labels, facts)
        clients, client_facts = rows.clients_with(examples)
    model_facts = choice.ModelFacts(NUM_CLASSES, _SHAPE)
    return classification.image_task(
        choice.build(options, _MODELS, model_facts, np.zeros((1, *_SHAPE), np.float32)),
        NUM_CLASSES,
        clients,
        {**(facts or {}), **client_facts, "pictures": len(labels)},
        dataset="mnist",
        setting=packages.setting("mnist", options.setting),
        preprocess=images.preprocess,
        label_names=tuple(map(str, range(NUM_CLASSES))),
    )


def _find(options: DataOptions) -> Path:
    """Returns the data file, after a download if there is none."""
    if options.data_file is not None:
        return files.existing("data_file", options.data_file)
    if options.data_dir is not None:
        folder = files.existing("data_dir", options.data_dir, "a folder")
        path = files.only_npz(folder, _FOLDERS) or leaf_files.find_in(folder, _FOLDERS)
        if path is not None:
            return path
        target = folder / _NAME
    else:
        target = Path(os.path.expanduser(_KERAS_DIR)) / _NAME
    if not target.is_file():
        with files.or_by_hand("mnist", target.parent, _ADVICE):
            files.download(_URL, target, _SHA256)
    return target


def _checked(arrays: Mapping[str, np.ndarray]) -> _Digits:
    is_kerass = set(_KERAS_ARRAYS) <= set(arrays)
    if is_kerass:
        x, y = (np.concatenate([arrays[f"{a}_{part}"] for part in ("train", "test")]) for a in "xy")
        arrays = {"images": x, "labels": y, "writer_id": np.zeros(len(y), np.int32)}
    pixels, labels, owners = emnist.check_arrays(arrays)
    emnist.check_labels(labels, NUM_CLASSES)
    return pixels, labels.astype(np.int32), None if is_kerass else owners
