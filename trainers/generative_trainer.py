r"""Generators of pictures trained by FedAvg: WGAN-GP and DDPM.

After every --rounds_per_evaluation rounds it leaves what the global model makes: generated/*.npz,
which motley_generative scores against clients.npz, the pictures that clients train on, and a grid
in figures. The tables score the nets on held-out pictures: a critic by how far apart it holds real
and made ones (critic_gap), a U-Net by its error (noise_error). --algorithm=centralized trains on
all clients' pictures in one place, --only_client=ID on those of one.

    generative_trainer --dataset_name=mnist --use_synthetic_data --train_steps=160 \
        --experiment_name=digits
"""

import functools

from absl import flags

from motley_tff.generative import ddpm
from trainers import algorithm_flags, program, shared_flags

shared_flags.define()
for _name, _default in (
    ("client_optimizer", "adam"), ("client_learning_rate", None), ("train_batch_size", 32),
    ("client_adam_beta_1", None), ("client_adam_beta_2", None),
):  # fmt: skip
    flags.FLAGS.set_default(_name, _default)
for _name, _defaults in (
    ("learning_rate", "1e-4, ddpm 2e-4"), ("adam_beta_1", "0, ddpm .9"),
    ("adam_beta_2", ".9, ddpm .999"),
):  # fmt: skip
    flags.FLAGS[f"client_{_name}"].help += f" Of wgan_gp {_defaults} by default."
flags.DEFINE_enum("generator", "wgan_gp", ["wgan_gp", "ddpm"], "What is trained.")
flags.DEFINE_enum(
    "algorithm", "fedavg", ["fedavg", "centralized"], "Where: at the clients, or in one place."
)
flags.FLAGS["algorithm"].parser.elsewhere = algorithm_flags.elsewhere("generative_trainer")
flags.DEFINE_string("only_client", None, "Train on this client's pictures alone, of its name.")
flags.DEFINE_integer(
    "train_steps", None, "A client's batches a round, in place of --train_epochs; of wgan_gp each "
    "is an update of the critic, every --n_critic-th also one of the generator.", lower_bound=1,
)  # fmt: skip
flags.DEFINE_bool(
    "keep_optimizer_state",
    False,
    "Silos' optimizers, and wgan_gp's count of batches, go on where their last round ended.",
)
flags.DEFINE_integer("generator_width", None, "Filters: wgan_gp 32, ddpm 16.", lower_bound=1)
flags.DEFINE_integer(
    "n_critic", 5, "wgan_gp: critic's updates for one of the generator's.", lower_bound=1
)
flags.DEFINE_float("penalty", 10.0, "wgan_gp: weight of the gradient's penalty.", lower_bound=0.0)
flags.DEFINE_integer("diffusion_steps", 1000, "ddpm: its times.", lower_bound=ddpm.FEWEST_STEPS)
flags.DEFINE_integer(
    "sampling_steps", 50, "ddpm: steps of DDIM that make a picture; 0 for all of DDPM's.",
    lower_bound=0,
)  # fmt: skip
flags.DEFINE_float(
    "server_decay", 0.9, "ddpm: decay a round of the mean of the weights, which makes pictures; 0 "
    "for the weights themselves.", lower_bound=0.0,
)  # fmt: skip
flags.register_validator("server_decay", lambda decay: decay < 1, "expected from 0 to below 1")
flags.DEFINE_integer(
    "num_generated", 2000, "Pictures that are made and kept.", lower_bound=0, upper_bound=1_000_000
)


def main() -> None:
    """Runs the experiment that the flags describe."""
    program.train("generative_trainer")


run = functools.partial(program.run, main)

if __name__ == "__main__":
    run()
