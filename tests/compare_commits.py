"""Whether two commits write the same tables, byte by byte.

    ./launch/run python -m tests.compare_commits [--all] a-commit [another, or HEAD]

Checks out both commits on this machine, starts the same runs of each commit's own trainers on
synthetic data, and compares their CSV files byte by byte. Only times differ between two runs of
one commit, so `tasks.csv`, `run.json` and columns of seconds are left out. `--all` has every
trainer, task and backend, and the algorithms that 0ac46f1 had, instead of a few runs that combine
features.

Exits with 1 and a line a table if any differs. A commit's tables are kept in `--directory`, so a
second comparison with the same commit runs the other one alone.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Written out, as the registries of two commits may differ.
_DEVICE = ("emnist", "stackoverflow", "ted_multi", "landmark")
_SILO = ("vehicle", "school", "adni")
_MULTI_TASK = ("local", "ditto", "mocha", "mr_mtl", "apfl", "fedper", "pfedme", "per_fedavg")
_BACKENDS = ("sequential", "vectorized", "tff")
_COHORTS = (
    "--clients_per_train_round=3", "--valid_clients_per_evaluation=3",
    "--test_clients_per_evaluation=3", "--final_evaluation_clients=4",
)  # fmt: skip
_SHORT = ("--total_rounds=3", "--rounds_per_evaluation=2", "--rounds_per_checkpoint=2")
_HYPCLUSTER = ("--num_clusters=2",)
# {trainer: flags of its own, cut short}
_OWN = {
    "finetuning_trainer": ("--finetune_max_epochs=2",),
    "hypcluster_trainer": _HYPCLUSTER,
    "knn_per_trainer": ("--coefficients=0.1,0.5,1",),
    "mtl_trainer": (),
}


def combined_runs():
    """Yields (name, trainer, flags): few runs in which many features meet."""
    yield "drop_outs", "finetuning_trainer", (
        "--dataset_name=emnist", "--backend=sequential", *_COHORTS, *_OWN["finetuning_trainer"],
        "--dropout_rate=0.3", "--straggler_rate=0.5", "--acceptance=min_examples:12",
        "--evaluate_ood", "--ood_examples=8", "--personalization_fraction=0.25,0.5",
        "--finetune_last_layer", "--include_baseline_candidate", "--algorithm=fedprox",
    )  # fmt: skip
    yield "robust", "finetuning_trainer", (
        "--dataset_name=vehicle", "--aggregator=robust", "--export_scores",
        "--finetune_tuning=per_client", "--finetune_every=2", *_OWN["finetuning_trainer"],
    )  # fmt: skip
    for algorithm in ("fedsgd", "centralized"):
        yield algorithm, "finetuning_trainer", (
            "--dataset_name=school", f"--algorithm={algorithm}", *_OWN["finetuning_trainer"],
        )  # fmt: skip
    yield "warm_start", "hypcluster_trainer", (
        "--dataset_name=school", "--backend=sequential", "--warmstart_fraction=0.5",
        "--dropout_rate=0.3", "--balance=0.5", *_HYPCLUSTER,
    )  # fmt: skip
    yield "shared_layers", "hypcluster_trainer", (
        "--dataset_name=adni", "--share_base_layers", "--step_empty_clusters", *_HYPCLUSTER,
    )  # fmt: skip
    yield "neighbors", "knn_per_trainer", (
        "--dataset_name=emnist", "--backend=sequential", *_COHORTS, "--num_neighbors=3",
        "--coefficients=0.1,0.5,1", "--evaluate_ood",
    )  # fmt: skip
    for algorithm in _MULTI_TASK:
        flags = ["--dataset_name=school", f"--algorithm={algorithm}"]
        if algorithm != "mocha":
            flags.append("--dropout_rate=0.2")
        if algorithm in ("ditto", "per_fedavg"):
            flags.append("--straggler_rate=0.5")
        yield f"multi_task_{algorithm}", "mtl_trainer", tuple(flags)


def all_runs():
    """Yields (name, trainer, flags): every trainer, algorithm, task and backend."""
    yield from combined_runs()
    for backend in _BACKENDS:
        for task in (*_SILO, *_DEVICE):
            for trainer in ("finetuning_trainer", "hypcluster_trainer", "knn_per_trainer"):
                cohorts = _COHORTS if task in _DEVICE else ()
                yield f"{trainer}_{task}_{backend}", trainer, (
                    f"--dataset_name={task}", f"--backend={backend}", *cohorts, *_OWN[trainer],
                )  # fmt: skip
        for task in _SILO:
            for algorithm in _MULTI_TASK:
                yield f"{algorithm}_{task}_{backend}", "mtl_trainer", (
                    f"--dataset_name={task}", f"--backend={backend}", f"--algorithm={algorithm}",
                )  # fmt: skip


def main(argv=None):
    """Compares as the arguments say; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", default="HEAD", help="another (HEAD)")
    parser.add_argument("--all", action="store_true", help="every trainer, task and backend")
    parser.add_argument("--only", default="", help="runs whose name contains this text")
    parser.add_argument(
        "--directory",
        type=pathlib.Path,
        default=pathlib.Path(tempfile.gettempdir()) / "compare_commits",
        help="where checkouts and tables are kept",
    )
    given = parser.parse_args(argv)
    runs = [r for r in (all_runs() if given.all else combined_runs()) if given.only in r[0]]
    before, after = (
        _tables(_commit(c), runs, given.directory) for c in (given.before, given.after)
    )
    differing = 0
    for name, _, _ in runs:
        for line in differences(before / name, after / name):
            differing += 1
            print(f"{name}/{line}")
    print(f"{len(runs)} runs, {differing} tables differ")
    return int(differing > 0)


def differences(before, after):
    """Yields a line for every table that is not byte-equal in two runs' directories."""
    tables = [
        {p.relative_to(d) for p in d.rglob("*.csv") if p.name != "tasks.csv"}
        for d in (before, after)
    ]
    if not tables[0] | tables[1]:
        yield ": no tables in either"
    for path in sorted(tables[0] | tables[1]):
        if path not in tables[1]:
            yield f"{path}: only before"
        elif path not in tables[0]:
            yield f"{path}: only after"
        else:
            texts = [(d / path).read_bytes().decode() for d in (before, after)]
            rows, has_seconds = zip(*(_without_seconds(text) for text in texts), strict=True)
            if rows[0] != rows[1]:
                yield f"{path}: {_difference(*rows)}"
            elif texts[0] != texts[1] and not any(has_seconds):
                yield f"{path}: the same cells, written in another way"


def _difference(before, after):
    """Returns by how much two tables' cells differ, relative to the larger of two numbers."""
    if [len(row) for row in before] != [len(row) for row in after] or before[:1] != after[:1]:
        return "other rows or columns"
    pairs = [
        (a, b)
        for rows in zip(before, after, strict=True)
        for a, b in zip(*rows, strict=True)
        if a != b
    ]
    try:
        numbers = [(float(a), float(b)) for a, b in pairs]
    except ValueError:
        return f"{len(pairs)} cells differ, not all of them numbers"
    largest = max((abs(a - b) / max(abs(a), abs(b)) for a, b in numbers), default=0.0)
    return f"{len(pairs)} cells differ, by up to {largest:.1e} of the number"


def _without_seconds(text):
    rows = list(csv.reader(io.StringIO(text)))
    dropped = {i for i, column in enumerate(rows[0]) if "seconds" in column} if rows else set()
    return [[c for i, c in enumerate(row) if i not in dropped] for row in rows], bool(dropped)


def _commit(name):
    return subprocess.run(
        ("git", "rev-parse", "--verify", f"{name}^{{commit}}"),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def _tables(commit, runs, directory):
    """Returns the directory of a commit's runs, after starting those that are not there."""
    tree, tables = directory / commit[:12] / "tree", directory / commit[:12] / "tables"
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(("git", "clone", "-q", "--no-checkout", ".", tree), check=True)
    subprocess.run(("git", "checkout", "-q", commit), cwd=tree, check=True)
    # A run that ended well is kept, with the flags that it had.
    missing = [run for run in runs if _flags_of(tables, run[0]) != list(run[2])]
    for name, trainer, flags in missing:
        print(f"{commit[:7]} {name}", flush=True)
        shutil.rmtree(tables / name, ignore_errors=True)
        given = (*_SHORT, *flags, "--use_synthetic_data", f"--root_output_dir={tables}")
        log = tables / f"{name}.log"
        if _run(tree, trainer, [*given, f"--experiment_name={name}"], log):
            raise SystemExit(f"{name} of {commit[:7]} failed: {log.read_text()[-500:]}")
        (tables / f"{name}.json").write_text(json.dumps(flags))
    return tables


def _flags_of(tables, name):
    path = tables / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _run(tree, trainer, flags, log):
    """Starts a checkout's trainer and returns its exit status; the log has what it said."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with open(log, "w") as output:
        return subprocess.run(
            (sys.executable, "-m", f"trainers.{trainer}", *flags),
            cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
