#!/usr/bin/env bash
# fluke-fl 0.8.1: both corrections of FedDyn have the other sign.
#
# Guess, before it was run (after reading its client and server): with two clients of one batch, loss
# (w - t)^2, t = 0 and 2 from w = 4, rate .1, alpha 1, clipping off: clients go to 3.2 and 3.6, their
# mean is 3.4. The paper's h is -(1/2)(-.8 - .4) = .6, so the server sends 3.4 - .6 = 2.8, further
# along the way the clients went; fluke-fl's correction is +.6: the server sends 4.0, where it was.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/environment.bash"
environment 3.11 fluke-fl==0.8.1 torch==2.13.0
cp "$here/fluke_run.py" .

"$python" - <<'PYTHON'
import fluke_run  # First, see there.
from fluke.algorithms.feddyn import FedDyn
from fluke_run import run, verdict

seen = run(
    FedDyn,
    (2, 2),
    rounds=1,
    first=4.0,
    targets=(0.0, 2.0),
    client={"alpha": 1.0, "clipping": 0},
    server={"alpha": 1.0},
    look=lambda server: server.cld_mdl.w.item(),
)
verdict("the model that is sent in round two:", seen, [4.0], [2.8])
PYTHON
