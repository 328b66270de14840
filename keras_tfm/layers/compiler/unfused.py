"""Forms that TensorFlow 2.21 does not fuse with their neighbours, where by oneDNN, on CPUs, the whole is
wrong.
"""

import tensorflow as tf
from keras import ops

from keras_tfm.layers.compiler.gradients import custom_gradient


def unfused(x, training=None):
    """`x`, the output of a convolution with biases, and in `training` its gradient too.

    Fused, the convolution, its biases and what is added keep their buffers in the operation. Parallel
    iterations of a loop, or threads that serve requests, then take each other's: answers are wrong, or the
    process ends. And the gradient of biases is fused with that of any kernel whose gradient the same
    operation returns, such as `tf.unstack`: biases get each other's gradients.

    >>> unfused(tf.ones((1, 2, 2, 3))).shape
    TensorShape([1, 2, 2, 3])
    """
    # SavedModels warn of gradients like these when they are loaded.
    return unfused_both_ways(x) if training else tf.ensure_shape(x, [None] * len(x.shape))


@custom_gradient
def unfused_both_ways(x):
    """`unfused(x)`, whose gradient is unfused as well."""
    return unfused(x), unfused_both_ways


def unfused_leaky_relu(x):
    """`keras.activations.leaky_relu` after a convolution of videos without biases.

    Fused, margins, the convolution and `tf.nn.leaky_relu` have a wrong output.

    >>> unfused_leaky_relu(tf.constant([-1.0, 1.0])).numpy()
    array([-0.2,  1. ], dtype=float32)
    """
    return ops.where(x < 0, 0.2 * x, x)
