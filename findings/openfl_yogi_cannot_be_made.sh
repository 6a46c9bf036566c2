#!/usr/bin/env bash
# openfl 1.9: YogiAdaptiveAggregation cannot be made, with its defaults or any other arguments.
#
# Guess, before it was run: it runs, and its second moment decays as Adam's does. Seen: a TypeError,
# as it passes a misspelt argument on; the Yogi below it (NumPyYogi) can be made by itself.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/environment.bash"
environment 3.11 openfl==1.9

"$python" - <<'PYTHON'
import importlib.metadata

import numpy as np
from openfl.interface import aggregation_functions as functions
from openfl.utilities.optimizers.numpy import NumPyYogi

print("openfl", importlib.metadata.version("openfl"))
functions.AdamAdaptiveAggregation(params={"w": np.zeros(1)})
NumPyYogi(params={"w": np.zeros(1)})
try:
    functions.YogiAdaptiveAggregation(params={"w": np.zeros(1)})
except TypeError as error:
    print(error)
    print("as found")
else:
    raise SystemExit("it can be made: not what was found")
PYTHON
