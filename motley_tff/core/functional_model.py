"""A Keras model as a pure function of its weights.

Keras creates variables in the order of first use. Under a creator scope the given weights are
handed out in that order instead, so `predict` holds no state and can run in a TFF computation, in
a `tf.function`, under `tf.vectorized_map` and XLA. Two rules make that work: no `tf.keras.Input`
and no `input_shape` (inside TFF their placeholders are never fed), and no stateful dropout: `call`
takes a `key` (see `tensor_random.dropout`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motley_tff.core import random_streams, rows
from motley_tff.core.lazy import tf

Weights = tuple["tf.Tensor", ...]


@dataclasses.dataclass(frozen=True)
class FunctionalModel:
    """Pure functions around a Keras architecture.

    Attributes:
      build: Returns a new Keras model; its `call` takes `(x, training, key)`.
      names: Of each weight, in creation order, as in the next three.
      shapes: Of each weight.
      is_last_layer: For each weight, whether "fine-tune the last layer" trains it.
      initializers: For each weight, the Keras initializer that draws it.
      vectorizes: Whether clients are faster stacked than one by one: small dense models. An
        architecture says so with a class attribute of this name.
      takes_rows: Whether it takes weights of several clients, [rows, ...], and inputs [rows, batch,
        ...]. A class says so likewise, for itself.
    """

    build: Callable[[], tf.keras.Model]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    is_last_layer: tuple[bool, ...]
    initializers: tuple[Any, ...]
    vectorizes: bool = False
    takes_rows: bool = False

    @property
    def num_weights(self) -> int:
        """Number of trainable scalars."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def last_layers(self, count: int) -> tuple[bool, ...]:
        """Returns for each weight whether it is in the last `count` layers, in creation order; the
        last one is `is_last_layer`'s. ValueError if there are fewer.
        """
        layers = [name.rpartition("/")[0] for name in self.names]
        others = (l_ for l_, is_last in zip(layers, self.is_last_layer, strict=True) if not is_last)
        before = list(dict.fromkeys(others))
        if count > 1 + len(before):
            raise ValueError(f"The model has {1 + len(before)} layers with weights, not {count}.")
        chosen = before[len(before) - max(0, count - 1) :]
        return tuple(
            bool(count) and (is_last or layer in chosen)
            for layer, is_last in zip(layers, self.is_last_layer, strict=True)
        )

    def initial_weights(self, base_random_seed: int, index: int = 0) -> tuple[np.ndarray, ...]:
        """Draws weights with the architecture's initializers from a stream of their own.

        `index` says which of several models of one run (clusters, ensembles).
        """
        stream = random_streams.generator(base_random_seed, "initial_weights", index)
        seeds = stream.integers(1, 2**31 - 1, size=len(self.shapes))
        return tuple(
            _draw(initializer, shape, int(seed))
            for initializer, shape, seed in zip(self.initializers, self.shapes, seeds, strict=True)
        )

    def apply(self, weights: Sequence[tf.Tensor], method: Callable[[tf.keras.Model], Any]) -> Any:
        """Returns `method(model)` for a model that has the given weights."""
        handed_out = iter(weights)

        def creator(next_creator, **kwargs):
            # Keras asks for its variables in the order of first use.
            return next(handed_out) if kwargs.get("trainable", True) else next_creator(**kwargs)

        with tf.variable_creator_scope(creator):
            return method(self.build())

    def predict(self, weights: Sequence[tf.Tensor], x: Any, training: bool, key: tf.Tensor) -> Any:
        """Returns the model's outputs (logits, or a regression's prediction) for inputs `x`."""

        def outputs(weights, x, key):
            return self.apply(weights, lambda model: model(x, training=training, key=key))

        if self.takes_rows:
            return outputs(weights, x, key)
        return rows.each(outputs, tuple(weights), x, key)

    def embed(self, weights: Sequence[tf.Tensor], x: Any) -> tf.Tensor:
        """Returns the representation that feeds the last layer, for kNN-Per."""
        return self.apply(weights, lambda model: model.embed(x))


def _draw(initializer: Any, shape: tuple[int, ...], seed: int) -> np.ndarray:
    # Keras's own LSTM makes its bias by a function, which draws nothing.
    config = initializer.get_config() if hasattr(initializer, "get_config") else {}
    if "seed" in config:
        initializer = type(initializer).from_config({**config, "seed": seed})
    return np.asarray(initializer(shape, dtype=tf.float32))


def from_keras(build: Callable[[], tf.keras.Model], example_input: Any) -> FunctionalModel:
    """Wraps a Keras architecture.

    Args:
      build: A no-argument constructor of a subclassed or `Sequential` model whose `call` takes
        `(x, training, key)` and whose `last_layer` property names the layers that "last layer"
        means (a tuple of Keras layers).
      example_input: A batch of inputs of the right shapes and types.

    Raises:
      ValueError: If the model has weights that are not trainable (batch statistics do not fit
        federated averaging), or was built before its first call.
    """
    initializers: list[Any] = []
    # In the order in which `apply` hands weights out; Keras lists them by attribute.
    variables: list[tf.Variable] = []

    def creator(next_creator, **kwargs):
        variable = next_creator(**kwargs)
        if kwargs.get("trainable", True):
            initializers.append(_initializer_of(kwargs.get("initial_value")))
            variables.append(variable)
        return variable

    with tf.variable_creator_scope(creator):
        model = build()
        model(example_input, training=False, key=tf.zeros([2], tf.int32))
    if model.non_trainable_variables:
        names = [v.name for v in model.non_trainable_variables]
        raise ValueError(f"A functional model has trainable weights only; found {names}.")
    last = {id(v) for layer in model.last_layer for v in layer.trainable_variables}
    return FunctionalModel(
        build=build,
        names=tuple(v.name for v in variables),
        shapes=tuple(tuple(v.shape) for v in variables),
        is_last_layer=tuple(id(v) in last for v in variables),
        initializers=tuple(initializers),
        vectorizes=getattr(model, "vectorizes", False),
        takes_rows=vars(type(model)).get("takes_rows", False),
    )


def _initializer_of(initial_value: Any) -> Any:
    """Returns the initializer object inside the `functools.partial` that Keras passes on."""
    if isinstance(initial_value, functools.partial):
        return getattr(initial_value.func, "__self__", initial_value.func)
    raise ValueError(f"Expected a Keras initializer behind each weight, found {initial_value!r}.")
