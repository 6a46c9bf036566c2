r"""FedAvg + kNN-Per: a global model and each client's nearest neighbours, mixed.

Trains a global model (or takes one: --path_to_initial_model_weights=RUN_DIRECTORY
--total_rounds=0), embeds every validation and test client's examples with it, and mixes what the
nearest personalization examples say with what the model says. The coefficient is chosen on
validation clients; the baseline is the global model.

    knn_per_trainer --dataset_name=emnist --use_synthetic_data --total_rounds=20 \
        --experiment_name=knn
"""

from trainers import program

run = program.command(__name__, "knn_per_trainer")

if __name__ == "__main__":
    run()
