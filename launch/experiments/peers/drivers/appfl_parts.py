"""appfl: its trainers and aggregators, in a loop as that of its serial runner."""

import warnings

import problem
import torch
from appfl.algorithm import aggregator as aggregators, trainer as trainers
from appfl.logger import ClientAgentFileLogger
from appfl.misc import data as dealing
from cells import cell, fate, main
from omegaconf import OmegaConf
from torch.utils.data import TensorDataset
from torch_models import TorchWeight

warnings.filterwarnings("ignore")
HOW = "its trainers and aggregators, our loop"


class AppflLogger(ClientAgentFileLogger):
    def __init__(self):
        pass

    def log_title(self, *_):
        pass

    log_content = set_title = info = debug = log_title


def trainer(silo, kind, labels, sizes, normed, **optimizer):
    shape = (sizes[silo], 1)
    data = TensorDataset(torch.full(shape, problem.X[silo]), torch.full(shape, labels[silo]))
    configs = {
        "mode": "epoch",
        "num_local_epochs": 1,
        "optim": "SGD",
        "optim_args": {"lr": problem.RATE, **optimizer},
        "train_batch_size": problem.BATCH,
        "device": "cpu",
        "optimize_memory": False,  # Which collects garbage at every step.
        "mu": problem.MU,
        "do_validation": False,
        "client_id": str(silo),
        "logging_id": str(silo),
    }
    return kind(
        model=TorchWeight(normed=normed),
        loss_fn=torch.nn.MSELoss(),
        metric=lambda true, predicted: 0.0,
        train_dataset=data,
        train_configs=OmegaConf.create(configs),
        logger=AppflLogger(),
    )


def run(
    aggregator=aggregators.FedAvgAggregator,
    kind=trainers.VanillaTrainer,
    configs=(),
    look=None,
    chosen=((0, 1, 2),) * problem.ROUNDS,
    labels=problem.Y,
    sizes=problem.SIZES,
    normed=False,
    **optimizer,
):
    server = aggregator(
        TorchWeight(normed=normed),
        aggregator_configs=OmegaConf.create({"optimize_memory": False, **dict(configs)}),
        logger=AppflLogger(),
    )
    silos = [trainer(i, kind, labels, sizes, normed, **optimizer) for i in range(3)]
    seen = []
    for here in chosen:
        parameters, models = server.get_parameters(), {}
        for i in here:
            silos[i].load_parameters(parameters)
            silos[i].train()
            sent = silos[i].get_parameters()
            models[str(i)] = sent[0] if isinstance(sent, tuple) else sent
        server.aggregate(models)
        state = server.get_parameters()
        seen.append(state[look or "w"].item())
    return seen


@cell("fedavg", HOW, "1")
def _():
    return run()


@cell("fedavg_absent", HOW, "1")
def _():
    return run(chosen=([0, 1, 2], [0, 1], [0, 1, 2]))


@cell("diverged_client", HOW, "1")
def _():
    return run(labels=(*problem.Y[:2], float("nan")))


@cell("last_batch", HOW, "1")
def _():
    return run(sizes=problem.LAST_OF_ONE)


@cell("client_momentum", HOW, "1")
def _():
    return run(momentum=problem.MOMENTUM)


@cell("fedprox", HOW, "1")
def _():
    return run(kind=trainers.FedProxTrainer)


_SERVER = {
    "server_learning_rate": problem.SERVER_RATE,
    "server_adapt_param": problem.TAU,
    "server_momentum_param_1": problem.BETA_1,
    "server_momentum_param_2": problem.BETA_2,
}
for _name in ("Adam", "Yogi", "Adagrad"):
    _kind = getattr(aggregators, f"Fed{_name}Aggregator")
    cell("fed" + _name.lower(), HOW, "1")(lambda kind=_kind: run(kind, configs=_SERVER))


@cell("fedavgm", HOW, "1")
def _():
    configs = {"server_momentum_param_1": problem.MOMENTUM}
    return run(aggregators.FedAvgMAggregator, configs=configs)


@cell("batchnorm", HOW, "1")
def _():
    return run(normed=True, look="norm.running_mean")


@cell("loss", "its trainer's validation")
def _():
    first = trainer(0, trainers.VanillaTrainer, problem.Y, problem.SIZES, False)
    x = torch.sqrt(torch.tensor(problem.ERRORS))[:, None] / problem.W0
    data = TensorDataset(x, torch.zeros(5, 1))
    first.val_dataloader = torch.utils.data.DataLoader(data, problem.BATCH)
    return [first._validate()[0]]


_DATA = [(torch.tensor([float(i)]), i % 10) for i in range(1000)]


def _deal(function):
    return [[row[0].item() for row in part] for part in map(list, map(_inputs, function(_DATA, 7)))]


def _inputs(part):
    return [part[i][0] for i in range(len(part))]


for _name, _function in {
    "iid": dealing.iid_partition,
    "dirichlet": dealing.dirichlet_noniid_partition,
    "shards": dealing.class_noniid_partition,
}.items():
    cell(_name, "its partition")(lambda function=_function: fate(lambda: _deal(function)))

main()
