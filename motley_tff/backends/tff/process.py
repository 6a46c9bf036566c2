"""TFF's `worker_binary` as a child process: its port, its log, how it ended.

TFF's own local runtime starts the same binary, but leaves it running when Python exits, an orphan
that keeps pipes open, and starts one that died again and again without a word. Here:

* The worker ends with this process, however that ends. On Linux the kernel sees to it
  (`commandline.children`); everywhere `close` and `atexit` do.
* It has a session of its own and ignores the signals that stop programs, so that Ctrl-C or a
  scheduler's SIGTERM reach this process alone, which may still need it to write a checkpoint.

The binary listens on all network interfaces and has no flag to change that: a `guard.Guard` hangs
up on who comes from outside. Nothing between program and worker is encrypted.
"""

import atexit
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
from typing import IO

from motley_tff.backends.tff import guard
from motley_tff.commandline import children
from motley_tff.core.errors import UserError, WorkerError
from motley_tff.core.lazy import tff

_IGNORED_SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_KILL_SECONDS = 10.0
_LOG_LINE_LENGTH = 300


class WorkerProcess:
    """A worker at `target`, a `host:port` of this machine; `stub.connect` waits for its answer."""

    def __init__(
        self,
        port: int | None = None,
        threads: int | None = None,
        intra_op_threads: int | None = None,
        listen_address: str = guard.LOOPBACK,
    ):
        """Starts the process.

        Args:
          threads: Operations, of one client or of several, that run at the same time; by default
            one per core that this process may use.
          intra_op_threads: Threads within one operation, by default as many. With 1, results are
            bit-equal on any number of cores.
          listen_address: The address of this machine, besides the loopback's, at which it can be
            reached from others; `all` for every one. Who reaches it can read and write files.

        Raises:
          UserError: If the port is taken, or the machine has no such address.
          WorkerError: If the process cannot be started.
        """
        self._owner = os.getpid()
        self._started: concurrent.futures.Future[subprocess.Popen[bytes]]
        self._started, self._ended = concurrent.futures.Future(), threading.Event()
        with contextlib.ExitStack() as resources:
            reservation = resources.enter_context(reserve_port(port))
            self.port = reservation.getsockname()[1]
            self.target = f"127.0.0.1:{self.port}"
            resources.callback(guard.Guard(self.port, listen_address).close)
            self._log = resources.enter_context(_open_log())
            command = [str(binary()), f"--port={self.port}"]
            limits = {"TF_NUM_INTEROP_THREADS": threads, "TF_NUM_INTRAOP_THREADS": intra_op_threads}
            environment = {
                **os.environ,
                "TF_CPP_MIN_LOG_LEVEL": "2",  # Errors alone go to its log.
                "GRPC_VERBOSITY": "ERROR",
                **{name: str(limit) for name, limit in limits.items() if limit is not None},
            }
            threading.Thread(
                target=self._run, args=(command, environment), name="tff-worker", daemon=True
            ).start()
            self._resources = resources.pop_all()
        atexit.register(self.close)
        try:
            self.pid = self._started.result().pid
        except OSError as error:
            self.close()
            advice = "see what motley_doctor says"
            raise WorkerError("TFF's worker, at its start", str(error), advice=advice) from error
        except BaseException:
            self.close()
            raise

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        """Starts the process and waits for its end, in a thread that lives as long as it."""
        try:
            process = subprocess.Popen(
                children.bound_to_parent(command, _IGNORED_SIGNALS),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except Exception as error:
            self._started.set_exception(error)
        else:
            self._started.set_result(process)
            process.wait()
            self._ended.set()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self._ended.is_set()

    def exit_reason(self, timeout_seconds: float = 0.0) -> str | None:
        """Returns how the process ended, e.g. "exit status 1", or None if it runs by then."""
        if not self._ended.wait(timeout_seconds):
            return None
        status = self._started.result().returncode
        if status >= 0:
            return f"exit status {status}"
        with contextlib.suppress(ValueError):  # A number without a name.
            return f"signal {-status} ({signal.Signals(-status).name})"
        return f"signal {-status}"

    def log_tail(self) -> str:
        """Returns the last line of its log, quoted for the middle of a message, or nothing."""
        if self._log.closed:
            return ""
        line = children.last_line(self._log)[:_LOG_LINE_LENGTH]
        return f", its last log line {line!r}" if line else ""

    def describe_exit(self, when: str = "") -> str:
        """Returns which worker ended, how, and the last line of its log."""
        return f"{self} ended{when} with {self.exit_reason()}{self.log_tail()}"

    def close(self) -> None:
        """Kills the worker and waits for its end. Computations in flight fail. Idempotent."""
        if os.getpid() != self._owner:
            return  # A forked child that runs its parent's exit handlers.
        atexit.unregister(self.close)
        if self._started.exception() is None:
            self._started.result().kill()
            self._ended.wait(_KILL_SECONDS)
        self._resources.close()

    def __str__(self) -> str:
        return f"TFF's worker (pid {self.pid}, port {self.port})"


def binary() -> pathlib.Path:
    """Returns where TFF's package has the worker; a WorkerError if it is not there."""
    path = pathlib.Path(tff.__file__).parent / "data" / "worker_binary"
    if not os.access(path, os.X_OK):
        advice = "install tensorflow-federated again"
        raise WorkerError(str(path), "no program", "TFF's worker", advice)
    return path


def _open_log() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError:  # A full disk is no reason not to compute.
        return open(os.devnull, "r+b")


def reserve_port(port: int | None) -> socket.socket:
    """Binds a port, any free one by default, that the worker can bind as well, and no other server.

    gRPC servers share ports (SO_REUSEPORT): two workers on one port both start, and each gets some
    of the calls. A port that was free a moment ago may be shared; one we keep bound is not. Raises
    a UserError if the port is taken.
    """
    if port is not None:
        # Raises if it is taken. SO_REUSEADDR: connections that were closed lately do not count.
        _bind(port, socket.SO_REUSEADDR).close()
    return _bind(port or 0, socket.SO_REUSEPORT)


def _bind(port: int, option: int) -> socket.socket:
    is_dual = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if is_dual:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(("::" if is_dual else "0.0.0.0", port))
    except OSError as error:
        bound.close()
        expected = f"a free port ({error.strerror})"
        raise UserError(f"port {port or 'any'}", None, expected, "choose another") from error
    return bound
