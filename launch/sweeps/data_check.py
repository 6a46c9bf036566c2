"""Asks a trainer whether it can load a sweep's data, in a process of its own.

The data leave with it, and a trainer's flags have the names of a sweep's.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from motley_tff import commandline
from motley_tff.core.errors import UserError


def complaint(trainer: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Returns why a trainer cannot load the data that its flags name, None if it can; what is left
    out of them is said on stderr.
    """
    result = subprocess.run(
        [sys.executable, "-m", "launch.sweeps.data_check", trainer], env=os.environ | environment,
        input=json.dumps(list(arguments)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        return result.stderr.strip().rpartition("\n")[2] or f"exit status {result.returncode}"
    for line in result.stderr.splitlines():
        if line.startswith("warning: "):  # TensorFlow says others.
            print(line, file=sys.stderr)
    return json.loads(result.stdout.splitlines()[-1])


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

        runner.warn_of_omissions(task, progress.warn)
    except UserError as error:
        return error.line(with_flags=True)
    return None


if __name__ == "__main__":
    print(json.dumps(_load(sys.argv[1], json.load(sys.stdin))))
