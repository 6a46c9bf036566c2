#!/usr/bin/env bash
# fluke-fl 0.8.1: pFedMe's personal model is pulled towards itself, so lambda changes nothing.
#
# Guess, before it was run (after reading its client): the optimizer is given the parameters that it
# steps, so the pull is lambda (theta - theta) = 0, and the server averages theta itself: FedAvg of K
# steps a batch under any lambda. One client, loss (w - 0)^2 from w = 1, one batch, K = 2, rate .1,
# beta 1: .64 after a round for lambda 0, 1 and 5. By the paper's Algorithm 1: 1 for lambda 0,
# .966 for 1 (theta .66), .87 for 5 (theta .74).
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/environment.bash"
environment 3.11 fluke-fl==0.8.1 torch==2.13.0
cp "$here/fluke_run.py" .

"$python" - <<'PYTHON'
import fluke_run  # First, see there.
from fluke.algorithms.pfedme import PFedMe
from fluke_run import run, verdict


def paper(strength, w=1.0, theta=1.0, rate=0.1):
    for _ in range(2):
        theta -= rate * (2 * theta + strength * (theta - w))
    return w - rate * strength * (w - theta)


def seen(strength):
    optimizer = {"lamda": strength, "mu": 0.0}
    return run(PFedMe, (2,), rounds=1, client={"k": 2}, server={"beta": 1.0}, **optimizer)[0]


strengths = (0.0, 1.0, 5.0)
numbers = [seen(strength) for strength in strengths]
verdict("weight, lambda 0, 1, 5:", numbers, [0.64] * 3, [paper(s) for s in strengths])
PYTHON
