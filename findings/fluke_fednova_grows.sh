#!/usr/bin/env bash
# fluke-fl 0.8.1: FedNova weighs models, not changes, by weights that do not add up to 1.
#
# Guess, before it was run (after reading its server): a model that no client changes grows. Two
# clients of 1 and 2 batches have p = 1/2, a = 1, 2 and tau = 3/2: weights p tau / a = .75 and .375.
# So at rate 0 a weight of 1 is 1.125, 1.2656, 1.4238 after three rounds, where the paper has 1, 1, 1.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/environment.bash"
environment 3.11 fluke-fl==0.8.1 torch==2.13.0
cp "$here/fluke_run.py" .

"$python" - <<'PYTHON'
import fluke_run  # First, see there.
from fluke.algorithms.fednova import FedNova
from fluke_run import run, verdict

seen = run(FedNova, sizes=(2, 4), rate=0.0)
verdict("weight after each round, nothing learned:", seen, [1.125, 1.2656, 1.4238], [1.0, 1.0, 1.0])
PYTHON
