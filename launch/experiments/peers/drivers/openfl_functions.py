"""openfl: its aggregation functions and its optimizer for FedProx, in a loop of ours."""

import numpy as np
import problem
import torch
from cells import cell, fate, main
from openfl.interface.aggregation_functions import (
    AdagradAdaptiveAggregation,
    AdamAdaptiveAggregation,
    WeightedAverage,
    YogiAdaptiveAggregation,
)
from openfl.utilities import LocalTensor
from openfl.utilities.data_splitters import EqualNumPyDataSplitter
from openfl.utilities.optimizers.torch.fedprox import FedProxOptimizer

HOW = "its aggregation functions, our loop"
WEIGHTS = "what the aggregator is told, here examples"


def trained(silo, w, labels, mu=None):
    parameter = torch.nn.Parameter(torch.tensor([w], dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], problem.RATE)
    if mu is not None:
        optimizer = FedProxOptimizer([parameter], lr=problem.RATE, mu=mu)
        optimizer.set_old_weights([parameter.detach().clone()])
    for _ in range(problem.STEPS[silo]):
        optimizer.zero_grad()
        ((parameter * problem.X[silo] - labels[silo]) ** 2).sum().backward()
        optimizer.step()
    return parameter.detach().numpy()


def run(function, mu=None, labels=problem.Y):
    w, seen = np.array([problem.W0]), []
    for number in range(problem.ROUNDS):
        sent = [
            LocalTensor(str(i), trained(i, float(w[0]), labels, mu), problem.EXAMPLES[i])
            for i in range(3)
        ]
        tags = ("aggregated",) if number else ("model",)
        record = {"round": number, "tensor_name": "w", "tags": tags, "nparray": w.copy()}
        w = np.array(function.call(sent, iter([record]), "w", number, ()))
        seen.append(float(w[0]))
    return seen


@cell("fedavg", HOW, WEIGHTS)
def _():
    return run(WeightedAverage())


@cell("diverged_client", HOW, WEIGHTS)
def _():
    return run(WeightedAverage(), labels=(*problem.Y[:2], float("nan")))


@cell("fedprox", "its optimizer for PyTorch and its mean, our loop", WEIGHTS)
def _():
    return run(WeightedAverage(), mu=problem.MU)


def _adaptive(kind, **more):
    arguments = {"learning_rate": problem.SERVER_RATE, "epsilon": problem.TAU, **more}
    return run(kind(params={"w": np.array([problem.W0])}, **arguments))


_BETAS = {"betas": (problem.BETA_1, problem.BETA_2)}
cell("fedadam", HOW, WEIGHTS)(lambda: _adaptive(AdamAdaptiveAggregation, **_BETAS))
cell("fedyogi", HOW, WEIGHTS)(lambda: _adaptive(YogiAdaptiveAggregation, **_BETAS))
cell("fedadagrad", HOW, WEIGHTS)(lambda: _adaptive(AdagradAdaptiveAggregation))


@cell("iid", "its splitter")
def _():
    return fate(lambda: EqualNumPyDataSplitter(seed=7).split(np.arange(1000) % 10, 7))


main()
