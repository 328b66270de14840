"""Rows of a table for each example, taken by their numbers."""

import tensorflow as tf
from keras import ops


def rows_at(x, places):
    """The rows of x (B, N, D) at `places` (B, M), integers from 0 to N - 1: (B, M, D).

    Keras's `take_along_axis` takes number by number, and its gradient adds as many to zeros: it takes 2 to 8
    times as long.

    >>> rows_at(np.array([[[1.0], [2.0], [3.0]]]), np.array([[2, 0]])).numpy().tolist()
    [[[3.0], [1.0]]]
    """
    return tf.gather(ops.convert_to_tensor(x), ops.convert_to_tensor(places), batch_dims=1)
