"""nvflare: its workflows' `run`, whose messages are answered in this process, and its helpers."""

import copy

import problem
import torch
from cells import cell, main
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AlgorithmConstants
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_common.workflows.scaffold import Scaffold
from nvflare.app_opt.pt.fedopt_ctl import FedOpt
from nvflare.app_opt.pt.fedproxloss import PTFedProxLoss
from nvflare.app_opt.pt.scaffold import PTScaffoldHelper
from torch_models import TorchWeight

HOW = "own loop, its messages answered in the process"
WEIGHTS = "NUM_STEPS_CURRENT_ROUND"
KEY = "NUM_STEPS_CURRENT_ROUND"


class NvflareClients:
    """Our part: plain SGD, with the library's helpers."""

    def __init__(self, labels=problem.Y, mu=0.0, scaffold=False, diff=False, normed=False):
        self.labels, self.mu, self.diff, self.normed = labels, mu, diff, normed
        self.models = [TorchWeight(normed=normed) for _ in range(3)]
        self.helpers = [PTScaffoldHelper() for _ in range(3)] if scaffold else None
        for helper, model in zip(self.helpers or (), self.models):
            helper.init(model)

    def answer(self, silo, received):
        model = self.models[silo]
        state = {k: torch.as_tensor(v) for k, v in received.params.items()}
        model.load_state_dict(state)
        first = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), problem.RATE)
        if self.helpers:
            helper = self.helpers[silo]
            helper.load_global_controls(received.meta[AlgorithmConstants.SCAFFOLD_CTRL_GLOBAL])
            controls = helper.get_params()
        sizes = [problem.BATCH] * (problem.SIZES[silo] // problem.BATCH)
        sizes += [problem.SIZES[silo] % problem.BATCH] * (problem.SIZES[silo] % problem.BATCH > 0)
        model.train()
        for size in sizes:
            optimizer.zero_grad()
            x = torch.full((size, 1), problem.X[silo])
            loss = ((model(x) - self.labels[silo]) ** 2).mean()
            if self.mu:
                loss = loss + PTFedProxLoss(self.mu)(model, first)
            loss.backward()
            optimizer.step()
            if self.helpers:
                helper.model_update(model, problem.RATE, *controls)
        meta = {KEY: len(sizes), "client_name": str(silo)}
        if self.helpers:
            helper.terms_update(model, problem.RATE, *controls, first)
            meta[AlgorithmConstants.SCAFFOLD_CTRL_DIFF] = helper.get_delta_controls()
        params = {k: v.numpy().copy() for k, v in model.state_dict().items()}
        if self.diff:
            start = first.state_dict()
            params = {k: v - start[k].numpy() for k, v in params.items()}
        kind = ParamsType.DIFF if self.diff else ParamsType.FULL
        return FLModel(params_type=kind, params=params, meta=meta)


def run(kind, clients, look="w", chosen=((0, 1, 2),) * problem.ROUNDS, **arguments):
    rounds, seen = iter(chosen), []

    class Workflow(kind):
        def sample_clients(self, *_, **__):
            return next(rounds)

        def send_model(self, task_name=None, targets=None, data=None, callback=None, **_):
            for silo in targets:
                callback(clients.answer(silo, data))

        def send_model_and_wait(self, targets=None, data=None, **_):
            return [clients.answer(silo, data) for silo in targets]

        def get_num_standing_tasks(self):
            return 0

        def save_model(self, model, *_):
            seen.append(model.params[look].item())

        def build_component(self, config):
            module, name = config["path"].rsplit(".", 1)
            return getattr(__import__(module, fromlist=[name]), name)(**config["args"])

        def _quiet(self, *_, **__):
            pass

        event = fire_event_with_data = info = warning = error = _quiet

    start = {
        k: v.numpy().copy() for k, v in TorchWeight(normed=clients.normed).state_dict().items()
    }
    workflow = Workflow(num_clients=3, num_rounds=problem.ROUNDS, **arguments)
    workflow.fl_ctx, workflow.model = FLContext(), FLModel(params=start)
    if kind is Scaffold:
        workflow._global_ctrl_weights = {"w": 0 * start["w"]}
    workflow.run()
    return seen


@cell("fedavg", HOW, WEIGHTS)
def _():
    return run(FedAvg, NvflareClients())


@cell("fedavg_absent", HOW, WEIGHTS)
def _():
    return run(FedAvg, NvflareClients(), chosen=([0, 1, 2], [0, 1], [0, 1, 2]))


@cell("diverged_client", HOW, WEIGHTS)
def _():
    return run(FedAvg, NvflareClients(labels=(*problem.Y[:2], float("nan"))))


@cell("fedprox", HOW + "; its loss", WEIGHTS)
def _():
    return run(FedAvg, NvflareClients(mu=problem.MU))


@cell("batchnorm", HOW, WEIGHTS)
def _():
    return run(FedAvg, NvflareClients(normed=True), "norm.running_mean")


@cell("scaffold", HOW + "; its helper", WEIGHTS)
def _():
    return run(Scaffold, NvflareClients(scaffold=True))


def _optimized(name, **arguments):
    constant = {"path": "torch.optim.lr_scheduler.ConstantLR", "args": {"factor": 1.0}}
    optimizer = {"path": f"torch.optim.{name}", "args": arguments}
    return run(
        FedOpt,
        NvflareClients(diff=True),
        source_model=TorchWeight(),
        optimizer_args=optimizer,
        lr_scheduler_args=constant,
    )


@cell("fedadam", HOW, WEIGHTS)
def _():
    betas = (problem.BETA_1, problem.BETA_2)
    return _optimized("Adam", lr=problem.SERVER_RATE, betas=betas, eps=problem.TAU)


@cell("fedadagrad", HOW, WEIGHTS)
def _():
    return _optimized("Adagrad", lr=problem.SERVER_RATE, eps=problem.TAU)


@cell("fedavgm", HOW, WEIGHTS)
def _():
    return _optimized("SGD", lr=1.0, momentum=problem.MOMENTUM)


main()
