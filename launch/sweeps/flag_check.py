"""Asks a trainer whether it takes a grid's flags, in a process of its own.

A trainer declares its flags when it is imported, and some have the names of a sweep's.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence

from motley_tff import commandline
from motley_tff.core.errors import UserError


def first_complaint(
    trainer: str, dataset: str, given: Sequence[tuple[int, str, str]]
) -> tuple[int, str] | None:
    """Returns (line, message) of the first (line, flag, value) that a trainer refuses, or None."""
    command = [sys.executable, "-m", "launch.sweeps.flag_check", trainer, dataset]
    result = subprocess.run(
        command, input=json.dumps(list(given)), capture_output=True, text=True, check=True
    )
    complaint = json.loads(result.stdout)
    return tuple(complaint) if complaint else None


def _check(trainer: str, dataset: str, given: Sequence[tuple[int, str, str]]) -> list | None:
    importlib.import_module(f"trainers.{trainer}")
    start = [trainer, "--experiment_name=x", f"--dataset_name={dataset}"]
    for line, flag, value in given:
        try:
            commandline.parse([*start, f"--{flag}={value}"], name=trainer)
        except UserError as error:
            return [line, str(error)]
    return None


if __name__ == "__main__":
    print(json.dumps(_check(sys.argv[1], sys.argv[2], json.load(sys.stdin))))
