#!/usr/bin/env bash
# pfl 0.6.0: SCAFFOLD's control variates have the other sign, so that they add to clients' drift.
#
# Guess, before it was run: the server's variate stays 0 (its update looked as if it were made in
# place). Seen: it moves, but a client's variate is (w_i - w) / (K rate), the opposite of its mean
# gradient, and is subtracted from gradients as if it were one.
# Two clients of loss (w - t)^2, t = 1 and -1, three steps of rate .1 from w = .5; round one is
# FedAvg's: ends .744 and -.232, mean .256. In round two the paper (Algorithm 1, option II) corrects
# the drift: ends .2222 and .0400. FedAvg's ends are .6191 and -.3569. With the other sign they are
# further apart than FedAvg's: 1.0160 and -.7539.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/environment.bash"
environment 3.11 pfl==0.6.0 torch==2.13.0

"$python" - <<'PYTHON'
import importlib.metadata
import itertools

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel

TARGETS, RATE, STEPS = (1.0, -1.0), 0.1, 3


class One(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.5]))

    def loss(self, y, is_eval=False):
        return ((self.w - y) ** 2).mean()

    def metrics(self, y):
        return {}


class Noting(SCAFFOLD):
    """Notes where each client ends."""

    ends = []

    def train_one_user(self, start, model, *rest):
        result = super().train_one_user(start, model, *rest)
        self.ends.append(round(model.pytorch_model.w.item(), 4))
        return result


def expected(sign):
    """Where the clients end in two rounds, by Algorithm 1; sign -1 is that of pfl 0.6.0."""
    w, c, own, ends = 0.5, 0.0, [0.0, 0.0], []
    for _ in range(2):
        new, variates = [], []
        for target, variate in zip(TARGETS, own):
            y = w
            for _ in range(STEPS):
                y -= RATE * (2 * (y - target) - variate + c)
            new.append(y)
            variates.append(variate - c + sign * (w - y) / (STEPS * RATE))
        c += sum(a - b for a, b in zip(variates, own)) / 2
        own, w = variates, sum(new) / 2
        ends += [round(y, 4) for y in new]
    return ends


users, module = itertools.cycle((0, 1)), One()
data = FederatedDataset(
    lambda i: Dataset(raw_data=[torch.full((1,), TARGETS[i])], user_id=str(i)), lambda: next(users)
)
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
settings = SCAFFOLDParams(
    central_num_iterations=2,
    evaluation_frequency=10,
    train_cohort_size=2,
    val_cohort_size=0,
    population=2,
    use_gradient_as_control_variate=False,
    user_state_storage=InMemoryUserStateStorage(),
)
training = NNTrainHyperParams(
    local_learning_rate=RATE, local_num_epochs=STEPS, local_batch_size=1
)
backend = SimulatedBackend(training_data=data, val_data=data)
Noting().run(settings, backend, model, training)
print("pfl", importlib.metadata.version("pfl"))
print("clients' ends, rounds one and two:", Noting.ends)
print("paper:", expected(1), "; other sign:", expected(-1))
code = 0 if Noting.ends == expected(-1) != expected(1) else 1
print("as found" if code == 0 else "not what was found")
raise SystemExit(code)
PYTHON
