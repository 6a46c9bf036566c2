"""What tasks with one label an example share: their loss and accuracy. Outputs are logits."""

import tensorflow as tf


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (softmax cross entropy [batch], ones [batch])."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return losses, tf.ones_like(losses)


def accuracy(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (1.0 where the largest logit is the label's [batch], ones [batch])."""
    correct = tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), labels), tf.float32)
    return correct, tf.ones_like(correct)
