"""Runs an algorithm of fluke-fl on silos of one weight w whose loss is (w - target)^2."""

import importlib.metadata
import importlib.util
import pathlib
import re

import torch

if torch.version.cuda is None:
    # The index builds torchvision for CUDA; beside a PyTorch for CPUs its import asks for these.
    LIBRARY = torch.library.Library("torchvision", "DEF")
    _folder = pathlib.Path(importlib.util.find_spec("torchvision").origin).parent
    _text = (_folder / "_meta_registrations.py").read_text(encoding="utf-8")
    for _name in sorted(set(re.findall(r'"(?:torchvision::)?(\w+)"\)', _text)) - {"Meta"}):
        LIBRARY.define(f"{_name}(Tensor x) -> Tensor")

from fluke import DDict, FlukeENV
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver


class One(torch.nn.Module):
    def __init__(self, first):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([[first]]))

    def forward(self, x):
        return x @ self.w


class Splitter:
    def __init__(self, sizes, targets):
        self.sizes, self.targets = sizes, targets

    def assign(self, n_clients, batch_size):
        loaders = [
            FastDataLoader(torch.ones(n, 1), torch.full((n, 1), t), num_labels=1, batch_size=2)
            for n, t in zip(self.sizes, self.targets)
        ]
        return (loaders, [None] * len(loaders)), None


def run(
    kind,
    sizes,
    rounds=3,
    rate=0.1,
    first=1.0,
    targets=None,
    client=(),
    server=(),
    look=None,
    **optimizer,
):
    """Returns the server's weight after each round; batches have two rows."""
    FlukeENV().set_eval_cfg(server=False, locals=False, pre_fit=False, post_fit=False)
    config = DDict(
        client=DDict(
            batch_size=2,
            local_epochs=1,
            loss=torch.nn.MSELoss,
            optimizer=DDict(name="SGD", lr=rate, **optimizer),
            scheduler=DDict(gamma=1, step_size=1),
            **dict(client),
        ),
        server=DDict(**dict(server)),
        model=One(first),
    )
    algorithm = kind(len(sizes), Splitter(sizes, targets or (0.0,) * len(sizes)), config)
    seen = []

    class Watcher(FederationObserver):
        def end_round(self, round):
            seen.append((look or (lambda server: server.model.w.item()))(algorithm.server))

    algorithm.set_callbacks(Watcher())
    algorithm.run(rounds, 1.0)
    return seen


def verdict(what, seen, found, paper):
    """Prints what was seen, and exits 0 if it is what was found before."""
    near = all(abs(a - b) < 1e-4 for a, b in zip(seen, found)) and len(seen) == len(found)
    print("fluke-fl", importlib.metadata.version("fluke-fl"))
    print(what, [round(v, 4) for v in seen], "(paper:", [round(v, 4) for v in paper], ")")
    print("as found" if near else "not what was found")
    raise SystemExit(0 if near else 1)
