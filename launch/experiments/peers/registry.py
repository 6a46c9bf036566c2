"""The peers: what is installed, in which Python, and what drives it. A line a peer."""

from __future__ import annotations

import dataclasses

TORCH = "torch==2.13.0"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library of the package index.

    Attributes:
      driver: File in `drivers`.
      packages: What is installed, pinned; the first one is the library. None: this project's own.
      python: Version of the interpreter.
      overrides: Pins that replace those of the library's packages.
      own: Version, where it is run in this project's environment.
    """

    driver: str
    packages: tuple[str, ...] = ()
    python: str = "3.11"
    overrides: tuple[str, ...] = ()
    own: str = "this checkout"

    @property
    def version(self) -> str:
        """What its rows say."""
        return self.packages[0].split("==")[1] if self.packages else self.own


PEERS = {
    "suite": Peer("suite.py"),
    "tff": Peer("tff_learning.py", own="0.87.0"),
    "fedjax": Peer(
        "fedjax_algorithms.py",
        (
            "fedjax==0.0.17",
            "jax==0.4.25",
            "jaxlib==0.4.25",
            "optax==0.1.9",
            "dm-haiku==0.0.11",
            "numpy==1.26.4",
            "scipy==1.12.0",
        ),
    ),
    "pfl": Peer("pfl_algorithms.py", ("pfl==0.6.0", TORCH)),
    "fl4health": Peer(
        "fl4health_clients.py",
        ("fl4health==0.4.2",),
        overrides=(TORCH,),
    ),
    "openfl": Peer("openfl_functions.py", ("openfl==1.9", TORCH)),
    "nvflare": Peer("nvflare_workflows.py", ("nvflare==2.9.0", TORCH)),
    "appfl": Peer("appfl_parts.py", ("appfl==1.12.0", TORCH)),
    "fluke-fl": Peer("fluke_fl.py", ("fluke-fl==0.8.1", TORCH)),
    "flwr": Peer("flwr_strategies.py", ("flwr==1.42.0", "flwr-datasets==0.6.1")),
    "fedlab": Peer("fedlab_handlers.py", ("fedlab==1.3.0", TORCH)),
}
