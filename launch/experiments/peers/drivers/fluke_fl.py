"""fluke-fl: its `CentralizedFL.run` with its own clients and servers."""

import cpu_torchvision  # noqa: F401
import problem
import torch
from cells import cell, fate, main
from fluke import DDict, FlukeENV
from fluke.algorithms import (
    PersonalizedFL,
    apfl,
    ditto,
    fedavg,
    fedavgm,
    fedbabu,
    fedbn,
    feddyn,
    fednova,
    fedopt,
    fedper,
    fedprox,
    fedrep,
    fedsgd,
    lg_fedavg,
    per_fedavg,
    pfedme,
    scaffold,
)
from fluke.data import DataSplitter, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.nets import EncoderHeadNet
from fluke.utils import FederationObserver
from torch_models import TorchLogits, TorchWeight


class FlukePair(EncoderHeadNet):
    def __init__(self):
        super().__init__(TorchWeight(problem.BASE0), TorchWeight(problem.LAST0))


def loaders(sizes, labels):
    return [
        FastDataLoader(
            torch.full((n, 1), x), torch.full((n, 1), y), num_labels=1, batch_size=problem.BATCH
        )
        for x, y, n in zip(problem.X, labels, sizes)
    ]


class Splitter:
    def __init__(self, *of_loaders):
        self.of_loaders = of_loaders

    def assign(self, n_clients, batch_size):
        return (loaders(*self.of_loaders), [None] * 3), None


# Kinds whose clients are made with a model.
_OWN = (PersonalizedFL, fedrep.FedRep)


class FlukeWatcher(FederationObserver):
    def __init__(self, look):
        self.look, self.seen = look, []

    def end_round(self, round):
        self.seen.append(self.look())


def run(
    kind,
    model,
    look=None,
    client=(),
    server=(),
    optimizer=(),
    sizes=problem.SIZES,
    chosen=None,
    own=None,
    labels=problem.Y,
):
    env = FlukeENV()
    env.set_seed(1)
    env.set_eval_cfg(server=False, locals=False, pre_fit=False, post_fit=False)
    config = DDict(
        client=DDict(
            batch_size=problem.BATCH,
            local_epochs=1,
            loss=torch.nn.MSELoss,
            optimizer=DDict(name="SGD", lr=problem.RATE, **dict(optimizer)),
            scheduler=DDict(gamma=1, step_size=1),
            **dict(client),
            **({"model": own or model} if issubclass(kind, _OWN) else {}),
        ),
        server=DDict(**dict(server)),
        model=model,
    )
    algorithm = kind(3, Splitter(sizes, labels), config)
    if chosen:
        rounds = iter(chosen)
        algorithm.server.get_eligible_clients = lambda share: [
            algorithm.clients[i] for i in next(rounds)
        ]
    watcher = FlukeWatcher(lambda: (look or weight)(algorithm))
    algorithm.set_callbacks(watcher)
    algorithm.run(problem.ROUNDS, 1.0)
    return watcher.seen


def weight(algorithm):
    return algorithm.server.model.w.item()


def layers(algorithm):
    return [[p.item() for p in client.model.parameters()] for client in algorithm.clients]


@cell("fedavg", weighted_by="1 (weighted: False is the class's default)")
def _():
    return run(fedavg.FedAVG, TorchWeight())


@cell("fedavg_absent", weighted_by="1")
def _():
    return run(fedavg.FedAVG, TorchWeight(), chosen=([0, 1, 2], [0, 1], [0, 1, 2]))


@cell("diverged_client", weighted_by="1")
def _():
    return run(fedavg.FedAVG, TorchWeight(), labels=(*problem.Y[:2], float("nan")))


@cell("last_batch", weighted_by="1")
def _():
    return run(fedavg.FedAVG, TorchWeight(), sizes=problem.LAST_OF_ONE)


@cell("client_momentum", weighted_by="1")
def _():
    return run(fedavg.FedAVG, TorchWeight(), optimizer={"momentum": problem.MOMENTUM})


@cell("fedprox", weighted_by="1")
def _():
    return run(fedprox.FedProx, TorchWeight(), client={"mu": problem.MU})


@cell("fedsgd", weighted_by="1")
def _():
    return run(fedsgd.FedSGD, TorchWeight())


def _adaptive(mode):
    server = {"mode": mode, "beta1": problem.BETA_1, "beta2": problem.BETA_2}
    rates = {"lr": problem.SERVER_RATE, "tau": problem.TAU}
    return run(fedopt.FedOpt, TorchWeight(), server={**server, **rates})


for _name in ("adam", "yogi", "adagrad"):
    cell("fed" + _name, weighted_by="examples")(lambda mode=_name: _adaptive(mode))


@cell("fedavgm", weighted_by="examples")
def _():
    return run(fedavgm.FedAVGM, TorchWeight(), server={"momentum": problem.MOMENTUM})


@cell("scaffold", weighted_by="examples, its variates uniformly")
def _():
    return run(scaffold.SCAFFOLD, TorchWeight())


@cell("fednova", weighted_by="1")
def _():
    return run(fednova.FedNova, TorchWeight())


@cell("feddyn", weighted_by="examples")
def _():
    return run(
        feddyn.FedDyn,
        TorchWeight(),
        lambda a: a.server.cld_mdl.w.item(),
        client={"alpha": problem.ALPHA, "clipping": 0},
        server={"alpha": problem.ALPHA},
    )


@cell("ditto.personal", weighted_by="1")
def _():
    return run(
        ditto.Ditto,
        TorchWeight(),
        lambda a: [c.personalized_model.w.item() for c in a.clients],
        client={"lam": problem.LAMBDA, "tau": 1},
    )


@cell("apfl.mixture", weighted_by="1")
def _():
    return run(
        apfl.APFL,
        TorchWeight(),
        lambda a: [c.personalized_model.w.item() for c in a.clients],
        client={"lam": problem.ALPHA},
        server={"tau": 1},
    )


@cell("pfedme.global", weighted_by="1")
def _():
    return run(
        pfedme.PFedMe,
        TorchWeight(),
        client={"k": problem.PFEDME_STEPS},
        server={"beta": 1.0},
        optimizer={"lamda": problem.LAMBDA, "mu": 0.0},
    )


@cell("per_fedavg", weighted_by="1")
def _():
    return run(per_fedavg.PerFedAVG, TorchWeight(), client={"mode": "FO", "beta": problem.RATE})


@cell("fedper", weighted_by="1")
def _():
    return run(fedper.FedPer, TorchWeight(problem.BASE0), layers, own=FlukePair())


@cell("fedrep", weighted_by="1")
def _():
    # Of a model, not its name, all silos would train one copy.
    own = "__main__.FlukePair"
    return run(fedrep.FedRep, TorchWeight(problem.BASE0), layers, own=own, client={"tau": 1})


@cell("fedbabu", weighted_by="1")
def _():
    return run(
        fedbabu.FedBABU,
        TorchWeight(problem.BASE0),
        layers,
        own=FlukePair(),
        client={"mode": "head", "fine_tuning_epochs": 0},
    )


@cell("lg_fedavg", weighted_by="1")
def _():
    return run(lg_fedavg.LGFedAVG, TorchWeight(problem.LAST0), layers, own=FlukePair())


@cell("batchnorm", weighted_by="1")
def _():
    look = lambda a: a.server.model.norm.running_mean.item()
    return run(fedavg.FedAVG, TorchWeight(normed=True), look)


@cell("fedbn", weighted_by="1")
def _():
    look = lambda a: [c.model.norm.running_mean.item() for c in a.clients]
    return run(fedbn.FedBN, TorchWeight(normed=True), look)


def loader(x, y, batch=problem.BATCH):
    return FastDataLoader(x, y, num_labels=3, batch_size=batch, shuffle=False)


@cell("accuracy", route="its evaluator, given both clients' loaders")
def _():
    clients = []
    for hits, count in zip(problem.HITS, problem.COUNTS):
        y = torch.zeros(count, dtype=torch.long)
        said = torch.tensor([0] * hits + [1] * (count - hits))
        clients.append(loader(torch.eye(3)[said], y, 4))
    return [ClassificationEval(1, 3).evaluate(1, TorchLogits(), clients)["accuracy"]]


def _of_logits(logits):
    return [
        ClassificationEval(1, 3).evaluate(
            1, TorchLogits(), loader(logits, torch.tensor([0, 1, 2, 0]), 4)
        )["accuracy"]
    ]


@cell("ties", route="its evaluator")
def _():
    return _of_logits(torch.zeros(4, 3))


@cell("diverged", route="its evaluator")
def _():
    return _of_logits(torch.full((4, 3), float("nan")))


@cell("loss", route="its evaluator")
def _():
    y = torch.zeros(5, dtype=torch.long)
    x = torch.sqrt(torch.tensor(problem.ERRORS))[:, None] * torch.tensor([[1.0, 0.0, 0.0]])
    loss = lambda p, _: (p[:, 0] ** 2).mean()
    return [ClassificationEval(1, 3).evaluate(1, TorchLogits(), loader(x, y), loss_fn=loss)["loss"]]


_LABELS = torch.arange(1000) % 10
_ROWS = torch.arange(1000.0)[:, None]


def _dealt(function):
    FlukeENV().set_seed(7)
    return function(_ROWS, _LABELS, None, None, n=7)[0]


for _name, _kind in {
    "iid": DataSplitter.iid,
    "dirichlet": DataSplitter.label_dirichlet_skew,
    "shards": DataSplitter.label_pathological_skew,
}.items():
    cell(_name, route="its splitter")(lambda kind=_kind: fate(lambda: _dealt(kind)))

main()
