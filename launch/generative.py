"""motley_generative: scores sets of generated examples against clients' real ones.

    motley_generative --clients=clients.npz --generated=gan.npz --generated=ddpm.npz

The clients' file holds an array of features [examples, features] a client, or the arrays `features`
and `client_id`; a generated set's file one array, or `features` among others. With
--inception_weights they hold images instead, [examples, height, width] with or without channels.

Each score has two forms (Wang et al. 2023): *all* compares with the examples of all clients
together, *avg* is the mean over clients, weighted by their examples, of the score against each
alone. fid, the Frechet distance of whatever features there are, can rank sets differently in its
two forms; those of kid (unbiased) and kid_biased, kernel distances, are a constant apart.
--gaussian_experiment shows it on the paper's example. --theorem prints where FID-avg and FID-all
come from, with covariances by n: their gap as a difference of traces, the distance to the clients'
barycenter and the constant whose sum the paper equates with FID-avg, and what FID-avg is of it.
"""

import functools
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from launch.metrics import output as metrics_output
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import text_tables
from motley_tff.metrics.generative import client_features, gaussian, scores, theorem

FLAGS = flags.FLAGS
_TOO_MANY = 2**31 - 1

flags.DEFINE_string("clients", None, "File of the clients' examples (.npz).")
flags.DEFINE_multi_string("generated", [], "File of a generated set (.npz, .npy); repeat for more.")
flags.DEFINE_string(
    "inception_weights",
    None,
    "Keras's InceptionV3 weights (.h5): the files hold images, whose features are taken.",
)
flags.DEFINE_integer(
    "num_neighbors", 5,
    "k of precision, recall, density and coverage; 0 leaves these out, whose time grows with the "
    "square of the number of examples.", lower_bound=0, upper_bound=_TOO_MANY,
)  # fmt: skip
flags.DEFINE_bool(
    "theorem", False, "Print the parts of the paper's Theorem 1 in place of the scores."
)
flags.DEFINE_string("output", None, "File that gets the table, too: .csv, .md or .tex.")
flags.DEFINE_bool(
    "gaussian_experiment", False, "Score the paper's normal distributions; needs no files."
)
flags.DEFINE_integer(
    "base_random_seed", 0, "Seed of --gaussian_experiment.", lower_bound=0, upper_bound=2**32 - 1
)


def main() -> None:
    """Scores and prints."""
    is_experiment, output = FLAGS.gaussian_experiment, FLAGS.output
    files = {"clients": FLAGS.clients, "generated": FLAGS.generated}
    weights, num_neighbors = FLAGS.inception_weights, FLAGS.num_neighbors
    is_theorem = FLAGS.theorem
    rng = np.random.default_rng(FLAGS.base_random_seed)
    if is_experiment and any(files.values()):
        raise UserError("--gaussian_experiment draws its own data; leave out the files")
    for name, value in files.items():
        if not (is_experiment or value):
            raise UserError(f"--{name} is required; give --{name}=FILE (or --gaussian_experiment)")
    if output:
        metrics_output.check_output(output)
    if is_experiment:
        clients, generated = gaussian.draw(rng)
        num_neighbors = 0
    else:
        clients, generated = _read(**files, inception_weights=weights)
    if is_theorem:
        rows = theorem.rows(clients, generated)
        _print_theorem(rows)
        if output:
            metrics_output.write(output, metrics_output.Table(list(theorem.COLUMNS), rows, []))
        return
    table = scores.table(clients, generated, num_neighbors)
    _print(table.rows, table.notes)
    if is_experiment:  # Which of the generators each distance prefers.
        generators = [row for row in table.rows if row["generated"] != gaussian.IDEAL]
        for column in (f"{name}_{form}" for name in scores.DISTANCES for form in scores.FORMS):
            best = min(generators, key=lambda row: row[column])
            print(f"lowest {column}: {best['generated']}")
    if output:
        columns = [column for column in scores.COLUMNS if column in table.rows[0]]
        metrics_output.write(output, metrics_output.Table(columns, table.rows, table.notes))


def _print_theorem(rows: Sequence[Mapping[str, Any]]) -> None:
    lines: list[Sequence[str]] = [theorem.COLUMNS]
    for row in rows:
        cells = (f"{row[column]:.6g}" for column in theorem.COLUMNS[2:])
        lines.append((row["generated"], str(row["num_examples"]), *cells))
    print("\n".join(text_tables.aligned(lines)))


def _path(text: str) -> pathlib.Path:
    return pathlib.Path(os.path.expanduser(text))


def _read(
    clients: str, generated: Sequence[str], inception_weights: str | None
) -> tuple[Any, dict[str, Any]]:
    """Returns the files' clients and generated sets by name; of images, with weights, features."""
    files, embed = _names(generated), None
    if inception_weights is not None:
        from datasets.models import inception_features  # TensorFlow takes 3 s.

        model = inception_features.load(_path(inception_weights))
        embed = functools.partial(inception_features.embed, model)
    real = client_features.read_clients(_path(clients), embed)
    width = real.features.shape[1]
    return real, {
        name: client_features.read_generated(_path(file), width, embed)
        for name, file in files.items()
    }


def _names(files: Sequence[str]) -> dict[str, str]:
    """Returns {name of a set: file}: the files' stems if all differ, else as they were given."""
    stems = [pathlib.Path(file).stem for file in files]
    names = stems if len(set(stems)) == len(stems) else list(files)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--generated={name} is given twice; give each file once")
    return dict(zip(names, files, strict=True))


def _print(rows: Sequence[Mapping[str, Any]], notes: Iterable[str]) -> None:
    """Prints scores with their ranks, a table for each kind, and where the forms disagree."""
    kinds = [scores.DISTANCES, scores.NEIGHBORS] if "recall_all" in rows[0] else [scores.DISTANCES]
    for names in kinds:
        columns = [f"{name}_{form}" for name in names for form in scores.FORMS]
        lines = [("generated", "examples", *columns)]
        for row in rows:
            cells = (_score(row, column) for column in columns)
            lines.append((row["generated"], str(row["num_examples"]), *cells))
        print("\n".join(text_tables.aligned(lines)), end="\n\n")
    print("(1) is best; fid and kid are better the lower, the others the higher.")
    if len(rows) > 1:
        print("Pairs of generated sets that the all and the avg form order differently:")
        print("  " + ", ".join(_disagreement(rows, name) for names in kinds for name in names))
    for note in notes:
        print(f"note: {note}")


def _score(row: Mapping[str, Any], column: str) -> str:
    """Returns a score with its rank, such as `0.0123 (1)`; a dash where it is undefined."""
    value = row[column]
    return "-" if value != value else f"{value:.5g} ({row[f'{column}_rank']:g})"


def _disagreement(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    whole, average = ([row[f"{name}_{form}"] for row in rows] for form in scores.FORMS)
    if any(value != value for value in average):
        return f"{name} undefined"
    pairs = len(rows) * (len(rows) - 1) // 2
    return f"{name} {scores.num_disagreements(whole, average)} of {pairs}"


run = functools.partial(commandline.run_main, main)

if __name__ == "__main__":
    run()
