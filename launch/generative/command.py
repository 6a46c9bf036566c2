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
from trainers import option_flags

FLAGS = flags.FLAGS
for _flag in option_flags.make("", [sets_lib.SetOptions]).values():
    flags.DEFINE_flag(_flag.flag)
flags.DEFINE_multi_string("generated", [], "File of a generated set (.npz, .npy); repeat for more.")
flags.DEFINE_multi_string(
    "run", [], "Directory of a run of generative_trainer: its checkpoints' pictures, and its "
    "clients if --clients is not given; repeat for more.",
)  # fmt: skip


def main() -> None:
    """Scores and prints."""
    options = option_flags.read(sets_lib.SetOptions, generated=FLAGS.generated, run=FLAGS.run)
    options.check()
    if options.output:
        metrics_output.check_output(options.output)
    table = tables.scored(options, sets_lib.read(options))
    tables.show(list(table.rows), table.notes)
    if options.output:
        metrics_output.write(options.output, table)


def _advice(flag: str) -> str | None:
    """Returns where a flag's work is done now."""
    moved = ("experiment", "theorem", "wasserstein", "num_anchors", "num_kept", "only_client")
    script = "./launch/run python launch/experiments/generative/sets.py --help"
    return f"the paper's own sets are a script's: {script}" if flag in moved else None


run = functools.partial(commandline.run_main, main, advice=_advice)

if __name__ == "__main__":
    run()
