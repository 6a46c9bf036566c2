"""How many examples of each class each client gets: the label-skewed partitions of the literature.

A partition is said in words, and drawn as a table of counts [clients, classes]:

- `classes:K`: every client owns K classes, every class is owned, all clients have as many examples
  but for rounding (if classes of these sizes can be dealt so), and their classes' shares differ
  (Divi et al. 2021, https://arxiv.org/abs/2107.13173, DS-1);
- `dirichlet:ALPHA`: of each class the shares over clients are drawn from Dirichlet(ALPHA), so that
  totals differ (DS-2; not the form of Hsu et al. 2019, which draws a client's shares of classes);
- `classes:K+lognormal:MU,SIGMA`: client i owns the K classes from the i-th on, and each class is
  dealt to its owners in proportion to draws of a log-normal, ten examples to each at least (DS-3;
  Li et al. 2020).
"""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

from motley_tff.core import errors
from motley_tff.core.errors import UserError

_PARTITION = errors.name("partition")
_NUMBER = r"[^,:+]+"
_FORMS = (
    rf"classes:(?P<classes>{_NUMBER})(\+lognormal:(?P<mu>{_NUMBER}),(?P<sigma>{_NUMBER}))?",
    rf"dirichlet:(?P<alpha>{_NUMBER})",
)
EXPECTED = "natural, iid, classes:K, dirichlet:ALPHA or classes:K+lognormal:MU,SIGMA"
_MAX_DRAWS = 100
# Below the least NumPy draws for minutes, and no client shares a class anyway; far above the most
# its draws are no shares.
_LEAST_ALPHA, _MOST_ALPHA = 0.001, 1e6
# Of each class that it owns a client of DS-3 has as many at least.
_LEAST_OF_A_CLASS = 10
# Rounds of fitting totals, and how near they come: far less than an example.
_FIT_ROUNDS, _FIT_TOLERANCE = 2000, 1e-3


@dataclasses.dataclass(frozen=True)
class LabelPartition:
    """A partition by labels.

    Attributes:
      text: As the user wrote it.
      classes: How many classes a client owns; None of `dirichlet`.
      alpha: The concentration of `dirichlet`.
      lognormal: (mu, sigma) of the draws in proportion to which owners get a class; None for equal
        totals.
    """

    text: str
    classes: int | None = None
    alpha: float | None = None
    lognormal: tuple[float, float] | None = None

    @property
    def least_of_a_class(self) -> int:
        """How many examples an owner has of each of its classes at least."""
        return _LEAST_OF_A_CLASS if self.lognormal is not None else 1


def check(text: str) -> None:
    """Raises a UserError if a text is no partition."""
    if text not in ("natural", "iid"):
        parse(text)


def parse(text: str) -> LabelPartition:
    """Returns the partition that a text such as `classes:2+lognormal:0,2` says; UserError if none,
    or a number makes no sense.
    """
    match = next((m for form in _FORMS if (m := re.fullmatch(form, text))), None)
    if match is None:
        raise UserError(_PARTITION, text, EXPECTED)
    numbers = match.groupdict()
    if "alpha" in numbers:
        alpha = _number(text, numbers["alpha"])
        if not _LEAST_ALPHA <= alpha <= _MOST_ALPHA:
            least = f"{_LEAST_ALPHA}, at which each class has one owner"
            most = f"{_MOST_ALPHA:,.0f}, at which all clients are alike"
            raise UserError(_PARTITION, text, f"an alpha from {least}, to {most}")
        return LabelPartition(text, alpha=alpha)
    classes = _number(text, numbers["classes"])
    if classes < 1 or classes % 1:
        raise UserError(_PARTITION, text, "a whole number of classes of at least 1")
    if numbers["mu"] is None:
        return LabelPartition(text, int(classes))
    mu, sigma = (_number(text, numbers[name]) for name in ("mu", "sigma"))
    if sigma < 0:
        raise UserError(_PARTITION, text, "a sigma of at least 0")
    return LabelPartition(text, int(classes), lognormal=(mu, sigma))


def _number(text: str, written: str) -> float:
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(_PARTITION, text, f"a finite number in place of {written}")
    return number


def draw(
    partition: LabelPartition,
    sizes: np.ndarray,
    num_clients: int,
    stream: np.random.Generator,
    min_examples: int = 1,
    can_be_lower: bool = False,
) -> np.ndarray:
    """Returns how many examples of each class each client gets, int64 [clients, classes].

    Columns sum to the classes' sizes: nothing is left over, nothing is dealt twice. A draw that
    leaves a client fewer than `min_examples` is drawn again, 100 times at most; so are totals that
    should be equal, of which the most equal are taken.

    Args:
      sizes: How many examples each class has, int64 [classes].
      stream: What draws.
      can_be_lower: Whether `min_examples` is the user's, and more than splits need.

    Raises:
      UserError: If clients cannot own so many classes, classes would be nobody's, or no draw gives
        every client enough; it says the smallest and largest totals of the last draw.
    """
    _check(partition, sizes, num_clients)
    # Totals of the others may differ as they like.
    most_spread = len(sizes) if partition.classes and not partition.lognormal else math.inf
    fitting = []
    for _ in range(_MAX_DRAWS):
        counts = _draw(partition, sizes, num_clients, stream)
        totals = counts.sum(axis=1)
        if totals.min() >= min_examples:
            fitting.append(counts)
            if np.ptp(totals) <= most_spread:
                return counts
    if fitting:
        return min(fitting, key=lambda counts: np.ptp(counts.sum(axis=1)))
    lower = f", a lower {errors.name('min_examples')}," if can_be_lower else ""
    last = f"{totals.min()} to {totals.max():,} as in the last of {_MAX_DRAWS} draws"
    expected = f"at least {min_examples} examples for each of {num_clients} clients, not {last}"
    advice = f"give fewer clients{lower} or a less skewed one"
    raise UserError(_PARTITION, partition.text, expected, advice)


def _check(partition: LabelPartition, sizes: np.ndarray, num_clients: int) -> None:
    classes, num_classes, text = partition.classes, len(sizes), partition.text
    if classes is None:
        return
    if classes > num_classes:
        raise UserError(_PARTITION, text, f"at most {num_classes} classes, as there are")
    if partition.lognormal is None:
        owned = classes * num_clients
        owners = np.full(num_classes, math.ceil(owned / num_classes))
    else:
        owned = classes + num_clients - 1  # Neighbours own the same classes but for one.
        owners = _neighbours(num_clients, num_classes, classes).sum(axis=0)
    if owned < num_classes:
        expected = f"owners of all {num_classes} classes, and {num_clients} clients own {owned}"
        raise UserError(_PARTITION, text, expected, "give more clients or classes a client")
    least = partition.least_of_a_class
    if (is_short := sizes < least * owners).any():
        place = int(is_short.argmax())
        each = f"{least} examples of a class for each of {owners[place]} owners"
        advice = "give fewer clients or classes a client"
        raise UserError(_PARTITION, text, f"{each}, not {sizes[place]} in all", advice)


def _draw(
    partition: LabelPartition, sizes: np.ndarray, num_clients: int, stream: np.random.Generator
) -> np.ndarray:
    """Returns counts of one draw."""
    num_classes = len(sizes)
    if partition.alpha is not None:
        shares = stream.dirichlet(np.full(num_clients, partition.alpha), num_classes).T
        return _rounded(shares * sizes, sizes)
    assert partition.classes is not None  # One of the two is given.
    if partition.lognormal is None:
        owned = _balanced_owners(num_clients, num_classes, partition.classes, stream)
        rest = sizes - owned.sum(axis=0)  # An example of each class that a client owns comes first.
        return owned + _rounded(_equal_totals(owned, rest, stream), rest)
    owned = _neighbours(num_clients, num_classes, partition.classes)
    # A class's draws count in proportion alone, so that the largest can be 1, not infinite.
    logarithms = np.where(owned, stream.normal(*partition.lognormal, owned.shape), -np.inf)
    weights = np.exp(logarithms - logarithms.max(axis=0))
    least = np.where(owned, _LEAST_OF_A_CLASS, 0)
    rest = sizes - least.sum(axis=0)
    return least + _rounded(weights / weights.sum(axis=0) * rest, rest)


def _neighbours(num_clients: int, num_classes: int, classes: int) -> np.ndarray:
    """Returns who owns which class, bool [clients, classes]: client i those from the i-th on."""
    places = (np.arange(num_clients)[:, None] + np.arange(classes)) % num_classes
    owned = np.zeros((num_clients, num_classes), bool)
    np.put_along_axis(owned, places, True, axis=1)
    return owned


def _balanced_owners(
    num_clients: int, num_classes: int, classes: int, stream: np.random.Generator
) -> np.ndarray:
    """Returns who owns which class, bool [clients, classes]: each client `classes`, each class as
    many clients as the others, or one more.
    """
    owned = np.zeros((num_clients, num_classes), bool)
    owners = np.zeros(num_classes, np.int64)
    for client in stream.permutation(num_clients):
        # Those that fewest own, in a drawn order where as many do.
        order = np.lexsort((stream.random(num_classes), owners))
        owned[client, order[:classes]] = True
        owners[order[:classes]] += 1
    return owned


def _equal_totals(owned: np.ndarray, sizes: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Returns drawn shares of classes, fitted to the classes' sizes and to totals that are as equal
    as these owners can have (iterative proportional fitting).
    """
    table = np.where(owned, stream.uniform(0.1, 1.0, owned.shape), 0.0)
    total = sizes.sum() / len(owned)
    for _ in range(_FIT_ROUNDS):
        before = table
        table = table * _ratio(np.full(len(owned), total), table.sum(axis=1))[:, None]
        table = table * _ratio(sizes, table.sum(axis=0))
        if np.abs(table - before).max() < _FIT_TOLERANCE:
            break
    return table


def _ratio(targets: np.ndarray, totals: np.ndarray) -> np.ndarray:
    return np.divide(targets, totals, out=np.zeros(len(totals)), where=totals > 0)


def _rounded(table: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns a table of which each column sums to its size as whole numbers, by the largest
    remainders.
    """
    whole = np.floor(table).astype(np.int64)
    for place, size in enumerate(sizes):
        missing = int(size - whole[:, place].sum())
        order = np.argsort(whole[:, place] - table[:, place], kind="stable")
        whole[order[:missing], place] += 1
    return whole


def deal(counts: np.ndarray, labels: np.ndarray, stream: np.random.Generator) -> list[np.ndarray]:
    """Returns each client's rows, int64 in a drawn order, of `labels` int [n] in 0..classes - 1 and
    the table that `draw` returned for them.
    """
    hands: list[list[np.ndarray]] = [[] for _ in counts]
    for label, column in enumerate(counts.T):
        rows = stream.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(rows, np.cumsum(column)[:-1]), strict=True):
            hand.append(part)
    return [stream.permutation(np.concatenate(hand)) for hand in hands]
