"""Which backend runs an experiment, and why."""

from motley_tff.core import errors, robust_mean
from motley_tff.core.errors import UserError
from motley_tff.core.task import Task

# A client's stack holds its weights several times: incoming, current, gradients, optimizer state.
_COPIES_OF_WEIGHTS = 6
# Above this, `sequential` is faster: on two cores, 100 silos of digits and batches of 32,
# perceptrons of 118,282 weights take as long either way, of 269,322 1.7 times as long stacked.
MOST_STACKED_WEIGHTS = 150_000


def choose(
    requested: str,
    aggregator: str,
    task: Task,
    cohort_changes: bool,
    memory_limit_bytes: float,
    has_workers: bool = False,
) -> tuple[str, str]:
    """Returns (name of a backend, why).

    Args:
      requested: `auto`, or a backend's name.
      aggregator: `mean`, one of `robust_mean`, or one of TFF's; a requested backend that does not
        have it is a UserError.
      cohort_changes: Whether rounds have different clients.
      memory_limit_bytes: What stacked clients may take.
      has_workers: Whether TFF workers are given; `requested` is then `auto` or `tff`.
    """
    if aggregator in robust_mean.NAMES and requested != "tff" and not has_workers:
        if requested == "vectorized":
            named = f"{errors.name('aggregator')}={aggregator}"
            expected = f"sequential, tff or auto, as {named} takes updates one by one"
            raise UserError(errors.name("backend"), requested, expected)
        return "sequential", f"--aggregator={aggregator} takes clients' updates one by one"
    if aggregator != "mean" and requested not in ("auto", "tff"):
        expected = f"tff or auto, as {errors.name('aggregator')}={aggregator} is one of TFF's"
        raise UserError(errors.name("backend"), requested, expected)
    if has_workers:
        return "tff", "on --tff_workers"
    if requested in ("tff", "sequential"):
        return requested, "asked for by --backend"
    if aggregator != "mean":
        return "tff", f"--aggregator={aggregator} is one of TFF's"
    obstacle = why_not_vectorized(task, memory_limit_bytes)
    if requested == "vectorized":
        if obstacle:
            return "sequential", f"vectorized was asked for, but {obstacle}"
        return "vectorized", "asked for by --backend"
    if obstacle is None and cohort_changes:
        obstacle = "every round has other clients, each of which would be compiled for"
    if obstacle is None and task.model.num_weights > MOST_STACKED_WEIGHTS:
        obstacle = f"stacked, a model of {task.model.num_weights:,} weights is slower"
    if obstacle:
        return "sequential", f"not vectorized: {obstacle}"
    return "vectorized", "a small dense model whose clients fit in memory"


def why_not_vectorized(task: Task, memory_limit_bytes: float) -> str | None:
    """Returns what keeps a task's clients from being stacked, or None."""
    if any(task.model.is_statistic):
        return "padding would count in its batch statistics"
    if not task.model.vectorizes:
        return "it would not speed up this model"
    populations = {id(clients): clients for clients in task.splits.values()}.values()
    sizes = [clients.nbytes for clients in populations]
    if None in sizes:
        return "its clients are loaded by id"
    needed = sum(size for size in sizes if size is not None) + stacked_weights_bytes(task)
    if needed > memory_limit_bytes:
        return (
            f"its stacked clients take {needed / 1e9:.2g} GB, more than "
            f"--memory_limit_gb={memory_limit_bytes / 1e9:g}"
        )
    return None


def stacked_weights_bytes(task: Task) -> int:
    """Returns what the stacked weights of a run take at most."""
    largest = max(map(len, task.splits.values()))
    return largest * task.model.num_weights * 4 * _COPIES_OF_WEIGHTS
