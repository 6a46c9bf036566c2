"""Softmax cross entropy of integer labels, in few passes over the logits."""

import tensorflow as tf

# Up to so many classes TensorFlow's own kernel takes no time that counts.
_FEW_CLASSES = 1000


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns -log softmax(logits)[label], in the shape of the labels.

    The numbers of `tf.nn.sparse_softmax_cross_entropy_with_logits`, whose one kernel takes six
    times as long as a softmax: log sum exp is the largest logit less the log of its probability,
    which is at least one over their number. Of many classes, `tf.vectorized_map` cannot stack its
    gradient.

    Args:
      labels: Integers [...], each in [0, num_classes).
      logits: float32 [..., num_classes].
    """
    num_classes = logits.shape[-1]
    if num_classes <= _FEW_CLASSES:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    flat, shape = tf.reshape(logits, [-1, num_classes]), tf.shape(labels)
    indices = tf.cast(tf.reshape(labels, [-1]), tf.int32)
    # The accuracies' own operation, which the graph then has once; cheaper than two maxima.
    largest = tf.reshape(tf.argmax(logits, -1, tf.int32), [-1])

    @tf.custom_gradient
    def losses(flat):
        largest_probability = tf.gather(tf.nn.softmax(flat), largest, batch_dims=1)
        # In this order: large logits close to each other keep their digits.
        below_largest = tf.gather(flat, largest, batch_dims=1)
        below_largest -= tf.gather(flat, indices, batch_dims=1)

        def gradient(of_losses):
            # The same softmax, which the graph has once; of the logits, for second gradients.
            scaled = tf.nn.softmax(flat) * of_losses[:, tf.newaxis]
            places = tf.stack([tf.range(tf.size(indices)), indices], -1)
            return tf.tensor_scatter_nd_sub(scaled, places, of_losses)

        return below_largest - tf.math.log(largest_probability), gradient

    return tf.reshape(losses(flat), shape)
