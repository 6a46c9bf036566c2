"""Several TFF workers for one run: each round's clients are spread over them.

    with tff_workers_runtime(["alpha:9000", "beta:9000"]):
        some_tff_computation(...)

`motley_worker` starts a worker. What is computed here is TFF's: its remote executors, its
execution contexts, and its *mergeable form* of a computation (`up_to_merge` on each part of the
clients, `merge` of two partial aggregates, `after_merge` once). Only the order is ours, always
that of the clients. TFF's `MergeableCompExecutionContext` goes by which worker is done first: it
hands clients' results back in that order and adds floats in that order. It also lets one worker
wait for the other, because its remote executor's calls block the event loop they share, and joins
a thread when it is collected, where Python can hang.

* A worker that dies, or answers no probe for a minute, is lost for the rest of the run. Its part
  of the round is computed again by another. Later rounds have as many parts as before, shared out
  among the workers that are left, so that sums keep their order and numbers their bytes.
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
import operator
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from motley_tff.backends.tff import runtime, stub as stub_lib, targets
from motley_tff.core import errors
from motley_tff.core.errors import UserError, WorkerError
from motley_tff.core.lazy import tff

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 60.0
# Probes in a row without an answer before a worker is lost.
_PROBES = 6
_REASON_LENGTH = 300
_DISPOSE_SECONDS = 5.0
# Where a client's value says how much work it is; of no consequence for what is computed.
NUM_EXAMPLES = "num_examples"


class RemoteComputationError(WorkerError):
    """A computation failed on a worker of another machine, which itself is well."""


@contextlib.contextmanager
def tff_workers_runtime(
    addresses: Sequence[str],
    on_loss: Callable[[str], None] = lambda message: None,
    connect_seconds: float = _CONNECT_SECONDS,
    silence_seconds: float = _SILENCE_SECONDS,
) -> Iterator[None]:
    """Has this thread's TFF computations run on workers elsewhere inside a `with` block.

    Args:
      on_loss: Told, in one line, when a worker is lost and others take over.
      connect_seconds: How long each may take to answer at first.
      silence_seconds: How long it may not answer a probe later on.

    Raises:
      UserError: If an address is malformed, named twice, or nothing listens there.
      WorkerError: If what listens there does not answer as TFF's worker does; also out of any
        computation when no worker is left.
    """
    targets.check(addresses)
    with contextlib.ExitStack() as connections:
        workers: list[_RemoteWorker] = []
        for address in addresses:
            workers.append(_RemoteWorker(_connect(address, connect_seconds), silence_seconds))
            connections.callback(workers[-1].close)
        with runtime.installed(_SpreadContext(_Pool(workers, on_loss)), end=connections.close):
            yield


def _connect(address: str, seconds: float) -> stub_lib.WorkerStub:
    """Returns the connection to a worker; a UserError if nothing listens there."""
    try:
        return stub_lib.connect(address, seconds)
    except WorkerError as error:
        host, port = targets.parse(address)
        try:
            with contextlib.suppress(ConnectionResetError):  # By a `guard.Guard`.
                socket.create_connection((host, port), seconds).close()
        except OSError as refusal:
            expected = f"a TFF worker that listens there ({refusal.strerror or refusal})"
            advice = f"start one there with motley_worker {errors.name('port')}={port}"
            raise UserError(errors.name("tff_workers"), address, expected, advice) from refusal
        place = f"what listens at {address} does not answer as TFF's worker does"
        advice = f"see whether a motley_worker's {errors.name('listen_address')} lets you in"
        raise WorkerError(place, advice=advice) from error


class _RemoteWorker:
    """A connection to one worker, the thread its calls block, and the one that probes it."""

    def __init__(self, stub: stub_lib.WorkerStub, silence_seconds: float):
        self.address, self._stub = stub.target, stub
        self._prober = stub_lib.WorkerStub(stub.target)
        self._context = runtime.execution_context(stub)
        self._thread = runtime.LoopThread(f"tff-worker-{self.address}")
        self._closed = threading.Event()
        # Parts of a round that one worker has to do are done one after the other.
        self._turn = asyncio.Lock()
        self.num_running = 0
        threading.Thread(
            target=self._probe, args=(silence_seconds,), name=f"probe-{self.address}", daemon=True
        ).start()

    @property
    def loss(self) -> str | None:
        return self._stub.loss

    async def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation there; its own error is a `RemoteComputationError`."""
        self.num_running += 1
        try:
            async with self._turn:
                if self._closed.is_set():
                    raise WorkerError(f"TFF's worker at {self.address}", "a closed connection")
                running = self._thread.submit(self._context.invoke(comp, arg))
                return await asyncio.wrap_future(running)
        except grpc.RpcError as error:
            reason = " ".join(error.details().split())[:_REASON_LENGTH]
            raise RemoteComputationError(
                f"TFF's worker at {self.address} could not compute: {reason}; if a file is "
                "missing, it must be on the worker's machine, too, under the same path"
            ) from error
        finally:
            self.num_running -= 1

    def _probe(self, silence_seconds: float) -> None:
        timeout, unanswered = silence_seconds / _PROBES, 0
        while not self._closed.wait(0.0 if unanswered else timeout):
            unanswered = 0 if self._prober.answers(timeout) else unanswered + 1
            if unanswered == _PROBES:
                self._stub.give_up(f"no answer for {silence_seconds:g} seconds")
                break

    def close(self) -> None:
        """Frees what the worker holds for us, if it answers, and disconnects."""
        if not self.loss and not self.num_running:
            dispose = threading.Thread(target=self._context.executor_factory.close, daemon=True)
            dispose.start()
            dispose.join(_DISPOSE_SECONDS)
        self._closed.set()
        self._stub.close()
        self._prober.close()
        self._thread.close()


@dataclasses.dataclass(frozen=True)
class _Pool:
    """The workers, and who takes over from whom."""

    workers: Sequence[_RemoteWorker]
    on_loss: Callable[[str], None]

    @property
    def remaining(self) -> list[_RemoteWorker]:
        return [worker for worker in self.workers if not worker.loss]

    async def invoke(self, comp: Any, arg: Any, preferred: _RemoteWorker | None = None) -> Any:
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
                f"lost TFF's worker at {lost.address} ({lost.loss}); {worker.address} does its "
                f"part again, {len(self.remaining)} of {len(self.workers)} are left"
            )

    def _least_busy(self) -> _RemoteWorker:
        if self.remaining:
            return min(self.remaining, key=lambda worker: worker.num_running)
        losses = ", ".join(f"{worker.address} ({worker.loss})" for worker in self.workers)
        advice = "see why they ended (memory?), start them again, then start this again"
        raise WorkerError(f"no TFF worker is left, lost {losses}", advice=advice)


class _SpreadContext(tff.framework.AsyncContext):
    """Runs computations on a pool of workers, each client's part of them on one."""

    def __init__(self, pool: _Pool):
        self._pool = pool
        self._mergeable_form = functools.lru_cache(_mergeable_form)

    async def invoke(self, comp: Any, arg: Any) -> Any:
        """Returns the result of a computation, at the clients or at the server, not at both."""
        parts = split(arg, comp.type_signature.parameter, len(self._pool.workers))
        if len(parts) < 2:
            return await self._pool.invoke(comp, arg)
        is_at_clients = functools.partial(_is_at, tff.CLIENTS)
        if tff.types.contains(comp.type_signature.result, is_at_clients):
            return list(itertools.chain(*await self._map(comp, parts)))
        form, pair = self._mergeable_form(comp), tff.structure.Struct.unnamed
        merged, *others = await self._map(form.up_to_merge, parts)
        for other in others:
            merged = await self._pool.invoke(form.merge, pair(merged, other))
        # Nothing of the clients is used any more, but the form wants an argument: one is enough.
        first = _map_values(lambda values: values[:1], parts[0], comp.type_signature.parameter)
        return await self._pool.invoke(form.after_merge, pair(first, merged))

    async def _map(self, comp: Any, parts: Sequence[Any]) -> list[Any]:
        """Returns the results in the order of the parts."""
        workers: list[_RemoteWorker | None] = [*self._pool.remaining]
        dealt = zip(parts, itertools.cycle(workers or [None]), strict=False)
        calls = (self._pool.invoke(comp, part, worker) for part, worker in dealt)
        return await asyncio.gather(*calls)


def _mergeable_form(comp: Any) -> tff.framework.MergeableCompForm:
    """Compiles a computation with aggregations that do not depend on each other."""
    plain = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
    # That forgets which Python containers results go into.
    plain = tff.framework.ConcreteComputation.with_type(plain, comp.type_signature)
    return tff.backends.native.compile_to_mergeable_comp_form(plain)


def split(arg: Any, type_: tff.Type, max_parts: int) -> list[Any]:
    """Returns an argument's parts: at least one, at most so many.

    Clients stay in their order; parts have about as many examples each.
    """
    lists: list[Sequence[Any]] = []
    _map_values(lists.append, arg, type_)
    sizes = max(([_num_examples(v) for v in values] for values in lists), key=len, default=[])
    centers = np.cumsum(sizes) - np.array(sizes) / 2
    bounds = np.searchsorted(centers, np.arange(max_parts + 1) * sum(sizes) / max_parts)
    slices = [slice(a, b) for a, b in itertools.pairwise(bounds.tolist()) if b > a]
    return [_map_values(operator.itemgetter(part), arg, type_) for part in slices] or [arg]


def _num_examples(value: Any) -> int:
    """Returns what a client's value says it has; 1 where none does, or it is not known."""
    if isinstance(value, Mapping):
        return max(1, int(value.get(NUM_EXAMPLES, 1)))
    if isinstance(value, tuple) and value:  # The value, and the client's state.
        return _num_examples(value[0])
    return 1


def _map_values(function: Callable[[Sequence[Any]], Any], arg: Any, type_: tff.Type) -> Any:
    """Returns an argument with a function's result in the place of each list of clients' values."""
    if isinstance(type_, tff.StructType):
        values = tff.structure.iter_elements(tff.structure.from_container(arg))
        types = tff.structure.iter_elements(type_)
        return tff.structure.Struct(
            [
                (name, _map_values(function, value, value_type))
                for (_, value), (name, value_type) in zip(values, types, strict=True)
            ]
        )
    return function(arg) if _is_at(tff.CLIENTS, type_) and not type_.all_equal else arg


def _is_at(placement: Any, type_: tff.Type) -> bool:
    return isinstance(type_, tff.FederatedType) and type_.placement is placement
