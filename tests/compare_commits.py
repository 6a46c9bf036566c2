"""Whether two commits write the same tables, byte by byte.

    ./launch/run python -m tests.compare_commits [--all | --part PART] a-commit [another, or HEAD]

Checks out both commits on this machine, starts the same runs of each commit's own trainers on
synthetic data, and compares their CSV files byte by byte. Only times differ between two runs of
one commit, so `tasks.csv`, `run.json` and columns of seconds are left out. By default a few runs
combine features; `--all` has every data set, trainer, algorithm and backend, the generators, a
package of plug-ins and the Python interface, in parts that take less than ten minutes each.

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
import time
from concurrent import futures
from typing import NamedTuple

# Written out, as the registries of two commits may differ.
_DEVICE = (
    "emnist", "stackoverflow", "ted_multi", "celeba", "cifar10", "images", "mnist", "sent140",
    "shakespeare", "table", "text", "landmark",
)  # fmt: skip
_SILO = ("vehicle", "school", "adni")
_TRAINED = (
    "fedavg", "fedprox", "fedsgd", "fedstc", "fedstc_server", "fedbabu", "centralized", "per_fedavg"
)  # fmt: skip
_MULTI_TASK = (
    "local", "ditto", "mocha", "mr_mtl", "apfl", "fedper", "fedrep", "pfedme", "per_fedavg"
)  # fmt: skip
_BACKENDS = ("sequential", "vectorized", "tff")
_COHORTS = (
    "--clients_per_train_round=3", "--valid_clients_per_evaluation=3",
    "--test_clients_per_evaluation=3", "--final_evaluation_clients=4",
    "--max_examples_per_client=12",
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
# PersFL distils classes, FedBABU has layers below the last.
_DIGITS = ("--dataset_name=mnist", "--setting=cross_silo", "--max_clients=4")
# Data that have no owners, and flags that a data set needs.
_OF_DATA = {"cifar10": ("--partition=dirichlet:1", "--num_clients=20")}
_PYTHON = """
import sys
import motley_tff as motley

algorithm = getattr(motley.algorithms, sys.argv[3])()
options = {"setting": "cross_silo", "max_clients": 4} if sys.argv[4] == "mnist" else {}
task = motley.create_task(sys.argv[4], use_synthetic_data=True, **options)
personalization = motley.algorithms.KnnPer() if sys.argv[5:] else None
motley.run(
    task, algorithm, personalization, rounds=2, seed=3, rounds_per_evaluation=1,
    root_output_dir=sys.argv[1], experiment_name=sys.argv[2],
)
"""
_IN_PYTHON = (
    "FedAvg", "FedProx", "FedSgd", "FedStc", "HypCluster", "Local", "Ditto", "Mocha", "MrMtl",
    "Apfl", "FedPer", "FedRep", "PFedMe", "PerFedAvg",
)  # fmt: skip


class Run(NamedTuple):
    """A run: its name, the trainer (or `python`, or `plugins`) and the flags."""

    name: str
    trainer: str
    flags: tuple[str, ...]


def _run(name, trainer, *flags):
    return Run(name, trainer, flags)


def combined_runs():
    """Yields few runs in which many features meet."""
    yield _run(
        "drop_outs", "finetuning_trainer",
        "--dataset_name=emnist", "--backend=sequential", *_COHORTS, *_OWN["finetuning_trainer"],
        "--dropout_rate=0.3", "--straggler_rate=0.5", "--acceptance=min_examples:12",
        "--evaluate_ood", "--ood_examples=8", "--personalization_fraction=0.25,0.5",
        "--finetune_last_layer", "--include_baseline_candidate", "--algorithm=fedprox",
    )  # fmt: skip
    yield _run(
        "robust", "finetuning_trainer",
        "--dataset_name=vehicle", "--aggregator=robust", "--export_scores",
        "--finetune_tuning=per_client", "--finetune_every=2", *_OWN["finetuning_trainer"],
    )  # fmt: skip
    yield _run(
        "warm_start", "hypcluster_trainer",
        "--dataset_name=school", "--backend=sequential", "--warmstart_fraction=0.5",
        "--dropout_rate=0.3", "--balance=0.5", *_HYPCLUSTER,
    )  # fmt: skip
    yield _run(
        "shared_layers", "hypcluster_trainer",
        "--dataset_name=adni", "--share_base_layers", "--step_empty_clusters", *_HYPCLUSTER,
    )  # fmt: skip
    yield _run(
        "neighbors", "knn_per_trainer",
        "--dataset_name=emnist", "--backend=sequential", *_COHORTS, "--num_neighbors=3",
        "--coefficients=0.1,0.5,1", "--evaluate_ood",
    )  # fmt: skip
    for algorithm in _MULTI_TASK:
        flags = ["--dataset_name=school", f"--algorithm={algorithm}"]
        if algorithm != "mocha":
            flags.append("--dropout_rate=0.2")
        if algorithm in ("ditto", "per_fedavg"):
            flags.append("--straggler_rate=0.5")
        yield _run(f"multi_task_{algorithm}", "mtl_trainer", *flags)


def _device_runs(trainers, backends, names=_DEVICE):
    for place, name in enumerate(names):
        for trainer in trainers:
            backend = backends[place % len(backends)]
            yield _run(
                f"{trainer}_{name}_{backend}", trainer, f"--dataset_name={name}",
                f"--backend={backend}", *_COHORTS, *_OF_DATA.get(name, ()), *_OWN[trainer],
            )  # fmt: skip


def _silo_runs(backend):
    for name in _SILO:
        for trainer in ("finetuning_trainer", "hypcluster_trainer", "knn_per_trainer"):
            yield _run(
                f"{trainer}_{name}_{backend}", trainer,
                f"--dataset_name={name}", f"--backend={backend}", *_OWN[trainer],
            )  # fmt: skip
        for algorithm in _MULTI_TASK:
            # Three vendors' scans take half a minute a round.
            if name != "adni" or algorithm in ("ditto", "fedper"):
                yield _run(
                    f"{algorithm}_{name}_{backend}", "mtl_trainer",
                    f"--dataset_name={name}", f"--backend={backend}", f"--algorithm={algorithm}",
                )  # fmt: skip


def _trained_runs():
    own = _OWN["finetuning_trainer"]
    for algorithm in _TRAINED:
        silos = _DIGITS if algorithm == "fedbabu" else ("--dataset_name=vehicle",)
        devices = ("--dataset_name=emnist", *_COHORTS)
        # FedSTC's clients keep a state.
        for data in (silos,) if algorithm == "fedstc" else (silos, devices):
            name = f"trained_{algorithm}_{data[0].partition('=')[2]}"
            yield _run(name, "finetuning_trainer", *data, f"--algorithm={algorithm}", *own)
    yield _run("trained_persfl", "mtl_trainer", *_DIGITS, "--algorithm=persfl")
    for personalization in ("lp_ft", "proximal"):
        yield _run(
            f"personalization_{personalization}", "finetuning_trainer",
            "--dataset_name=emnist", *_COHORTS, f"--personalization={personalization}", *own,
        )  # fmt: skip


def _generative_runs():
    few = (
        "--num_clients=4", "--clients_per_train_round=2", "--max_examples_per_client=20",
        "--train_steps=6", "--num_generated=8", "--generator_width=8", "--partition=iid",
    )  # fmt: skip
    for generator in ("wgan_gp", "ddpm"):
        for algorithm in ("fedavg", "centralized"):
            own = ("--diffusion_steps=20", "--sampling_steps=5") if generator == "ddpm" else ()
            yield _run(
                f"{generator}_{algorithm}", "generative_trainer", "--dataset_name=mnist", *few,
                f"--generator={generator}", f"--algorithm={algorithm}", *own,
            )  # fmt: skip


def _other_runs():
    """Yields runs from Python, and of the page's package of plug-ins."""
    for algorithm in _IN_PYTHON:
        yield _run(f"python_{algorithm}", "python", algorithm, "school")
    for algorithm in ("FedBabu", "PersFL"):
        yield _run(f"python_{algorithm}", "python", algorithm, "mnist")
    yield _run("python_knn_per", "python", "FedAvg", "vehicle", "KnnPer")
    data = ("--dataset_name=thermostats",)
    yield _run("plugins_data", "plugins", "hypcluster_trainer", *data, *_HYPCLUSTER)
    yield _run("plugins_algorithm", "plugins", "finetuning_trainer", *data,
               "--algorithm=clipped_fedavg", *_OWN["finetuning_trainer"])  # fmt: skip


_PARTS = {
    "combined": combined_runs,
    "finetuning": lambda: _device_runs(("finetuning_trainer",), ("sequential", "tff")),
    "clusters": lambda: _device_runs(("hypcluster_trainer",), ("tff", "sequential"), _DEVICE[:-1]),
    "neighbours": lambda: _device_runs(("knn_per_trainer",), ("sequential", "tff"), _DEVICE[:-1]),
    "vectorized_devices": lambda: _device_runs(
        ("finetuning_trainer", "knn_per_trainer"), ("vectorized",), ("emnist", "table", "text")
    ),
    **{f"silos_{backend}": lambda backend=backend: _silo_runs(backend) for backend in _BACKENDS},
    "trained": _trained_runs,
    "generative": _generative_runs,
    "others": _other_runs,
}


def main(argv=None):
    """Compares as the arguments say; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", default="HEAD", help="another (HEAD)")
    parser.add_argument("--all", action="store_true", help="all parts, one after the other")
    parser.add_argument("--part", default="combined", help=f"one of {', '.join(_PARTS)}")
    parser.add_argument("--only", default="", help="runs whose name contains this text")
    parser.add_argument(
        "--directory",
        type=pathlib.Path,
        default=pathlib.Path(tempfile.gettempdir()) / "compare_commits",
        help="where checkouts and tables are kept",
    )
    given = parser.parse_args(argv)
    parts = _PARTS if given.all else [given.part]
    return max(_compare_part(part, given) for part in parts)


def _compare_part(part, given):
    """Prints what differs in a part; returns 1 if anything does, else 0."""
    runs = [run for run in _PARTS[part]() if given.only in run.name]
    start = time.monotonic()
    before, after = (
        _tables(_commit(c), runs, given.directory) for c in (given.before, given.after)
    )
    differing = 0
    for run in runs:
        for line in differences(before / run.name, after / run.name):
            differing += 1
            print(f"{run.name}/{line}")
    minutes = (time.monotonic() - start) / 60
    print(f"{part}: {len(runs)} runs, {differing} tables differ, {minutes:.1f} min", flush=True)
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
    missing = [run for run in runs if _flags_of(tables, run.name) != list(run.flags)]
    tables.mkdir(exist_ok=True)
    with futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        failed = [line for line in pool.map(lambda run: _start(tree, tables, run), missing) if line]
    if failed:
        raise SystemExit("\n".join(f"{commit[:7]} {line}" for line in failed))
    return tables


def _flags_of(tables, name):
    path = tables / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _start(tree, tables, run):
    """Starts a checkout's run; returns what it said if it failed."""
    shutil.rmtree(tables / run.name, ignore_errors=True)
    log = tables / f"{run.name}.log"
    environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with open(log, "w") as output:
        status = subprocess.run(
            (sys.executable, *_command(tree, tables, run, environment)),
            cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT,
        ).returncode  # fmt: skip
    if status:
        return f"{run.name} failed: {log.read_text()[-500:]}"
    (tables / f"{run.name}.json").write_text(json.dumps(run.flags))
    return None


def _command(tree, tables, run, environment):
    """Returns Python's arguments; `environment` gets what a package of plug-ins needs."""
    if run.trainer == "python":
        return ["-c", _PYTHON, str(tables), run.name, *run.flags]
    trainer, flags = run.trainer, run.flags
    if trainer == "plugins":
        trainer, *flags = flags
        installed = tables / f"{run.name}_package"
        write = "import pathlib, sys; from tests import plugin_package as p; p.write_example("
        subprocess.run(
            (sys.executable, "-c", f"{write}pathlib.Path(sys.argv[1]))", str(installed)),
            cwd=tree, env=environment, check=True,
        )  # fmt: skip
        environment["PYTHONPATH"] += f"{os.pathsep}{installed}"
    given = (*_SHORT, *flags, "--use_synthetic_data", f"--root_output_dir={tables}")
    return ["-m", f"trainers.{trainer}", *given, f"--experiment_name={run.name}"]


if __name__ == "__main__":
    sys.exit(main())
