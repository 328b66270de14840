"""Batches without examples: what a replica gets where a batch has fewer examples than there are replicas.

By oneDNN, TensorFlow 2.21 on CPUs returns an empty batch from a convolution as it is, with the channels and
sides of the input, and is aborted by the gradient of a maximum over windows.
"""

from keras import ops

from keras_tfm.jit import is_cpu_alone
from keras_tfm.training.replicas import is_one_of_several


def never_empty(function, x):
    """`function(x)` for an `x` that may be empty; it computes each row of its result from that row of `x`.

    Where there are several replicas, an empty `x` (0, ...) gets one row of zeros, whose result is cut off.
    """
    if not is_one_of_several():
        return function(x)
    size, *sides = ops.shape(x)
    added = ops.cast(ops.equal(size, 0), "int32")
    if is_cpu_alone():
        # oneDNN takes a padding into the convolution after it, and then leaves it out for an empty batch.
        x = ops.concatenate([x, ops.zeros((added, *sides), x.dtype)])
    else:
        x = ops.pad(x, [(0, added), *[(0, 0)] * len(sides)])  # copies nothing where nothing is added
    return function(x)[:size]
