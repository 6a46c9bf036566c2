r"""FedAvg + kNN-Per: a global model and each client's nearest neighbours, mixed.

Trains a global model (or takes one: --path_to_initial_model_weights=RUN_DIRECTORY
--total_rounds=0), embeds every validation and test client's examples with it, and mixes what the
nearest personalization examples say with what the model says. The coefficient is chosen on
validation clients; the baseline is the global model.

    knn_per_trainer --dataset_name=emnist --use_synthetic_data --total_rounds=20 \
        --experiment_name=knn
"""

import functools

import numpy as np
from absl import flags

from trainers import algorithm_flags, optimizer_flags, program, shared_flags

shared_flags.define()
flags.DEFINE_list("num_neighbors", ["10"], "Numbers of neighbours, k, to choose from.")
flags.DEFINE_list(
    "coefficients",
    [str(i / 10) for i in range(1, 11)],
    "Weights of the neighbours to choose from, above 0 and at most 1; 0, the global model, is "
    "always tried.",
)
flags.DEFINE_enum(
    "knn_tuning",
    "global",
    ["global", "per_client"],
    "Choose (k, coefficient) once for all clients, or for each silo by its own validation part.",
)
flags.DEFINE_bool(
    "include_baseline_candidate", True, "Whether the global model itself may be chosen."
)
algorithm_flags.define("knn_per_trainer", "How the global model is trained.")


@flags.validator("num_neighbors", "expected different whole numbers from 1 to 1000, such as 5,10")
def _are_counts(values: list[str]) -> bool:
    # Python takes no number of thousands of digits.
    numbers = [int(v) if v.isdecimal() and len(v) <= 4 else 0 for v in values]
    return len(set(numbers)) == len(values) > 0 and all(1 <= n <= 1000 for n in numbers)


@flags.validator("coefficients", "expected different numbers above 0 and at most 1: 0.1,0.5,1")
def _are_shares(values: list[str]) -> bool:
    return optimizer_flags.are_different_numbers(
        values, lambda n: bool(np.float32(n) > 0 and n <= 1), "{:g}".format
    )


def main() -> None:
    """Runs the experiment that the flags describe."""
    program.train("knn_per_trainer")


run = functools.partial(program.run, main)

if __name__ == "__main__":
    run()
