"""An LSTM layer for the CPU: Keras's numbers, with fewer and larger matrix products.

Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; gates in Keras's order:
input, forget, cell, output. For each sequence x_t, with h_0 = c_0 = 0,

    i, f, o = sigmoid(x_t W + h_t-1 R + b)      g = tanh(x_t W + h_t-1 R + b)
    c_t = f c_t-1 + i g                         h_t = o tanh(c_t)

Keras's layer multiplies by W at each step, and its gradient adds up that of R (7 MB for 670 units)
at each step. Here x W of all steps is one product, and so is each weight's gradient. Steps are
written out rather than looped over: the time is a number when the graph is made.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class UnitForgetBias(tf.keras.initializers.Initializer):
    """Ones for the forget gate, zeros for the others: Keras's default for an LSTM.

    Keras makes it a closure, which a functional model cannot call for itself.
    """

    def __call__(self, shape: Sequence[int], dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        """Returns the biases [4 * units] in Keras's order: input, forget, cell, output."""
        units = shape[0] // 4
        return tf.concat(
            [tf.zeros([units], dtype), tf.ones([units], dtype), tf.zeros([2 * units], dtype)], 0
        )


class Lstm(tf.keras.layers.Layer):
    """Outputs [batch, time, units] of inputs [batch, time, dim].

    Its weights are those of `tf.keras.layers.LSTM`, in order, names, shapes and initializers.
    """

    def __init__(self, units: int, name: str):
        super().__init__(name=name)
        self._units = units

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates kernel [dim, 4 units], recurrent kernel [units, 4 units], bias [4 units]."""
        width = 4 * self._units
        with tf.name_scope("lstm_cell"):
            self.kernel = self.add_weight(
                "kernel", [input_shape[-1], width], initializer="glorot_uniform"
            )
            self.recurrent_kernel = self.add_weight(
                "recurrent_kernel", [self._units, width], initializer="orthogonal"
            )
            self.bias = self.add_weight("bias", [width], initializer=UnitForgetBias())

    def call(self, x: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Returns each step's output; see `lstm`."""
        weights = (self.kernel, self.recurrent_kernel, self.bias)
        kernel, recurrent, bias = map(tf.convert_to_tensor, weights)
        return lstm(x, kernel, recurrent, bias, mask)


class _Step(NamedTuple):
    """What the gradient needs of a step; all [batch, units] but `is_real`, bool [batch, 1]."""

    input_gate: tf.Tensor
    forget_gate: tf.Tensor
    candidate: tf.Tensor
    output_gate: tf.Tensor
    cell_before: tf.Tensor
    tanh_cell: tf.Tensor
    is_real: tf.Tensor | None


def lstm(
    x: tf.Tensor,
    kernel: tf.Tensor,
    recurrent: tf.Tensor,
    bias: tf.Tensor,
    mask: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns an LSTM's outputs [batch, time, units]. It has gradients, but no second
    ones, and `tf.vectorized_map` cannot stack it.

    Args:
      x: Inputs [batch, time, dim], the time known to the graph.
      kernel: W, [dim, 4 units].
      recurrent: R, [units, 4 units].
      bias: b, [4 units].
      mask: bool [batch, time]; where it is false a step changes nothing, as in Keras. None stands
        for true everywhere.
    """
    batch, time, units = tf.shape(x)[0], x.shape[1], recurrent.shape[0]
    is_real = [None] * time if mask is None else tf.unstack(mask[:, :, tf.newaxis], axis=1)

    @tf.custom_gradient
    def outputs(rows, kernel, recurrent, bias):
        sums = tf.split(tf.nn.bias_add(tf.matmul(rows, kernel), bias), time)
        h = c = tf.zeros([batch, units], x.dtype)
        before, steps, after = [], [], []
        for t in range(time):
            before.append(h)
            # The first step has no h: it saves a product here and one in the gradient.
            step, h, c = _forward(
                sums[t] + tf.matmul(h, recurrent) if t else sums[t], h, c, is_real[t]
            )
            steps.append(step)
            after.append(h)

        def gradients(of_outputs):
            of_sums = tf.concat(_backward(tf.unstack(of_outputs), steps, recurrent), 0)
            products = (
                tf.matmul(of_sums, kernel, transpose_b=True),
                tf.matmul(rows, of_sums, transpose_a=True),
                tf.matmul(tf.concat(before, 0), of_sums, transpose_a=True),
                tf.reduce_sum(of_sums, 0),
            )
            message = "an LSTM's gradient has no gradient here; use tf.keras.layers.LSTM"
            return [tf.raw_ops.PreventGradient(input=p, message=message) for p in products]

        return tf.stack(after), gradients

    rows = tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, x.shape[2]])
    return tf.transpose(outputs(rows, kernel, recurrent, bias), [1, 0, 2])


def _forward(
    sums: tf.Tensor, h: tf.Tensor, c: tf.Tensor, is_real: tf.Tensor | None
) -> tuple[_Step, tf.Tensor, tf.Tensor]:
    """Returns a step from x_t W + h R + b [batch, 4 units], and h and c after it."""
    units = c.shape[1]
    inputs_and_forgets, candidates, outputs = tf.split(sums, [2 * units, units, units], 1)
    input_gate, forget_gate = tf.split(tf.sigmoid(inputs_and_forgets), 2, 1)
    candidate, output_gate = tf.tanh(candidates), tf.sigmoid(outputs)
    cell = forget_gate * c + input_gate * candidate
    tanh_cell = tf.tanh(cell)
    step = _Step(input_gate, forget_gate, candidate, output_gate, c, tanh_cell, is_real)
    output = output_gate * tanh_cell
    if is_real is None:
        return step, output, cell
    return step, tf.where(is_real, output, h), tf.where(is_real, cell, c)


def _backward(
    of_outputs: Sequence[tf.Tensor], steps: Sequence[_Step], recurrent: tf.Tensor
) -> list[tf.Tensor]:
    """Returns the gradients of each step's sums [batch, 4 units] from those of the outputs."""
    of_h = of_c = tf.zeros_like(of_outputs[0])
    of_sums: list[tf.Tensor] = []
    for t in reversed(range(len(steps))):
        step = steps[t]
        of_h += of_outputs[t]
        of_gates, of_c_before = _step_backward(step, of_h, of_c)
        # R times the transposed is a fifth faster than the product with R transposed.
        of_h_before = tf.transpose(tf.matmul(recurrent, tf.transpose(of_gates))) if t else of_h
        if step.is_real is not None:
            of_gates = tf.where(step.is_real, of_gates, 0.0)
            of_h_before = tf.where(step.is_real, of_h_before, of_h)
            of_c_before = tf.where(step.is_real, of_c_before, of_c)
        of_sums.append(of_gates)
        of_h, of_c = of_h_before, of_c_before
    return of_sums[::-1]


def _step_backward(step: _Step, of_h: tf.Tensor, of_c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradients of a step's sums and of the cell before it."""
    i, f, g, o = step.input_gate, step.forget_gate, step.candidate, step.output_gate
    of_cell = of_c + of_h * o * (1.0 - step.tanh_cell * step.tanh_cell)
    of_gates = [
        of_cell * g * i * (1.0 - i),
        of_cell * step.cell_before * f * (1.0 - f),
        of_cell * i * (1.0 - g * g),
        of_h * step.tanh_cell * o * (1.0 - o),
    ]
    return tf.concat(of_gates, 1), of_cell * f
