"""Convolutions whose kernels are divided by their greatest singular value, for discriminators.

Miyato et al. 2018, "Spectral Normalization for Generative Adversarial Networks", algorithm 1. The kernel is
taken as a matrix: one row for each of its cells and input channels, one column per filter.
"""

import keras
from keras import ops

from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.empty_batch import never_empty

EPSILON = 1e-12


class SpectralConvolution(Convolution):
    """A `Convolution` without groups, whose kernel is divided by an estimate of its greatest singular value.

    A call in training improves the estimate by one step of the power method. Gradients pass through the
    value, but not through its two vectors. `vector` (filters,) is one of them, the other follows from it.

    >>> keras_tfm.layers.SpectralConvolution(16)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 8, 8, 16])
    """

    def build(self, x_shape):
        if self.groups > 1:
            raise ValueError(f"`groups` must be 1 in a {type(self).__name__}; it is {self.groups}.")
        super().build(x_shape)
        self.vector = self.add_weight(
            (self.filters,),
            keras.initializers.RandomNormal(),
            trainable=False,
            aggregation="only_first_replica",
            autocast=False,
            name="vector",
        )

    def convolved(self, x, training=None):
        layer, kernel = self.convolution, self.normalized_kernel(training)
        y = never_empty(lambda x: layer.convolution_op(x, kernel), x)
        return y + ops.cast(layer.bias, y.dtype) if layer.use_bias else y

    def normalized_kernel(self, training=None):
        """The kernel divided by its greatest singular value, in the dtype of the computation."""
        kernel = ops.cast(self.convolution.kernel, "float32")
        matrix = ops.reshape(kernel, (-1, self.filters))
        right = _unit(ops.convert_to_tensor(self.vector))
        left = _unit(ops.stop_gradient(ops.matmul(matrix, right[:, None]))[:, 0])
        if training:
            right = _unit(ops.stop_gradient(ops.matmul(left[None], matrix))[0])
            self.vector.assign(right)
        value = ops.sum(left * ops.matmul(matrix, right[:, None])[:, 0])
        return ops.cast(kernel / value, self.compute_dtype)


def _unit(vector):
    return vector / (ops.sqrt(ops.sum(ops.square(vector))) + EPSILON)
