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
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from typing import NamedTuple

import numpy as np
import pandas as pd

# Written out, as the registries of two commits may differ.
_DEVICE = (
    "emnist", "stackoverflow", "ted_multi", "celeba", "cifar10", "images", "mnist", "sent140",
    "shakespeare", "table", "text", "landmark",
)  # fmt: skip
_SILO = ("vehicle", "school", "adni")
_TRAINED = (
    "fedavg", "fedprox", "fedsgd", "fednova", "scaffold", "feddyn", "fedstc", "fedstc_server",
    "fedbabu", "centralized", "per_fedavg",
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
    """A run of a trainer (or `python`, or `plugins`) with flags."""

    name: str
    trainer: str
    flags: tuple[str, ...]


def _run(trainer, *flags, name=""):
    """Returns a run; its name says what of its flags chooses something."""
    chosen = re.findall(
        r"--(?:dataset_name|algorithm|personalization|generator|backend)=(\S+)", " ".join(flags)
    )
    return Run(name or "_".join([trainer, *chosen]), trainer, flags)


def combined_runs():
    """Yields few runs in which many features meet."""
    yield _run(
        "finetuning_trainer",
        "--dataset_name=emnist", "--backend=sequential", *_COHORTS, *_OWN["finetuning_trainer"],
        "--dropout_rate=0.3", "--straggler_rate=0.5", "--acceptance=min_examples:12",
        "--evaluate_ood", "--ood_examples=8", "--personalization_fraction=0.25,0.5",
        "--finetune_last_layer", "--include_baseline_candidate", "--algorithm=fedprox",
        name="drop_outs",
    )  # fmt: skip
    yield _run(
        "finetuning_trainer",
        "--dataset_name=vehicle", "--aggregator=robust", "--export_scores",
        "--finetune_tuning=per_client", "--finetune_every=2", *_OWN["finetuning_trainer"],
        name="robust",
    )  # fmt: skip
    yield _run(
        "hypcluster_trainer",
        "--dataset_name=school", "--backend=sequential", "--warmstart_fraction=0.5",
        "--dropout_rate=0.3", "--balance=0.5", *_HYPCLUSTER, name="warm_start",
    )  # fmt: skip
    yield _run(
        "hypcluster_trainer", "--dataset_name=adni", "--share_base_layers",
        "--step_empty_clusters", *_HYPCLUSTER, name="shared_layers",
    )  # fmt: skip
    yield _run(
        "knn_per_trainer", "--dataset_name=emnist", "--backend=sequential", *_COHORTS,
        "--num_neighbors=3", "--coefficients=0.1,0.5,1", "--evaluate_ood", name="neighbors",
    )  # fmt: skip
    for algorithm in _MULTI_TASK:
        flags = ["--dataset_name=school", f"--algorithm={algorithm}"]
        if algorithm != "mocha":
            flags.append("--dropout_rate=0.2")
        if algorithm in ("ditto", "per_fedavg"):
            flags.append("--straggler_rate=0.5")
        yield _run("mtl_trainer", *flags)


def _device_runs(trainers, backends, names=_DEVICE):
    for place, name in enumerate(names):
        data = (f"--dataset_name={name}", f"--backend={backends[place % len(backends)]}")
        for trainer in trainers:
            yield _run(trainer, *data, *_COHORTS, *_OF_DATA.get(name, ()), *_OWN[trainer])


def _silo_runs(backend):
    for name in _SILO:
        data = (f"--dataset_name={name}", f"--backend={backend}")
        for trainer in ("finetuning_trainer", "hypcluster_trainer", "knn_per_trainer"):
            yield _run(trainer, *data, *_OWN[trainer])
        for algorithm in _MULTI_TASK:
            # Three vendors' scans take half a minute a round.
            if name != "adni" or algorithm in ("ditto", "fedper"):
                yield _run("mtl_trainer", *data, f"--algorithm={algorithm}")


def _trained_runs():
    own, devices = _OWN["finetuning_trainer"], ("--dataset_name=emnist", *_COHORTS)
    for algorithm in _TRAINED:
        silos = _DIGITS if algorithm == "fedbabu" else ("--dataset_name=vehicle",)
        # FedSTC's clients keep a state.
        for data in (silos,) if algorithm in ("scaffold", "feddyn", "fedstc") else (silos, devices):
            yield _run("finetuning_trainer", *data, f"--algorithm={algorithm}", *own)
    yield _run("mtl_trainer", *_DIGITS, "--algorithm=persfl")
    for personalization in ("lp_ft", "proximal"):
        yield _run("finetuning_trainer", *devices, f"--personalization={personalization}", *own)


def _generative_runs():
    few = (
        "--dataset_name=mnist", "--num_clients=4", "--clients_per_train_round=2",
        "--max_examples_per_client=20", "--train_steps=6", "--num_generated=8",
        "--generator_width=8", "--partition=iid",
    )  # fmt: skip
    steps = ("--diffusion_steps=20", "--sampling_steps=5")
    for generator, own in (("wgan_gp", ()), ("ddpm", steps)):
        for algorithm in ("fedavg", "centralized"):
            chosen = (f"--generator={generator}", f"--algorithm={algorithm}")
            yield _run("generative_trainer", *few, *chosen, *own)


def _other_runs():
    """Yields runs from Python, and of the page's package of plug-ins."""
    in_python = [(algorithm, "school") for algorithm in _IN_PYTHON]
    in_python += [("FedBabu", "mnist"), ("PersFL", "mnist"), ("FedAvg", "vehicle", "KnnPer")]
    for words in in_python:
        yield _run("python", *words, name="_".join(["python", *words]))
    data = ("--dataset_name=thermostats",)
    yield _run("plugins", "hypcluster_trainer", *data, *_HYPCLUSTER)
    yield _run("plugins", "finetuning_trainer", *data, "--algorithm=clipped_fedavg",
               *_OWN["finetuning_trainer"])  # fmt: skip


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
    parser.add_argument("--known", action="store_true", help="leave out columns that are new")
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
        for line in differences(before / run.name, after / run.name, given.known):
            differing += 1
            print(f"{run.name}/{line}")
    minutes = (time.monotonic() - start) / 60
    print(f"{part}: {len(runs)} runs, {differing} tables differ, {minutes:.1f} min", flush=True)
    return int(differing > 0)


def differences(before, after, only_known=False):
    """Yields a line for every table that is not byte-equal in two runs' directories, perhaps but
    for columns that only the second one has.
    """
    folders = (before, after)
    names = {p.relative_to(d) for d in folders for p in d.rglob("*.csv") if p.name != "tasks.csv"}
    if not names:
        yield ": no tables in either"
    for path in sorted(names):
        there = [d / path for d in folders if (d / path).exists()]
        if len(there) < 2:
            yield f"{path}: only in {there[0]}"
        elif there[0].read_bytes() != there[1].read_bytes():
            one, other = (pd.read_csv(p, dtype=str, keep_default_na=False) for p in there)
            seconds = [column for column in one if "seconds" in column]
            new = [column for column in other if only_known and column not in one]
            other = other.drop(columns=[*seconds, *new], errors="ignore")
            if line := _difference(one.drop(columns=seconds), other):
                yield f"{path}: {line}"
            elif not (seconds or new):
                yield f"{path}: the same cells, written in another way"


def _difference(one, other):
    """Returns by how much two tables' cells differ, relative to the larger of two numbers; an empty
    text if they are the same.
    """
    if one.shape != other.shape or list(one) != list(other):
        return "other rows or columns"
    differ = (one != other).to_numpy()
    if not differ.any():
        return ""
    a, b = (pd.to_numeric(t.to_numpy()[differ], errors="coerce") for t in (one, other))
    largest = np.max(np.abs(a - b) / np.maximum(np.abs(a), np.abs(b)))  # Of words, not a number.
    return f"{differ.sum()} cells differ, by up to {largest:.1e} of the number"


def _commit(name):
    command = ("git", "rev-parse", "--verify", f"{name}^{{commit}}")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


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
