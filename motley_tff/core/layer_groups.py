"""A model as groups of layers, one after the other, so that it can be cut between two of them.

What the groups before a cut make of an example, its *features*, stays the same while their weights
do: it can be computed once and given to the others in place of the example.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class LayerGroup(NamedTuple):
    """Some layers of a model: `(h, training, key) -> h`.

    Attributes:
      draws: Whether it makes random choices when training (dropout).
      is_dense: Whether it takes each place of `h` by itself, as a dense layer does each token.
    """

    function: Callable[[Any, bool, Any], Any]
    draws: bool = False
    is_dense: bool = False


class Cut(NamedTuple):
    """A place between two groups: how many groups and weights are before it, whether one of those
    groups draws, and the shape of an example's features there.
    """

    num_groups: int
    num_weights: int
    draws: bool
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Features:
    """What the layers before a cut made of a batch of examples, float32 [batch, ...]: a model
    predicts from them as it does from the examples.
    """

    values: Any
    cut: Cut


def run(groups: Sequence[LayerGroup], h: Any, training: bool, key: Any) -> Any:
    """Returns what groups of layers make of `h`, one after the other."""
    for group in groups:
        h = group.function(h, training, key)
    return h


def last_cut(cuts: Sequence[Cut], is_trained: Sequence[bool], training: bool) -> Cut | None:
    """Returns the last cut with weights before it of which none is trained, and, for features to
    train on, without random choices before it; None if there is none.
    """
    fitting = (
        cut
        for cut in cuts
        if cut.num_weights
        and not any(is_trained[: cut.num_weights])
        and not (training and cut.draws)
    )
    return max(fitting, default=None)
