"""Functions with a gradient of their own, whose graphs end with the models that they belong to."""

import functools

import keras
import tensorflow as tf
from keras import ops

from keras_tfm.private.tensorflow import keep_gradient_with


def custom_gradient(function):
    """`keras.ops.custom_gradient` of `function`, which returns its output and a function for the gradient.

    TensorFlow keeps the gradient of each such function in a graph for good, and with it the graph and its
    weights. Here it ends with the graph.

    >>> @custom_gradient
    ... def square(x):
    ...     return x * x, lambda upstream: upstream * 2 * x
    >>> square(np.array([3.0])).numpy().tolist()
    [9.0]
    """
    differentiable = ops.custom_gradient(function)

    @functools.wraps(function)
    def call(*tensors):
        y = differentiable(*tensors)
        if not tf.executing_eagerly():
            keep_gradient_with(keras.tree.flatten(y)[0])
        return y

    return call
