r"""What a server can tell of pictures from the updates of clients.

    ./launch/run python launch/experiments/fedeval/leakage.py --dataset_name=mnist \
        --data_file=DIGITS.npz --output_dir=DIR

A client trains on one picture alone, at a batch of 1. Of a linear model the picture is solved for;
of a LeNet with sigmoids it is looked for until its gradient is the update (Deep Leakage from
Gradients), after one step of SGD and after ten. leakage.csv says for each picture whether its class
was found and how far the picture is (L2 distance of pixels from 0 to 1), leakage.png shows them.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

import datasets
from motley_tff import commandline
from motley_tff.core import errors, random_streams
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from trainers import algorithm_flags, config

FLAGS = flags.FLAGS
_DATASETS = ("emnist", "mnist", "cifar10", "images")
_ATTACKS = (("linear", 1), ("lenet", 1), ("lenet", 10))

algorithm_flags.define_data()
flags.DEFINE_integer("pictures", 5, "How many, of different clients.", lower_bound=1)
flags.DEFINE_integer("iterations", 300, "Of the search for a picture.", lower_bound=1)
flags.DEFINE_integer("starts", 3, "Of searches, of which the nearest counts.", lower_bound=1)
flags.DEFINE_float("client_learning_rate", 0.1, "Of the clients' steps.", lower_bound=1e-6)
flags.DEFINE_string("output_dir", None, "Directory that gets leakage.csv and leakage.png.")
flags.mark_flags_as_required(["dataset_name", "output_dir"])
flags.register_validator("output_dir", lambda name: name != "", "expected a directory's name")


def main() -> None:
    """Attacks, prints and draws."""
    options = config.data_options()
    if options.dataset_name not in _DATASETS:
        expected = f"pictures: {', '.join(_DATASETS)}"
        raise UserError(errors.name("dataset_name"), options.dataset_name, expected)
    folder = pathlib.Path(os.path.expanduser(FLAGS.output_dir))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        expected = f"a directory, or the name of one to make ({error.strerror})"
        raise UserError(errors.name("output_dir"), str(folder), expected) from error
    task = datasets.create_task(options)
    rows, shown = [], []
    for picture, (client_id, x, label) in enumerate(_pictures(task)):
        attacks = list(_attacks(task.facts["num_classes"], x, label))
        rows += [{"picture": picture, "client_id": client_id, **row} for row, _ in attacks]
        shown.append([x, *(picture for _, picture in attacks)])
        print(f"{picture + 1}/{FLAGS.pictures} pictures", flush=True)
    csv_files.write(folder / "leakage.csv", list(rows[0]), map(csv_files.formula_safe, rows))
    _print(rows)
    _draw(folder / "leakage.png", shown)
    print(folder / "leakage.csv", folder / "leakage.png", sep="\n")


def _pictures(task: Any) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yields (client, picture float32 in 0..1, class) of the first training clients."""
    import tensorflow as tf

    for client_id in task.train.ids[: FLAGS.pictures]:
        examples = task.train.fetch(client_id)["train"]
        example = {field: tf.convert_to_tensor(values[:1]) for field, values in examples.items()}
        x, y = task.preprocess(example, False, tf.zeros([2], tf.int32))
        lowest = -1.0 if task.dataset == "cifar10" else 0.0
        yield client_id, (x[0].numpy() - lowest) / (1.0 - lowest), int(y[0])


def _attacks(
    num_classes: int, x: np.ndarray, label: int
) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Yields (a row, the picture found) of each attack."""
    from datasets.kinds import classification
    from datasets.models import linear
    from launch.experiments.fedeval import inversion, sigmoid_lenet

    height, width, channels = x.shape
    for name, steps in _ATTACKS:
        architecture = linear.Linear if name == "linear" else sigmoid_lenet.SigmoidLeNet
        model = classification.image_model(architecture, num_classes, (height, width, channels))
        weights = model.initial_weights(FLAGS.base_random_seed)

        def predict(weights, inputs, model=model):
            return model.predict(weights, inputs, False, None)

        sent = inversion.update(predict, weights, x, label, FLAGS.client_learning_rate, steps)
        if name == "linear":
            attack = inversion.invert_linear(*sent)
        else:
            rng = random_streams.generator(FLAGS.base_random_seed, "attack", steps)
            searching = FLAGS.iterations, FLAGS.starts
            attack = inversion.reconstruct(predict, weights, sent, x.shape, rng, *searching)
        picture = attack.x.reshape(x.shape)
        yield {
            "model": name, "steps": steps, "label": label, "found_label": attack.label,
            "is_found": int(attack.label == label),
            "l2_distance": float(np.linalg.norm(picture - x)),
            "gradient_distance": attack.distance,
        }, picture  # fmt: skip


def _print(rows: list[dict[str, Any]]) -> None:
    """Prints what each attack found of all pictures."""
    lines = [("model", "steps", "classes found", "median L2 distance")]
    for model, steps in _ATTACKS:
        attacks = [row for row in rows if (row["model"], row["steps"]) == (model, steps)]
        hits = sum(row["is_found"] for row in attacks)
        distance = np.median([row["l2_distance"] for row in attacks])
        lines.append((model, str(steps), f"{hits} of {len(attacks)}", f"{distance:.3g}"))
    print("\n".join(text_tables.aligned(lines)))


def _draw(path: pathlib.Path, shown: list[list[np.ndarray]]) -> None:
    """Draws each picture above what was found."""
    from matplotlib.figure import Figure

    names = ("the client's", "linear, 1 step", "LeNet, 1 step", "LeNet, 10 steps")
    figure = Figure(figsize=(1.1 * len(shown) + 1.2, 1.1 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(shown), squeeze=False)
    for column, pictures in enumerate(shown):
        for name, ax, picture in zip(names, axes[:, column], pictures, strict=True):
            ax.imshow(np.clip(picture, 0, 1).squeeze(), cmap="gray", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            if not column:
                ax.set_ylabel(name, rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    commandline.run_main(main)
