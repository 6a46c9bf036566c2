"""Prints, as JSON, what a trainer's flags are where they are not given.

    python -m trainers.flag_defaults finetuning_trainer

In a process of its own: a trainer declares its flags when it is imported.
"""

import importlib
import json
import subprocess
import sys
from typing import Any

from absl import flags


def read(trainer: str) -> dict[str, Any]:
    """Returns `{flag: default}` of a trainer, as run.json has values."""
    command = [sys.executable, "-m", "trainers.flag_defaults", trainer]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


if __name__ == "__main__":
    importlib.import_module(f"trainers.{sys.argv[1]}")
    print(json.dumps({name: flags.FLAGS[name].default for name in flags.FLAGS}, default=str))
