"""BatchNormalization as a function: its moving statistics come in as weights and go out as values.

Ioffe and Szegedy 2015 (https://arxiv.org/abs/1502.03167), as Keras computes it: in training a batch
is normalized by its own mean and variance, which draw the moving ones near (m <- momentum m + (1 -
momentum) batch's; of pictures the variance is then unbiased), else by the moving ones. A batch of
one row has the variance 0: its outputs are the shifts alone.
"""

from typing import Any

from motley_tff.core.lazy import tf


def is_plain(layer: Any) -> bool:
    """Returns whether a layer is a BatchNormalization that can be replaced."""
    if type(layer) is not tf.keras.layers.BatchNormalization:
        return False
    return not (layer.renorm or layer.virtual_batch_size or layer.synchronized)


class Statistics:
    """The moving statistics of some layers, which are BatchNormalization's, in a model's calls."""

    def __init__(self, layers: list[Any]):
        self._moments: dict[int, tuple[Any, Any]] = {}
        for layer in layers:
            layer.call = self._call_of(layer)

    @property
    def new(self) -> list[Any]:
        """Moving mean and variance after training on a batch, of one layer after the other in the
        order of their first calls.
        """
        return [moment for moments in self._moments.values() for moment in moments]

    def _call_of(self, layer: Any) -> Any:
        def call(inputs: Any, training: bool = False, mask: Any = None) -> Any:
            if mask is not None or list(layer.axis) != [inputs.shape.rank - 1]:
                raise ValueError("BatchNormalization is over the last axis here, without a mask")
            moving = self._moments.get(id(layer), (layer.moving_mean, layer.moving_variance))
            moments = moving
            # A Sequential first calls layers in a graph that it throws away, for shapes' sake.
            graph = "" if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
            if training and getattr(graph, "name", "") != f"{layer.name}_scratch_graph":
                moments = tf.nn.moments(inputs, list(range(inputs.shape.rank - 1)))
                self._moments[id(layer)] = _moved(layer, moving, moments, inputs)
            values = *moments, layer.beta, layer.gamma
            return tf.nn.batch_normalization(inputs, *values, layer.epsilon)

        return call


def _moved(layer: Any, moving: Any, moments: Any, inputs: Any) -> tuple[Any, Any]:
    mean, variance = moments
    if layer.fused:
        count = tf.cast(tf.size(inputs) / tf.size(mean), tf.float32)
        variance *= count / tf.maximum(count - 1.0, 1.0)
    pairs = zip(moving, (mean, variance), strict=True)
    new_mean, new_variance = (m - (1.0 - layer.momentum) * (m - batch) for m, batch in pairs)
    return new_mean, new_variance
