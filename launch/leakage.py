r"""motley_leakage: what a server can tell of pictures from the updates of clients.

    motley_leakage --dataset_name=mnist --data_file=writers.npz --output_dir=leakage

A client trains on one picture alone, at a batch of 1. Of a linear model the picture is solved for;
of a LeNet with sigmoids it is looked for until its gradient is the update (Deep Leakage from
Gradients), after one step of SGD and after ten. leakage.csv says for each picture whether its class
was found and how far the picture is (L2 distance of pixels from 0 to 1), leakage.png shows them.
"""

import functools
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import flags

import datasets
from motley_tff import commandline
from motley_tff.core import random_streams
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from trainers import config, data_flags

FLAGS = flags.FLAGS
COLUMNS = (
    "picture", "client_id", "model", "steps", "label", "found_label", "is_found", "l2_distance",
    "gradient_distance",
)  # fmt: skip
_DATASETS = ("emnist", "mnist", "cifar10", "images")
_STEPS = (1, 10)

data_flags.define()
flags.DEFINE_integer("pictures", 5, "How many, of different clients.", lower_bound=1)
flags.DEFINE_integer("iterations", 300, "Of the search for a picture.", lower_bound=1)
flags.DEFINE_integer("starts", 3, "Of searches, of which the nearest counts.", lower_bound=1)
flags.DEFINE_float("client_learning_rate", 0.1, "Of the clients' steps.", lower_bound=1e-6)
flags.DEFINE_integer(
    "base_random_seed", 0, "Seed of data, weights and searches.", lower_bound=0,
    upper_bound=2**32 - 1,
)  # fmt: skip
flags.DEFINE_string("output_dir", None, "Directory that gets leakage.csv and leakage.png.")
flags.mark_flags_as_required(["dataset_name", "output_dir"])


def main() -> None:
    """Attacks, prints and draws."""
    options = config.data_options()
    if options.dataset_name not in _DATASETS:
        raise UserError(
            f"--dataset_name={options.dataset_name}: expected pictures: {', '.join(_DATASETS)}"
        )
    folder = pathlib.Path(os.path.expanduser(FLAGS.output_dir))
    if not folder.absolute().parent.is_dir() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"--output_dir={folder}: expected a directory, or the name of one to make")
    folder.mkdir(exist_ok=True)
    task = datasets.create_task(options)
    rows, shown = [], []
    for picture, client_id, x, label in _pictures(task, FLAGS.pictures):
        shown.append([x])
        how = _How(
            FLAGS.base_random_seed, FLAGS.client_learning_rate, FLAGS.iterations, FLAGS.starts
        )
        for row, found in _attacks(task.facts["num_classes"], x, label, how):
            rows.append({"picture": picture, "client_id": client_id, "label": label, **row})
            shown[-1].append(found)
        print(f"{picture + 1}/{FLAGS.pictures} pictures", flush=True)
    csv_files.write(folder / "leakage.csv", COLUMNS, map(csv_files.formula_safe, rows))
    _print(rows)
    for path in (folder / "leakage.csv", _draw(folder, shown)):
        print(path)


def _pictures(task: Any, count: int) -> Iterator[tuple[int, str, np.ndarray, int]]:
    """Yields (number, client, picture float32 in 0..1, class) of the first training clients."""
    import tensorflow as tf

    for number, client_id in enumerate(task.train.ids[:count]):
        examples = task.train.fetch(client_id)["train"]
        one = {field: tf.convert_to_tensor(values[:1]) for field, values in examples.items()}
        x, y = task.preprocess(one, False, tf.zeros([2], tf.int32))
        lowest = -1.0 if task.dataset == "cifar10" else 0.0
        yield number, client_id, (x[0].numpy() - lowest) / (1.0 - lowest), int(y[0])


class _How(NamedTuple):
    """Of the attacks: their seed, the client's learning rate, a search's iterations and starts."""

    seed: int
    rate: float
    iterations: int
    starts: int


def _attacks(
    num_classes: int, x: np.ndarray, label: int, how: _How
) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Yields (a row, the picture found) of each attack."""
    from datasets import classification
    from datasets.models import linear, sigmoid_lenet
    from motley_tff.metrics import leakage

    for name, architecture, all_steps in (
        ("linear", linear.Linear, _STEPS[:1]),
        ("lenet", sigmoid_lenet.SigmoidLeNet, _STEPS),
    ):
        height, width, channels = x.shape
        shape = (height, width, channels)
        model = classification.image_model(architecture, num_classes, shape)
        weights = model.initial_weights(how.seed)

        def predict(weights, inputs, model=model):
            return model.predict(weights, inputs, False, None)

        for steps in all_steps:
            sent = leakage.update(predict, weights, x, label, how.rate, steps)
            if name == "linear":
                found = leakage.invert_linear(*sent)
            else:
                rng = random_streams.generator(how.seed, "attack", steps)
                searching = how.iterations, how.starts
                found = leakage.reconstruct(predict, weights, sent, x.shape, rng, *searching)
            picture = found.x.reshape(x.shape)
            row = {
                "model": name, "steps": steps, "found_label": found.label,
                "is_found": int(found.label == label),
                "l2_distance": float(np.linalg.norm(picture - x)),
                "gradient_distance": found.distance,
            }  # fmt: skip
            yield row, picture


def _print(rows: list[dict[str, Any]]) -> None:
    lines = [("model", "steps", "classes found", "median L2 distance")]
    for model, steps in dict.fromkeys((row["model"], row["steps"]) for row in rows):
        of = [row for row in rows if (row["model"], row["steps"]) == (model, steps)]
        found = sum(row["is_found"] for row in of)
        distance = np.median([row["l2_distance"] for row in of])
        lines.append((model, str(steps), f"{found} of {len(of)}", f"{distance:.3g}"))
    print("\n".join(text_tables.aligned(lines)))


def _draw(folder: pathlib.Path, shown: list[list[np.ndarray]]) -> pathlib.Path:
    """Draws each picture above what was found."""
    from matplotlib.figure import Figure

    names = ("the client's", "linear, 1 step", "LeNet, 1 step", "LeNet, 10 steps")
    figure = Figure(figsize=(1.1 * len(shown) + 1.2, 1.1 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(shown), squeeze=False)
    for column, pictures in enumerate(shown):
        for row, picture in enumerate(pictures):
            ax = axes[row][column]
            ax.imshow(np.clip(picture, 0, 1).squeeze(), cmap="gray", vmin=0, vmax=1)
            ax.set_xticks([])
            ax.set_yticks([])
            if not column:
                ax.set_ylabel(names[row], rotation=0, ha="right", va="center")
    path = folder / "leakage.png"
    figure.savefig(path, dpi=150)
    return path


run = functools.partial(commandline.run_main, main)

if __name__ == "__main__":
    run()
