r"""Generators of pictures trained by FedAvg: WGAN-GP and DDPM.

After every --rounds_per_evaluation rounds it leaves what the global model makes: generated/*.npz,
which motley_generative scores against clients.npz, the pictures that clients train on, and a grid
in figures. The tables score the nets on held-out pictures: a critic by how far apart it holds real
and made ones (critic_gap), a U-Net by its error (noise_error). --algorithm=centralized trains on
all clients' pictures in one place, --only_client=ID on those of one.

    generative_trainer --dataset_name=mnist --use_synthetic_data --train_steps=160 \
        --experiment_name=digits
"""

from trainers import program

run = program.command(__name__, "generative_trainer")

if __name__ == "__main__":
    run()
