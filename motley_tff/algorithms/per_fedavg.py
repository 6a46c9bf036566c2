"""Per-FedAvg, first order (Fallah et al. 2020, https://arxiv.org/abs/2002.07948, Algorithm 1).

The global model is trained to be good after one step of adaptation at rate a: on a batch,
w' = w - a * grad f(w), then w -= client rate * grad f(w') (FO-MAML: the Hessian is left out). The
paper draws independent batches for the two gradients; here one batch serves both, so that a silo
with one batch a round still adapts. a = 0 gives back FedAvg. A client's personal model is the
global one after a few epochs of steps at rate a on its own examples; clients keep no state. The
adaptation is plain SGD, in training and after: any other personal optimizer is refused.
"""

import dataclasses

from motley_tff.algorithms import fedavg, optimizer_config, optimizers
from motley_tff.core import algorithm, learning
from motley_tff.core import task as task_lib


@dataclasses.dataclass(frozen=True)
class Params:
    """Hyperparameters.

    Attributes:
      fedavg: The outer training.
      personal_optimizer: SGD; its rate is that of the adaptation, at least 0; 0 gives back FedAvg.
    """

    fedavg: fedavg.Params
    personal_optimizer: optimizers.OptimizerConfig


def build(
    task: task_lib.Task, params: Params, initial_weights: learning.Weights
) -> algorithm.Algorithm:
    """Returns Per-FedAvg's global training; personalize with fine-tuning at rate a.

    Raises:
      UserError: If the personal optimizer is not SGD.
    """
    optimizer_config.check("per_fedavg", params.fedavg.server_optimizer, params.personal_optimizer)
    base = fedavg.build(task, params.fedavg, initial_weights)
    (walk,) = base.work.passes
    optimizer = optimizers.build(params.fedavg.client_optimizer)
    rate = params.personal_optimizer.learning_rate
    trained = (True,) * len(task.model.shapes)

    def step(carry, batch):
        learner = carry.learner
        inner, sums = learning.gradients(task, learner.weights, batch, learner.sums, trained)
        adapted = tuple(w - rate * g for w, g in zip(learner.weights, inner, strict=True))
        outer, _ = learning.gradients(task, adapted, batch, learner.sums, trained)
        state, new = optimizer.next(learner.optimizer_state, learner.weights, outer)
        return carry._replace(learner=learning.Learner(tuple(new), state, sums))

    passes = (dataclasses.replace(walk, step=step),)
    work = dataclasses.replace(base.work, passes=passes)
    return dataclasses.replace(base, name="per_fedavg", work=work)
