"""One experiment's directory: its lock, `run.json`, its flags."""

import contextlib
import datetime
import fcntl
import functools
import hashlib
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import motley_tff
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files

# Beside generated pictures: those that clients train on.
CLIENTS_PICTURES = "clients.npz"
# In `run.json`: how rates that nobody gave were chosen, see `rate_probe.choose`.
RATES = "chosen_rates"
_EXPERIMENT_NAME = errors.name("experiment_name")
_OTHER = f"choose another {_EXPERIMENT_NAME}"
_LOCK = ".lock"
_HASHED_WHOLE, _HASHED_PIECE, _HASHED_OF_EACH = 2**26, 2**20, 2**12
# How many flags that differ are named: a sweep's directory differs from a run's in a hundred.
_MAX_LISTED_FLAGS = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Of what is read again; the rest is for people.
_KINDS = {
    "seconds": float, "status": str, "metric": str, "backend": str, "backend_reason": str,
    "results_version": int, RATES: dict,
}  # fmt: skip
# Earlier versions recorded these, which decide nothing: `--v` is absl's short `--verbosity`, and
# Python's `run` has no argument for the others.
_FORGOTTEN = frozenset({"v", "loop.num_generated", "warm_start.algorithm"})
_PACKAGES = ("tensorflow", "tensorflow-federated", "numpy", "pandas", "scikit-learn", "scipy")


def check_name(experiment_name: str) -> None:
    """Raises UserError unless the name is a file name that no spreadsheet takes for a formula."""
    if not _NAME.fullmatch(experiment_name):
        expected = "at most 128 letters, digits, '.', '_' and '-', the first a letter or digit"
        raise UserError(_EXPERIMENT_NAME, experiment_name, expected)


class RunDirectory:
    """`<root_output_dir>/<experiment_name>/`, held by one process at a time.

    Args:
      flags: What decides the numbers; a directory with others is refused.
      defaults: `{flag: value}` that a run counts as having if it is older than the flag.
      raisable: `{flag: others}` that may be raised where a run goes on, unless the others, whose
        meaning depends on it, are named.
      followers: `value -> {flag: value}` of flags that were not given and follow a raisable one:
        where that stands at the first value, they stand at these. They are raised with it.
      maker: The program. A directory that another program made is refused, with its name.

    Attributes:
      record: What `run.json` says.

    Raises:
      UserError: If the name is no file name, the directory cannot be written, another process
        holds it, or it belongs to an experiment with other flags, or an unfinished one whose
        results are of another version.
    """

    def __init__(
        self,
        root: str,
        experiment_name: str,
        flags: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        raisable: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
        maker: str | None = None,
        followers: Callable[[Any], Mapping[str, Any]] = lambda value: {},
    ):
        check_name(experiment_name)
        self.run_id = experiment_name
        self.path = pathlib.Path(os.path.expanduser(root)) / experiment_name
        self.checkpoints, self.figures = self.path / "checkpoints", self.path / "figures"
        self.generated = self.path / "generated"
        self._flags, self._defaults = dict(flags), dict(defaults or {})
        self._raisable, self._maker, self._followers = raisable, maker, followers
        self._start = time.monotonic()
        self._lock_file = self._lock()
        try:
            self.record = self._read_record()
            self._check_flags()
            self._check_version()
            self._sweep()
        except UserError:
            self._lock_file.close()
            raise

    @property
    def is_finished(self) -> bool:
        """Whether the experiment ran to its end."""
        return self.record.get("status") == "finished"

    def _error(self, content: str, expected: str = "", advice: str = "") -> UserError:
        """Returns an error of what the directory holds, with advice beside that of another name."""
        advice += f", or {_OTHER}" if advice else _OTHER
        return UserError(str(self.path), content, expected, advice)

    def table(self, name: str) -> pathlib.Path:
        """Returns the path of a CSV file, such as `clients`."""
        return self.path / f"{name}.csv"

    def close(self) -> None:
        """Releases the directory, and removes it again if nothing was written there."""
        with contextlib.suppress(OSError):  # It may be gone, or be wanted by another run by now.
            if os.listdir(self.path) == [_LOCK]:
                (self.path / _LOCK).unlink()
                for folder in self._new_folders:
                    folder.rmdir()
        self._lock_file.close()

    def write_record(self, **facts: Any) -> None:
        """Writes `run.json`: flags, versions and whatever is told, over what was known."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        known = self.record.get("seconds_before", 0.0)
        code = {"versions": _versions(), "git_commit": _git_commit()}
        self.record = {
            "run_id": self.run_id,
            "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
            "flags": self._flags,
            "results_version": motley_tff.RESULTS_VERSION,
            **code,
            **self._continued(code),
            "started": now,
            "cores": os.cpu_count(),
            "cpu": _cpu(),
            **self.record,
            **facts,
            "updated": now,
            "seconds": round(known + time.monotonic() - self._start, 3),
            "peak_memory_mb": _peak_memory_mb(),
        }
        with csv_files.replacing(self.path / "run.json") as file:
            json.dump(self.record, file, indent=2, sort_keys=True, allow_nan=False)
            file.write("\n")

    def _continued(self, code: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the later code versions with this one, `{}` if this one is on record."""
        known = self.record.get("continued_with", [])
        first = {name: self.record.get(name, value) for name, value in code.items()}
        if code in (first, *known):
            return {}
        return {"continued_with": [*known, code]}

    def _lock(self) -> IO[str]:
        """Makes the directory and takes its lock, which dies with this process."""
        path = self.path / _LOCK
        # Innermost first.
        self._new_folders = [p for p in (self.path, *self.path.parents) if not p.exists()]
        while True:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = open(path, "a")  # noqa: SIM115 - held while the run lives
            except OSError as error:
                expected = f"a directory that can be written ({error.strerror})"
                advice = f"choose another {errors.name('root_output_dir')}"
                raise UserError(str(self.path), None, expected, advice) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.close()
                raise self._error("another process that runs it", "", "wait for its end") from error
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            file.close()  # A process that wrote nothing has just taken the directory away.

    def _has_results(self) -> bool:
        kinds = ("warm_start_*.npz", "tasks/*.json")
        return (
            self.checkpoints.exists()
            or any(any(self.path.glob(kind)) for kind in kinds)
            or any(map(_has_rows, self.path.glob("*.csv")))
        )

    def _read_record(self) -> dict[str, Any]:
        path = self.path / "run.json"
        if not path.exists():
            if self._has_results():
                expected = "the run.json that says which settings they are of"
                raise self._error("results without one", expected, "move the directory away")
            return {}
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            _check_record(record)
        except (OSError, ValueError, RecursionError) as error:
            expected = "the JSON that a run wrote"
            raise UserError(str(path), str(error), expected, "move the directory away") from error
        record["seconds_before"] = record.get("seconds", 0.0)
        return record

    def check_same(self, name: str, current: Mapping[str, Any], title: str) -> None:
        """Raises a UserError if what `run.json` holds as `name` has changed since the run began."""
        known = self.record.get(name)
        if known is not None and known != dict(current):
            then = f"{known}, as when the run began"
            raise self._error(f"{title} {dict(current)}", then, "use the same again")

    def _sweep(self) -> None:
        """Removes temporary files of a process that was killed while it wrote."""
        own = (self.checkpoints, self.figures, self.generated)
        for folder in (self.path, *own, self.path / "tasks"):
            for left in folder.glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    left.unlink()

    def _check_flags(self) -> None:
        """Refuses to go on with an experiment under flags that it was not started with.

        A run without results, such as that of a refused command, is forgotten.
        """
        if not self.record:
            return
        defaults, flags = (json.loads(json.dumps(f)) for f in (self._defaults, self._flags))
        recorded = {k: v for k, v in self.record["flags"].items() if k not in _FORGOTTEN}
        # Some flags once stood at nothing unless they were given.
        known = defaults | {k: defaults.get(k) if v is None else v for k, v in recorded.items()}
        every = flags.keys() | known.keys()
        changed = sorted(k for k in every if _number(flags.get(k)) != _number(known.get(k)))
        if changed and not self.is_finished and not self._has_results():
            self.record = {}
            return
        followers = self._followers_among(changed, known)
        changed = [k for k in changed if k not in followers]
        if len(changed) == 1 and changed[0] in self._raisable:
            self._raise(changed[0], known[changed[0]], flags[changed[0]])
            self.record["flags"] |= {k: flags[k] for k in followers}
        elif changed:
            self._check_maker()
            listed = ", ".join(
                f"{errors.name(k)} ({known.get(k)} then, {flags.get(k)} now)"
                for k in changed[:_MAX_LISTED_FLAGS]
            )
            more = len(changed) - _MAX_LISTED_FLAGS
            raise self._error(
                f"a run of other settings: {listed}" + f" and {more} more" * (more > 0),
                advice="give the same to go on",
            )

    def _followers_among(self, changed: Sequence[str], known: Mapping[str, Any]) -> set[str]:
        """Returns the flags that changed because one that may be raised did."""
        raised = (known[k] for k in changed if k in self._raisable and k in known)
        before = {k: v for then in raised for k, v in self._followers(then).items()}
        return {k for k in changed if k in before and known.get(k) == before[k]}

    def _check_maker(self) -> None:
        """Names the program that made a directory, where it is another one."""
        known = self.record.get("trainer")
        if "plan" in self.record:
            known = "motley_sweep"
        elif "loop.total_rounds" in self.record["flags"]:
            known = "motley_tff.run"
        if self._maker and known not in (None, self._maker):
            raise self._error(f"a run of {known}", f"one of {self._maker}")

    def _raise(self, flag: str, before: int, now: int) -> None:
        """Takes up a run, finished or not, under a larger value; UserError for a smaller one."""
        expected, others = f"{before}, as in {self.path}", self._raisable[flag]
        if now < before:
            expected = f"at least {expected}"
        elif others:
            names = " and ".join(str(errors.name(o)) for o in others)
            expected += f", as {names} depend{'s' * (len(others) == 1)} on it"
        if now < before or others:
            raise UserError(errors.name(flag), now, expected, f"give the same, or {_OTHER}")
        self.record["flags"][flag] = now
        # What stood at the former end is forgotten once the run goes on, see `Recorder.restore`.
        self.record |= {"status": "stopped", "raised_from": before}
        self.record.pop("command", None)  # This one is written in its place.

    def _check_version(self) -> None:
        """Refuses to go on with a run of another results version.

        A finished run is only shown; one without results is forgotten.
        """
        # The first version was not written down.
        recorded, current = self.record.get("results_version", 1), motley_tff.RESULTS_VERSION
        if not self.record or recorded == current or self.is_finished:
            return
        if self._has_results():
            expected = f"{current}, with which the same settings give other numbers"
            raise self._error(f"results of version {recorded}", expected, "delete it")
        self.record = {}


def _number(value: Any) -> Any:
    """Returns a value with numbers in place of their texts, so that "1.0" and "1" are equal."""
    if isinstance(value, list):
        return [_number(item) for item in value]
    with contextlib.suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


def _has_rows(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        return any(itertools.islice(file, 1, None))  # The first line is the header.


def _check_record(record: Any) -> None:
    """Raises ValueError unless a record is of the form that other code takes it to have."""
    if not isinstance(record, dict) or not isinstance(record.get("flags"), dict):
        raise ValueError("expected an object with flags")
    for name, kind in _KINDS.items():
        if not isinstance(record.get(name, kind()), kind):
            raise ValueError(f"found {record[name]!r} for {name}, expected {kind.__name__}")
    json.dumps(record, allow_nan=False)  # It will be written again.


def digest(path: str) -> str:
    """Returns a data file's fingerprint: its size and a hash of its bytes.

    Of a file over 64 MB, the beginning, the middle and the end are hashed; of a folder, such as
    Landmarks' of a file for each client, the names, sizes and last bytes of all files in and below
    it. What cannot be read is a UserError.
    """
    try:
        if os.path.isdir(path):
            return _folder_digest(path)
        size = os.path.getsize(path)
        starts = [0] if size <= _HASHED_WHOLE else [0, size // 2, size - _HASHED_PIECE]
        length = _HASHED_WHOLE if size <= _HASHED_WHOLE else _HASHED_PIECE
        hasher = hashlib.sha256()
        with open(path, "rb") as file:
            for start in starts:
                file.seek(start)
                hasher.update(file.read(length))
    except OSError as error:
        raise UserError(path, error.strerror, "data that can be read") from error
    return f"{size}:{hasher.hexdigest()}"


def _folder_digest(path: str) -> str:
    total, hasher = 0, hashlib.sha256()
    names = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    for file in sorted(filter(os.path.isfile, names)):
        size = os.path.getsize(file)
        with open(file, "rb") as opened:
            opened.seek(max(0, size - _HASHED_OF_EACH))
            name = os.fsencode(os.path.relpath(file, path))  # It may be no UTF-8.
            hasher.update(name + f"\0{size}\0".encode() + opened.read())
        total += size
    return f"{total}:{hasher.hexdigest()}"


@functools.cache  # Looking packages up takes longer than writing the record.
def _versions() -> dict[str, str]:
    versions = {"python": sys.version.split()[0], "motley-tff": motley_tff.__version__}
    return versions | {p: importlib.metadata.version(p) for p in _PACKAGES}


def _git_commit() -> str | None:
    """Returns the commit of the code, marked if files were changed, or None outside git."""
    top = pathlib.Path(motley_tff.__file__).parents[1]
    command = ["git", "-C", str(top), "describe", "--always", "--dirty", "--abbrev=40"]
    command += ["--exclude", "*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def _cpu() -> str:
    """Returns the processor's model name, on whose instructions last digits depend."""
    with contextlib.suppress(OSError):
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if match := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            return match[1].strip()
    return platform.processor() or platform.machine()


def _peak_memory_mb() -> float:
    """Returns the peak resident memory of this process and the largest of its children."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return round(sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024, 1)
