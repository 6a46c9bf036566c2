"""An LSTM layer for the CPU: Keras's numbers, with fewer and larger matrix products.

Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; gates in Keras's order:
input, forget, cell, output. For each sequence x_t, with h_0 = c_0 = 0,

    i, f, o = sigmoid(x_t W + h_t-1 R + b)      g = tanh(x_t W + h_t-1 R + b)
    c_t = f c_t-1 + i g                         h_t = o tanh(c_t)

Keras's layer multiplies by W at each step, and its gradient adds up that of R (7 MB for 670 units)
at each step. Here x W of all steps is one product, and so is each weight's gradient. What is left
of a step is looped over: written out, 80 steps of two layers took four seconds to trace. Where
Keras's layer takes 60 ms and this one 35, TensorFlow's `BlockLSTM` takes 89.
"""

from collections.abc import Callable, Sequence
from typing import Any

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

    def __init__(self, units: int, name: str, kernel_initializer: str = "glorot_uniform"):
        super().__init__(name=name)
        self._units, self._kernel_initializer = units, kernel_initializer

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates kernel [dim, 4 units], recurrent kernel [units, 4 units], bias [4 units]."""
        width = 4 * self._units
        with tf.name_scope("lstm_cell"):
            self.kernel = self.add_weight(
                "kernel", [input_shape[-1], width], initializer=self._kernel_initializer
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
    time, units = x.shape[1], recurrent.shape[0]
    is_real = None if mask is None else tf.transpose(mask)[:, :, tf.newaxis]

    @tf.custom_gradient
    def outputs(rows, kernel, recurrent, bias):
        sums = tf.reshape(tf.nn.bias_add(tf.matmul(rows, kernel), bias), [time, -1, 4 * units])
        steps = _forward(sums, recurrent, is_real)
        hs = steps[:, :, 6 * units :]

        def gradients(of_outputs):
            of_sums = tf.reshape(_backward(of_outputs, steps, recurrent, is_real), [-1, 4 * units])
            before = tf.concat([tf.zeros_like(hs[:1]), hs[:-1]], 0)
            products = (
                tf.matmul(of_sums, kernel, transpose_b=True),
                tf.matmul(rows, of_sums, transpose_a=True),
                tf.matmul(tf.reshape(before, [-1, units]), of_sums, transpose_a=True),
                tf.reduce_sum(of_sums, 0),
            )
            message = "an LSTM's gradient has no gradient here; use tf.keras.layers.LSTM"
            return [tf.raw_ops.PreventGradient(input=p, message=message) for p in products]

        return hs, gradients

    rows = tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, x.shape[2]])
    return tf.transpose(outputs(rows, kernel, recurrent, bias), [1, 0, 2])


def _forward(sums: tf.Tensor, recurrent: tf.Tensor, is_real: tf.Tensor | None) -> tf.Tensor:
    """Returns what is known of each step, [time, batch, 7 units]: the gates input, forget, cell and
    output, tanh c, the c before it, and h; from x_t W + b [time, batch, 4 units].
    """
    time, units = sums.shape[0], recurrent.shape[0]
    zeros = tf.zeros_like(sums[0, :, :units])

    def step(t, h, c, steps):
        sums_of_gates = tf.split(sums[t] + tf.matmul(h, recurrent), [2 * units, units, units], 1)
        inputs_and_forgets, output_gate = map(tf.sigmoid, (sums_of_gates[0], sums_of_gates[2]))
        input_gate, forget_gate = tf.split(inputs_and_forgets, 2, 1)
        candidate = tf.tanh(sums_of_gates[1])
        cell = forget_gate * c + input_gate * candidate
        tanh_cell = tf.tanh(cell)
        output = output_gate * tanh_cell
        if is_real is not None:
            output, cell = tf.where(is_real[t], output, h), tf.where(is_real[t], cell, c)
        known = [inputs_and_forgets, candidate, output_gate, tanh_cell, c, output]
        return t + 1, output, cell, steps.write(t, tf.concat(known, 1))

    steps = _loop(0, lambda t: t < time, step, (zeros, zeros), time)
    return tf.ensure_shape(steps, [time, None, 7 * units])


def _backward(
    of_outputs: tf.Tensor, steps: tf.Tensor, recurrent: tf.Tensor, is_real: tf.Tensor | None
) -> tf.Tensor:
    """Returns the gradients of x_t W + h R + b, [time, batch, 4 units], from the outputs'."""
    time, zeros = steps.shape[0], tf.zeros_like(of_outputs[0])
    # Transposed once, not in each product: that takes ten times as long.
    transposed = tf.transpose(recurrent)

    def step(t, of_h, of_c, of_sums):
        i, f, g, o, tanh_cell, cell_before, _ = tf.split(steps[t], 7, 1)
        of_h += of_outputs[t]
        of_cell = of_c + of_h * o * (1.0 - tanh_cell * tanh_cell)
        of_gates = [
            of_cell * g * i * (1.0 - i),
            of_cell * cell_before * f * (1.0 - f),
            of_cell * i * (1.0 - g * g),
            of_h * tanh_cell * o * (1.0 - o),
        ]
        of_sum, of_c_before = tf.concat(of_gates, 1), of_cell * f
        of_h_before = tf.matmul(of_sum, transposed)
        if is_real is not None:
            of_sum = tf.where(is_real[t], of_sum, 0.0)
            of_h_before = tf.where(is_real[t], of_h_before, of_h)
            of_c_before = tf.where(is_real[t], of_c_before, of_c)
        return t - 1, of_h_before, of_c_before, of_sums.write(t, of_sum)

    return _loop(time - 1, lambda t: t >= 0, step, (zeros, zeros), time)


def _loop(
    start: int,
    condition: Callable[[tf.Tensor], tf.Tensor],
    step: Callable[..., Any],
    state: tuple[tf.Tensor, tf.Tensor],
    time: int,
) -> tf.Tensor:
    """Returns what each step writes, stacked by time."""
    written = tf.TensorArray(state[0].dtype, time)
    return tf.while_loop(
        lambda t, *_: condition(t), step, (start, *state, written), parallel_iterations=1
    )[-1].stack()
