"""Prints, as JSON, what a trainer's flags are where they are not given, or those of all trainers.

    python -m trainers.flag_defaults [finetuning_trainer]

In a process of its own: a trainer declares its flags when it is imported.
"""

import importlib
import json
import subprocess
import sys
from typing import Any

from absl import flags

from trainers import TRAINERS


def read(trainer: str) -> dict[str, Any]:
    """Returns `{flag: default}` of a trainer, as run.json has values."""
    return _asked(trainer)


def read_all() -> dict[str, dict[str, Any]]:
    """Returns `{trainer: {flag: default}}`."""
    return _asked()


def _asked(*trainer: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "trainers.flag_defaults", *trainer]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


if __name__ == "__main__":
    known, content = flags.FLAGS, {}
    for name in sys.argv[1:] or TRAINERS:
        importlib.import_module(f"trainers.{name}")
        content[name] = {flag: known[flag].default for flag in known}
        for flag in content[name]:  # Room for the next one's.
            delattr(known, flag)
    print(json.dumps(content[sys.argv[1]] if sys.argv[1:] else content, default=str))
