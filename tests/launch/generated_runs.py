"""Runs of generators that were never trained, and motley_generative on them."""

import types

import numpy as np

from tests.launch import commands


def score(*arguments, status=0):
    """Returns what the command printed, `stdout` and `stderr`."""
    with commands.opened("launch.generative.command") as generative:
        if status:
            return types.SimpleNamespace(stdout="", stderr=f"{generative.refused(*arguments)}\n")
        status, stdout = generative(*arguments)
        assert status == 0
        return types.SimpleNamespace(stdout=stdout, stderr="")


def write(folder):
    """Writes runs `one` and `two` of clients a and b, with pictures after 0, 2 and 10 rounds."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 4, 4, 1), np.uint8)
    for run, spread in (("one", 20), ("two", 40)):
        (generated := folder / run / "generated").mkdir(parents=True)
        np.savez(generated / "clients.npz", images=images, client_id=["a"] * 30 + ["b"] * 30)
        for number in (0, 2, 10):
            pictures = rng.integers(128 - spread, 128 + spread, (40 + number, 4, 4, 1)).astype(
                np.uint8
            )
            np.savez(generated / f"round_{number:05d}.npz", images=pictures)
    return folder
