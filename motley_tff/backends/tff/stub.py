"""The connection to a TFF worker, which knows when the worker is lost.

TFF's own waits for a worker without a limit, does not notice one that died, and calls the loss
"retryable", whereupon its execution contexts try again without an end. Here `connect` has a
deadline, and a worker that is lost is a `WorkerError` of one line.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import grpc

from motley_tff.backends.tff.process import WorkerProcess
from motley_tff.core.errors import WorkerError
from motley_tff.core.lazy import tff

_ADVICE = "see what motley_doctor says"
# TFF's own limit; a model larger than this cannot cross the wire.
_MAX_MESSAGE_BYTES = 2_000_000_000
_OPTIONS = (
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
_PROBE_SECONDS = 0.1
_REMOTE_PROBE_SECONDS = 1.0
# How long a connection that broke may be ahead of the news that the process ended.
_EXIT_SECONDS = 2.0
# What gRPC says of a worker that died, of one that was started anew and knows nothing of us, and of
# a channel we closed. TFF would retry the first two without an end.
_LOST_CODES = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.CANCELLED,
)


class _WorkerChannel:
    """A gRPC channel, for TFF's stub, whose calls say when the worker is lost."""

    def __init__(self, target: str, process: WorkerProcess | None):
        options = _OPTIONS if process else (*_OPTIONS, *_REMOTE_OPTIONS)
        self.grpc = grpc.insecure_channel(target, options)
        self.loss: str | None = None
        self._target, self._process = target, process

    def subscribe(self, callback: Callable[[Any], None], try_to_connect: bool = False) -> None:
        """Does nothing: `WorkerStub.answers` asks the worker.

        gRPC would watch the channel's state in a thread, which ends in a stack trace on stderr if
        the channel is closed at the wrong moment.
        """

    def unary_unary(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Returns a function that calls a method of the worker."""
        method = self.grpc.unary_unary(*args, **kwargs)

        def call(request: Any) -> Any:
            try:
                return method(request)
            except grpc.RpcError as error:
                is_alive = self._process is None or self._process.is_alive
                if is_alive and error.code() not in _LOST_CODES:
                    raise  # The computation's own: a failed operation, a value too large.
                raise self._lost(error.details()) from error
            except ValueError as error:  # gRPC's word for a channel that was closed.
                raise self._lost(str(error)) from error

        return call

    def _lost(self, details: str) -> WorkerError:
        self.loss = self.loss or details
        if self._process is None:
            place, advice = f"lost TFF's worker at {self._target}", "see whether it still runs"
            return WorkerError(place, self.loss, advice=advice)
        if self._process.exit_reason(_EXIT_SECONDS) is None:
            place = f"lost {self._process}, though it runs"
            return WorkerError(place, details, advice="start the program again")
        advice = (
            "if memory ran out, use fewer clients per round or fewer threads; then start the "
            "program again"
        )
        return WorkerError(self._process.describe_exit(" during a computation"), advice=advice)


class WorkerStub(tff.framework.RemoteExecutorGrpcStub):
    """TFF's stub, except that a worker that is lost is a `WorkerError`."""

    def __init__(self, target: str, process: WorkerProcess | None = None):
        """Opens a channel to a target, where `process` listens if the worker is ours."""
        self.target = target
        self._worker_channel = _WorkerChannel(target, process)
        self._probe = self._worker_channel.grpc.unary_unary("/motley/probe")
        super().__init__(self._worker_channel)

    @property
    def loss(self) -> str | None:
        """Why the worker is taken for lost, in a few words, or None."""
        return self._worker_channel.loss

    def answers(self, timeout_seconds: float) -> bool:
        """Returns whether the worker answers, be it that it knows no such call."""
        try:
            self._probe(b"", timeout=timeout_seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        except ValueError:  # gRPC's word for a channel that was closed.
            return False
        return True

    def give_up(self, loss: str) -> None:
        """Takes the worker for lost; calls in flight fail."""
        self._worker_channel.loss = self.loss or loss
        self.close()

    def close(self) -> None:
        """Closes the channel; calls in flight fail."""
        self._worker_channel.grpc.close()

    def dispose(self, request: Any) -> None:
        """Frees values. Called by finalizers: a worker that is gone has nothing to free."""
        with contextlib.suppress(WorkerError, grpc.RpcError):
            super().dispose(request)

    def dispose_executor(self, request: Any) -> None:
        """Frees an executor; as `dispose`."""
        with contextlib.suppress(WorkerError, grpc.RpcError):
            super().dispose_executor(request)


def connect(
    target: str, timeout_seconds: float = 60.0, process: WorkerProcess | None = None
) -> WorkerStub:
    """Returns a stub once the worker at `host:port` answers, on this machine or another.

    The end of `process`, what listens there if it is ours, is noticed at once. WorkerError if
    nothing answers in time, or it ends before.
    """
    deadline = time.monotonic() + timeout_seconds
    with contextlib.ExitStack() as on_failure:
        stub = on_failure.enter_context(contextlib.closing(WorkerStub(target, process)))
        while not stub.answers(_PROBE_SECONDS if process else _REMOTE_PROBE_SECONDS):
            if process and not process.is_alive:
                place = f"TFF's worker ended before it answered on {target}"
                ending = f"{process.exit_reason()}{process.log_tail()}"
                raise WorkerError(place, ending, advice=_ADVICE)
            if time.monotonic() > deadline:
                place = f"TFF's worker on {target}{process.log_tail() if process else ''}"
                expected = f"an answer within {timeout_seconds:g} seconds"
                advice = f"see whether the machine is overloaded, and {_ADVICE}"
                raise WorkerError(place, None, expected, advice)
        on_failure.pop_all()
    return stub
