"""FedAvg + fine-tuning, and local training with --total_rounds=0.

Trains a global model, fine-tunes every validation and test client from it, evaluates after every
epoch, chooses the epoch on the validation clients and reports the test clients there.
--finetune_every=N does so after rounds N, 2N, ... and the last; the published silo code, which
counts from 0, after rounds 1, N + 1, ... and the last.

    finetuning_trainer --dataset_name=emnist --use_synthetic_data --experiment_name=quickstart
"""

import contextlib

from absl import flags

import datasets
from motley_tff import algorithms, commandline
from motley_tff.core.errors import UserError
from trainers import optimizer_flags, published_flags, shared_flags

FLAGS = flags.FLAGS

shared_flags.define()
optimizer_flags.define("client", default_rate=0.1)
optimizer_flags.define("server", default_rate=1.0)
optimizer_flags.define("finetune", default_rate=0.01, many_rates=True)
flags.DEFINE_enum(
    "algorithm", "fedavg", list(algorithms.TRAINING), "How the global model is trained."
)
flags.DEFINE_float(
    "proximal_strength", 0.1, "mu of --algorithm=fedprox; 0 is FedAvg.", lower_bound=0.0
)
flags.DEFINE_integer(
    "finetune_max_epochs",
    20,
    "Fine-tuning epochs to evaluate: 0 to this.",
    lower_bound=0,
    upper_bound=10_000,
)
flags.DEFINE_bool("finetune_last_layer", False, "Fine-tune the last layer only.")
flags.DEFINE_enum(
    "finetune_tuning",
    "global",
    ["global", "per_client"],
    "Choose (rate, epoch) once for all clients, or for each silo by its own validation part.",
)
flags.DEFINE_integer(
    "finetune_every",
    None,
    "Evaluate after every so many rounds and after the last, instead of --rounds_per_evaluation; "
    "the closing table then is that of the best on validation clients.",
    lower_bound=1,
)
flags.DEFINE_bool(
    "include_baseline_candidate", True, "Whether the global model itself may be chosen."
)


def main() -> None:
    """Runs the experiment that the flags describe."""
    if FLAGS.finetune_every is not None and FLAGS.dataset_name not in datasets.CROSS_SILO:
        raise UserError(
            "--finetune_every takes the best of several evaluations, which must be of the same "
            f"clients: it is for silos ({', '.join(datasets.CROSS_SILO)}); give "
            "--rounds_per_evaluation"
        )
    with contextlib.closing(shared_flags.open_directory(FLAGS)) as directory:
        from trainers import assembly  # Imports TensorFlow: after all that can be known is right.

        loop = {
            "tuning": FLAGS.finetune_tuning,
            "include_baseline_candidate": FLAGS.include_baseline_candidate,
        }
        every = FLAGS.finetune_every
        if every is not None:
            loop["rounds_per_evaluation"] = every
        assembly.run(FLAGS, directory, _build, selects_round=every is not None, **loop)


def _build(task, initial_weights):
    """Returns (training algorithm, personalization, name for the tables)."""
    from trainers import assembly

    training = assembly.training_algorithm(FLAGS, task, initial_weights)
    name = f"{training.name}+finetuning"
    if not FLAGS.total_rounds:
        name = "finetuning" if FLAGS.path_to_initial_model_weights else "local"
    return training, assembly.fine_tuning(FLAGS, task), name


def run() -> None:
    """Entry point of the console command."""
    commandline.run_main(main, goes_on=True, advice=published_flags.advice)


if __name__ == "__main__":
    run()
