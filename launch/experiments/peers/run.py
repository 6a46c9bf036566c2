"""Runs peers' own code on three silos of one weight, and says what it computes.

    ./launch/run python -m launch.experiments.peers.run --peer=fluke-fl

Each peer is installed, pinned, in an environment of its own. Its driver (`drivers/NAME.py`) runs
the library for three rounds; `readings.py` has what an algorithm's paper gives, and other ways to
read it. A row of `cells.csv` says which reading a library's numbers are, and `guesses.csv` what was
expected before it was run.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from launch.experiments.peers import readings, registry
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

FLAGS = flags.FLAGS
HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = (
    "library,version,cell,how,weighted_by,outcome,equals_paper,largest_difference,guess,hit,numbers"
)
TOLERANCE = 2e-6  # Of float32 over three rounds.
# What uv takes of pip's settings, as launch/run does.
_SHARED = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "HYDRA_FULL_ERROR": "1"}


def _define_flags() -> None:
    flags.DEFINE_enum("peer", None, list(registry.PEERS), "The library to run.", required=True)
    flags.DEFINE_string("environments", "peers", "Folder of the peers' environments.")
    flags.DEFINE_list("cells", [], "Cells to run; all by default.")


def installed(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Returns the interpreter of a peer's environment, made if there is none."""
    peer = registry.PEERS[name]
    if not peer.packages:
        return pathlib.Path(sys.executable)
    environment = folder.resolve() / name
    python, stamp = environment / "bin" / "python", environment / "installed"
    pins = "\n".join((peer.python, *peer.packages, *peer.overrides))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == pins:
        return python
    settings = {uv: os.environ[pip] for pip, uv in _SHARED.items() if pip in os.environ}
    variables = (
        os.environ
        | settings
        | {
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "UV_NO_CONFIG": "1",  # This project pins its own packages in pyproject.toml.
        }
    )
    uv = str(pathlib.Path(sys.prefix) / ".uv" / "bin" / "uv")
    uv = uv if pathlib.Path(uv).exists() else "uv"
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as overrides:
        overrides.write("\n".join(peer.overrides))
        overrides.flush()
        for command in (
            ["venv", "--clear", "--quiet", "--python", peer.python, str(environment)],
            ["pip", "install", "--quiet", "--python", str(environment), *peer.packages]
            + ["--override", overrides.name],
        ):
            if subprocess.run([uv, *command], env=variables, check=False).returncode:
                raise UserError(name, "an install that failed", "what uv says above")
    stamp.write_text(pins, encoding="utf-8")
    return python


def driven(name: str, python: pathlib.Path, cells: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Runs a peer's driver, and returns what it wrote for each cell."""
    with tempfile.TemporaryDirectory() as scratch:
        output = pathlib.Path(scratch) / "cells.json"
        driver = HERE / "drivers" / registry.PEERS[name].driver
        paths = [
            HERE,
            HERE / "drivers",
            *([] if registry.PEERS[name].packages else [HERE.parents[2]]),
        ]
        variables = os.environ | _QUIET | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        command = [str(python), str(driver), str(output), *cells]
        result = subprocess.run(command, cwd=scratch, env=variables, check=False)
        if not output.exists():
            raise UserError(name, f"a driver that ended with {result.returncode}", "cells")
        return json.loads(output.read_text(encoding="utf-8"))


def ways(cell: str) -> dict[str, list[float]]:
    """Returns the readings of a cell; a suffix says which of a library's classes was run."""
    return readings.READINGS[cell.removesuffix(".legacy").removesuffix(".option1")]


def equals_paper(cell: str, outcome: str) -> int | str:
    """Returns whether an outcome is an algorithm's paper's; "" where no paper says."""
    if cell in readings.DESCRIBED or cell in readings.WITHOUT_PAPER:
        return ""
    return int(outcome == next(iter(ways(cell))))


def nearest(cell: str, values: Sequence[float]) -> tuple[str, float]:
    """Returns the reading of a cell that is nearest to some numbers, and the largest difference."""
    distances = {}
    for reading, expected in readings.READINGS[
        cell.removesuffix(".legacy").removesuffix(".option1")
    ].items():
        if len(expected) == len(values):
            both = np.isnan(expected) & np.isnan(values)
            difference = np.where(both, 0.0, np.abs(np.subtract(expected, values)))
            distances[reading] = float(np.nan_to_num(difference, nan=np.inf).max())
    if not distances:
        raise UserError(f"cell {cell}", f"{len(values)} numbers", "as many as a reading has")
    best = min(distances, key=distances.__getitem__)
    return best, distances[best]


def row(name: str, cell: str, result: Mapping[str, Any], guess: str) -> dict[str, Any]:
    """Returns a row of `cells.csv`."""
    values, outcome, difference = result.get("values"), result.get("error", ""), ""
    if values is not None and cell in readings.DESCRIBED:
        outcome = readings.DESCRIBED[cell](values)
    elif values is not None:
        reading, distance = nearest(cell, values)
        difference = f"{distance:.1e}"
        outcome = reading if distance <= TOLERANCE else f"none of the readings (nearest: {reading})"
    return {
        "library": name,
        "version": registry.PEERS[name].version,
        "cell": cell,
        "how": result["how"],
        "weighted_by": result["weighted_by"],
        "outcome": outcome,
        "equals_paper": equals_paper(cell, outcome),
        "largest_difference": difference,
        "guess": guess,
        "hit": int(guess in (outcome, outcome.split(":")[0])) if guess else "",
        "numbers": " ".join(f"{value:.6g}" for value in values or ()),
    }


def _table(path: pathlib.Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Runs a peer, and replaces its rows in `cells.csv`."""
    name, path = FLAGS.peer, HERE / "cells.csv"
    python = installed(name, pathlib.Path(FLAGS.environments))
    results = driven(name, python, FLAGS.cells)
    guesses = {(g["library"], g["cell"]): g["guess"] for g in _table(HERE / "guesses.csv")}
    rows = [
        row(name, cell, result, guesses.get((name, cell), "")) for cell, result in results.items()
    ]
    replaced = set(FLAGS.cells)  # All, if none are named.
    kept = [
        r for r in _table(path) if r["library"] != name or (replaced and r["cell"] not in replaced)
    ]
    with csv_files.replacing(path) as file:
        writer = csv.DictWriter(file, COLUMNS.split(","), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *rows], key=lambda r: (r["library"], r["cell"])))
    for each in rows:
        equal = f"{each['outcome']} ({each['largest_difference']})"
        print(f"{each['cell']:16} {equal}, guess: {each['guess']}")


if __name__ == "__main__":
    _define_flags()
    commandline.run_main(main)
