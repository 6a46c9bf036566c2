"""Run and sweep directories as our programs leave them, with numbers that tests choose."""

import json

from motley_tff.files import csv_files
from motley_tff.tables import columns as columns_lib

_RESULTS = ("valid_personalized_mean", "test_personalized_mean", "test_pct_clients_hurt")


def run(root, run_id, algorithm, test, *, seed=0, number=10, valid=None, flags=None, **options):
    """Writes a run's clients.csv, run.json and whatever tables are given; returns its directory.

    Args:
      root: Where the directory goes.
      run_id: Its name.
      algorithm: As in the tables.
      test: `{client id: (baseline, personalized)}`.
      seed: `base_random_seed`.
      number: The round.
      valid: The same as `test` for validation clients; by default clients v0, v1 with 0.5, 0.5.
      flags: For run.json; none is written if this is None.
      options: `dataset`, `metric`, `higher_is_better`, `more` (`{column: {client: value}}`) and
        `tables` (`{name: rows}`).
    """
    path = root / run_id
    path.mkdir(parents=True)
    keys = {
        "run_id": run_id,
        "dataset": options.get("dataset", "toy"),
        "algorithm": algorithm,
        "base_random_seed": seed,
        "round": number,
    }
    more = options.get("more", {})
    rows = [
        keys
        | {"split": split, "client_id": client, "num_personalization_examples": 10 * (place + 1)}
        | {"num_evaluation_examples": 5, "metric": options.get("metric", "accuracy")}
        | {"higher_is_better": options.get("higher_is_better", True)}
        | {"baseline": before, "personalized": after}
        | {column: values[client] for column, values in more.items() if client in values}
        for split, clients in (
            ("valid", valid or {"v0": (0.5, 0.5), "v1": (0.5, 0.5)}),
            ("test", test),
        )
        for place, (client, (before, after)) in enumerate(clients.items())
    ]
    known = columns_lib.names("clients")
    columns = (*known, *(c for c in more if c not in known))
    csv_files.write(path / "clients.csv", columns, rows, optional=columns)
    if flags is not None:
        (path / "run.json").write_text(json.dumps({"flags": flags}))
    for name, table in options.get("tables", {}).items():
        full = [keys | row for row in table]
        csv_files.write(path / f"{name}.csv", list(full[0]), full)
    return path


def candidates(values):
    """Returns rows of candidates.csv from `{split: {client: {candidate: value}}}`."""
    return [
        {"split": split, "client_id": client, "candidate": label, "metric": "accuracy"}
        | {"value": value, "loss": 1.0}
        for split, clients in values.items()
        for client, mine in clients.items()
        for label, value in mine.items()
    ]


def sweep(root, rows, algorithm="ditto", dataset="toy", use_synthetic_data=False, **grid):
    """Writes a sweep directory from rows of hyperparameters, seed, status, results, so ordered."""
    root.mkdir(parents=True)
    full = [
        {"run_id": f"p{i}", "algorithm": algorithm, "dataset": dataset}
        | r
        | {"metric": "accuracy", "higher_is_better": True}
        | {name: r.get(name, 0.5) for name in _RESULTS}
        for i, r in enumerate(rows)
    ]
    columns = list(dict.fromkeys(name for row in full for name in row))
    csv_files.write(root / "sweep.csv", columns, full, optional=columns)
    grid = {"fixed": [["num_clusters", "2"]], **grid}
    plan = {"grid": grid, "use_synthetic_data": use_synthetic_data}
    (root / "run.json").write_text(json.dumps({"flags": {}, "plan": plan}))
    return root
