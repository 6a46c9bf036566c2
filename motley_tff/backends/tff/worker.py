"""TFF's `worker_binary`, owned: started, watched and reaped by us instead of by TFF.

TFF's own local runtime starts the same binary, but leaves it running when Python exits (it becomes
an orphan that keeps pipes open), waits for it without a limit, starts a worker that died again and
again without a word, and cannot leave Python while a computation runs. Here:

    with tff_worker.tff_runtime():
        some_tff_computation(...)

* The worker dies with this process, however that ends. On Linux the kernel sees to it
  (PR_SET_PDEATHSIG); everywhere `close`, the context manager and `atexit` do.
* It has a session of its own and ignores the signals that stop programs, so that Ctrl-C or a
  scheduler's SIGTERM reach this process alone, which may still need it to write a checkpoint.
* A worker that does not start, or dies while it computes, is a `WorkerError` of one line.

TFF keeps its stack of contexts per thread: run computations in the thread that entered
`tff_runtime`. The binary listens on all network interfaces and has no flag to change that: an
`interface_guard` hangs up on who comes from outside. Nothing between program and worker is
encrypted.
"""

import asyncio
import atexit
import collections
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import IO, Any

import grpc

from motley_tff.backends.tff import guard as interface_guard
from motley_tff.core.errors import UserError, WorkerError
from motley_tff.core.lazy import tff

# TFF's own limit; a model larger than this cannot cross the wire.
_MAX_MESSAGE_BYTES = 2_000_000_000
_CHANNEL_OPTIONS = (
    ("grpc.max_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # Or a cluster's $http_proxy would be asked for a port of this machine, forever.
    ("grpc.enable_http_proxy", 0),
    # The first attempt nearly always comes too early; gRPC would wait a second after it.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)
# To another machine: routers forget a connection that is silent while clients are worked on. The
# worker's gRPC takes a ping more than every 5 minutes for an attack.
_REMOTE_OPTIONS = (
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 60_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A connection of its own for each stub, as channels with the same options share one.
    ("grpc.use_local_subchannel_pool", 1),
)
_MAX_EXECUTORS = 10  # As many as TFF keeps.
_PROBE_SECONDS = 0.1
_REMOTE_PROBE_SECONDS = 1.0
# How long a connection that broke may be ahead of the news that the worker died.
_OBITUARY_SECONDS = 2.0
_REAP_SECONDS = 10.0
_LOG_TAIL_BYTES = 4096
# What gRPC says of a worker that died, of one that was started anew and knows nothing of us, and of
# a channel we closed. TFF would retry the first two without an end.
_LOST_CODES = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.CANCELLED,
)


# Run by a bare Python that becomes the worker: code between fork and exec in this process, which
# has threads, could deadlock. The kernel's promise survives exec. 1 is PR_SET_PDEATHSIG; if the
# parent was gone before the promise was made, we have another parent now.
_LAUNCHER = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
except ImportError:
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process is gone")
for name in ("SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""


class RemoteComputationError(WorkerError):
    """A computation failed on a worker of another machine, which itself is well."""


class Worker:
    """A running worker process and the channel to it; `start_worker` makes them.

    Attributes:
      port: Where it listens.
      target: Its address for gRPC, `host:port`.
      stub: How TFF talks to it.
      log_path: Where it writes, if that was asked for.
    """

    stub: "WorkerStub"

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        reservation: socket.socket,
        guard: interface_guard.Guard,
        log_path: str | os.PathLike[str] | None = None,
    ):
        """Starts the process; `start_worker` also waits until it answers."""
        self.port = reservation.getsockname()[1]
        self.target = f"127.0.0.1:{self.port}"
        self.log_path = log_path
        self._owner = os.getpid()
        self._reservation, self._guard = reservation, guard
        self._log = _open_log(log_path)
        self._process: subprocess.Popen[bytes] | None = None
        self._start_error: OSError | None = None
        self._spawned, self._ended = threading.Event(), threading.Event()
        # The kernel's promise is bound to the thread that starts the process, not to this process:
        # a thread that lives as long as the worker keeps it.
        threading.Thread(
            target=self._keep, args=(arguments, environment), name="tff-worker", daemon=True
        ).start()
        atexit.register(self.close)
        self._spawned.wait()

    def _keep(self, arguments: list[str], environment: dict[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                arguments,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            self._start_error = error
        finally:
            self._spawned.set()
        if self._process is not None:
            self._process.wait()
        self._ended.set()

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
          WorkerError: If there never was a process.
        """
        if self._process is None:
            raise WorkerError(f"TFF's worker did not start: {self._start_error}")
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self._ended.is_set()

    def obituary(self, patience_seconds: float = 0.0) -> str | None:
        """Returns how the process ended, e.g. "exit status 1", or None while it runs.

        Args:
          patience_seconds: How long to wait for its end.
        """
        if not self._ended.wait(patience_seconds):
            return None
        if self._process is None:
            return f"no start ({self._start_error})"
        status = self._process.returncode
        return f"signal {_signal_name(-status)}" if status < 0 else f"exit status {status}"

    def last_words(self) -> str:
        """Returns the last line the worker wrote, at most 300 characters, or an empty string."""
        if self._log.closed:
            return ""
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        # pread: the worker shares the file's position.
        tail = os.pread(descriptor, _LOG_TAIL_BYTES, max(0, size - _LOG_TAIL_BYTES))
        lines = [line for line in tail.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else ""

    def account(self, when: str = "") -> str:
        """Returns which worker ended, how, and its last words."""
        return f"{self} ended{when} with {self.obituary()}{_quoted(self.last_words())}"

    def close(self) -> None:
        """Kills the worker and waits for its end. Computations in flight fail. Idempotent."""
        if os.getpid() != self._owner:
            return  # A forked child that runs its parent's exit handlers.
        atexit.unregister(self.close)
        self._spawned.wait()
        if self._process is not None:
            self._process.kill()
            self._ended.wait(_REAP_SECONDS)
        if hasattr(self, "stub"):
            self.stub.close()
        self._guard.close()
        self._reservation.close()
        self._log.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"TFF's worker (pid {self.pid}, port {self.port})"


class _UnwatchedChannel:
    """A channel for TFF's stub, which would have gRPC watch its state in a thread.

    That thread ends in a stack trace on stderr if the channel is closed at the wrong moment.
    """

    def __init__(self, channel: grpc.Channel):
        """Wraps a channel."""
        self._channel = channel

    def subscribe(self, callback: Callable[[Any], None], try_to_connect: bool = False) -> None:
        """Does nothing: `WorkerStub.is_ready` asks the worker."""

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a callable for a method of the worker."""
        return self._channel.unary_unary(*args, **kwargs)


class WorkerStub(tff.framework.RemoteExecutorGrpcStub):
    """TFF's stub, except that a worker that is lost is a `WorkerError`.

    TFF's calls the loss "retryable" and its execution contexts retry without a limit.

    Attributes:
      target: `host:port`.
      loss: Why the worker is taken for lost, in a few words, or None.
    """

    def __init__(self, target: str, worker: Worker | None = None):
        """Opens a channel.

        Args:
          target: `host:port`.
          worker: The process that listens there, if it is ours.
        """
        self.target, self._worker = target, worker
        self.loss: str | None = None
        options = _CHANNEL_OPTIONS if worker else (*_CHANNEL_OPTIONS, *_REMOTE_OPTIONS)
        self._own_channel = grpc.insecure_channel(target, options)
        self._probe = self._own_channel.unary_unary("/motley/probe")
        super().__init__(_UnwatchedChannel(self._own_channel))

    def is_ready(self, patience_seconds: float = _PROBE_SECONDS) -> bool:
        """Returns whether the worker answers, be it that it knows no such call."""
        try:
            self._probe(b"", timeout=patience_seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        except ValueError:  # gRPC's word for a channel that was closed.
            return False
        return True

    def give_up(self, loss: str) -> None:
        """Takes the worker for lost; calls in flight fail."""
        self.loss = self.loss or loss
        self.close()

    def close(self) -> None:
        """Closes the channel; calls in flight fail."""
        self._own_channel.close()

    def get_executor(self, request: Any) -> Any:
        """Has the worker set up an executor."""
        return self._call(super().get_executor, request)

    def create_value(self, request: Any) -> Any:
        """Sends a value."""
        return self._call(super().create_value, request)

    def create_struct(self, request: Any) -> Any:
        """Makes a structure of values."""
        return self._call(super().create_struct, request)

    def create_call(self, request: Any) -> Any:
        """Calls a function."""
        return self._call(super().create_call, request)

    def create_selection(self, request: Any) -> Any:
        """Selects from a structure."""
        return self._call(super().create_selection, request)

    def compute(self, request: Any) -> Any:
        """Waits for a value and fetches it."""
        return self._call(super().compute, request)

    def dispose(self, request: Any) -> Any:
        """Frees values. Called by finalizers: a worker that is gone has nothing to free."""
        with contextlib.suppress(WorkerError, grpc.RpcError):
            return self._call(super().dispose, request)

    def dispose_executor(self, request: Any) -> Any:
        """Frees an executor; as `dispose`."""
        with contextlib.suppress(WorkerError, grpc.RpcError):
            return self._call(super().dispose_executor, request)

    def _call(self, remote: Callable[[Any], Any], request: Any) -> Any:
        try:
            return remote(request)
        except grpc.RpcError as error:
            if error.code() not in _LOST_CODES and (not self._worker or self._worker.is_alive):
                raise  # The computation's own: a failed operation, a value too large.
            raise self._lost(error.details()) from error
        except ValueError as error:  # gRPC's word for a channel that was closed.
            raise self._lost(str(error)) from error

    def _lost(self, details: str) -> WorkerError:
        self.loss = self.loss or details
        return WorkerError(self._account(details))

    def _account(self, details: str) -> str:
        if self._worker is None:
            return f"lost TFF's worker at {self.target}: {self.loss}; see whether it still runs"
        if self._worker.obituary(_OBITUARY_SECONDS) is None:
            return f"lost {self._worker}, though it runs: {details}; start the program again"
        return (
            f"{self._worker.account(' during a computation')}; if memory ran out, use fewer "
            "clients per round or fewer threads; then start the program again"
        )


class _Executors(tff.framework.ExecutorFactory):
    """One executor per cohort size, the latest few.

    TFF's own `ResourceManagingExecutorFactory` forgets the others without a word to the worker,
    which keeps their values and threads: with changing cohort sizes it grows without a limit.
    """

    def __init__(self, build: Callable[[Any], Any]):
        """Makes an empty collection.

        Args:
          build: Makes an executor for a mapping from placements to their sizes.
        """
        self._build = build
        self._executors: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def create_executor(self, cardinalities: Any) -> Any:
        """Returns the executor for a cohort size, a new one where there is none."""
        key = _hashable(cardinalities)
        executor = self._executors.pop(key, None) or self._build(cardinalities)
        self._executors[key] = executor
        if len(self._executors) > _MAX_EXECUTORS:
            self._executors.popitem(last=False)[1].close()
        return executor

    def clean_up_executor(self, cardinalities: Any) -> None:
        """Closes the executor for a cohort size; TFF asks for it after an error."""
        executor = self._executors.pop(_hashable(cardinalities), None)
        if executor is not None:
            executor.close()

    def close(self) -> None:
        """Closes all of them."""
        while self._executors:
            self._executors.popitem()[1].close()


class LoopThread:
    """A thread whose event loop runs coroutines, and that ends when it is told to."""

    def __init__(self, name: str):
        """Starts it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> "concurrent.futures.Future[Any]":
        """Starts a coroutine; signals interrupt who waits for its result at once."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancels what waits and ends the thread; what computes must have been made to end."""
        if not self._loop.is_closed():
            self.submit(self._wind_up())
            self._thread.join(_REAP_SECONDS)

    async def _wind_up(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.stop()


class RuntimeContext(tff.framework.SyncContext):
    """Runs computations to their end in the calling thread.

    As `tff.framework.SyncExecutionContext`, which cannot be closed: it joins its thread when it is
    collected, and where that happens at interpreter exit or during a computation, Python hangs.
    """

    def __init__(self, context: tff.framework.AsyncContext):
        """Starts the thread whose event loop runs the computations.

        Args:
          context: What runs them.
        """
        self._context = context
        self._thread = LoopThread("tff-context")

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Returns the result of a computation. Signals interrupt the wait at once."""
        return self._thread.submit(self._context.invoke(comp, arg)).result()

    def close(self) -> None:
        """Ends the thread; close the worker first, or it waits for a computation in flight."""
        self._thread.close()


def start_worker(
    port: int | None = None,
    threads: int | None = None,
    intra_op_threads: int | None = None,
    max_concurrent_calls: int | None = None,
    log_path: str | os.PathLike[str] | None = None,
    start_timeout_seconds: float = 60.0,
    binary: str | os.PathLike[str] | None = None,
    listen_address: str = interface_guard.LOOPBACK,
) -> Worker:
    """Starts a worker on this machine and waits until it answers.

    Args:
      port: Where it listens; any free port by default.
      threads: Operations, of one client or of several, that run at the same time; by default one
        per core that this process may use.
      intra_op_threads: Threads within one operation, by default as many. With 1, results are
        bit-equal on any number of cores.
      max_concurrent_calls: Clients that are worked on at the same time, for memory's sake; by
        default all of them.
      log_path: File to append the worker's messages to; by default they are kept aside for error
        messages.
      start_timeout_seconds: How long to wait for it.
      binary: The program, by default the one that TFF's package contains.
      listen_address: The address of this machine, besides the loopback's, at which it can be
        reached from others; `all` for every one. Who reaches it can read and write files.

    Returns:
      The worker. Close it, or use it as a context manager.

    Raises:
      UserError: If the port is taken, the machine has no such address, or the log file cannot be
        written.
      WorkerError: If it does not answer in time or ends before it does.
    """
    program = os.fspath(binary or _binary_in_tff())
    with contextlib.ExitStack() as on_failure:
        reservation = on_failure.enter_context(_reserve_port(port))
        number = reservation.getsockname()[1]
        guard = on_failure.enter_context(
            contextlib.closing(interface_guard.Guard(number, listen_address))
        )
        flags = [
            f"--port={number}",
            f"--max_concurrent_computation_calls={max_concurrent_calls or -1}",
        ]
        environment = _environment(threads, intra_op_threads, verbose=log_path is not None)
        arguments = _launch_arguments([program, *flags])
        worker = Worker(arguments, environment, reservation, guard, log_path)
        on_failure.enter_context(worker)
        worker.stub = connect(worker.target, start_timeout_seconds, worker)
        on_failure.pop_all()
    return worker


def connect(target: str, timeout_seconds: float = 60.0, worker: Worker | None = None) -> WorkerStub:
    """Waits until a worker answers, on this machine or another.

    Args:
      target: `host:port`.
      timeout_seconds: How long to wait.
      worker: The process behind the target if it is ours: its end is noticed at once.

    Returns:
      The stub for `execution_context`.

    Raises:
      WorkerError: If nothing answers in time, or the process ends before.
    """
    stub = WorkerStub(target, worker)
    deadline = time.monotonic() + timeout_seconds
    try:
        while not stub.is_ready(_PROBE_SECONDS if worker else _REMOTE_PROBE_SECONDS):
            if worker is not None and not worker.is_alive:
                raise WorkerError(
                    f"TFF's worker ended before it answered on {target}, with {worker.obituary()}"
                    f"{_quoted(worker.last_words())}; see what motley_doctor says"
                )
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"TFF's worker did not answer on {target} within {timeout_seconds:g} seconds"
                    f"{_quoted(worker.last_words() if worker else '')}; is the machine overloaded? "
                    "See what motley_doctor says"
                )
    except BaseException:
        stub.close()
        raise
    return stub


def execution_context(
    stub: tff.framework.RemoteExecutorStub, default_num_clients: int = 0
) -> tff.framework.AsyncExecutionContext:
    """Returns TFF's native execution context on a worker we are connected to.

    `tff_workers` spreads a round over several of these, one a worker.

    Args:
      stub: The connection.
      default_num_clients: Cohort size of computations whose arguments do not tell.
    """

    def executor(cardinalities):
        remote = tff.framework.RemoteExecutor(stub)
        remote.set_cardinalities({tff.CLIENTS: default_num_clients, **cardinalities})
        return remote

    return tff.framework.AsyncExecutionContext(
        executor_fn=_Executors(executor),
        compiler_fn=_compile,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )


def _compile(computation: tff.Computation) -> tff.Computation:
    """Compiles for the native runtime; a secure sum becomes its arithmetic without the protocol."""
    computation = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    return tff.backends.native.desugar_and_transform_to_native(computation)


@contextlib.contextmanager
def tff_runtime(default_num_clients: int = 0, **worker_options: Any) -> Iterator[Worker]:
    """Has this thread's TFF computations run on a worker of our own inside a `with` block.

    Gives the results of `tff.backends.native.set_sync_local_cpp_execution_context`. The context
    that was in use before is in use again afterwards, and the worker is gone.

    Args:
      default_num_clients: Cohort size of computations whose arguments do not tell.
      **worker_options: Those of `start_worker`.

    Yields:
      The worker.

    Raises:
      UserError, WorkerError: As `start_worker`; WorkerError also out of any computation whose
        worker is lost.
    """
    with start_worker(**worker_options) as worker:
        context = RuntimeContext(execution_context(worker.stub, default_num_clients))
        try:
            with tff.framework.get_context_stack().install(context):
                yield worker
        finally:
            worker.close()  # First, so that a computation in flight ends.
            context.close()


def _binary_in_tff() -> pathlib.Path:
    path = pathlib.Path(tff.__file__).parent / "data" / "worker_binary"
    if not os.access(path, os.X_OK):
        raise WorkerError(
            f"{path}: expected TFF's worker, found no program; install tensorflow-federated again"
        )
    return path


def _launch_arguments(command: list[str]) -> list[str]:
    """Wraps a command so that it dies with this process, where the kernel can promise that."""
    if sys.platform != "linux" or not sys.executable:
        return command
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]


def _environment(
    threads: int | None, intra_op_threads: int | None, verbose: bool
) -> dict[str, str]:
    """Returns the worker's environment: its log is a file, so errors may show in it."""
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "0" if verbose else "2",
        "GRPC_VERBOSITY": "ERROR",
    }
    if threads is not None:
        environment["TF_NUM_INTEROP_THREADS"] = str(threads)
    if intra_op_threads is not None:
        environment["TF_NUM_INTRAOP_THREADS"] = str(intra_op_threads)
    return environment


def _open_log(log_path: str | os.PathLike[str] | None) -> IO[bytes]:
    if log_path is not None:
        try:
            return open(log_path, "a+b")
        except OSError as error:
            raise UserError(
                f"{log_path}: expected a file to log to, found {error.strerror}; name another"
            ) from error
    try:
        return tempfile.TemporaryFile()
    except OSError:  # A full disk is no reason not to compute.
        return open(os.devnull, "r+b")


def _reserve_port(port: int | None) -> socket.socket:
    """Binds a port that the worker can bind as well, and nobody else's server will.

    gRPC servers share ports (SO_REUSEPORT): two workers on one port both start, and each gets some
    of the calls. A port that was free a moment ago may be shared; one we keep bound is not.
    """
    if port is not None:
        with _bind(port, shared=False):
            pass  # Free, or it would have raised.
    return _bind(port or 0, shared=True)


def _bind(port: int, shared: bool) -> socket.socket:
    family, host = (
        (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")
    )
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Unshared, the other one: not to be stopped by connections that were closed lately.
        bound.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR, 1
        )
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise UserError(
            f"port {port or 'any'}: expected a free port, found {error.strerror}; choose another"
        ) from error
    return bound


def _hashable(cardinalities: Any) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(placement), size) for placement, size in cardinalities.items()))


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def _quoted(words: str) -> str:
    return f", its last words {words!r}" if words else ""
