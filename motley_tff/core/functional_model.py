"""A Keras model as a pure function of its weights.

Keras creates variables in the order of first use. Under a creator scope the given weights are
handed out in that order instead, so `predict` holds no state and can run in a TFF computation, in
a `tf.function`, under `tf.vectorized_map` and XLA. Two rules make that work: no `tf.keras.Input`
and no `input_shape` (inside TFF their placeholders are never fed), and no stateful dropout: `call`
takes a `key` (see `tensor_random.dropout`).

The moving mean and variance of a BatchNormalization are weights, too, which are not trained: what
a training step makes of them is collected by `new_statistics`.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from motley_tff.core import layer_groups, random_streams, rows
from motley_tff.core.layer_groups import Cut, Features
from motley_tff.core.lazy import tf

Weights = tuple["tf.Tensor", ...]
_new_statistics: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar(
    "new_statistics", default=None
)


@contextlib.contextmanager
def new_statistics() -> Iterator[list[Any]]:
    """Yields a list to which a model that trains on a batch inside appends its moving statistics,
    as they then are, in creation order.
    """
    collected: list[Any] = []
    token = _new_statistics.set(collected)
    try:
        yield collected
    finally:
        _new_statistics.reset(token)


@dataclasses.dataclass(frozen=True)
class FunctionalModel:
    """Pure functions around a Keras architecture.

    Attributes:
      build: Returns a new Keras model; its `call` takes `(x, training, key)`.
      names: Of each weight, in creation order, as in all that have a value for each.
      shapes: Of each weight.
      is_last_layer: For each weight, whether "fine-tune the last layer" trains it.
      initializers: For each weight, the Keras initializer that draws it.
      vectorizes: Whether clients are faster stacked than one by one: small dense models. An
        architecture says so with a class attribute of this name.
      inputs: The type of a batch of inputs [None, ...], or None if they are no single tensor.
      takes_rows: Whether it takes weights of several clients, [rows, ...], and inputs [rows, batch,
        ...]. A class says so likewise, for itself.
      is_norm: For each weight, whether it is a normalization layer's: one of Keras's, or one whose
        class has `is_norm = True`. Empty if no layer is one.
      is_statistic: For each weight, whether it is a moving mean or variance, which is not trained.
        Empty if none is.
    """

    build: Callable[[], tf.keras.Model]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    is_last_layer: tuple[bool, ...]
    initializers: tuple[Any, ...]
    vectorizes: bool = False
    inputs: tf.TensorSpec | None = None
    takes_rows: bool = False
    is_norm: tuple[bool, ...] = ()
    is_statistic: tuple[bool, ...] = ()

    @property
    def num_weights(self) -> int:
        """Number of scalars."""
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

    def apply(self, weights: Iterable[tf.Tensor], method: Callable[[tf.keras.Model], Any]) -> Any:
        """Returns `method(model)` for a model that has the given weights."""
        handed_out = iter(weights)

        def creator(next_creator, **kwargs):
            # Keras asks for its variables in the order of first use.
            return next(handed_out) if _is_weight(kwargs) else next_creator(**kwargs)

        with tf.variable_creator_scope(creator):
            model = self.build()
            result = method(model)
        if (collected := _new_statistics.get()) is not None:
            collected.extend(getattr(model, "new_statistics", ()))
        return result

    def predict(self, weights: Sequence[tf.Tensor], x: Any, training: bool, key: tf.Tensor) -> Any:
        """Returns the model's outputs (logits, or a regression's prediction) for inputs `x`, or for
        the `Features` of inputs.
        """

        def outputs(weights, x, key):
            if not isinstance(x, Features):
                return self.apply(weights, lambda model: model(x, training=training, key=key))
            groups_after = functools.partial(_outputs_after, x, training, key)
            return self.apply(weights[x.cut.num_weights :], groups_after)

        if self.takes_rows:
            return outputs(weights, x, key)
        return rows.each(outputs, tuple(weights), x, key)

    def features(self, weights: Sequence[tf.Tensor], x: Any, cut: Cut, training: bool) -> tf.Tensor:
        """Returns what the layers before a cut make of inputs; no layer before it may draw."""

        def values(model):
            return layer_groups.run(model.layer_groups[: cut.num_groups], x, training, None)

        return self.apply(weights, values)

    @functools.cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """Where it can be cut, from the inputs on: nowhere without the property `layer_groups`."""
        cuts = []

        def trace(x, *weights):
            left = iter(weights)

            def count(model):
                h, draws = x, False
                for number, group in enumerate(getattr(model, "layer_groups", ()), 1):
                    h, draws = group.function(h, False, None), draws or group.draws
                    if hasattr(h, "_keras_mask"):  # Features would lose it.
                        break
                    used, shape = len(weights) - operator.length_hint(left), tuple(h.shape[1:])
                    if None not in shape and h.dtype == tf.float32:
                        cuts.append(Cut(number, used, draws, shape))

            self.apply(left, count)

        if self.inputs is not None:
            specs = [tf.TensorSpec(shape, tf.float32) for shape in self.shapes]
            with rows.stacked(None):  # Whoever asks may be tracing a stack.
                tf.function(trace, autograph=False).get_concrete_function(self.inputs, *specs)
        return tuple(cuts)

    @functools.cached_property
    def cut_before_tokens(self) -> Cut | None:
        """The first cut of features of tokens, [time, dim], with dense layers alone behind it; None
        if there is none, or a layer before it draws.
        """
        cuts = [cut for cut in self.cuts if len(cut.shape) == 2 and not cut.draws]
        groups = self.build().layer_groups if cuts else ()
        dense = (c for c in cuts[:-1] if all(g.is_dense for g in groups[c.num_groups :]))
        return next(dense, None)

    def embed(self, weights: Sequence[tf.Tensor], x: Any) -> tf.Tensor:
        """Returns the representation that feeds the last layer, for kNN-Per."""
        return self.apply(weights, lambda model: model.embed(x))

    def embed_and_predict(
        self, weights: Sequence[tf.Tensor], x: Any, key: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `embed` and `predict`; by an architecture's `after_embed`, the outputs are those
        of the representation, which is then computed once.
        """

        def both(model):
            h = model.embed(x)
            return h, model.after_embed(h) if hasattr(model, "after_embed") else None

        embeddings, outputs = self.apply(weights, both)
        if outputs is None:
            outputs = self.predict(weights, x, False, key)
        return embeddings, outputs


def _outputs_after(features: Features, training: bool, key: tf.Tensor, model: Any) -> Any:
    """Returns what a model's layers after a cut make of features."""
    groups = model.layer_groups[features.cut.num_groups :]
    return layer_groups.run(groups, features.values, training, key)


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
      ValueError: If the model has `non_trainable_variables` (moving statistics, too, unless it
        leaves them out there and has `new_statistics`), or was built before its first call.
    """
    initializers: list[Any] = []
    is_statistic: list[bool] = []
    # In the order in which `apply` hands weights out; Keras lists them by attribute.
    variables: list[tf.Variable] = []

    def creator(next_creator, **kwargs):
        variable = next_creator(**kwargs)
        if _is_weight(kwargs):
            is_statistic.append(not kwargs.get("trainable", True))
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
    norms = {id(v) for layer in filter(_normalizes, model.submodules) for v in layer.variables}
    return FunctionalModel(
        build=build,
        names=tuple(v.name for v in variables),
        shapes=tuple(tuple(v.shape) for v in variables),
        is_last_layer=tuple(id(v) in last for v in variables),
        initializers=tuple(initializers),
        vectorizes=getattr(model, "vectorizes", False),
        inputs=_type_of(example_input),
        takes_rows=vars(type(model)).get("takes_rows", False),
        is_norm=tuple(id(v) in norms for v in variables) if norms else (),
        is_statistic=tuple(is_statistic) if any(is_statistic) else (),
    )


def _is_weight(kwargs: Mapping[str, Any]) -> bool:
    # Keras also makes counters, which are integers.
    return kwargs.get("trainable", True) or kwargs.get("dtype") == tf.float32


def _normalizes(layer: Any) -> bool:
    layers = tf.keras.layers
    kinds = layers.BatchNormalization, layers.GroupNormalization, layers.LayerNormalization
    return getattr(layer, "is_norm", isinstance(layer, kinds))


def _type_of(inputs: Any) -> tf.TensorSpec | None:
    if isinstance(inputs, tuple):
        return None
    return tf.TensorSpec([None, *inputs.shape[1:]], inputs.dtype)


def _initializer_of(initial_value: Any) -> Any:
    """Returns the initializer object inside the `functools.partial` that Keras passes on."""
    if isinstance(initial_value, functools.partial):
        return getattr(initial_value.func, "__self__", initial_value.func)
    raise ValueError(f"Expected a Keras initializer behind each weight, found {initial_value!r}.")
