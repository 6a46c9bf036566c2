"""motley_generative: scores sets of generated examples against clients' real ones.

    motley_generative --clients=clients.npz --generated=gan.npz --generated=ddpm.npz

The clients' file holds an array of features [examples, features] a client, or the arrays `features`
and `client_id`; a generated set's file one array, or `features` among others. With
--inception_weights they hold images instead, [examples, height, width] with or without channels.

Each score has two forms (Wang et al. 2023): *all* compares with the examples of all clients
together, *avg* is the mean over clients, weighted by their examples, of the score against each
alone. fid, the Frechet distance of whatever features there are, can rank sets differently in its
two forms; those of kid (unbiased) and kid_biased, kernel distances, are a constant apart.
--experiment=gaussian shows it on the paper's example, the other experiments on real examples of
clients of one class each. --theorem prints where FID-avg and FID-all
come from, with covariances by n: their gap as a difference of traces, the distance to the clients'
barycenter and the constant whose sum the paper equates with FID-avg, and what FID-avg is of it.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from launch.metrics import output as metrics_output
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import text_tables
from motley_tff.metrics.generative import (
    client_features,
    controlled,
    gaussian,
    scores,
    theorem,
)

FLAGS = flags.FLAGS
_TOO_MANY = 2**31 - 1

flags.DEFINE_string("clients", None, "File of the clients' examples (.npz).")
flags.DEFINE_multi_string("generated", [], "File of a generated set (.npz, .npy); repeat for more.")
flags.DEFINE_string(
    "inception_weights",
    None,
    "Keras's InceptionV3 weights (.h5): the files hold images, whose features are taken.",
)
flags.DEFINE_string(
    "features", None,
    "The files hold images, of which these are taken: pca:K, of the clients' pixels, or the "
    "directory of a run that trained a classifier.",
)  # fmt: skip
flags.DEFINE_integer(
    "num_neighbors", 5,
    "k of precision, recall, density and coverage; 0 leaves these out, whose time grows with the "
    "square of the number of examples.", lower_bound=0, upper_bound=_TOO_MANY,
)  # fmt: skip
flags.DEFINE_bool(
    "theorem", False, "Print the parts of the paper's Theorem 1 in place of the scores."
)
flags.DEFINE_list(
    "wasserstein", [], "Sets, by name, whose 1-Wasserstein distance a critic estimates, too: "
    "columns w1_all and w1_avg. A critic is trained for each client.",
)  # fmt: skip
flags.DEFINE_string("output", None, "File that gets the table, too: .csv, .md or .tex.")
flags.DEFINE_enum(
    "experiment", None, ["gaussian", "nearest", "scaled", "classes", "extremes"],
    "Score generators that need no training: the paper's normal distributions, which need no "
    "files; or made of the clients' examples (see motley_tff.metrics.generative.controlled).",
)  # fmt: skip
flags.DEFINE_integer(
    "num_kept", 20, "--experiment=nearest, scaled: K, how many neighbours of its anchor each "
    "client keeps.", lower_bound=1,
)  # fmt: skip
flags.DEFINE_string(
    "only_client", None, "--experiment=extremes: the client whose examples are given back."
)
flags.DEFINE_integer(
    "base_random_seed", 0, "Seed of --experiment.", lower_bound=0, upper_bound=2**32 - 1
)


class _Wanted(NamedTuple):
    """The flags."""

    clients: str | None
    generated: list[str]
    inception_weights: str | None
    features: str | None
    num_neighbors: int
    theorem: bool
    wasserstein: list[str]
    output: str | None
    experiment: str | None
    num_kept: int
    only_client: str | None
    base_random_seed: int


class _Sets(NamedTuple):
    """What is scored, and what its features are."""

    features_are: str
    clients: client_features.ClientFeatures
    generated: dict[str, np.ndarray]


def main() -> None:
    """Scores and prints."""
    wanted = _Wanted(*(FLAGS[name].value for name in _Wanted._fields))
    _check(wanted)
    sets = _sets(wanted)
    if wanted.theorem:
        rows = theorem.rows(sets.clients, sets.generated)
        _print_theorem(rows)
        table = metrics_output.Table(list(theorem.COLUMNS), rows, [])
    else:
        num_neighbors = 0 if wanted.experiment == "gaussian" else wanted.num_neighbors
        scored = scores.table(sets.clients, sets.generated, num_neighbors, sets.features_are)
        _add_wasserstein(scored.rows, sets, wanted)
        _print(scored.rows, scored.notes)
        if wanted.experiment is not None:
            _print_lowest(scored.rows)
        every = (*scores.COLUMNS, *scores.CRITICS)
        columns = [c for c in every if any(c in row for row in scored.rows)]
        table = metrics_output.Table(columns, scored.rows, scored.notes)
    if wanted.output:
        metrics_output.write(wanted.output, table)


def _check(wanted: _Wanted) -> None:
    """Refuses flags that do not fit together."""
    if wanted.features and wanted.inception_weights:
        raise UserError("--features and --inception_weights both say what features are; give one")
    if wanted.experiment == "gaussian" and (wanted.clients or wanted.generated):
        raise UserError("--experiment=gaussian draws its own data; leave out the files")
    if wanted.clients is None and wanted.experiment != "gaussian":
        raise UserError("--clients is required; give --clients=FILE (or --experiment=gaussian)")
    if not wanted.generated and wanted.experiment is None:
        raise UserError("--generated is required; give --generated=FILE (or an --experiment)")
    if (wanted.only_client is not None) != (wanted.experiment == "extremes"):
        raise UserError("--only_client and --experiment=extremes belong together; give both")
    if wanted.output:
        metrics_output.check_output(wanted.output)


def _sets(wanted: _Wanted) -> _Sets:
    """Returns the files' clients and sets, and those of an experiment."""
    rng = np.random.default_rng(wanted.base_random_seed)
    if wanted.clients is None:
        return _Sets("as given", *gaussian.draw(rng))
    sets = _read_sets(wanted, wanted.clients)
    clients, pooled = sets.clients, sets.clients.features
    try:
        if wanted.experiment in ("nearest", "scaled"):
            clients = controlled.variance_limited(clients, wanted.num_kept, rng)
    except ValueError as error:
        raise UserError(f"--num_kept={wanted.num_kept}: {error}") from error
    made: dict[str, np.ndarray] = {}
    if wanted.experiment == "nearest":
        made = controlled.nearest(pooled, int(rng.integers(len(pooled))))
    elif wanted.experiment == "scaled":
        made = controlled.scaled(pooled)
    elif wanted.experiment == "classes":
        made = controlled.classes(clients)
    elif wanted.only_client is not None:
        if wanted.only_client not in clients.ids:
            listed = ", ".join(clients.ids[:5])
            raise UserError(f"--only_client={wanted.only_client}: expected one of {listed}, ...")
        made = controlled.extremes(clients, wanted.only_client)
    return _Sets(sets.features_are, clients, {**made, **sets.generated})


def _read_sets(wanted: _Wanted, clients: str) -> _Sets:
    """Returns the files' clients and generated sets, as features."""
    if wanted.features and wanted.features.startswith("pca:"):
        return _Sets(wanted.features, *_read_pca(wanted.features, clients, wanted.generated))
    features_are, embed = _embedding(wanted.features, wanted.inception_weights)
    return _Sets(features_are, *_read(clients, wanted.generated, embed))


def _add_wasserstein(rows: list[dict[str, Any]], sets: _Sets, wanted: _Wanted) -> None:
    """Adds the estimates of the sets that are named; nothing to the others."""
    unknown = [name for name in wanted.wasserstein if name not in sets.generated]
    if unknown:
        raise UserError(
            f"--wasserstein={unknown[0]}: no such set; found {', '.join(list(sets.generated)[:5])}"
        )
    if not wanted.wasserstein:
        return
    from motley_tff.metrics.generative import wasserstein  # TensorFlow takes 3 s.

    clients = sets.clients
    for row in rows:
        name = row["generated"]
        if name in wanted.wasserstein:
            whole, mean = wasserstein.forms(clients, sets.generated[name], wanted.base_random_seed)
            row |= {"w1_all": whole, "w1_avg": mean}


def _print_lowest(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints which of the generators each distance prefers."""
    generators = [row for row in rows if row["generated"] != gaussian.IDEAL]
    for column in (f"{name}_{form}" for name in scores.DISTANCES for form in scores.FORMS):
        best = min(generators, key=lambda row: row[column])
        print(f"lowest {column}: {best['generated']}")


def _print_theorem(rows: Sequence[Mapping[str, Any]]) -> None:
    lines: list[Sequence[str]] = [theorem.COLUMNS]
    for row in rows:
        cells = (f"{row[column]:.6g}" for column in theorem.COLUMNS[2:])
        lines.append((row["generated"], str(row["num_examples"]), *cells))
    print("\n".join(text_tables.aligned(lines)))


def _path(text: str) -> pathlib.Path:
    return pathlib.Path(os.path.expanduser(text))


def _embedding(run: str | None, inception_weights: str | None) -> tuple[str, Any]:
    """Returns what features are of, and what makes them of images; None of files of features."""
    if run is not None:
        from datasets import picture_features  # TensorFlow takes 3 s.

        classifier = picture_features.classifier(_path(run))
        return classifier.name, classifier
    if inception_weights is not None:
        from datasets.models import inception_features

        model = inception_features.load(_path(inception_weights))
        return "InceptionV3", functools.partial(inception_features.embed, model)
    return "as given", None


def _read_pca(
    wanted: str, clients: str, generated: Sequence[str]
) -> tuple[client_features.ClientFeatures, dict[str, Any]]:
    """Returns the same of images, by the principal components of the clients' pixels."""
    from datasets import picture_features

    size = wanted.removeprefix("pca:")
    if not size.isdecimal():
        raise UserError(f"--features={wanted}: expected pca:K with a whole number, such as pca:64")
    real, sets = _read(clients, generated, picture_features.flat)
    pca = picture_features.fit_pca(real.features, int(size))
    real = dataclasses.replace(real, features=pca(real.features))
    return real, {name: pca(rows) for name, rows in sets.items()}


def _read(clients: str, generated: Sequence[str], embed: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the files' clients and generated sets by name; of images, with weights, features."""
    files = _names(generated)
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
    print(f"features: {rows[0]['features']}, {rows[0]['num_features']} of them", end="\n\n")
    kinds = [scores.DISTANCES, scores.NEIGHBORS] if "recall_all" in rows[0] else [scores.DISTANCES]
    for names in kinds:
        columns = [f"{name}_{form}" for name in names for form in scores.FORMS]
        lines = [("generated", "examples", *columns)]
        for row in rows:
            cells = (_score(row, column) for column in columns)
            lines.append((row["generated"], str(row["num_examples"]), *cells))
        print("\n".join(text_tables.aligned(lines)), end="\n\n")
    for row in rows:
        if "w1_all" in row:
            print(f"w1 of {row['generated']}: all {row['w1_all']:.5g}, avg {row['w1_avg']:.5g}")
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
