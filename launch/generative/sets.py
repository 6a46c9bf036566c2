"""What motley_generative scores: sets from files, of runs' checkpoints, and of experiments."""

import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motley_tff.core.errors import UserError
from motley_tff.experiment import run_directory
from motley_tff.metrics.generative import client_features, controlled, gaussian

EXPERIMENTS = ("gaussian", "nearest", "scaled", "classes", "extremes")
# The columns of a row that say what it is of; `generated` is unlike in all rows of a group.
COLUMNS = ("source", "series", "parameter", "file", "num_kept")
_FILE, _CHECKPOINT = "file", "checkpoint"
# Of whose sets `--num_examples` are drawn; those of `nearest` differ by their sizes alone.
_LIMITED = ("nearest", "scaled")  # Whose clients keep an anchor's neighbours alone.
DRAWN = (_FILE, _CHECKPOINT, "scaled", "classes", "extremes")
_NOTHING = np.zeros((0, 0))
_ROUND = re.compile(r"round_(\d+)\.npz")

Embed = Callable[[np.ndarray], np.ndarray]


class Wanted(NamedTuple):
    """The flags."""

    clients: str | None
    generated: list[str]
    run: list[str]
    num_examples: int | None
    inception_weights: str | None
    features: str | None
    classifier: str | None
    num_neighbors: int
    resamples: int
    theorem: bool
    wasserstein: list[str]
    output: str | None
    experiment: str | None
    num_kept: int
    num_anchors: int
    only_client: str | None
    base_random_seed: int


@dataclasses.dataclass(frozen=True)
class Generated:
    """A set.

    Attributes:
      features: [num_examples, num_features].
      source: `file`, `checkpoint`, or the experiment that made it.
      series: Which of several of a kind: the run, the anchor.
      parameter: What differs in a series: the round, the number of examples, the variance or scale.
      file: Of its pictures, if it has one; of one or two clients' examples, of all clients'.
      num_kept: K, of clients that keep so many neighbours; None of others.
      predicted: [num_examples, num_classes], 1 at the class that a classifier finds; None of sets
        without pictures.
    """

    features: np.ndarray
    source: str
    series: str = ""
    parameter: float | None = None
    file: str = ""
    num_kept: int | None = None
    predicted: np.ndarray | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Returns its `COLUMNS`."""
        return {column: getattr(self, column) for column in COLUMNS}


class Sets(NamedTuple):
    """What is scored, and what its features are. The sets of a group are ranked. `predicted` are
    the classes that a classifier finds in the clients' own pictures.
    """

    features_are: str
    clients: client_features.ClientFeatures
    groups: list[dict[str, Generated]]
    predicted: np.ndarray | None = None


def read(wanted: Wanted) -> Sets:
    """Returns the files' clients and sets, and those of an experiment; UserError if they are not
    as they should be.
    """
    rng = np.random.default_rng(wanted.base_random_seed)
    if wanted.experiment == "gaussian":
        clients, by_variance = gaussian.draw(rng)
        made = _varied("gaussian", "var_x={:g}", by_variance)
        made["ideal"] = Generated(clients.features, "gaussian")
        return Sets("as given", clients, [made])
    paths, files = _files(wanted)
    # Before features, which may take long.
    of_clients, predicted = _predicted(_classify(wanted), paths, files)
    features_are, real, generated = _read_all(wanted, paths, files)
    given = {
        name: dataclasses.replace(files[name], features=array, predicted=predicted.get(name))
        for name, array in generated.items()
    }
    has_pictures = wanted.features is not None or wanted.inception_weights is not None
    clients, groups = _experiment(wanted, real, str(paths) if has_pictures else "", rng)
    for group in groups:
        if same := set(group) & set(given):
            raise UserError(
                f"{min(same)}: a client and a generated set; give the file another name"
            )
    num_kept = wanted.num_kept if wanted.experiment in _LIMITED else None
    groups = [
        {
            name: dataclasses.replace(of, num_kept=num_kept)
            for name, of in _drawn(wanted, group).items()
        }
        for group in _beside(groups, given)
    ]
    return Sets(features_are, clients, groups, of_clients)


def _beside(
    groups: list[dict[str, Generated]], given: dict[str, Generated]
) -> list[dict[str, Generated]]:
    """Returns an experiment's groups with the files' sets: beside what it made if that is one
    group; of several, which rank alone, in one of their own, so that each is scored once.
    """
    if len(groups) == 1:
        return [{**groups[0], **given}]
    return [given, *groups] if given else groups


def _experiment(
    wanted: Wanted,
    clients: client_features.ClientFeatures,
    file: str,
    rng: np.random.Generator,
) -> tuple[client_features.ClientFeatures, list[dict[str, Generated]]]:
    """Returns an experiment's clients and the groups that it makes; `file` is of clients' pictures,
    if they are such.
    """
    pooled, name = clients.features, wanted.experiment
    if name in _LIMITED:
        try:
            clients = controlled.variance_limited(clients, wanted.num_kept, rng)
        except ValueError as error:
            raise UserError(f"--num_kept={wanted.num_kept}: {error}") from error
    if name == "nearest":
        if wanted.num_anchors > len(pooled):
            raise UserError(
                f"--num_anchors={wanted.num_anchors}: the clients have {len(pooled)} examples"
            )
        anchors = rng.choice(len(pooled), wanted.num_anchors, replace=False)
        of_anchors = ((f"anchor {a}", controlled.nearest(pooled, int(a))) for a in anchors)
        return clients, [_varied("nearest", "nearest {}", s, series) for series, s in of_anchors]
    if name == "scaled":
        return clients, [_varied("scaled", "covariance x {:.3g}", controlled.scaled(pooled))]
    if name == "classes":
        made = _named(controlled.classes, clients)
        return clients, [{n: Generated(a, name, file=file) for n, a in made.items()}]
    if name == "extremes":
        client = wanted.only_client or ""
        if client not in clients.ids:
            listed = ", ".join(clients.ids[:5])
            raise UserError(f"--only_client={client}: expected one of {listed}, ...")
        made = _named(controlled.extremes, clients, client)
        of_half = {n: file if n != controlled.HALF else "" for n in made}
        return clients, [{n: Generated(a, name, file=of_half[n]) for n, a in made.items()}]
    return clients, []


def _named(make: Callable[..., dict[str, np.ndarray]], *arguments: Any) -> dict[str, np.ndarray]:
    """Returns what an experiment makes; UserError if two sets would have one name."""
    try:
        return make(*arguments)
    except ValueError as error:
        raise UserError(f"--clients: {error}") from error


def _varied(
    source: str, template: str, sets: Mapping[Any, np.ndarray], series: str = ""
) -> dict[str, Generated]:
    return {
        template.format(value): Generated(features, source, series, value)
        for value, features in sets.items()
    }


def _drawn(wanted: Wanted, group: Mapping[str, Generated]) -> dict[str, Generated]:
    """Returns a group with so many examples of each set as are wanted, drawn without replacement,
    the same places of sets of one size; those that are not `DRAWN` stay.
    """
    number, drawn = wanted.num_examples, dict(group)
    for name, of in group.items():
        if number is None or of.source not in DRAWN:
            continue
        if number > len(of.features):
            raise UserError(
                f"--num_examples={number}: {name} has {len(of.features)}; give at most that"
            )
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
                raise UserError(
                    f"{files[name].file} is named as a checkpoint of --run={series}; give the file "
                    "another name"
                )
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
        raise UserError(
            f"--run={run}: no generated/round_*.npz in it; give the directory of a run of "
            "generative_trainer that made pictures, as --num_generated says"
        )
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
            raise UserError(
                f"{file} and {files[0]} differ: the runs had other clients; give --clients=FILE, "
                "whom all are scored against"
            )


def path(text: str) -> pathlib.Path:
    """Returns a path as a shell would read it."""
    return pathlib.Path(os.path.expanduser(text))


def names(files: Sequence[str], is_file: bool = True) -> dict[str, str]:
    """Returns {name: file or directory}: their stems or names if all differ, else as given."""
    paths = [pathlib.Path(os.path.abspath(file)) for file in files]
    for name, of in zip(files, paths, strict=True):
        if paths.count(of) > 1:
            raise UserError(f"{name} is given twice; give each once")
    stems = [of.stem if is_file else of.name for of in paths]
    found = stems if len(set(stems)) == len(stems) else list(files)
    return dict(zip(found, files, strict=True))


def _read_all(
    wanted: Wanted, clients: pathlib.Path, files: Mapping[str, Generated]
) -> tuple[str, client_features.ClientFeatures, dict[str, np.ndarray]]:
    """Returns (what features are of, the clients' features, the sets' by name)."""
    if wanted.features and wanted.features.startswith("pca:"):
        return wanted.features, *_read_pca(wanted.features, clients, files)
    features_are, embed = _embedding(wanted)
    return features_are, *_read(clients, files, embed)


def _embedding(wanted: Wanted) -> tuple[str, Any]:
    """Returns what features are of, and what makes them of images; None of files of features."""
    if wanted.features is not None:
        from datasets import picture_features  # TensorFlow takes 3 s.

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


def _classify(wanted: Wanted) -> Embed | None:
    """Returns what `--classifier` finds in pictures: their classes."""
    if wanted.classifier is None:
        return None
    from datasets import picture_features  # TensorFlow takes 3 s.

    run = path(wanted.classifier)
    picture_features.check_alike(run, _runs(wanted), "classifier")
    return picture_features.classifier(run, "classifier").predicted


def _predicted(
    classify: Embed | None, clients: pathlib.Path, files: Mapping[str, Generated]
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """Returns (the classes of the clients' pictures, {set's name: those of its pictures}); nothing
    without a classifier.
    """
    if classify is None:
        return None, {}
    try:
        of_clients = client_features.read_clients(clients, classify).features
        predicted = {
            name: client_features.read_generated(path(of.file), None, classify)
            for name, of in files.items()
        }
    except UserError as error:
        raise UserError(f"{error}; --classifier is for pictures") from error
    return of_clients, predicted


def _read_pca(
    wanted: str, clients: pathlib.Path, files: Mapping[str, Generated]
) -> tuple[client_features.ClientFeatures, dict[str, np.ndarray]]:
    """Returns the features of images, by the principal components of the clients' pixels."""
    from datasets import picture_features

    size = wanted.removeprefix("pca:")
    if not size.isdecimal():
        raise UserError(f"--features={wanted}: expected pca:K with a whole number, such as pca:64")
    real, sets = _read(clients, files, picture_features.flat)
    pca = picture_features.fit_pca(real.features, int(size))
    real = dataclasses.replace(real, features=pca(real.features))
    return real, {name: pca(rows) for name, rows in sets.items()}


def _read(
    clients: pathlib.Path, files: Mapping[str, Generated], embed: Embed | None
) -> tuple[client_features.ClientFeatures, dict[str, np.ndarray]]:
    real = client_features.read_clients(clients, embed)
    width = real.features.shape[1]
    return real, {
        name: client_features.read_generated(path(of.file), width, embed)
        for name, of in files.items()
    }
