"""FedAvg + fine-tuning, and local training with --total_rounds=0.

Trains a global model, fine-tunes every validation and test client from it, evaluates after every
epoch, chooses the epoch on the validation clients and reports the test clients there.
--finetune_every=N does so after rounds N, 2N, ... and the last; the published silo code, which
counts from 0, after rounds 1, N + 1, ... and the last.

    finetuning_trainer --dataset_name=emnist --use_synthetic_data --experiment_name=quickstart
"""

import functools

from absl import flags

from trainers import algorithm_flags, optimizer_flags, program, shared_flags

shared_flags.define()
optimizer_flags.define("finetune", default_rate=0.01, many_rates=True)
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
    "Silos: evaluate after every so many rounds and the last, instead of --rounds_per_evaluation; "
    "the closing table then is that of the best on validation clients.",
    lower_bound=1,
)
flags.DEFINE_bool(
    "include_baseline_candidate", True, "Whether the global model itself may be chosen."
)
algorithm_flags.define("finetuning_trainer", "How the global model is trained.")


def main() -> None:
    """Runs the experiment that the flags describe."""
    program.train("finetuning_trainer")


run = functools.partial(program.run, main)

if __name__ == "__main__":
    run()
