"""motley_doctor: whether this machine can run the benchmark, and if not, why.

Prints the versions, the machine's size, starts TFF's worker and has it compute something, and looks
into --data_dir; with --dataset_name it also loads that data set, says what is in it, on several
lines, and leaves pictures of it in --figures_dir. Every check begins with "ok" or "FAIL". The exit
status is 0 if all of them passed, 1 if one failed, 2 if a flag is wrong.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import flags

import datasets
from motley_tff import algorithms, commandline
from motley_tff.core import cores, errors
from motley_tff.core.errors import UserError
from motley_tff.experiment import defaults
from motley_tff.experiment.config import RunConfig
from trainers import algorithm_flags, config

FLAGS = flags.FLAGS

algorithm_flags.define_data()
flags.DEFINE_float(
    "worker_timeout_seconds", 60.0, "How long TFF's worker may take to start.", lower_bound=0.1
)
flags.DEFINE_string(
    "figures_dir", "results/figures", "Where the picture of how clients differ goes."
)

_PYTHONS = ("3.10", "3.11")
_PACKAGES = (
    "tensorflow", "tensorflow-federated", "jax", "jaxlib", "keras", "numpy", "scipy", "protobuf",
    "grpcio",
)  # fmt: skip
_MAX_LISTED, _MAX_CHARACTERS = 20, 160
# Options that stand in no name of a picture.
_OF_ANY_DATA = ("data_dir", "use_synthetic_data", "base_random_seed", "memory_limit_gb", "setting")
# {fact: the words for it} of clients that take no part. These facts, notes and options have
# sentences of their own.
_APART = {"clients_left_out": "left out", "clients_not_evaluable": "only train"}
_GIBIBYTE = 2**30
_OWN_GROUP, _GROUPS = pathlib.Path("/proc/self/cgroup"), pathlib.Path("/sys/fs/cgroup")
_CPU_INFO = pathlib.Path("/proc/cpuinfo")
# TensorFlow takes oneDNN's kernels by itself on CPUs with one of these alone.
_ONEDNN_FLAGS = frozenset({"avx512_vnni", "avx_vnni"})
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


class CheckFailed(UserError):
    """Something is wrong with the installation, the machine or the data."""

    exit_status = 1


def main() -> None:
    """Runs all checks, and prints a line for each; raises the first failure, if there is one."""
    options = config.data_options() if FLAGS.dataset_name is not None else None
    if options is not None:
        # What is wrong there does not wait for TensorFlow.
        datasets.check_options(options)
    data_dir, figures_dir = FLAGS.data_dir, pathlib.Path(FLAGS.figures_dir)
    timeout, worker = FLAGS.worker_timeout_seconds, contextlib.ExitStack()
    has_plugins = datasets.packages.installed() or algorithms.packages.installed()
    # (name, whether it is asked for, the check that has to pass before, what returns its line)
    checks: tuple[tuple[str, Any, str, Callable[[], str]], ...] = (
        ("python", True, "", _python),
        ("packages", True, "", _packages),
        ("machine", True, "", _machine),
        ("tensorflow", True, "", _import_tensorflow),
        ("worker", True, "tensorflow", lambda: _start_worker(worker, timeout)),
        ("computation", True, "worker", lambda: _compute(worker)),
        ("plug-ins", has_plugins, "", _plugins),
        ("data_dir", data_dir, "", lambda: data_directory(pathlib.Path(data_dir))),
        ("dataset", options, "", lambda: _dataset(options, figures_dir)),
    )
    passed, failures = {""}, list[str]()
    for name, is_asked, before, check in checks:
        if not is_asked or before not in passed:
            continue
        try:
            print(f"ok   {name}: {check()}", flush=True)
            passed.add(name)
        except Exception as error:  # Whatever it is, it is the diagnosis.
            if not isinstance(error, UserError):
                error = UserError(f"{type(error).__name__}: {error}")
            failures.append(f"{name}: {error.line(with_flags=True)}")
            print(f"FAIL {failures[-1]}", flush=True)
    if failures:
        more = len(failures) - 1
        raise CheckFailed(failures[0] + (f" (and {more} more)" if more else ""))


run = functools.partial(commandline.run_main, main)


def _python() -> str:
    version = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if ".".join(platform.python_version_tuple()[:2]) not in _PYTHONS:
        raise CheckFailed("", version, f"Python {' or '.join(_PYTHONS)}", "install one")
    return version


def _packages() -> str:
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    if missing := [name for name in _PACKAGES if name not in versions]:
        raise CheckFailed("", f"no {', '.join(missing)}", advice="start this with launch/run")
    pins = pathlib.Path(__file__).parents[1] / "requirements.txt"
    pinned = pins.read_text() if pins.exists() else ""
    other = {n: " (not as pinned)" for n, v in versions.items() if f"\n{n}=={v} " not in pinned}
    return ", ".join(f"{name} {version}{other.get(name, '')}" for name, version in versions.items())


def _machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIBIBYTE
    limit = min(_memory_limits(), default=memory)
    allowed = f" (limited to {limit:.1f} GiB)" if limit < memory else ""
    disk = shutil.disk_usage(".").free / _GIBIBYTE
    return (
        f"{cores.num_available()} of {os.cpu_count()} cores, {memory:.1f} GiB of memory{allowed}, "
        f"{disk:.1f} GiB of disk free here, {platform.platform()}{_advice()}"
    )


def _advice() -> str:
    """Returns what makes convolutions faster on this CPU, or nothing."""
    with contextlib.suppress(OSError):
        line = re.search(r"^flags.*", _CPU_INFO.read_text(), re.MULTILINE)
        if line and not _ONEDNN_FLAGS & {*line[0].split()} and _ONEDNN not in os.environ:
            return (
                f"; {_ONEDNN}=1 before a command makes convolutions faster on this CPU (not an "
                "LSTM; last digits differ, so choose once)"
            )
    return ""


def _memory_limits() -> Iterator[float]:
    """Yields the GiB that the control groups (v2) around this process grant, its own first."""
    with contextlib.suppress(OSError):
        own = pathlib.Path(_OWN_GROUP.read_text().rpartition("0::/")[2].strip())
        for group in (own, *own.parents):
            with contextlib.suppress(OSError, ValueError):  # There is none, or it is "max".
                yield int((_GROUPS / group / "memory.max").read_text()) / _GIBIBYTE


def _import_tensorflow() -> str:
    start = time.perf_counter()
    module = importlib.import_module("motley_tff.core.lazy")
    return f"TFF {module.tff.__version__} imported in {time.perf_counter() - start:.1f} s"


def _start_worker(worker: contextlib.ExitStack, timeout: float) -> str:
    from motley_tff.backends.tff import runtime  # TensorFlow takes 3 s.

    start = time.perf_counter()
    process = worker.enter_context(runtime.tff_runtime(start_timeout_seconds=timeout))
    return f"answered on port {process.port} after {time.perf_counter() - start:.1f} s"


def _compute(worker: contextlib.ExitStack) -> str:
    from motley_tff.core.lazy import tff  # TensorFlow takes 3 s.

    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def total(values):
        return tff.federated_sum(values)

    with worker:  # Which ends with it.
        result = int(total([1, 1, 1]))
    if result != 3:
        raise CheckFailed("the sum of ones over 3 clients", result, "3")
    return "the sum of ones over 3 clients is 3"


def _plugins() -> str:
    """Imports what installed packages add; returns what that is."""
    problems = [*algorithms.REFUSED.values()]
    added = [f"algorithm {name} of {origin}" for name, origin in algorithms.plugged().items()]
    for name, plugin in datasets.packages.installed().items():
        try:
            datasets.check_name(name)
            setting = datasets.setting(name)
            added.append(f"data set {name} ({setting}) of {plugin.origin}")
        except UserError as error:
            problems.append(error.line(with_flags=True))
    if problems:
        raise CheckFailed("; ".join(problems))
    return ", ".join(added)


def data_directory(path: pathlib.Path) -> str:
    """Returns what a data folder contains; CheckFailed if something there cannot be read."""
    try:
        contents = [_described(entry) for entry in sorted(path.iterdir())]
    except OSError as error:
        expected = f"what can be read ({error.strerror})"
        advice = f"make it readable, or give another {errors.name('data_dir')}"
        raise CheckFailed(str(error.filename), None, expected, advice) from error
    names = ", ".join(contents[:_MAX_LISTED]) or "nothing"
    more = len(contents) - _MAX_LISTED
    return f"{path} contains {names}" + (f" and {more} more" if more > 0 else "")


def _described(entry: pathlib.Path) -> str:
    """Returns what an entry is, which can be read; sockets and pipes are nobody's data."""
    if entry.is_dir():
        next(entry.iterdir(), None)
        return f"{entry.name}/"
    if entry.is_file():
        entry.open("rb").close()
    return f"{entry.name} ({entry.stat().st_size:,} bytes)"


def _dataset(options: Any, figures_dir: pathlib.Path) -> str:
    """Loads a data set and draws it; returns what is in it and where the pictures are, a line
    each.
    """
    from datasets import data_checks, description  # TensorFlow takes 1.7 s.

    task = datasets.create_task(options)
    sizes, shares = description.client_sizes(task), description.label_shares(task)
    # A silo is in every split, with a part of its data each time.
    by_split = {"silos": sizes["train"]} if task.setting == "cross_silo" else sizes
    clients = datasets.raw_examples(options) or data_checks.task_examples(task)
    hidden = {*_APART, "held_out", "notes", "options"}
    lines = [
        f"{task.dataset}, {task.setting}, {task.model.num_weights:,} weights",
        _roles(task),
        *_apart(task),
        *task.facts.get("notes", ()),
        *(f"{k}: {_short(v)}" for k, v in task.facts.items() if k not in hidden and (v or v == 0)),
        *(_sizes(task, split, numbers) for split, numbers in by_split.items()),
        *(f"example {field}: {value}" for field, value in description.sample(task).items()),
        f"heterogeneity: labels of {len(shares.client_ids)} clients are "
        f"{shares.distance:.2f} (total variation) from their average",
        *_classes(task, options, clients),
        *data_checks.findings(clients, datasets.label_column(options)),
        *_to_ignore(options, clients),
        *_pictures(task, _name(options, task.setting), by_split, shares, figures_dir),
    ]
    return "\n       ".join(lines)


def _classes(task: Any, options: datasets.DataOptions, clients: Mapping[str, Any]) -> list[str]:
    """Returns in words how many examples there are of each class, if there are classes."""
    from datasets import data_checks  # TensorFlow takes 1.7 s.

    if task.label_field is None:
        return []
    label = datasets.label_column(options)
    in_file = any(label in columns for columns in clients.values())
    return data_checks.class_counts(
        clients, label if in_file else task.label_field, () if in_file else task.label_names
    )


def _to_ignore(options: datasets.DataOptions, clients: Mapping[str, Any]) -> list[str]:
    """Returns in words which columns of a user's table rarely mean anything."""
    from datasets import data_checks  # TensorFlow takes 1.7 s.

    is_read = options.dataset_name == "table" and not options.use_synthetic_data
    if not is_read:
        return []
    return data_checks.columns_to_ignore(
        clients, options.label_column or "", options.ignore_columns
    )


def _roles(task: Any) -> str:
    """Returns in words who trains, who chooses, and who is reported."""
    metric = f"reported is each client's {task.metric.name}"
    if task.setting == "cross_silo":
        return (
            f"{len(task.train):,} silos train together, each on its training part; validation "
            f"parts choose settings; {metric} on the test parts of {len(task.test):,}"
        )
    cohort = defaults.resolve(RunConfig(), task.setting, len(task.train)).loop
    return (
        f"{len(task.train):,} clients train, {cohort.clients_per_train_round} of them in each "
        f"round; {len(task.valid):,} others choose settings (valid), and {len(task.test):,} more "
        "are reported (test): each personalizes on one half of its examples and is scored on the "
        f"other; {metric}"
    )


def _apart(task: Any) -> Iterator[str]:
    """Yields in words which clients are left out, or only train, and why."""
    from datasets import data_checks  # TensorFlow takes 1.7 s.

    total = len({i for clients in task.splits.values() for i in clients.ids})
    for fact, role in _APART.items():
        for reason, ids in task.facts.get(fact, {}).items():
            all_clients = total + len(ids) * (fact == "clients_left_out")
            listed = data_checks.listed([str(i) for i in ids])
            yield f"{len(ids):,} of {all_clients:,} clients {role}, {reason}: {listed}"


def _sizes(task: Any, split: str, sizes: Mapping[str, int]) -> str:
    """Returns in words how many examples a split's clients have."""
    from datasets import description  # TensorFlow takes 1.7 s.

    skew = description.size_skew([*sizes.values()])
    if split == "silos":
        return f"silos: {len(task.train):,}, {skew}"
    number = len(task.splits[split])
    part = "" if len(sizes) == number else f" (of {len(sizes):,} of them)"
    return f"{split}: {number:,} clients{part}, {skew}"


def _pictures(
    task: Any, name: str, sizes: Mapping[str, Any], shares: Any, folder: pathlib.Path
) -> list[str]:
    """Draws how clients differ, and their images if they have some; returns where."""
    from datasets import description  # TensorFlow takes 1.7 s.
    from launch.report import heterogeneity  # Matplotlib takes 0.2 s.

    images, labels = description.images(task), (shares.client_ids, shares.labels, shares.shares)
    pictures: dict[str, tuple[Any, ...]] = {
        "heterogeneity": (heterogeneity.save, "what clients' labels are", *labels),
        "sizes": (heterogeneity.save_sizes, "how many examples clients have", sizes),
    }
    if images is not None:
        some = (list(images), list(images.values()))
        pictures["images"] = (
            heterogeneity.save_images,
            "what the model sees of some clients",
            *some,
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, (save, title, *values) in pictures.items():
            save(folder / f"{kind}_{name}.png", f"{task.dataset}: {title}", *values)
    except OSError as error:
        expected = f"a directory that can be written ({error.strerror})"
        raise CheckFailed(errors.name("figures_dir"), str(folder), expected) from error
    return [f"picture: {folder / f'{kind}_{name}.png'}" for kind in pictures]


def _name(options: datasets.DataOptions, setting: str) -> str:
    """Returns what pictures are called: by the data set, silos where clients could be devices, the
    file, and, where options say more of the data, a mark of these, for others to stay beside them.
    """
    can_be_either = options.dataset_name in datasets.EITHER_SETTING
    silos = "silos" if setting == "cross_silo" and can_be_either else ""
    default = dataclasses.asdict(datasets.DataOptions(options.dataset_name))
    values = dataclasses.asdict(options)
    if options.data_file:
        values["data_file"] = os.path.realpath(os.path.expanduser(options.data_file))
    differing = [(n, v) for n, v in values.items() if v != default[n] and n not in _OF_ANY_DATA]
    stem = re.sub(r"\W+", "_", pathlib.Path(options.data_file or "").stem)
    mark = hashlib.sha256(repr(sorted(differing)).encode()).hexdigest()[:6] if differing else ""
    return "_".join(filter(None, [options.dataset_name, silos, stem, mark]))


def _short(value: object) -> str:
    text, length = str(value), _MAX_CHARACTERS
    return text if len(text) <= length else f"{text[:length]}... ({len(text):,} characters)"


if __name__ == "__main__":
    run()
