"""Batches without examples: what a replica gets where a batch has fewer examples than there are replicas.

By oneDNN, TensorFlow 2.21 on CPUs returns an empty batch from a convolution as it is, with the channels and
sides of the input, and is aborted by the gradient of a maximum over windows. An empty batch has no mean
either.
"""

from keras import ops

from keras_tfm.training.replicas import is_one_of_several


def never_empty(function, x):
    """`function(x)` for an `x` that may be empty; it computes each row of its result from that row of `x`.

    Where there are several replicas, an empty `x` (0, ...) gets one row of zeros, whose result is cut off.
    """
    if not is_one_of_several():
        return function(x)
    size, *sides = ops.shape(x)
    added = ops.zeros((ops.cast(is_empty(x), "int32"), *sides), x.dtype)
    # No padding: oneDNN takes that into the convolution after it, and leaves it out for an empty batch.
    return function(ops.concatenate([x, added]))[:size]


def is_empty(x):
    """Whether `x` has no rows: a boolean scalar."""
    return ops.equal(ops.shape(x)[0], 0)
