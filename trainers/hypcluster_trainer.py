r"""HypCluster / IFCA: one model for each cluster of clients, who choose by loss.

Trains --num_clusters models, lets every validation and test client take the one of lowest loss on
its personalization examples, and reports it there. The baseline is the first cluster's model.

    hypcluster_trainer --dataset_name=ted_multi --use_synthetic_data --num_clusters=2 \
        --num_warmstart_fedavg_rounds=10 --experiment_name=hypcluster

It leaves all k models, cluster_1_model.npz and so on. The paper warm-starts with the rates that are
best for FedAvg alone: --warmstart_client_learning_rate, --warmstart_server_learning_rate.
With --total_rounds=0 the warm-started models are the "ensemble of k FedAvg models" baseline.
"""

import contextlib

from absl import flags

import datasets
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import model_files
from trainers import optimizer_flags, published_flags, shared_flags

FLAGS = flags.FLAGS

shared_flags.define()
optimizer_flags.define("client", default_rate=0.1)
optimizer_flags.define("server", default_rate=1.0)
flags.DEFINE_integer("num_clusters", 1, "Models, k; 1 is FedAvg.", lower_bound=1, upper_bound=100)
flags.DEFINE_integer(
    "num_warmstart_fedavg_rounds",
    0,
    "Rounds of FedAvg that each model is trained for, alone, before clustering begins.",
    lower_bound=0,
)
flags.DEFINE_float(
    "warmstart_fraction",
    None,
    "On silos, instead: the share of --total_rounds that is such a warm start.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_WARM_START_RATES = (
    "warmstart_client_learning_rate",
    "warmstart_server_learning_rate",
    "warmstart_server_adam_epsilon",
)
flags.DEFINE_float(
    "warmstart_client_learning_rate",
    None,
    "The clients' learning rate in the warm start, as FedAvg's own best may be another (default: "
    "--client_learning_rate).",
    lower_bound=1e-30,
    upper_bound=1e30,
)
flags.DEFINE_float(
    "warmstart_server_learning_rate",
    None,
    "The server's learning rate in the warm start (default: --server_learning_rate).",
    lower_bound=1e-30,
    upper_bound=1e30,
)
flags.DEFINE_float(
    "warmstart_server_adam_epsilon",
    None,
    "epsilon of the server's adam in the warm start (default: --server_adam_epsilon).",
    lower_bound=0.0,
)
flags.DEFINE_list(
    "path_to_initial_model_weights_list",
    None,
    "Start from these models: k runs' directories, their global_model.npz or Keras SavedModels, or "
    "the directory of one run of this trainer with k models.",
)
flags.DEFINE_enum(
    "cluster_initialization",
    "random",
    ["random", "updates"],
    "Draw (and warm-start) every model by itself, or (ours, against mode collapse) train one and "
    "split it by k-means++ on clients' updates.",
)
flags.DEFINE_float(
    "balance",
    0.0,
    "Ours, against mode collapse: popular models are penalized by so much loss times the log of "
    "their share, annealed to nothing over the first half of the rounds.",
    lower_bound=0.0,
)
flags.DEFINE_bool(
    "share_base_layers",
    False,
    "One base for all clusters, the first model's (of --cluster_initialization=updates: the mean "
    "of all): only last layers are their own.",
)
flags.DEFINE_bool(
    "step_empty_clusters",
    False,
    "Step the server optimizer of a model that nobody took on a zero update, as the published "
    "cross-device code does.",
)


def main() -> None:
    """Runs the experiment that the flags describe."""
    _check_flags()
    with contextlib.closing(shared_flags.open_directory(FLAGS)) as directory:
        from trainers import assembly, clustering  # Import TensorFlow: after the flags are right.

        rounds = _rounds()
        assembly.run(
            FLAGS,
            directory,
            clustering.build(FLAGS, rounds),
            prepare=clustering.initial_models(FLAGS, rounds),
            total_rounds=rounds.clustering,
            include_baseline_candidate=False,
        )


def _check_flags() -> None:
    """Raises a UserError for flags that contradict each other."""
    paths = FLAGS.path_to_initial_model_weights_list
    if FLAGS.path_to_initial_model_weights:
        raise UserError(
            "--path_to_initial_model_weights holds one model; give k of them to "
            "--path_to_initial_model_weights_list"
        )
    if paths is not None and not all(paths or [""]):
        raise UserError(
            "--path_to_initial_model_weights_list has an empty path; give k paths, or one run of "
            "this trainer"
        )
    if paths is not None:
        _check_number(paths)
    if paths is not None and FLAGS.cluster_initialization == "updates":
        raise UserError(
            "--cluster_initialization=updates makes all models from one; leave "
            "--path_to_initial_model_weights_list out"
        )
    if FLAGS.num_clusters > 1 and FLAGS.aggregator == "differentially_private":
        raise UserError(
            "--aggregator=differentially_private weights all clients alike and cannot leave out "
            "those outside a cluster; choose another aggregator"
        )
    if FLAGS.warmstart_fraction is not None:
        if FLAGS.dataset_name not in datasets.CROSS_SILO:
            raise UserError(
                "--warmstart_fraction is for silos "
                f"({', '.join(datasets.CROSS_SILO)}); give --num_warmstart_fedavg_rounds"
            )
        if FLAGS["num_warmstart_fedavg_rounds"].present:
            raise UserError(
                "--warmstart_fraction and --num_warmstart_fedavg_rounds both say how long the "
                "warm start is; give one of them"
            )
    _check_warm_start()


def _check_number(paths: list[str]) -> None:
    """Raises a UserError unless there is a model for each cluster."""
    found, k = len(model_files.model_paths(paths)), FLAGS.num_clusters
    if found != k:
        what = f"has {len(paths)} paths" if found == len(paths) else f"leads to {found} models"
        raise UserError(f"--path_to_initial_model_weights_list {what}, expected --num_clusters={k}")


def _check_warm_start() -> None:
    """Raises a UserError for flags of a warm start that would change nothing."""
    # A preset's rates stand for nothing where its warm start is switched off behind it.
    given = [
        f"--{one.name}"
        for one in commandline.given()
        if one.name in _WARM_START_RATES and one.flagfile is None
    ]
    if given and not _rounds().warm_start and FLAGS.cluster_initialization == "random":
        raise UserError(
            f"{given[0]} is for a warm start, of which there are no rounds; leave it out, or give "
            "--num_warmstart_fedavg_rounds"
        )


def _rounds() -> shared_flags.Rounds:
    """Returns how many rounds each stage has."""
    if FLAGS.warmstart_fraction is None:
        return shared_flags.Rounds(FLAGS.num_warmstart_fedavg_rounds, FLAGS.total_rounds)
    warm = round(FLAGS.warmstart_fraction * FLAGS.total_rounds)
    return shared_flags.Rounds(warm, FLAGS.total_rounds - warm)


def run() -> None:
    """Entry point of the console command."""
    commandline.run_main(main, goes_on=True, advice=published_flags.advice)


if __name__ == "__main__":
    run()
