"""Multi-task learning over silos: every silo trains a model of its own and keeps it.

Trains for --total_rounds, evaluates the global and the personal model of every silo, and leaves the
personal models in personal_models.npz. --algorithm is one of

  local       every silo alone
  ditto       a personal model pulled towards FedAvg's by --lambda
  mocha       all models and their relations together (primal), weighted by --lambda
  mr_mtl      personal models pulled towards their mean by --lambda; server rate 1
  apfl        a mixture of an own and the global model, --alpha of the own
  fedper      own last layers on shared first ones
  pfedme      Moreau envelopes: the personal model solves a problem of strength --lambda
  per_fedavg  a global model that is good after adaptation, by default at a tenth of the clients'
              rate, for the number of epochs that is best on validation data

    mtl_trainer --dataset_name=school --use_synthetic_data --algorithm=ditto --experiment_name=ditto
"""

import contextlib
from typing import Any

from absl import flags

import datasets
from motley_tff import algorithms, commandline
from motley_tff.algorithms import optimizer_config
from motley_tff.core.errors import UserError
from trainers import optimizer_flags, published_flags, shared_flags

FLAGS = flags.FLAGS

# Adapting at the rate of training leaves a global model that is of little use by itself.
_ADAPTATION, _ADAPTATION_EPOCHS = 0.1, 5
# Algorithms whose server can do with no other aggregator, and why.
_NEEDS_MEAN = {
    "mocha": "every silo's row of the models, of which nothing is averaged",
    "mr_mtl": "the silos' changes, whose mean moves the mean of their models",
}

shared_flags.define()
optimizer_flags.define("client", default_rate=0.1)
optimizer_flags.define("server", default_rate=1.0)
optimizer_flags.define("personal", default_rate=None)
flags.DEFINE_enum(
    "algorithm", "ditto", list(algorithms.MULTI_TASK), "How personal models are trained."
)
flags.DEFINE_float(
    "lambda",
    None,
    "Strength of the regularization; 0 is local training. By default 1 (ditto, pfedme), 0.1 "
    "(mr_mtl) or 0.01 (mocha).",
    lower_bound=0.0,
)
flags.DEFINE_integer(
    "mocha_outer", None, "Local passes a round before mocha renews the relations (default: 1).",
    lower_bound=1, upper_bound=10_000,
)  # fmt: skip
flags.DEFINE_float(
    "alpha", None, "Share of apfl's own model: 0 is FedAvg, 1 local training (default: 0.5).",
    lower_bound=0.0, upper_bound=1.0,
)  # fmt: skip
flags.DEFINE_integer(
    "inner_steps", None, "pfedme's steps on its inner problem a batch (default: 5).",
    lower_bound=1, upper_bound=1000,
)  # fmt: skip
flags.DEFINE_integer(
    "adaptation_epochs", None, "Most epochs of per_fedavg's adaptation (default: 5).",
    lower_bound=1, upper_bound=1000,
)  # fmt: skip


def main() -> None:
    """Runs the experiment that the flags describe."""
    _check_flags()
    with contextlib.closing(shared_flags.open_directory(FLAGS)) as directory:
        from trainers import assembly  # Imports TensorFlow: after all that can be known is right.

        assembly.run(FLAGS, directory, _build, include_baseline_candidate=False)


def _check_flags() -> None:
    """Raises a UserError for a task without silos, or flags that the algorithm cannot do with."""
    if FLAGS.dataset_name not in datasets.CROSS_SILO:
        raise UserError(
            f"--dataset_name={FLAGS.dataset_name} has thousands of clients that come and go, "
            "which keep no state; mtl_trainer needs silos: one of "
            f"{', '.join(datasets.CROSS_SILO)}"
        )
    if FLAGS.algorithm in _NEEDS_MEAN and FLAGS.aggregator != "mean":
        raise UserError(
            f"--aggregator={FLAGS.aggregator} would clip, round or blur what --algorithm="
            f"{FLAGS.algorithm} needs as it is: {_NEEDS_MEAN[FLAGS.algorithm]}; leave --aggregator "
            "out"
        )
    owned = {name: set(own) for name, own in algorithms.MULTI_TASK.items()}
    owned["per_fedavg"].add("adaptation_epochs")
    for name in sorted(set().union(*owned.values())):
        if FLAGS[name].value is not None and name not in owned[FLAGS.algorithm]:
            owners = [algorithm for algorithm, own in owned.items() if name in own]
            raise UserError(
                f"--{name} is a flag of {', '.join(owners)}, not of --algorithm={FLAGS.algorithm}; "
                "leave it out"
            )
    optimizer_config.check(
        FLAGS.algorithm, optimizer_flags.config("server", FLAGS), _personal_optimizer()
    )


def _personal_optimizer() -> optimizer_config.OptimizerConfig:
    share = _ADAPTATION if FLAGS.algorithm == "per_fedavg" else 1.0
    return optimizer_flags.config("personal", FLAGS, share)


def _build(task, initial_weights):
    """Returns (training algorithm, personalization, name for the tables)."""
    from motley_tff.algorithms import personal
    from trainers import assembly

    optimizer = _personal_optimizer()
    training = assembly.multi_task_algorithm(FLAGS, task, optimizer, initial_weights)
    if training.personal_model is None:
        return training, _adaptation(task, optimizer), training.name
    return training, personal.build(task, training), training.name


def _adaptation(task: Any, optimizer: Any) -> Any:
    """Returns a few epochs of steps from the global model: what per_fedavg trains it for."""
    from motley_tff.algorithms import finetuning

    epochs = FLAGS.adaptation_epochs or _ADAPTATION_EPOCHS
    rates = (optimizer.learning_rate,)
    return finetuning.build(
        task, finetuning.Params(optimizer, rates, epochs, FLAGS.train_batch_size)
    )


def run() -> None:
    """Entry point of the console command."""
    commandline.run_main(main, goes_on=True, advice=published_flags.advice)


if __name__ == "__main__":
    run()
