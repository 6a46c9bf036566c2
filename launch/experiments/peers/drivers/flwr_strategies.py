"""flwr: `Strategy.start` and, as *.legacy, `Server.fit`, with clients of ours in this process.

Flower leaves training to the user's client, so that only what its servers do is compared.
"""

import numpy as np
import problem
from cells import cell, fate, main
from datasets import Dataset
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.common import (
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import Server, SimpleClientManager, strategy as old
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import strategy as new
from flwr.supercore.task_identity import TaskIdentity
from flwr_datasets.partitioner import DirichletPartitioner, IidPartitioner, ShardPartitioner

TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
HOW = "own loop; the client is the user's"


def trained(silo, w, label):
    x = problem.X[silo]
    for _ in range(problem.STEPS[silo]):
        w = w - problem.RATE * 2 * x * (w * x - label)
    return w


class GridOfSilos:
    """Answers messages at once, silo by silo."""

    def __init__(self, labels, absent=False):
        self.labels, self.absent, self.seen = labels, absent, []

    def get_node_ids(self):
        return [1, 2, 3]

    def send_and_receive(self, messages, timeout=None):
        return [self.answer(message) for message in messages]

    def answer(self, message):
        silo = message.metadata.dst_node_id - 1
        if message.metadata.message_type == "evaluate":
            hits, count = problem.HITS[silo], problem.COUNTS[silo]
            metrics = MetricRecord({"accuracy": hits / count, "num-examples": count})
            return reply(message, RecordDict({"metrics": metrics}))
        w = next(iter(message.content.array_records.values())).to_numpy_ndarrays()[0]
        if (
            self.absent
            and silo == problem.ABSENT
            and message.content["config"]["server-round"] == 2
        ):
            return reply(message, error=Error(0, "away"))
        arrays = ArrayRecord([trained(silo, w, self.labels[silo])])
        metrics = MetricRecord({"num-examples": problem.SIZES[silo]})
        return reply(message, RecordDict({"arrays": arrays, "metrics": metrics}))


def reply(message, content=None, error=None):
    """Answers a message as a node would, whose metadata the grid fills in."""
    arguments = {"content": content} if error is None else {"error": error}
    message.metadata.__dict__["_message_id"] = "1"
    return Message(**arguments, reply_to=message)


def started(strategy, **grid):
    seen = []

    def look(round_number, arrays):
        if round_number:
            seen.append(arrays.to_numpy_ndarrays()[0])

    grid = GridOfSilos(grid.pop("labels", problem.Y), **grid)
    initial = ArrayRecord([np.array([problem.W0])])
    strategy.start(grid, initial, num_rounds=problem.ROUNDS, evaluate_fn=look)
    return seen


class ClientOfFlower(ClientProxy):
    def fit(self, ins, timeout, group_id):
        silo = int(self.cid)
        w = trained(silo, parameters_to_ndarrays(ins.parameters)[0], problem.Y[silo])
        parameters = ndarrays_to_parameters([w])
        return FitRes(Status(Code.OK, ""), parameters, problem.SIZES[silo], {})

    def get_parameters(self, ins, timeout, group_id):
        raise NotImplementedError

    get_properties = evaluate = reconnect = get_parameters


def served(kind, **arguments):
    seen = []

    def look(round_number, arrays, config):
        if round_number:
            seen.append(arrays[0])

    initial = ndarrays_to_parameters([np.array([problem.W0])])
    manager = SimpleClientManager()
    for silo in range(3):
        manager.register(ClientOfFlower(str(silo)))
    strategy = kind(
        initial_parameters=initial, evaluate_fn=look, fraction_evaluate=0.0, **arguments
    )
    Server(client_manager=manager, strategy=strategy).fit(problem.ROUNDS, None)
    return seen


_RATES = {"eta": problem.SERVER_RATE, "tau": problem.TAU}
_BETAS = {"beta_1": problem.BETA_1, "beta_2": problem.BETA_2}
for _name, _more in {"Adam": _BETAS, "Yogi": _BETAS, "Adagrad": {}}.items():
    _arguments = {**_RATES, **_more}
    cell("fed" + _name.lower(), HOW, "num-examples")(
        lambda n=_name, a=_arguments: started(getattr(new, "Fed" + n)(fraction_evaluate=0.0, **a))
    )
    cell("fed" + _name.lower() + ".legacy", HOW, "num_examples")(
        lambda n=_name, a=_arguments: served(getattr(old, "Fed" + n), **a)
    )


@cell("fedavg", HOW, "num-examples")
def _():
    return started(new.FedAvg(fraction_evaluate=0.0))


@cell("fedavg_absent", HOW, "num-examples")
def _():
    return started(new.FedAvg(fraction_evaluate=0.0), absent=True)


@cell("diverged_client", HOW, "num-examples")
def _():
    labels = (*problem.Y[:2], float("nan"))
    return started(new.FedAvg(fraction_evaluate=0.0), labels=labels)


@cell("fedavgm", HOW, "num-examples")
def _():
    return started(new.FedAvgM(fraction_evaluate=0.0, server_momentum=problem.MOMENTUM))


@cell("fedavgm.legacy", HOW, "num_examples")
def _():
    return served(old.FedAvgM, server_momentum=problem.MOMENTUM)


@cell("accuracy", HOW, "num-examples")
def _():
    grid = GridOfSilos(problem.Y)
    grid.get_node_ids = lambda: [1, 2]
    initial = ArrayRecord([np.array([problem.W0])])
    result = new.FedAvg().start(grid, initial, num_rounds=1)
    return [result.evaluate_metrics_clientapp[1]["accuracy"]]


def _deal(kind, *arguments, **more):
    partitioner = kind(7, *arguments, **more)
    partitioner.dataset = Dataset.from_dict(
        {"row": list(range(1000)), "label": [i % 10 for i in range(1000)]}
    )
    return [partitioner.load_partition(i)["row"] for i in range(7)]


@cell("iid", "its partitioner")
def _():
    return fate(lambda: _deal(IidPartitioner))


@cell("dirichlet", "its partitioner")
def _():
    return fate(lambda: _deal(DirichletPartitioner, "label", 0.5))


@cell("shards", "its partitioner, two shards a client")
def _():
    return fate(lambda: _deal(ShardPartitioner, "label", num_shards_per_partition=2))


main()
