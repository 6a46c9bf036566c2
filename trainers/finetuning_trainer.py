"""FedAvg + fine-tuning, and local training with --total_rounds=0.

Trains a global model, fine-tunes every validation and test client from it, evaluates after every
epoch, chooses the epoch on the validation clients and reports the test clients there.
--finetune_every=N does so after rounds N, 2N, ... and the last; the published silo code, which
counts from 0, after rounds 1, N + 1, ... and the last.

    finetuning_trainer --dataset_name=emnist --use_synthetic_data --experiment_name=quickstart
"""

from trainers import program

run = program.command(__name__, "finetuning_trainer")

if __name__ == "__main__":
    run()
