"""pfl: its algorithms' `run` over `SimulatedBackend`."""

import asyncio
import itertools

import numpy as np
import problem
import torch
from cells import cell, fate, main
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm import scaffold
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.partition import partition_by_dirichlet_class_distribution
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch_models import TorchWeight


class PflWeight(TorchWeight):
    def loss(self, x, y, is_eval=False):
        return torch.mean((self(x) - y) ** 2)

    def metrics(self, x, y):
        return {"accuracy": Weighted(float(y.sum()), len(y))}


class PflWatcher(TrainingProcessCallback):
    def __init__(self):
        self.seen, self.metrics = [], []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.seen.append(model.pytorch_model.w.item())
        self.metrics.append(aggregate_metrics)
        return False, Metrics()


def rows(silo, labels, sizes):
    shape = (sizes[silo], 1)
    raw = [torch.full(shape, problem.X[silo]), torch.full(shape, labels[silo])]
    return Dataset(raw_data=raw, user_id=str(silo))


def run(
    algorithm,
    params=NNAlgorithmParams,
    client=torch.optim.SGD,
    server=(torch.optim.SGD, {"lr": 1.0}),
    order=(0, 1, 2),
    cohort=3,
    labels=problem.Y,
    sizes=problem.SIZES,
    **more,
):
    module, users = PflWeight(), itertools.cycle(order)
    make, arguments = server
    model = PyTorchModel(module, client, make(module.parameters(), **arguments))
    data = FederatedDataset(lambda silo: rows(silo, labels, sizes), lambda: next(users))
    backend = SimulatedBackend(training_data=data, val_data=data)
    settings = params(
        central_num_iterations=problem.ROUNDS,
        evaluation_frequency=10,
        train_cohort_size=cohort,
        val_cohort_size=0,
        **more,
    )
    training = NNTrainHyperParams(
        local_learning_rate=problem.RATE, local_num_epochs=1, local_batch_size=problem.BATCH
    )
    watcher = PflWatcher()
    algorithm.run(settings, backend, model, training, None, [watcher])
    return watcher.seen


@cell("fedavg", weighted_by="1")
def _():
    return run(FederatedAveraging())


@cell("fedavg_absent", weighted_by="1")
def _():
    from pfl.hyperparam import HyperParam

    class Size(HyperParam):
        count = 0

        def value(self):
            return (3, 2, 3)[min(Size.count, 2)]

    class InCohorts(FederatedAveraging):
        def process_aggregated_statistics(self, *arguments, **more):
            Size.count += 1
            return super().process_aggregated_statistics(*arguments, **more)

    return run(InCohorts(), cohort=Size(), order=(0, 1, 2, 0, 1, 0, 1, 2))


@cell("diverged_client", weighted_by="1")
def _():
    return run(FederatedAveraging(), labels=(*problem.Y[:2], float("nan")))


@cell("last_batch", weighted_by="1")
def _():
    return run(FederatedAveraging(), sizes=problem.LAST_OF_ONE)


@cell("client_momentum", weighted_by="1")
def _():
    return run(
        FederatedAveraging(),
        client=lambda p, lr: torch.optim.SGD(p, lr, momentum=problem.MOMENTUM),
    )


@cell("fedprox", weighted_by="1")
def _():
    return run(FedProx(), FedProxParams, mu=problem.MU)


_RATES = {"lr": problem.SERVER_RATE, "eps": problem.TAU}


@cell("fedadam", weighted_by="1")
def _():
    betas = (problem.BETA_1, problem.BETA_2)
    return run(FederatedAveraging(), server=(torch.optim.Adam, {**_RATES, "betas": betas}))


@cell("fedadagrad", weighted_by="1")
def _():
    return run(FederatedAveraging(), server=(torch.optim.Adagrad, _RATES))


@cell("fedavgm", weighted_by="1")
def _():
    server = {"lr": 1.0, "momentum": problem.MOMENTUM}
    return run(FederatedAveraging(), server=(torch.optim.SGD, server))


def _scaffold(option_1):
    return run(
        scaffold.SCAFFOLD(),
        scaffold.SCAFFOLDParams,
        population=3,
        use_gradient_as_control_variate=option_1,
        user_state_storage=InMemoryUserStateStorage(),
    )


cell("scaffold", weighted_by="1")(lambda: _scaffold(False))
cell("scaffold.option1", weighted_by="1")(lambda: _scaffold(True))


@cell("accuracy", "its backend's evaluation")
def _():
    from pfl.context import CentralContext

    users = itertools.cycle([0, 1])

    def make(user):
        hits, count = problem.HITS[user], problem.COUNTS[user]
        y = torch.tensor([1.0] * hits + [0.0] * (count - hits))[:, None]
        return Dataset(raw_data=[y, y], user_id=str(user))

    data = FederatedDataset(make, lambda: next(users))
    module = PflWeight()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
    context = CentralContext(
        current_central_iteration=0,
        do_evaluation=True,
        cohort_size=2,
        population=Population.VAL,
        algorithm_params=None,
        model_train_params=None,
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
    )
    backend = SimulatedBackend(training_data=data, val_data=data)
    gathering = backend.async_gather_results(
        model=model, training_algorithm=FederatedAveraging(), central_context=context
    )
    _, metrics = asyncio.run(gathering)
    value = next(v for k, v in metrics if "accuracy" in str(k))
    return [value.overall_value]


@cell("dirichlet", "its partition")
def _():
    labels = np.arange(1000) % 10

    def deal():
        np.random.seed(7)
        return partition_by_dirichlet_class_distribution(labels, 0.5, lambda: 142)

    return fate(deal)


main()
