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
launch/experiments/generative/sets.py shows that on the paper's sets.
"""

import functools

from absl import flags

from launch.generative import sets as sets_lib, tables
from launch.metrics import output as metrics_output
from motley_tff import commandline
from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS
_TOO_MANY = 2**31 - 1

flags.DEFINE_string("clients", None, "File of the clients' examples (.npz).")
flags.DEFINE_multi_string("generated", [], "File of a generated set (.npz, .npy); repeat for more.")
flags.DEFINE_multi_string(
    "run", [], "Directory of a run of generative_trainer: its checkpoints' pictures, and its "
    "clients if --clients is not given; repeat for more.",
)  # fmt: skip
flags.DEFINE_integer(
    "num_examples", None, "Score so many examples of each set, drawn.", lower_bound=2,
)  # fmt: skip
flags.DEFINE_string(
    "inception_weights", None,
    "Keras's InceptionV3 weights (.h5): the files hold images, whose features are taken.",
)  # fmt: skip
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
flags.DEFINE_string("output", None, "File that gets the table, too: .csv, .md or .tex.")
flags.DEFINE_integer(
    "base_random_seed", 0, "Seed of whatever is drawn.", lower_bound=0, upper_bound=2**32 - 1
)


def main() -> None:
    """Scores and prints."""
    wanted = sets_lib.Wanted(*(FLAGS[name].value for name in sets_lib.Wanted._fields))
    _check(wanted)
    sets = sets_lib.read(wanted)
    table = tables.scored(wanted, sets)
    tables.show(list(table.rows), table.notes)
    if wanted.output:
        metrics_output.write(wanted.output, table)


def _check(wanted: sets_lib.Wanted) -> None:
    """Refuses flags that do not fit together."""
    if wanted.features and wanted.inception_weights:
        raise UserError("--features", "--inception_weights beside it", "one of them")
    for flag, value in (("--clients", wanted.clients), ("--generated", wanted.generated)):
        if not (value or wanted.run):
            raise UserError(flag, "nothing", f"{flag}=FILE, or --run=DIR")
    if wanted.run and not (wanted.features or wanted.inception_weights):
        raise UserError("--run", "pictures", "what their features are", "give --features=pca:64")
    if wanted.output:
        metrics_output.check_output(wanted.output)


def _advice(flag: str) -> str | None:
    """Returns where a flag's work is done now."""
    moved = ("experiment", "theorem", "wasserstein", "num_anchors", "num_kept", "only_client")
    script = "./launch/run python launch/experiments/generative/sets.py --help"
    return f"the paper's own sets are a script's: {script}" if flag in moved else None


run = functools.partial(commandline.run_main, main, advice=_advice)

if __name__ == "__main__":
    run()
