"""TFF's native runtime on a worker of our own.

    with tff_runtime():
        some_tff_computation(...)

TFF keeps its stack of contexts per thread: run computations in the thread that entered
`tff_runtime`. The worker's process is in `process`, the connection in `stub`; `workers` spreads
computations over several.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from motley_tff.backends.tff import stub as stub_lib
from motley_tff.backends.tff.process import WorkerProcess
from motley_tff.core.errors import UserError, WorkerError
from motley_tff.core.lazy import tff

_MAX_EXECUTORS = 10  # As many as TFF keeps.
_JOIN_SECONDS = 10.0
MAX_RESTARTS = 2


@contextlib.contextmanager
def tff_runtime(
    on_restart: Callable[[str], None] = warnings.warn, **worker_options: Any
) -> Iterator["LocalWorker"]:
    """Has this thread's TFF computations run on a worker of our own inside a `with` block.

    The worker is started again when it dies. The context that was in use before is in use again
    afterwards, and the worker is gone.

    Args:
      on_restart: Told, in one line, when the worker died and is started again.
      worker_options: Those of `running_worker`, whose errors are raised, too.

    Raises:
      WorkerError: Out of a computation during which `MAX_RESTARTS` + 1 workers in a row died.
    """
    with (
        contextlib.closing(LocalWorker(on_restart, worker_options)) as worker,
        installed(worker, end=worker.close),
    ):
        yield worker


@contextlib.contextmanager
def running_worker(
    start_timeout_seconds: float = 60.0, **process_options: Any
) -> Iterator[tuple[WorkerProcess, stub_lib.WorkerStub]]:
    """Yields a worker on this machine that answers and its connection; it is gone after the block.

    Takes the options of `process.WorkerProcess`, and raises its errors, and a WorkerError if the
    worker does not answer in time or ends before it does.
    """
    with contextlib.closing(WorkerProcess(**process_options)) as worker:
        stub = stub_lib.connect(worker.target, start_timeout_seconds, worker)
        with contextlib.closing(stub):
            yield worker, stub


@contextlib.contextmanager
def installed(context: tff.framework.AsyncContext, end: Callable[[], None]) -> Iterator[None]:
    """Makes a context this thread's, and the one before it again afterwards.

    Then calls `end`, which makes a computation in flight end.
    """
    thread = LoopThread("tff-context")
    try:
        with tff.framework.get_context_stack().install(_SyncContext(context, thread)):
            yield
    finally:
        end()  # First: the thread waits for a computation in flight.
        thread.close()


def execution_context(
    stub: tff.framework.RemoteExecutorStub,
    compile_: Callable[[tff.Computation], tff.Computation] | None = None,
) -> tff.framework.AsyncExecutionContext:
    """Returns TFF's native execution context on a worker we are connected to.

    `compile_` is by default `compiled`.
    """

    def executor(cardinalities: dict[Any, int]) -> tff.framework.RemoteExecutor:
        remote = tff.framework.RemoteExecutor(stub)
        remote.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
        return remote

    return tff.framework.AsyncExecutionContext(
        executor_fn=_Executors(executor),
        compiler_fn=compile_ or compiled,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )


def compiled(computation: tff.Computation) -> tff.Computation:
    """Compiles for the native runtime; a secure sum becomes its arithmetic without the protocol."""
    computation = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    return tff.backends.native.desugar_and_transform_to_native(computation)


class LocalWorker(tff.framework.AsyncContext):
    """Runs computations on a worker of this machine, and again on the next one if it dies.

    A computation is a function of its arguments, and a worker keeps nothing that a later one needs.
    So a computation that is run again gives the same bytes.
    """

    def __init__(self, on_restart: Callable[[str], None], options: dict[str, Any]):
        """Starts the first worker; see `tff_runtime`."""
        self._on_restart, self._options = on_restart, options
        self._compile = functools.lru_cache(compiled)  # Once for all workers.
        self._closing, self._is_closed = threading.Lock(), False
        self._resources = contextlib.ExitStack()
        self._start()

    @property
    def pid(self) -> int:
        """The process of the present worker."""
        return self._process.pid

    @property
    def port(self) -> int:
        """Where the present worker listens."""
        return self._process.port

    async def invoke(self, comp: Any, arg: Any) -> Any:
        """Returns the result of a computation."""
        number = 0
        while True:
            try:
                if number:
                    self._start()
                return await self._context.invoke(comp, arg)
            except WorkerError as error:
                number += 1
                if self._is_closed or number > MAX_RESTARTS:
                    raise
                count = f"{number} of at most {MAX_RESTARTS} times"
                advice = f"it is started again and repeats the round ({count})"
                loss = UserError(error.where, error.finding, error.expected, advice)
                self._on_restart(loss.line())

    def _start(self) -> None:
        """Starts a worker; what is left of the one before ends."""
        self._resources.close()
        with contextlib.ExitStack() as resources:
            process, stub = resources.enter_context(running_worker(**self._options))
            with self._closing:
                if self._is_closed:
                    state = "closed before it was used"
                    raise WorkerError(str(process), state, advice="open it again")
                self._process = process
                self._context = execution_context(stub, self._compile)
                self._resources = resources.pop_all()

    def close(self) -> None:
        """Ends the worker, also one that is being started. Computations in flight fail."""
        with self._closing:
            self._is_closed = True
        self._resources.close()


class _Executors(tff.framework.ExecutorFactory):
    """One executor per cohort size, the latest few; `build` makes one for {placement: size}.

    TFF's own `ResourceManagingExecutorFactory` forgets the others without a word to the worker,
    which keeps their values and threads: with changing cohort sizes it grows without a limit.
    """

    def __init__(self, build: Callable[[Any], Any]):
        self._build = build
        self._executors: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def create_executor(self, cardinalities: Any) -> Any:
        """Returns the executor for a cohort size, a new one where there is none."""
        key = frozenset(cardinalities.items())
        executor = self._executors.pop(key, None) or self._build(cardinalities)
        self._executors[key] = executor
        if len(self._executors) > _MAX_EXECUTORS:
            self._executors.popitem(last=False)[1].close()
        return executor

    def clean_up_executor(self, cardinalities: Any) -> None:
        """Closes the executor for a cohort size; TFF asks for it after an error."""
        executor = self._executors.pop(frozenset(cardinalities.items()), None)
        if executor is not None:
            executor.close()

    def close(self) -> None:
        while self._executors:
            self._executors.popitem()[1].close()


class LoopThread:
    """A thread whose event loop runs coroutines, and that ends when it is told to."""

    def __init__(self, name: str):
        """Starts it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> "concurrent.futures.Future[Any]":
        """Starts a coroutine; signals interrupt who waits for its result at once."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancels what waits and ends the thread; what computes must have been made to end."""
        if not self._loop.is_closed():
            self.submit(self._cancel_all())
            self._thread.join(_JOIN_SECONDS)

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.stop()


class _SyncContext(tff.framework.SyncContext):
    """Runs an asynchronous context's computations to their end in the calling thread.

    As `tff.framework.SyncExecutionContext`, which cannot be closed: it joins its thread when it is
    collected, and where that happens at interpreter exit or during a computation, Python hangs.
    """

    def __init__(self, context: tff.framework.AsyncContext, thread: LoopThread):
        self._context, self._thread = context, thread

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Returns the result of a computation. Signals interrupt the wait at once."""
        return self._thread.submit(self._context.invoke(comp, arg)).result()
