"""What motley_generative scores: sets from files and of runs' checkpoints."""

import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.experiment import run_directory
from motley_tff.metrics.generative import client_features

# The columns of a row that say what it is of.
COLUMNS = ("source", "series", "parameter", "file")
_FILE, _CHECKPOINT = "file", "checkpoint"
_PCA = "pca:"
_NOTHING = np.zeros((0, 0))
_ROUND = re.compile(r"round_(\d+)\.npz")

Embed = Callable[[np.ndarray], np.ndarray]


class Wanted(NamedTuple):
    """The flags."""

    clients: str | None = None
    generated: Sequence[str] = ()
    run: Sequence[str] = ()
    num_examples: int | None = None
    inception_weights: str | None = None
    features: str | None = None
    classifier: str | None = None
    num_neighbors: int = 0
    resamples: int = 0
    output: str | None = None
    base_random_seed: int = 0


@dataclasses.dataclass(frozen=True)
class Generated:
    """A set.

    Attributes:
      features: [num_examples, num_features].
      source: `file` or `checkpoint`.
      series: The run that made it, if one did.
      parameter: The round of a checkpoint.
      file: The file of its examples.
      predicted: [num_examples, num_classes], 1 at the class that a classifier finds; None of sets
        without pictures.
    """

    features: np.ndarray
    source: str
    series: str = ""
    parameter: float | None = None
    file: str = ""
    predicted: np.ndarray | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Returns its `COLUMNS`."""
        return {column: getattr(self, column) for column in COLUMNS}


class Sets(NamedTuple):
    """What is scored, by name, and what its features are. `predicted` are the classes that a
    classifier finds in the clients' own pictures.
    """

    features_are: str
    clients: client_features.ClientFeatures
    generated: dict[str, Generated]
    predicted: np.ndarray | None = None


def read(wanted: Wanted) -> Sets:
    """Returns the files' clients and sets; UserError if they are not as they should be."""
    paths, files = _files(wanted)
    # Before features, which may take long.
    of_clients, predicted = _predicted(wanted, paths, files)
    features_are, real, generated = read_all(wanted, paths, files)
    sets = {
        name: dataclasses.replace(files[name], features=array, predicted=predicted.get(name))
        for name, array in generated.items()
    }
    return Sets(features_are, real, _drawn(wanted, sets), of_clients)


def _drawn(wanted: Wanted, sets: Mapping[str, Generated]) -> dict[str, Generated]:
    """Returns the sets with so many examples of each as are wanted, drawn without replacement, the
    same places of sets of one size.
    """
    number, drawn = wanted.num_examples, dict(sets)
    if number is None:
        return drawn
    for name, of in sets.items():
        if number > len(of.features):
            expected = f"at most the {len(of.features)} that {name} has"
            raise UserError(errors.name("num_examples"), number, expected)
        rng = np.random.default_rng(wanted.base_random_seed)
        kept = np.sort(rng.permutation(len(of.features))[:number])
        predicted = None if of.predicted is None else of.predicted[kept]
        drawn[name] = dataclasses.replace(of, features=of.features[kept], predicted=predicted)
    return drawn


def _files(wanted: Wanted) -> tuple[pathlib.Path, dict[str, Generated]]:
    """Returns the clients' file and the sets, still without features, by name."""
    runs = [path(text) for text in wanted.run]
    files = {
        name: Generated(_NOTHING, _FILE, file=file)
        for name, file in names(wanted.generated).items()
    }
    for series, run in zip(names(wanted.run, is_file=False), runs, strict=True):
        for number, file in _checkpoints(run).items():
            name = f"{series} round {number}"
            if name in files:
                found = f"the name of a checkpoint of --run={series}"
                raise UserError(files[name].file, found, advice="give the file another name")
            files[name] = Generated(_NOTHING, _CHECKPOINT, series, number, str(file))
    if wanted.clients is not None:
        return path(wanted.clients), files
    clients = [run / "generated" / run_directory.CLIENTS_PICTURES for run in runs]
    _check_same(clients)
    return clients[0], files


def _checkpoints(run: pathlib.Path) -> dict[int, pathlib.Path]:
    """Returns a run's files of pictures by round."""
    found = {
        int(match[1]): file
        for file in (run / "generated").glob("round_*.npz")
        if (match := _ROUND.fullmatch(file.name))
    }
    if not found:
        advice = "give the directory of a run of generative_trainer with --num_generated"
        raise UserError(f"--run={run}", "no generated/round_*.npz in it", advice=advice)
    return dict(sorted(found.items()))


def _check_same(files: Sequence[pathlib.Path]) -> None:
    """Refuses runs of other clients than the first's."""
    digests = []
    for file in files:
        try:
            digests.append(run_directory.digest(str(file)))
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror or error}") from error
    for file, digest in zip(files, digests, strict=True):
        if digest != digests[0]:
            advice = "give --clients=FILE, whom all are scored against"
            raise UserError(str(file), "other clients", f"those of {files[0]}", advice)


def path(text: str) -> pathlib.Path:
    """Returns a path as a shell would read it."""
    return pathlib.Path(os.path.expanduser(text))


def names(files: Sequence[str], is_file: bool = True) -> dict[str, str]:
    """Returns {name: file or directory}: their stems or names if all differ, else as given."""
    paths = [pathlib.Path(os.path.abspath(file)) for file in files]
    for name, of in zip(files, paths, strict=True):
        if paths.count(of) > 1:
            raise UserError(name, "this path twice", "each once")
    stems = [of.stem if is_file else of.name for of in paths]
    found = stems if len(set(stems)) == len(stems) else list(files)
    return dict(zip(found, files, strict=True))


def read_all(
    wanted: Wanted, clients: pathlib.Path, files: Mapping[str, Generated]
) -> tuple[str, client_features.ClientFeatures, dict[str, np.ndarray]]:
    """Returns (what features are of, the clients' features, the sets' by name)."""
    features_are, embed = _embedding(wanted)
    real, sets = _read(clients, files, embed)
    if features_are.startswith(_PCA):  # Of the clients' pixels.
        from datasets import picture_features  # TensorFlow takes 3 s.

        pca = picture_features.fit_pca(real.features, int(features_are.removeprefix(_PCA)))
        real = dataclasses.replace(real, features=pca(real.features))
        sets = {name: pca(rows) for name, rows in sets.items()}
    return features_are, real, sets


def _read(
    clients: pathlib.Path, files: Mapping[str, Generated], embed: Embed | None
) -> tuple[client_features.ClientFeatures, dict[str, np.ndarray]]:
    real = client_features.read_clients(clients, embed)
    width = real.features.shape[1]
    return real, {
        name: client_features.read_generated(path(of.file), width, embed)
        for name, of in files.items()
    }


def _embedding(wanted: Wanted) -> tuple[str, Any]:
    """Returns what features are of, and what makes them of images; None of files of features."""
    if wanted.features is not None:
        from datasets import picture_features  # TensorFlow takes 3 s.

        if wanted.features.startswith(_PCA):
            if not wanted.features.removeprefix(_PCA).isdecimal():
                expected = "pca:K with a whole number, such as pca:64"
                raise UserError(errors.name("features"), wanted.features, expected)
            return wanted.features, picture_features.flat
        picture_features.check_alike(path(wanted.features), _runs(wanted))
        classifier = picture_features.classifier(path(wanted.features))
        return classifier.name, classifier
    if wanted.inception_weights is not None:
        from datasets.models import inception_features

        model = inception_features.load(path(wanted.inception_weights))
        return "InceptionV3", functools.partial(inception_features.embed, model)
    return "as given", None


def _runs(wanted: Wanted) -> list[pathlib.Path]:
    """Returns the runs of `--run`, and the generator's that left the clients' file, if one did."""
    from datasets import picture_features  # TensorFlow takes 3 s.

    runs = [path(run) for run in wanted.run]
    left = path(wanted.clients).resolve() if wanted.clients is not None else None
    if left is None or left.parts[-2:] != ("generated", run_directory.CLIENTS_PICTURES):
        return runs
    of_clients = left.parent.parent
    return [*runs, of_clients] if picture_features.is_of_generator(of_clients) else runs


def _predicted(
    wanted: Wanted, clients: pathlib.Path, files: Mapping[str, Generated]
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """Returns (the classes that `--classifier` finds in the clients' pictures, {set's name: those
    of its pictures}); nothing without a classifier.
    """
    if wanted.classifier is None:
        return None, {}
    from datasets import picture_features  # TensorFlow takes 3 s.

    run = path(wanted.classifier)
    picture_features.check_alike(run, _runs(wanted), "classifier")
    classify = picture_features.classifier(run, "classifier").predicted
    try:
        of_clients, of_sets = _read(clients, files, classify)
    except UserError as error:
        advice = "leave --classifier out, which is for pictures"
        raise UserError(error.where, error.finding, error.expected, advice) from error
    return of_clients.features, of_sets
