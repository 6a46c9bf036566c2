"""fl4health: its clients' `fit`, and its strategies in Flower's `Server.fit`, in this process."""

import pathlib

import problem
import torch
from cells import cell, main
from fl4health.clients.basic_client import BasicClient
from fl4health.clients.ditto_client import DittoClient
from fl4health.clients.fed_prox_client import FedProxClient
from fl4health.clients.fedbn_client import FedBnClient
from fl4health.clients.fedper_client import FedPerClient
from fl4health.clients.fedrep_client import FedRepClient
from fl4health.model_bases.fedrep_base import FedRepModel
from fl4health.model_bases.sequential_split_models import SequentiallySplitExchangeBaseModel
from fl4health.parameter_exchange.layer_exchanger import LayerExchangerWithExclusions
from fl4health.strategies.basic_fedavg import BasicFedAvg
from fl4health.strategies.fedavg_with_adaptive_constraint import FedAvgWithAdaptiveConstraint
from flwr.common import (
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from torch.utils.data import DataLoader, TensorDataset
from torch_models import TorchWeight


def one():
    return TorchWeight()


def normed():
    return TorchWeight(normed=True)


def split():
    return SequentiallySplitExchangeBaseModel(
        TorchWeight(problem.BASE0), TorchWeight(problem.LAST0)
    )


def rep():
    return FedRepModel(TorchWeight(problem.BASE0), TorchWeight(problem.LAST0))


def client(kind, silo, model, labels, sizes, momentum):
    """Returns a client of ours: the methods that the library asks its users for."""

    class Ours(kind):
        def get_data_loaders(self, config):
            shape = (sizes[silo], 1)
            rows = TensorDataset(
                torch.full(shape, problem.X[silo]), torch.full(shape, labels[silo])
            )
            return DataLoader(rows, problem.BATCH), DataLoader(rows, problem.BATCH)

        def get_model(self, config):
            return model()

        def get_criterion(self, config):
            return torch.nn.MSELoss()

        def get_optimizer(self, config):
            def sgd(module):
                return torch.optim.SGD(module.parameters(), problem.RATE, momentum=momentum)

            if kind is DittoClient:
                return {"global": sgd(self.global_model), "local": sgd(self.model)}
            if kind is FedRepClient:
                parts = {"representation": self.model.base_module, "head": self.model.head_module}
                return {name: sgd(part) for name, part in parts.items()}
            return sgd(self.model)

    return Ours(data_path=pathlib.Path("."), metrics=[], device=torch.device("cpu"))


class ClientOfFl4health(ClientProxy):
    def __init__(self, silo, ours):
        super().__init__(str(silo))
        self.silo, self.ours = silo, ours

    def fit(self, ins, timeout, group_id):
        sent, count, metrics = self.ours.fit(parameters_to_ndarrays(ins.parameters), ins.config)
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(sent), count, metrics)

    def get_parameters(self, ins, timeout, group_id):
        raise NotImplementedError

    get_properties = evaluate = reconnect = get_parameters


def run(
    kind=BasicClient,
    model=one,
    look=None,
    strategy=BasicFedAvg,
    labels=problem.Y,
    sizes=problem.SIZES,
    momentum=0.0,
    index=0,
    **arguments,
):
    epochs = {"local_head_epochs": 1, "local_rep_epochs": 1}
    epochs = epochs if kind is FedRepClient else {"local_epochs": 1}

    def config(number):
        return {"current_server_round": number, "batch_size": problem.BATCH, **epochs}

    ours = [client(kind, i, model, labels, sizes, momentum) for i in range(3)]
    manager, seen = SimpleClientManager(), []
    for silo in range(3):
        manager.register(ClientOfFl4health(silo, ours[silo]))
    first = [v.numpy() for v in model().state_dict().values()]

    def note(number, arrays, settings):
        if number:
            seen.append(look(ours) if look else arrays[index].item())

    served = strategy(
        initial_parameters=ndarrays_to_parameters(first),
        on_fit_config_fn=config,
        evaluate_fn=note,
        fraction_evaluate=0.0,
        min_available_clients=3,
        **arguments,
    )
    Server(client_manager=manager, strategy=served).fit(problem.ROUNDS, None)
    return seen


@cell("fedavg", weighted_by="examples")
def _():
    return run()


@cell("diverged_client", weighted_by="examples")
def _():
    return run(labels=(*problem.Y[:2], float("nan")))


@cell("last_batch", weighted_by="examples")
def _():
    return run(sizes=problem.LAST_OF_ONE)


@cell("client_momentum", weighted_by="examples")
def _():
    return run(momentum=problem.MOMENTUM)


_CONSTRAINT = {"strategy": FedAvgWithAdaptiveConstraint, "initial_loss_weight": problem.MU}


@cell("fedprox", weighted_by="examples")
def _():
    return run(FedProxClient, **_CONSTRAINT)


@cell("ditto.personal", weighted_by="examples")
def _():
    return run(DittoClient, look=lambda ours: [c.model.w.item() for c in ours], **_CONSTRAINT)


def _layers(ours):
    return [[p.item() for p in c.model.parameters()] for c in ours]


@cell("fedper", weighted_by="examples")
def _():
    return run(FedPerClient, split, _layers)


@cell("fedrep", weighted_by="examples")
def _():
    return run(FedRepClient, rep, _layers)


@cell("batchnorm", weighted_by="examples")
def _():
    return run(model=normed, index=1)


class WithoutNorms(FedBnClient):
    def get_parameter_exchanger(self, config):
        return LayerExchangerWithExclusions(self.model, {torch.nn.BatchNorm1d})


@cell("fedbn", weighted_by="examples")
def _():
    return run(WithoutNorms, normed, lambda ours: [c.model.norm.running_mean.item() for c in ours])


@cell("loss", "its client's validation")
def _():
    ours = client(BasicClient, 0, one, problem.Y, problem.SIZES, 0.0)
    ours.setup_client({"current_server_round": 1, "batch_size": problem.BATCH, "local_epochs": 1})
    x = torch.sqrt(torch.tensor(problem.ERRORS))[:, None] / problem.W0
    ours.val_loader = DataLoader(TensorDataset(x, torch.zeros(5, 1)), problem.BATCH)
    return [ours.validate()[0]]


main()
