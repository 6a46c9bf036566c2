"""Several TFF workers for one run: each round's clients are spread over them.

    with tff_workers.tff_workers_runtime(["alpha:9000", "beta:9000"]):
        some_tff_computation(...)

`motley_worker` starts a worker. What is computed here is TFF's: its remote executors, its
execution contexts, and its *mergeable form* of a computation (`up_to_merge` on each part of the
clients, `merge` of two partial aggregates, `after_merge` once). Only the order is ours, always
that of the clients. TFF's `MergeableCompExecutionContext` goes by which worker is done first: it
hands clients' results back in that order and adds floats in that order. It also lets one worker
wait for the other, because its remote executor's calls block the event loop they share, and joins
a thread when it is collected, where Python can hang.

* A worker that dies, or answers no probe for a minute, is lost for the rest of the run. Its part
  of the round is computed again by another; later rounds are spread over those that are left. That
  changes no client's numbers, only the order of the sum (1e-5).
* Probes go over a connection of their own and are answered while clients are worked on, however
  long that takes: there is no deadline for work. A worker that answers and never finishes cannot
  be told from one with much to do.
* With no worker left, the run ends with a `WorkerError` that names them all.
"""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from motley_tff.backends.tff import targets as worker_targets
from motley_tff.backends.tff import worker as tff_worker
from motley_tff.core.errors import UserError, WorkerError
from motley_tff.core.lazy import tff

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
# Probes in a row without an answer before a worker is lost.
_PROBES = 6
_REASON_LENGTH = 300
_DISPOSE_SECONDS = 5.0

OnLoss = Callable[[str], None]


class RemoteWorker:
    """A connection to one worker, the thread its calls block, and the one that probes it."""

    def __init__(self, target: str, connect_seconds: float, silence_seconds: float):
        """Connects; raises as `tff_workers_runtime`."""
        self.stub = _connect(target, connect_seconds)
        self._prober = tff_worker.WorkerStub(target)
        self._context = tff_worker.execution_context(self.stub)
        self._thread = tff_worker.LoopThread(f"tff-worker-{target}")
        self._closed = threading.Event()
        self.running = 0
        threading.Thread(
            target=self._probe, args=(silence_seconds,), name=f"probe-{target}", daemon=True
        ).start()

    @property
    def target(self) -> str:
        """`host:port`."""
        return self.stub.target

    @property
    def loss(self) -> str | None:
        """Why it is taken for lost, or None."""
        return self.stub.loss

    async def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation there.

        Raises:
          WorkerError: If the worker is lost, or gave an error that is the computation's own.
        """
        self.running += 1
        try:
            return await asyncio.wrap_future(self._thread.submit(self._context.invoke(comp, arg)))
        except grpc.RpcError as error:
            reason = " ".join(error.details().split())[:_REASON_LENGTH]
            raise tff_worker.RemoteComputationError(
                f"TFF's worker at {self.target} could not compute: {reason}; if a file is missing, "
                "it must be on the worker's machine, too, under the same path"
            ) from error
        finally:
            self.running -= 1

    def _probe(self, silence_seconds: float) -> None:
        patience, unanswered = silence_seconds / _PROBES, 0
        while not self._closed.is_set():
            unanswered = 0 if self._prober.is_ready(patience) else unanswered + 1
            if unanswered == _PROBES:
                return self.stub.give_up(f"no answer for {silence_seconds:g} seconds")
            if not unanswered:
                self._closed.wait(patience)
        return None

    def close(self) -> None:
        """Frees what the worker holds for us, if it answers, and disconnects."""
        if not self.loss and not self.running:
            dispose = threading.Thread(target=self._context.executor_factory.close, daemon=True)
            dispose.start()
            dispose.join(_DISPOSE_SECONDS)
        self._closed.set()
        self.stub.close()
        self._prober.close()
        self._thread.close()


@dataclasses.dataclass(frozen=True)
class _Pool:
    """The workers, and who takes over from whom."""

    workers: Sequence[RemoteWorker]
    on_loss: OnLoss

    @property
    def left(self) -> list[RemoteWorker]:
        """Those that are not lost."""
        return [worker for worker in self.workers if not worker.loss]

    async def invoke(self, comp: Any, arg: Any, preferred: RemoteWorker | None = None) -> Any:
        """Runs a computation on a worker, and again on others for as long as they are lost."""
        worker = preferred or self._least_busy()
        while True:
            try:
                return await worker.invoke(comp, arg)
            except WorkerError:
                if not worker.loss:
                    raise
            lost, worker = worker, self._least_busy()
            self.on_loss(
                f"lost TFF's worker at {lost.target} ({lost.loss}); {worker.target} does its part "
                f"again, {len(self.left)} of {len(self.workers)} are left"
            )

    def _least_busy(self) -> RemoteWorker:
        if self.left:
            return min(self.left, key=lambda worker: worker.running)
        listed = ", ".join(f"{worker.target} ({worker.loss})" for worker in self.workers)
        raise WorkerError(
            f"no TFF worker is left, lost {listed}; see why they ended (memory?), start them "
            "again, then start this again"
        )


class SpreadContext(tff.framework.SyncContext):
    """Runs computations on a pool of workers, each client's part of them on one."""

    def __init__(self, pool: _Pool):
        """Starts the thread that deals the parts out."""
        self._pool = pool
        self._thread = tff_worker.LoopThread("tff-workers")
        self._mergeable_form = functools.lru_cache(_mergeable_form)

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Returns the result of a computation. Signals interrupt the wait at once.

        Raises:
          WorkerError: If no worker is left, or one could not compute.
          NotImplementedError: If clients' results and the server's come from one computation.
        """
        takes, gives = comp.type_signature.parameter, comp.type_signature.result
        workers = self._pool.left
        parts = _split(arg, takes, max(1, len(workers)))
        if len(parts) < 2:
            work = self._pool.invoke(comp, arg)
        elif _placements(gives) == {tff.CLIENTS}:
            work = self._map(comp, parts, workers)
        elif tff.CLIENTS in _placements(gives):
            raise NotImplementedError("spread: results at the clients and at the server")
        else:
            work = self._aggregate(self._mergeable_form(comp), parts, workers)
        return self._thread.submit(work).result()

    async def _each(self, comp: Any, parts: Sequence[Any], workers: Sequence[RemoteWorker]) -> list:
        """Returns the results in the order of the parts."""
        return await asyncio.gather(
            *(self._pool.invoke(comp, *one) for one in zip(parts, workers, strict=False))
        )

    async def _map(self, comp: Any, parts: Sequence[Any], workers: Sequence[RemoteWorker]) -> list:
        return [one for results in await self._each(comp, parts, workers) for one in results]

    async def _aggregate(
        self,
        form: tff.framework.MergeableCompForm,
        parts: Sequence[Any],
        workers: Sequence[RemoteWorker],
    ) -> Any:
        merged, *others = await self._each(form.up_to_merge, parts, workers)
        for other in others:
            merged = await self._pool.invoke(form.merge, _pair(merged, other))
        # Nothing of the clients is used any more, but the form wants an argument.
        return await self._pool.invoke(form.after_merge, _pair(parts[0], merged))

    def close(self) -> None:
        """Ends the thread; close the workers first."""
        self._thread.close()


@contextlib.contextmanager
def tff_workers_runtime(
    targets: Sequence[str],
    on_loss: OnLoss = lambda message: None,
    connect_seconds: float = CONNECT_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
) -> Iterator[None]:
    """Has this thread's TFF computations run on workers elsewhere inside a `with` block.

    Args:
      targets: `host:port` of each.
      on_loss: Told, in one line, when a worker is lost and others take over.
      connect_seconds: How long each may take to answer at first.
      silence_seconds: How long it may not answer a probe later on.

    Raises:
      UserError: If a target is malformed, named twice, or nothing listens there.
      WorkerError: If what listens there does not answer as TFF's worker does; also out of any
        computation when no worker is left.
    """
    worker_targets.check(targets)
    with contextlib.ExitStack() as stack:
        workers: list[RemoteWorker] = []
        for target in targets:
            workers.append(RemoteWorker(target, connect_seconds, silence_seconds))
            stack.callback(workers[-1].close)
        context = SpreadContext(_Pool(workers, on_loss))
        try:
            with tff.framework.get_context_stack().install(context):
                yield
        finally:
            stack.close()  # First, so that a computation in flight ends.
            context.close()


def _connect(target: str, seconds: float) -> tff_worker.WorkerStub:
    host, port = worker_targets.parse(target)
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), seconds).close()
            break
        except ConnectionResetError:  # By an interface guard.
            break
        except OSError as error:
            if time.monotonic() > deadline - 0.5:
                reason = error.strerror or str(error)
                raise UserError(
                    f"no TFF worker listens at {target} ({reason}); start one there with "
                    f"motley_worker --port={port}, or mend --tff_workers"
                ) from error
            time.sleep(0.2)
    try:
        return tff_worker.connect(target, max(1.0, deadline - time.monotonic()))
    except WorkerError as error:
        raise WorkerError(
            f"what listens at {target} does not answer as TFF's worker does; if it is a "
            "motley_worker, does its --listen_address let this machine in?"
        ) from error


def _mergeable_form(comp: Any) -> tff.framework.MergeableCompForm:
    """Compiles a computation with aggregations that do not depend on each other."""
    plain = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
    # That forgets which Python containers results go into.
    plain = tff.framework.ConcreteComputation.with_type(plain, comp.type_signature)
    return tff.backends.native.compile_to_mergeable_comp_form(plain)


def _pair(first: Any, second: Any) -> tff.structure.Struct:
    return tff.structure.Struct.unnamed(first, second)


def _placements(type_: Any) -> set[Any]:
    """Returns where a type's values are placed."""
    if isinstance(type_, tff.FederatedType):
        return {type_.placement}
    if isinstance(type_, tff.StructType):
        return set().union(*(_placements(each) for _, each in tff.structure.iter_elements(type_)))
    return set()


def _split(arg: Any, type_: Any, most: int) -> list[Any]:
    """Returns an argument's parts: as many as there are workers or clients, at least one."""
    number = _num_clients(arg, type_)
    bounds = [number * i // most for i in range(most + 1)]
    slices = [slice(a, b) for a, b in itertools.pairwise(bounds) if b > a]
    return [_slice(arg, type_, clients) for clients in slices] or [arg]


def _num_clients(arg: Any, type_: Any) -> int:
    if isinstance(type_, tff.StructType):
        return max([0, *(_num_clients(value, each) for _, value, each in _pairs(arg, type_))])
    return len(arg) if _is_apart(type_) else 0


def _slice(arg: Any, type_: Any, clients: slice) -> Any:
    if isinstance(type_, tff.StructType):
        return tff.structure.Struct(
            [(name, _slice(value, each, clients)) for name, value, each in _pairs(arg, type_)]
        )
    return arg[clients] if _is_apart(type_) else arg


def _is_apart(type_: Any) -> bool:
    """Returns whether clients have values of their own."""
    return (
        isinstance(type_, tff.FederatedType)
        and type_.placement is tff.CLIENTS
        and not type_.all_equal
    )


def _pairs(arg: Any, type_: tff.StructType) -> Iterator[tuple[str | None, Any, Any]]:
    elements = tff.structure.iter_elements(tff.structure.from_container(arg))
    for (_, value), (name, each) in zip(elements, tff.structure.iter_elements(type_), strict=True):
        yield name, value, each
