"""fedlab: its `StandalonePipeline` with its own handlers and serial trainers."""

import cpu_torchvision  # noqa: F401
import numpy as np
import problem
import torch
from cells import cell, fate, main
from fedlab.contrib.algorithm import (
    basic_client,
    basic_server,
    ditto,
    feddyn,
    fednova,
    fedprox,
    scaffold,
)
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import functional
from fedlab.utils.dataset import functional as dealing
from torch_models import TorchLogits, TorchWeight


class Data:
    """The user's part: loaders by client."""

    def __init__(self, labels=problem.Y):
        self.labels = labels

    def get_dataloader(self, client, batch_size):
        n = problem.SIZES[client]
        x, y = torch.full((n, 1), problem.X[client]), torch.full((n, 1), self.labels[client])
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size)

    get_data_loader = get_dataloader


def run(handler_kind, trainer_kind, server=None, client=(), momentum=0.0, chosen=None, data=None):
    """Runs a pipeline; the loss alone is replaced, as the trainers' is one for classes."""
    handler = handler_kind(TorchWeight(), problem.ROUNDS, 1.0)
    trainer = trainer_kind(TorchWeight(), 3)
    trainer.setup_dataset(data or Data())
    trainer.setup_optim(1, problem.BATCH, problem.RATE, *client)
    trainer.criterion = torch.nn.MSELoss()
    if momentum:
        trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), problem.RATE, momentum)
    if server is not None:
        handler.setup_optim(*server)
    seen = []
    pipeline = StandalonePipeline(handler, trainer)
    pipeline.evaluate = lambda: seen.append(handler.model.w.item())
    if chosen:
        rounds = iter(chosen)
        handler.sample_clients = lambda: next(rounds)
        # Its count of clients a round is what it waits for.
        type(handler).num_clients_per_round = property(lambda h: chosen_count[h.round])
        chosen_count = [len(c) for c in chosen]
    pipeline.main()
    return seen


SYNC, SGD = basic_server.SyncServerHandler, basic_client.SGDSerialClientTrainer


@cell("fedavg", weighted_by="1")
def _():
    return run(SYNC, SGD)


@cell("fedavg_absent", weighted_by="1")
def _():
    class Handler(SYNC):
        pass

    return run(Handler, SGD, chosen=([0, 1, 2], [0, 1], [0, 1, 2]))


@cell("diverged_client", weighted_by="1")
def _():
    return run(SYNC, SGD, data=Data((*problem.Y[:2], float("nan"))))


@cell("client_momentum", "own loop; its optimizer replaced by one with momentum", "1")
def _():
    return run(SYNC, SGD, momentum=problem.MOMENTUM)


@cell("fedprox", weighted_by="1")
def _():
    kinds = fedprox.FedProxServerHandler, fedprox.FedProxSerialClientTrainer
    return run(*kinds, client=[problem.MU])


@cell("scaffold", weighted_by="1")
def _():
    kinds = scaffold.ScaffoldServerHandler, scaffold.ScaffoldSerialClientTrainer
    return run(*kinds, server=[1.0])


@cell("fednova", weighted_by="1")
def _():
    kinds = fednova.FedNovaServerHandler, fednova.FedNovaSerialClientTrainer
    return run(*kinds, server=[])


@cell("feddyn", weighted_by="1")
def _():
    kinds = feddyn.FedDynServerHandler, feddyn.FedDynSerialClientTrainer
    return run(*kinds, server=[problem.ALPHA], client=[problem.ALPHA])


@cell("ditto.personal", weighted_by="1")
def _():
    return run(ditto.DittoServerHandler, ditto.DittoSerialClientTrainer)


def _batches(x, y, batch):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch)


@cell("loss", "its evaluate")
def _():
    x = torch.tensor(problem.ERRORS)[:, None] * torch.tensor([[1.0, 0.0]])
    y = torch.zeros(5, dtype=torch.long)
    loss = lambda outputs, _: outputs[:, 0].mean()
    return [functional.evaluate(TorchLogits(), loss, _batches(x, y, problem.BATCH))[0]]


def _accuracy(logits):
    data = _batches(logits, torch.tensor([0, 1, 2, 0]), 4)
    return [functional.evaluate(TorchLogits(), torch.nn.CrossEntropyLoss(), data)[1]]


@cell("ties", "its evaluate")
def _():
    return _accuracy(torch.zeros(4, 3))


@cell("diverged", "its evaluate")
def _():
    return _accuracy(torch.full((4, 3), float("nan")))


_LABELS = np.arange(1000) % 10


def _dealt(function):
    np.random.seed(7)  # The library's own dealing uses it.
    return function().values()


@cell("iid", "its partition")
def _():
    sizes = dealing.balance_split(7, 1000)
    return fate(lambda: _dealt(lambda: dealing.homo_partition(sizes, 1000)))


@cell("dirichlet", "its partition")
def _():
    return fate(lambda: _dealt(lambda: dealing.hetero_dir_partition(_LABELS, 7, 10, 0.5)))


@cell("shards", "its partition")
def _():
    return fate(lambda: _dealt(lambda: dealing.shards_partition(_LABELS, 7, 14)))


main()
