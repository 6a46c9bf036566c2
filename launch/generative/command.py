"""motley_generative: scores sets of generated examples against clients' real ones.

    motley_generative --clients=clients.npz --generated=gan.npz --generated=ddpm.npz
    motley_generative --run=results/digits --features=pca:64 --resamples=50

The clients' file holds an array of features [examples, features] a client, or the arrays `features`
and `client_id`; a generated set's file one array, or `features` among others. With --features or
--inception_weights they hold images, [examples, height, width] with or without channels, in place
of features or (named `images`) beside them.
--run takes both from a run of generative_trainer, a set for each of its checkpoints.

Each score has two forms (Wang et al. 2023): *all* compares with the examples of all clients
together, *avg* is the mean over clients, weighted by their examples, of the score against each
alone. fid, the Frechet distance of whatever features there are, can rank sets differently in its
two forms; those of kid (unbiased) and kid_biased, kernel distances, are a constant apart.
--experiment=gaussian shows it on the paper's example, the other experiments on real examples of
clients of one class each. --theorem prints where FID-avg and FID-all
come from, with covariances by n: their gap as a difference of traces, the distance to the clients'
barycenter and the constant whose sum the paper equates with FID-avg, and what FID-avg is of it.
"""

import functools
import itertools
from collections.abc import Mapping

import numpy as np
from absl import flags

from launch.generative import printed, scoring, sets as sets_lib
from launch.metrics import output as metrics_output
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.metrics.generative import scores, theorem

FLAGS = flags.FLAGS
_TOO_MANY = 2**31 - 1

flags.DEFINE_string("clients", None, "File of the clients' examples (.npz).")
flags.DEFINE_multi_string("generated", [], "File of a generated set (.npz, .npy); repeat for more.")
flags.DEFINE_multi_string(
    "run", [], "Directory of a run of generative_trainer: its checkpoints' pictures, and its "
    "clients if --clients is not given; repeat for more.",
)  # fmt: skip
flags.DEFINE_integer(
    "num_examples", None, "Score so many examples of each set, drawn; not of --experiment=nearest, "
    "whose sets differ by their sizes.", lower_bound=2,
)  # fmt: skip
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
flags.DEFINE_string(
    "classifier", None,
    "Directory of a run that trained a classifier, better not that of --features: columns "
    "label_entropy (in nats) and smallest_class_share of the classes that it finds in pictures.",
)  # fmt: skip
flags.DEFINE_integer(
    "num_neighbors", 5,
    "k of precision, recall, density and coverage; 0 leaves these out, whose time grows with the "
    "square of the number of examples.", lower_bound=0, upper_bound=_TOO_MANY,
)  # fmt: skip
flags.DEFINE_integer(
    "resamples", 0, "Score so many random halves of each set, too: the standard deviation of each "
    "score, columns _std.", lower_bound=0, upper_bound=_TOO_MANY,
)  # fmt: skip
flags.register_validator("resamples", lambda n: n != 1, "expected 0, or 2 or more")
flags.DEFINE_bool(
    "theorem", False, "Print the parts of the paper's Theorem 1 in place of the scores."
)
flags.DEFINE_list(
    "wasserstein", [], "Sets, by name, whose 1-Wasserstein distance a critic estimates, too: "
    "columns w1_all and w1_avg, and their ranks. A critic is trained for each client.",
)  # fmt: skip
flags.DEFINE_string("output", None, "File that gets the table, too: .csv, .md or .tex.")
flags.DEFINE_enum(
    "experiment", None, sets_lib.EXPERIMENTS,
    "Score generators that need no training: the paper's normal distributions, which need no "
    "files; or made of the clients' examples (see motley_tff.metrics.generative.controlled).",
)  # fmt: skip
flags.DEFINE_integer(
    "num_kept", 20, "--experiment=nearest, scaled: K, how many neighbours of its anchor each "
    "client keeps.", lower_bound=1,
)  # fmt: skip
flags.DEFINE_integer(
    "num_anchors", 1, "--experiment=nearest: of how many anchors' neighbours; of several, each "
    "is ranked alone, and so are the sets from files.", lower_bound=1,
)  # fmt: skip
flags.DEFINE_string(
    "only_client", None, "--experiment=extremes: the client whose examples are given back."
)
flags.DEFINE_integer(
    "base_random_seed", 0, "Seed of whatever is drawn.", lower_bound=0, upper_bound=2**32 - 1
)


def main() -> None:
    """Scores and prints."""
    wanted = sets_lib.Wanted(*(FLAGS[name].value for name in sets_lib.Wanted._fields))
    _check(wanted)
    sets = sets_lib.read(wanted)
    table = _theorem(sets) if wanted.theorem else _scores(wanted, sets)
    if wanted.output:
        metrics_output.write(wanted.output, table)


def _check(wanted: sets_lib.Wanted) -> None:
    """Refuses flags that do not fit together."""
    if wanted.features and wanted.inception_weights:
        raise UserError("--features and --inception_weights both say what features are; give one")
    has_files = bool(wanted.clients or wanted.generated or wanted.run)
    if wanted.experiment == "gaussian" and has_files:
        raise UserError("--experiment=gaussian draws its own data; leave out the files")
    if not (wanted.clients or wanted.run or wanted.experiment == "gaussian"):
        raise UserError(
            "--clients is required; give --clients=FILE (or --run=DIR, or --experiment=gaussian)"
        )
    if not (wanted.generated or wanted.run or wanted.experiment):
        raise UserError("--generated is required; give --generated=FILE (or --run=DIR, or an "
                        "--experiment)")  # fmt: skip
    if wanted.run and not (wanted.features or wanted.inception_weights):
        raise UserError("--run has pictures; say of what features are, such as --features=pca:64")
    if (wanted.only_client is not None) != (wanted.experiment == "extremes"):
        raise UserError("--only_client and --experiment=extremes belong together; give both")
    if wanted.classifier and not (wanted.generated or wanted.run):
        raise UserError("--classifier is for pictures of --generated and --run; leave it out")
    not_scores = ("wasserstein", "resamples", "classifier")
    beside = [name for name in not_scores if getattr(wanted, name)]
    if wanted.theorem and beside:
        raise UserError(f"--theorem prints no scores, for which --{beside[0]} is; leave one out")
    if wanted.num_anchors > 1 and wanted.experiment != "nearest":
        raise UserError("--num_anchors is for --experiment=nearest; leave it out")
    is_drawn = wanted.generated or wanted.run or wanted.experiment in sets_lib.DRAWN
    if wanted.num_examples is not None and not is_drawn:
        raise UserError(
            "--num_examples is for --generated, --run and --experiment=scaled, classes or extremes;"
            " leave it out"
        )
    if wanted.output:
        metrics_output.check_output(wanted.output)


def _theorem(sets: sets_lib.Sets) -> metrics_output.Table:
    rows = [
        {**row, **group[str(row["generated"])].facts}
        for group in sets.groups
        for row in theorem.rows(sets.clients, _features(group), sets.features_are)
    ]
    every = [scores.few_examples(sets.clients, _features(group)) for group in sets.groups]
    notes = list(dict.fromkeys(itertools.chain(*every)))
    printed.theorem(rows, notes)
    # Not `source`, by which a report knows a table of scores.
    facts = [c for c in ("series", "num_kept") if any(row[c] not in ("", None) for row in rows)]
    return metrics_output.Table([*theorem.COLUMNS, *facts], rows, notes)


def _features(group: Mapping[str, sets_lib.Generated]) -> dict[str, np.ndarray]:
    return {name: of.features for name, of in group.items()}


def _scores(wanted: sets_lib.Wanted, sets: sets_lib.Sets) -> metrics_output.Table:
    columns, rows, notes = scoring.scored(wanted, sets)
    printed.scores(rows, notes, [len(group) for group in sets.groups])
    return metrics_output.Table(columns, rows, notes)


run = functools.partial(commandline.run_main, main)

if __name__ == "__main__":
    run()
