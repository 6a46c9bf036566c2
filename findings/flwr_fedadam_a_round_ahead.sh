#!/usr/bin/env bash
# flwr 1.42.0: FedAdam's bias correction is that of the next round.
#
# Guess, before it was run: Adam's step of round t, corrected by sqrt(1 - b2^t) / (1 - b1^t), so that
# the first step is the rate itself (.1, tau aside). Seen: t + 1 in both powers; the first step is
# .0742 with b1 = .9, b2 = .99, and .0744 with b2 = .999. (Reddi et al.'s FedAdam has no correction.)
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/environment.bash"
environment 3.11 flwr==1.42.0

"$python" - <<'PYTHON'
import importlib.metadata
import logging
import math

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAdam

logging.getLogger("flwr").setLevel(logging.ERROR)


class Proxy(ClientProxy):
    """A client that always adds 1 to the weight."""

    def fit(self, ins, timeout, group_id):
        w = parameters_to_ndarrays(ins.parameters)[0]
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters([w + 1]), 1, {})

    def get_parameters(self, ins, timeout, group_id):
        raise NotImplementedError

    get_properties = evaluate = reconnect = get_parameters


def first_step(beta_2):
    seen, manager = [], SimpleClientManager()
    for client in ("a", "b"):
        manager.register(Proxy(client))
    strategy = FedAdam(
        initial_parameters=ndarrays_to_parameters([np.zeros(1)]),
        evaluate_fn=lambda number, arrays, config: seen.append(float(arrays[0][0])),
        fraction_evaluate=0.0,
        eta=0.1,
        beta_1=0.9,
        beta_2=beta_2,
        tau=1e-9,
    )
    Server(client_manager=manager, strategy=strategy).fit(1, None)
    return seen[1]


seen = [first_step(b) for b in (0.99, 0.999)]
ahead = [0.1 * math.sqrt(1 - b**2) / (1 - 0.9**2) * 0.1 / math.sqrt(1 - b) for b in (0.99, 0.999)]
print("flwr", importlib.metadata.version("flwr"))
print("first step, rate .1:", [round(v, 4) for v in seen], "(Adam: .1, .1)")
code = 0 if np.allclose(seen, ahead, atol=1e-6) else 1
print("as found" if code == 0 else "not what was found")
raise SystemExit(code)
PYTHON
