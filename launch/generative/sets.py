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
from motley_tff.core.options import MAX_SEED, option
from motley_tff.experiment import run_directory
from motley_tff.metrics.generative import client_features

# The columns of a row that say which set it is.
COLUMNS = ("source", "series", "parameter", "file")
_FILE, _CHECKPOINT = "file", "checkpoint"
_PCA = "pca:"
_NOTHING = np.zeros((0, 0))
_TOO_MANY = 2**31 - 1
_ROUND = re.compile(r"round_(\d+)\.npz")

Embed = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class SetOptions:
    """What motley_generative can be told, each a flag, and the flags that can be repeated."""

    clients: str | None = option(None, "File of the clients' examples (.npz)")
    generated: Sequence[str] = ()
    run: Sequence[str] = ()
    num_examples: int | None = option(None, "Score so many examples of each set, drawn", lower=2)
    inception_weights: str | None = option(
        None, "Keras's InceptionV3 weights (.h5): the files hold images, whose features are taken"
    )
    features: str | None = option(
        None,
        "The files hold images, of which these are taken: pca:K, of the clients' pixels, or the "
        "directory of a run that trained a classifier",
    )
    classifier: str | None = option(
        None,
        "Directory of a run that trained a classifier, better not that of --features: columns "
        "label_entropy (in nats) and smallest_class_share of the classes that it finds in pictures",
    )
    num_neighbors: int = option(
        5,
        "k of precision, recall, density and coverage; 0 leaves these out, whose time grows with "
        "the square of the number of examples",
        upper=_TOO_MANY,
    )
    resamples: int = option(
        0,
        "Score so many random halves of each set, too, 2 or more: the standard deviation of each "
        "score, columns _std",
        upper=_TOO_MANY,
    )
    output: str | None = option(None, "File that gets the table, too: .csv, .md or .tex")
    base_random_seed: int = option(0, "Seed of whatever is drawn", upper=MAX_SEED)

    def check(self) -> None:
        """Refuses options that do not fit together."""
        if self.features and self.inception_weights:
            both = "both --features and --inception_weights"
            raise UserError("--features", both, "one of the two")
        for flag, value in (("--clients", self.clients), ("--generated", self.generated)):
            if not (value or self.run):
                raise UserError(flag, "nothing", f"{flag}=FILE, or --run=DIR")
        if self.run and not (self.features or self.inception_weights):
            expected = "--features or --inception_weights, which makes features of pictures"
            raise UserError("--run", "neither", expected, "give --features=pca:64")
        if self.resamples == 1:
            raise UserError(errors.name("resamples"), 1, "0, or 2 or more")


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


def read(options: SetOptions) -> Sets:
    """Returns the files' clients and sets; UserError if they are not as they should be."""
    paths, files = _files(options)
    # Before features, which may take long.
    own, predicted = _predicted(options, paths, files)
    features_are, real, generated = read_all(options, paths, files)
    sets = {
        name: _drawn(
            options, name,
            dataclasses.replace(files[name], features=array, predicted=predicted.get(name)),
        )
        for name, array in generated.items()
    }  # fmt: skip
    return Sets(features_are, real, sets, own)


def _drawn(options: SetOptions, name: str, examples: Generated) -> Generated:
    """Returns a set with `--num_examples`, drawn without replacement, the same places of sets of
    one size.
    """
    number, available = options.num_examples, len(examples.features)
    if number is None:
        return examples
    if number > available:
        expected = f"at most the {available} that {name} has"
        raise UserError(errors.name("num_examples"), number, expected)
    rng = np.random.default_rng(options.base_random_seed)
    kept = np.sort(rng.permutation(available)[:number])
    predicted = None if examples.predicted is None else examples.predicted[kept]
    return dataclasses.replace(examples, features=examples.features[kept], predicted=predicted)


def _files(options: SetOptions) -> tuple[pathlib.Path, dict[str, Generated]]:
    """Returns the clients' file and the sets, still without features, by name."""
    runs = [path(text) for text in options.run]
    files = {
        name: Generated(_NOTHING, _FILE, file=file)
        for name, file in names(options.generated).items()
    }
    for series, run in zip(names(options.run, is_file=False), runs, strict=True):
        for number, file in _checkpoints(run).items():
            name = f"{series} round {number}"
            if name in files:
                taken = f"the name of a checkpoint of --run={series}"
                raise UserError(files[name].file, taken, advice="give the file another name")
            files[name] = Generated(_NOTHING, _CHECKPOINT, series, number, str(file))
    if options.clients is not None:
        return path(options.clients), files
    clients = [run / "generated" / run_directory.CLIENTS_PICTURES for run in runs]
    _check_same(clients)
    return clients[0], files


def _checkpoints(run: pathlib.Path) -> dict[int, pathlib.Path]:
    """Returns a run's files of pictures by round."""
    rounds = {
        int(match[1]): file
        for file in (run / "generated").glob("round_*.npz")
        if (match := _ROUND.fullmatch(file.name))
    }
    if not rounds:
        advice = "give the directory of a run of generative_trainer with --num_generated"
        raise UserError(f"--run={run}", "no generated/round_*.npz in it", advice=advice)
    return dict(sorted(rounds.items()))


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
            others = "pictures of other clients"
            raise UserError(str(file), others, f"the same clients as in {files[0]}", advice)


def path(text: str) -> pathlib.Path:
    """Returns a path as a shell would read it."""
    return pathlib.Path(os.path.expanduser(text))


def names(files: Sequence[str], is_file: bool = True) -> dict[str, str]:
    """Returns {name: file or directory}: their stems or names if all differ, else as given."""
    paths = [pathlib.Path(os.path.abspath(file)) for file in files]
    for name, place in zip(files, paths, strict=True):
        if paths.count(place) > 1:
            raise UserError(name, "this path twice", "each path once", "leave one of them out")
    stems = [place.stem if is_file else place.name for place in paths]
    return dict(zip(stems if len({*stems}) == len(stems) else files, files, strict=True))


def read_all(
    options: SetOptions, clients: pathlib.Path, files: Mapping[str, Generated]
) -> tuple[str, client_features.ClientFeatures, dict[str, np.ndarray]]:
    """Returns (what features are of, the clients' features, the sets' by name)."""
    features_are, embed = _embedding(options)
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
        name: client_features.read_generated(path(generated.file), width, embed)
        for name, generated in files.items()
    }


def _embedding(options: SetOptions) -> tuple[str, Any]:
    """Returns what features are of, and what makes them of images; None of files of features."""
    if options.features is not None:
        from datasets import picture_features  # TensorFlow takes 3 s.

        if options.features.startswith(_PCA):
            if not options.features.removeprefix(_PCA).isdecimal():
                expected = "pca:K with a whole number, such as pca:64"
                raise UserError(errors.name("features"), options.features, expected)
            return options.features, picture_features.flat
        picture_features.check_alike(path(options.features), _runs(options))
        classifier = picture_features.classifier(path(options.features))
        return classifier.name, classifier
    if options.inception_weights is not None:
        from datasets.models import inception_features

        model = inception_features.load(path(options.inception_weights))
        return "InceptionV3", functools.partial(inception_features.embed, model)
    return "as given", None


def _runs(options: SetOptions) -> list[pathlib.Path]:
    """Returns the runs of `--run`, and the generator's that left the clients' file, if one did."""
    from datasets import picture_features  # TensorFlow takes 3 s.

    runs = [path(run) for run in options.run]
    left = path(options.clients).resolve() if options.clients is not None else None
    if left is None or left.parts[-2:] != ("generated", run_directory.CLIENTS_PICTURES):
        return runs
    run = left.parent.parent
    return [*runs, run] if picture_features.is_of_generator(run) else runs


def _predicted(
    options: SetOptions, clients: pathlib.Path, files: Mapping[str, Generated]
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """Returns (the classes that `--classifier` finds in the clients' pictures, {set's name: those
    of its pictures}); nothing without a classifier.
    """
    if options.classifier is None:
        return None, {}
    from datasets import picture_features  # TensorFlow takes 3 s.

    run = path(options.classifier)
    picture_features.check_alike(run, _runs(options), "classifier")
    classify = picture_features.classifier(run, "classifier").predicted
    try:
        own, sets = _read(clients, files, classify)
    except UserError as error:
        advice = "leave --classifier out, which is for pictures"
        raise UserError(error.where, error.finding, error.expected, advice) from error
    return own.features, sets
