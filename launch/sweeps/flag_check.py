"""Asks a trainer whether it takes a grid's flags, and can load its data, in a process of its own.

A trainer declares its flags when it is imported, and some have the names of a sweep's.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from motley_tff import commandline
from motley_tff.core.errors import UserError
from trainers import published_flags


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


def data_complaint(
    trainer: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> str | None:
    """Returns why a trainer cannot load the data that its flags name, None if it can; what is left
    out of them is said on stderr.
    """
    result = subprocess.run(
        [sys.executable, "-m", "launch.sweeps.flag_check", trainer], env=os.environ | environment,
        input=json.dumps(list(arguments)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        return result.stderr.strip().rpartition("\n")[2] or f"exit status {result.returncode}"
    for line in result.stderr.splitlines():
        if line.startswith("warning: "):  # TensorFlow says others.
            print(line, file=sys.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def _check(trainer: str, dataset: str, given: Sequence[tuple[int, str, str]]) -> list | None:
    importlib.import_module(f"trainers.{trainer}")
    advice = published_flags.advice
    start = [trainer, "--experiment_name=x", f"--dataset_name={dataset}"]
    for line, flag, value in given:
        try:
            commandline.parse([*start, f"--{flag}={value}"], name=trainer, advice=advice)
        except UserError as error:
            return [line, str(error)]
    return None


def _load(trainer: str, arguments: Sequence[str]) -> str | None:
    import datasets
    from motley_tff.commandline import progress
    from trainers import config

    importlib.import_module(f"trainers.{trainer}")
    try:
        commandline.parse([trainer, *arguments], name=trainer)
        commandline.silence_libraries()
        task = datasets.create_task(config.read(trainer).data)
        from motley_tff.experiment import runner  # TensorFlow takes 3 s.

        runner.say_what_is_left_out(task, progress.warn)
    except UserError as error:
        return str(error)
    return None


if __name__ == "__main__":
    content = json.load(sys.stdin)
    if len(sys.argv) == 2:
        print(json.dumps(_load(sys.argv[1], content)))
    else:
        print(json.dumps(_check(sys.argv[1], sys.argv[2], content)))
