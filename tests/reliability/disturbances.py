"""What may happen to a run from outside: disks, clocks, memory, streams, other processes."""

import dataclasses
import os
import pathlib
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil

from tests.datasets import test_school
from tests.reliability import bench as bench_lib, trainer_runs
from tests.reliability.bench import Bench, UnavailableError
from tests.reliability.trainer_runs import Ending

_MEGABYTE = 2**20
_DISK_KILOBYTES = 4096
_STOPPED_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that happens to a run, and what is to be seen of it.

    Attributes:
      name: For the table.
      happen: Lets it happen to a run on a bench; it is over when this returns.
      statuses: Exit statuses that are right.
      words: What the one line on stderr has to say; nothing is to be said if this is empty.
      backend: On which backend.
    """

    name: str
    happen: Callable[[Bench], Ending]
    statuses: tuple[int, ...] = (0,)
    words: str = ""
    backend: str = "sequential"

    @property
    def setting(self) -> trainer_runs.Setting:
        """Which trainer it happens to."""
        return trainer_runs.Setting("finetuning_trainer", self.backend)


def under(*prefix: str, **options: Any) -> Callable[[Bench], Ending]:
    """Returns what starts a run behind another program, or in another environment."""

    def happen(bench: Bench) -> Ending:
        if prefix:
            _need(prefix[0])
        return bench.run(prefix, **options)

    return happen


def _closed(streams: str) -> Callable[[Bench], Ending]:
    """Returns what starts a run with closed streams, as some schedulers start programs."""
    return under("sh", "-c", f'exec "$@" {streams}', "sh")


# --- disks ----------------------------------------------------------------------------------------


def full_disk(bench: Bench, free_kilobytes: int = 0, is_begun: bool = False) -> Ending:
    """The disk has so much room left, too little for the run: from its start, or once it trains."""
    bench.stack.enter_context(bench_lib.small_disk(bench.root, _DISK_KILOBYTES))
    started = bench.start_training() if is_begun else None
    ballast = bench_lib.fill(bench.root, free_kilobytes)
    ending = started.ending() if started else bench.run()
    ballast.unlink()
    return ending


def disk_that_fills_in(bench: Bench, file: str) -> Ending:
    """The disk is filled by others when the run opens a file of such a name for writing."""
    bench.stack.enter_context(bench_lib.small_disk(bench.root, _DISK_KILOBYTES))
    ending = trainer_runs.run(bench.setting.watched(bench.root, f"--full_at={file}"))
    (bench.root / "ballast").unlink()
    return ending


def read_only_output(bench: Bench, is_begun: bool = False) -> Ending:
    """The output directory cannot be written: from the start, or, as after an error of its disk,
    once the run trains.
    """
    started = bench.start_training() if is_begun else None
    with bench_lib.read_only(bench.root):
        return started.ending() if started else bench.run()


def output_moved_away(bench: Bench) -> Ending:
    """Somebody moves the run's directory away while it trains."""
    started = bench.start_training()
    bench.directory.rename(bench.folder / "elsewhere")
    return started.ending()


def read_only_data(bench: Bench) -> Ending:
    """The data directory cannot be written."""
    data = bench.folder / "data"
    data.mkdir()
    test_school.mat(data / "school.mat")
    bench.flags = ("--nouse_synthetic_data", f"--data_dir={data}")
    with bench_lib.read_only(data):
        return bench.run()


def full_temporary_directory(bench: Bench) -> Ending:
    """TMPDIR is on a disk that is full."""
    disk = bench.folder / "tmp"
    with bench_lib.small_disk(disk, 64):
        bench_lib.fill(disk, 0)
        return bench.run(environment={"TMPDIR": str(disk)})


def all_else_read_only(bench: Bench, **environment: str) -> Ending:
    """Nothing can be written but the output directory: no /tmp, no home, no project."""
    _need("unshare")
    with bench_lib.read_only(bench.folder / "probe"):
        pass  # Says whether mounting is possible.
    script = """
        mount --bind "$0" "$0" || exit 77
        for each in / /tmp /var/tmp /dev/shm; do
            ! mountpoint -q "$each" || mount -o remount,ro,bind "$each" || exit 77
        done
        exec "$@"
    """
    prefix = ["unshare", "--mount", "sh", "-c", script, str(bench.root)]
    ending = bench.run(prefix, environment=environment)
    if ending.status == 77:
        raise UnavailableError(f"mounting is not allowed: {ending.stderr.strip()}")
    return ending


def output_is_temporary(bench: Bench) -> Ending:
    """The same with TMPDIR there."""
    return all_else_read_only(bench, TMPDIR=str(bench.root))


# --- clocks ---------------------------------------------------------------------------------------


def jumping_clock(bench: Bench) -> Ending:
    """The clock jumps by two days every second, back and forth; for TFF's worker, too."""
    _need("cc")
    source, library = pathlib.Path(__file__).with_name("jumping_clock.c"), bench.folder / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return bench.run(environment={"LD_PRELOAD": str(library)})


# --- other processes ------------------------------------------------------------------------------


def second_run(bench: Bench) -> Ending:
    """Another run is begun on the same directory; returns its end."""
    first = bench.start_holding()
    ending = bench.run()
    assert first.ending().status == 0
    return ending


def run_after_a_dead_one(bench: Bench) -> Ending:
    """The run that held the directory was killed a moment ago."""
    first = bench.start_holding()
    first.send(signal.SIGKILL)
    ending = bench.run()
    first.ending()
    return ending


def worker_killed(bench: Bench) -> Ending:
    """TFF's worker is killed while it trains."""
    started, worker = _with_worker(bench)
    worker.kill()
    return started.ending()


def worker_stopped(bench: Bench) -> Ending:
    """TFF's worker is stopped, as by a debugger, and told to go on a little later."""
    started, worker = _with_stopped_worker(bench)
    worker.resume()
    return started.ending()


def end_beside_stopped_worker(bench: Bench) -> Ending:
    """TFF's worker is stopped, and somebody who waits in vain presses Ctrl-C."""
    started, _ = _with_stopped_worker(bench)
    started.send(signal.SIGINT)
    return started.ending()


def _with_worker(bench: Bench) -> tuple[trainer_runs.Started, psutil.Process]:
    started = bench.start_training()
    (worker,) = (p for p in started.children() if p.name() == "worker_binary")
    return started, worker


def _with_stopped_worker(bench: Bench) -> tuple[trainer_runs.Started, psutil.Process]:
    started, worker = _with_worker(bench)
    worker.suspend()
    assert not started.has_ended(_STOPPED_SECONDS)
    return started, worker


# --- memory ---------------------------------------------------------------------------------------


def no_more_memory(bench: Bench, kind: int, megabytes: int) -> Ending:
    """After the first checkpoint, the trainer can get so much more memory only."""
    started = bench.start_training()
    memory = psutil.Process(started.process.pid).memory_info()
    limit = {resource.RLIMIT_AS: memory.vms, resource.RLIMIT_DATA: memory.data}[kind]
    limit += megabytes * _MEGABYTE
    resource.prlimit(started.process.pid, kind, (limit, limit))
    return started.ending()


# --- streams --------------------------------------------------------------------------------------


def reader_that_left(bench: Bench, stream: str) -> Ending:
    """Nobody reads stdout any more (`| head -1`)."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        return bench.run(**{stream: pipe})


def full_stream(bench: Bench, stream: str) -> Ending:
    """The file that stdout goes to is on a full disk."""
    if not os.path.exists("/dev/full"):
        raise UnavailableError("needs /dev/full")
    with open("/dev/full", "wb") as full:
        return bench.run(**{stream: full})


def _need(program: str) -> None:
    if shutil.which(program) is None:
        raise UnavailableError(f"needs {program}")


# --- all of them ----------------------------------------------------------------------------------


_KINDS = {resource.RLIMIT_AS: "address space", resource.RLIMIT_DATA: "data"}
# A thread of TensorFlow's that gets no memory aborts the program: nobody can catch that.
_NO_MEMORY = {"statuses": (2, -6), "words": "memory ran out"}
_NO_ROOM = {"statuses": (2,), "words": "No space left on device"}


def _on_both(name: str, happen: Callable[[Bench], Ending], **right: Any) -> tuple[Fault, Fault]:
    """Returns a fault on the sequential backend and on TFF's."""
    return Fault(name, happen, **right), Fault(f"{name}, tff", happen, **right, backend="tff")


FAULTS = (
    *(
        Fault(f"disk with {room} kB left", partial(full_disk, free_kilobytes=room), **_NO_ROOM)
        for room in (0, 4, 8, 40, 120, 200, 280, 360)
    ),
    *_on_both("disk that others fill", partial(full_disk, is_begun=True), **_NO_ROOM),
    *(
        Fault(f"disk that fills in {file}", partial(disk_that_fills_in, file=file), **_NO_ROOM)
        for file in ("run.json", "rounds.csv", "round_00000002.npz", "round_00000012.npz",
                     "evaluation", "candidates.csv", "clients.csv", "summary.csv",
                     "global_model.npz")
    ),
    Fault("files of at most 2 kB", under("prlimit", "--fsize=2048"), (2,), "File too large"),
    Fault("files of at most 30 kB", under("prlimit", "--fsize=30720"), (2,), "File too large"),
    Fault("read-only output directory", read_only_output, (2,), "Read-only file system"),
    Fault("disk that turns read-only", partial(read_only_output, is_begun=True), (2,),
          "Read-only file system"),
    Fault("directory moved away", output_moved_away, (2,), "No such file or directory"),
    Fault("read-only data directory", read_only_data),
    Fault("TMPDIR that is not there", under(environment={"TMPDIR": "/not/there"}), backend="tff"),
    Fault("TMPDIR on a full disk", full_temporary_directory, backend="tff"),
    Fault("all read-only but the output", all_else_read_only, (2,), "set TMPDIR"),
    *_on_both("the same, TMPDIR there", output_is_temporary),
    *_on_both("clock that jumps", jumping_clock),
    Fault("second run on a directory", second_run, (2,), "another process"),
    *_on_both("run after a dead one", run_after_a_dead_one),
    Fault("TFF's worker killed", worker_killed, (0,), "it is started again", "tff"),
    Fault("TFF's worker stopped for a while", worker_stopped, backend="tff"),
    Fault("Ctrl-C beside a stopped worker", end_beside_stopped_worker, (130,), "goes on", "tff"),
    *(
        Fault(f"{mb} MB more {of_kind}", partial(no_more_memory, kind=kind, megabytes=mb),
              **_NO_MEMORY)
        for kind, of_kind in _KINDS.items() for mb in (0, 8)
    ),
    Fault("stdout's reader left", partial(reader_that_left, stream="stdout"), (141,)),
    Fault("stderr's reader left", partial(reader_that_left, stream="stderr"), (0,)),
    Fault("stdout on a full disk", partial(full_stream, stream="stdout"), (2,), "No space left"),
    Fault("stderr on a full disk", partial(full_stream, stream="stderr"), (0,)),
    Fault("stdin closed", _closed("<&-")),
    Fault("stdout closed", _closed(">&-")),
    *_on_both("all streams closed", _closed("<&- >&- 2>&-")),
)  # fmt: skip
