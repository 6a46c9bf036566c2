"""What every driver imports: `@cell(...)` functions are run, and their numbers written as JSON.

python DRIVER.py OUTPUT.json [CELL...]
"""

import json
import sys
import traceback

_CELLS = {}


def cell(name, route="own loop", weighted_by=""):
    """Registers a function that returns numbers, as the readings of that name do, flat or nested.

    `route` says whether the peer's own loop was run, or which of its parts.
    """

    def register(function):
        _CELLS[name] = (function, route, weighted_by)
        return function

    return register


def fate(deal):
    """Returns the numbers of a partition of 1,000 rows, from a function that deals them."""
    parts, again = ([list(map(int, part)) for part in deal()] for _ in range(2))
    rows = [row for part in parts for row in part]
    return [len(rows), len(set(rows)), parts == again, any(p != sorted(p) for p in parts)]


def flat(values):
    """Returns nested numbers as one list."""
    try:
        return [number for value in values for number in flat(value)]
    except TypeError:
        return [float(values)]


def main():
    """Runs the cells that the command line names, or all."""
    output, *names = sys.argv[1:]
    if unknown := set(names) - set(_CELLS):
        raise SystemExit(f"{', '.join(unknown)}: no cells of {sys.argv[0]}, which has {[*_CELLS]}")
    results = {}
    for name in names or _CELLS:
        function, route, weighted_by = _CELLS[name]
        results[name] = {"how": route, "weighted_by": weighted_by}
        try:
            results[name]["values"] = flat(function())
        except Exception as error:  # The library's own error is the cell's result.
            traceback.print_exc()
            first = (str(error).splitlines() or [""])[0]
            results[name]["error"] = f"{type(error).__name__}: {first}"[:150]
        print(name, results[name].get("values", results[name].get("error")), flush=True)
        with open(output, "w", encoding="utf-8") as file:
            json.dump(results, file)
