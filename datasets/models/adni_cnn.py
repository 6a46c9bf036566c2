"""The CNN that predicts an uptake ratio from one slice of a PET scan: 2,150,273 weights.

Two 5x5 convolutions (32, 64) that keep the size, each with 2x2 max pooling after it, dense 512 and
one output: the layout of TensorFlow's early MNIST tutorial with a regression's output, as Motley
(Wu et al. 2022) trained it on ADNI. Initial weights are Keras' and TensorFlow 1's default (Glorot
uniform, zero biases).
"""

from datasets.models import cnn


class AdniCnn(cnn.Cnn):
    """Predictions [batch] from images [batch, 32, 32, 1]."""

    def __init__(self):
        super().__init__(None, 32, sizes=(32, 64, 512), kernel_size=5)
