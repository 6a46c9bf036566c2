#!/usr/bin/env bash
# tensorflow-federated 0.87.0: FedProx's proximal term has the other sign.
#
# Guess, before it was run: as in the paper, clients minimize their loss plus mu/2 |w - w_global|^2,
# so that a larger mu keeps them nearer to the global model: w goes from 0 to .32 of two steps.
# Seen: the term is mu (w_global - w), which pushes a client away from the global model: .40.
# A client of one example, loss (w - 1)^2, rate .1, two steps, mu 2:
#   paper  w1 = .2, w2 = w1 - .1 (2 (w1 - 1) + 2 w1) = .32; without a term .36; seen .40.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/environment.bash"
OVERRIDES="jax==0.4.13 jaxlib==0.4.13" environment 3.11 tensorflow-federated==0.87.0 "setuptools<80"

"$python" - <<'PYTHON'
import collections
import importlib.metadata
import os
import subprocess

import tensorflow as tf
import tensorflow_federated as tff

spec = collections.OrderedDict(x=tf.TensorSpec((None, 1)), y=tf.TensorSpec((None, 1)))
rows = collections.OrderedDict(x=tf.ones((2, 1)), y=tf.ones((2, 1)))
data = [tf.data.Dataset.from_tensor_slices(rows).batch(1)]  # Two steps on the same example.


def model():
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    keras = tf.keras.Sequential([tf.keras.layers.InputLayer(input_shape=(1,)), layer])
    loss = tf.keras.losses.MeanSquaredError()
    return tff.learning.models.from_keras_model(keras, loss, spec)


def after_a_round(mu):
    sgd = tff.learning.optimizers.build_sgdm
    build = tff.learning.algorithms.build_weighted_fed_prox
    process = build(model, mu, sgd(0.1), sgd(1.0))
    state = process.next(process.initialize(), data).state
    return float(process.get_model_weights(state).trainable[0][0, 0])


seen = [round(after_a_round(mu), 4) for mu in (0.0, 2.0)]
print("tensorflow-federated", importlib.metadata.version("tensorflow-federated"))
print("w after a round, mu 0 and 2:", seen, "(paper: .36, .32)")
code = 0 if seen == [0.36, 0.4] else 1
print("as found" if code == 0 else "not what was found")
subprocess.run(["pkill", "-P", str(os.getpid())], check=False)  # TFF leaves its worker running.
raise SystemExit(code)
PYTHON
