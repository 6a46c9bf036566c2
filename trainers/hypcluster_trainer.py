r"""HypCluster / IFCA: one model for each cluster of clients, who choose by loss.

Trains --num_clusters models, lets every validation and test client take the one of lowest loss on
its personalization examples, and reports it there. The baseline is the first cluster's model.

    hypcluster_trainer --dataset_name=ted_multi --use_synthetic_data --num_clusters=2 \
        --num_warmstart_fedavg_rounds=10 --experiment_name=hypcluster

It leaves all k models, cluster_1_model.npz and so on. The paper warm-starts with the rates that are
best for FedAvg alone: --warmstart_client_learning_rate, --warmstart_server_learning_rate.
With --total_rounds=0 the warm-started models are the "ensemble of k FedAvg models" baseline.
"""

from trainers import program

run = program.command(__name__, "hypcluster_trainer")

if __name__ == "__main__":
    run()
