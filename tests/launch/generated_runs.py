"""Runs of generators that were never trained, and motley_generative on them."""

import subprocess
import sys

import numpy as np

from tests.trainers import programs


def score(*arguments, status=0):
    """Returns the finished command."""
    command = [sys.executable, "-m", "launch.generative.command", *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, env=programs.environment(), timeout=60, check=False
    )
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


def write(folder):
    """Writes runs `one` and `two` of clients a and b, with pictures after 0, 2 and 10 rounds."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 4, 4, 1), np.uint8)
    for run, spread in (("one", 20), ("two", 40)):
        (generated := folder / run / "generated").mkdir(parents=True)
        np.savez(generated / "clients.npz", images=images, client_id=["a"] * 30 + ["b"] * 30)
        for number in (0, 2, 10):
            made = rng.integers(128 - spread, 128 + spread, (40 + number, 4, 4, 1)).astype(np.uint8)
            np.savez(generated / f"round_{number:05d}.npz", images=made)
    return folder
