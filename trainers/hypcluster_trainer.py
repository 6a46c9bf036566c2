r"""HypCluster / IFCA: one model for each cluster of clients, who choose by loss.

Trains --num_clusters models, lets every validation and test client take the one of lowest loss on
its personalization examples, and reports it there. The baseline is the first cluster's model.

    hypcluster_trainer --dataset_name=ted_multi --use_synthetic_data --num_clusters=2 \
        --num_warmstart_fedavg_rounds=10 --experiment_name=hypcluster

It leaves all k models, cluster_1_model.npz and so on. The paper warm-starts with the rates that are
best for FedAvg alone: --warmstart_client_learning_rate, --warmstart_server_learning_rate.
With --total_rounds=0 the warm-started models are the "ensemble of k FedAvg models" baseline.
"""

import functools

from absl import flags

from trainers import program, shared_flags

shared_flags.define()
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
    program.train("hypcluster_trainer")


run = functools.partial(program.run, main)

if __name__ == "__main__":
    run()
