r"""FedAvg + kNN-Per: a global model and each client's nearest neighbours, mixed.

Trains a global model (or takes one: --path_to_initial_model_weights=RUN_DIRECTORY
--total_rounds=0), embeds every validation and test client's examples with it, and mixes what the
nearest personalization examples say with what the model says. The coefficient is chosen on
validation clients; the baseline is the global model.

    knn_per_trainer --dataset_name=emnist --use_synthetic_data --total_rounds=20 \
        --experiment_name=knn
"""

import contextlib

import numpy as np
from absl import flags

from motley_tff import algorithms, commandline
from motley_tff.core.errors import UserError
from trainers import optimizer_flags, published_flags, shared_flags

FLAGS = flags.FLAGS

_CROSS_DEVICE = tuple(round(0.1 * i, 1) for i in range(1, 11))

shared_flags.define()
optimizer_flags.define("client", default_rate=0.1)
optimizer_flags.define("server", default_rate=1.0)
flags.DEFINE_enum(
    "algorithm", "fedavg", list(algorithms.TRAINING), "How the global model is trained."
)
flags.DEFINE_float(
    "proximal_strength", 0.1, "mu of --algorithm=fedprox; 0 is FedAvg.", lower_bound=0.0
)
flags.DEFINE_list("num_neighbors", ["10"], "Numbers of neighbours, k, to choose from.")
flags.DEFINE_list(
    "coefficients",
    [str(c) for c in _CROSS_DEVICE],
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


@flags.validator("num_neighbors", "expected different whole numbers from 1 to 1000, such as 5,10")
def _are_counts(values: list[str]) -> bool:
    # Python takes no number of thousands of digits.
    numbers = [int(v) if v.isdecimal() and len(v) <= 4 else 0 for v in values]
    return bool(numbers) and all(1 <= n <= 1000 for n in numbers) and _are_different(numbers)


@flags.validator("coefficients", "expected different numbers above 0 and at most 1: 0.1,0.5,1")
def _are_shares(values: list[str]) -> bool:
    try:
        numbers = [float(v) for v in values]
    except ValueError:
        return False
    inside = all(np.float32(n) > 0 and n <= 1 for n in numbers)
    return bool(numbers) and inside and _are_different([f"{n:g}" for n in numbers])


def _are_different(values: list) -> bool:
    return len(set(values)) == len(values)


def main() -> None:
    """Runs the experiment that the flags describe."""
    if not FLAGS.total_rounds and not FLAGS.path_to_initial_model_weights:
        raise UserError(
            "--total_rounds=0 trains no global model; give --path_to_initial_model_weights, or "
            "rounds"
        )
    with contextlib.closing(shared_flags.open_directory(FLAGS)) as directory:
        from trainers import assembly  # Imports TensorFlow: after all that can be known is right.

        assembly.run(
            FLAGS,
            directory,
            _build,
            tuning=FLAGS.knn_tuning,
            include_baseline_candidate=FLAGS.include_baseline_candidate,
        )


def _build(task, initial_weights):
    """Returns (training algorithm, personalization, name for the tables)."""
    from motley_tff.algorithms import knn_per
    from trainers import assembly

    training = assembly.training_algorithm(FLAGS, task, initial_weights)
    params = knn_per.Params(
        tuple(int(k) for k in FLAGS.num_neighbors), tuple(float(c) for c in FLAGS.coefficients)
    )
    name = f"{training.name}+knn_per" if FLAGS.total_rounds else "knn_per"
    return training, knn_per.build(task, params), name


def run() -> None:
    """Entry point of the console command."""
    commandline.run_main(main, goes_on=True, advice=published_flags.advice)


if __name__ == "__main__":
    run()
