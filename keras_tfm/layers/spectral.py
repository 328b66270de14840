"""Layers whose kernels are divided by their greatest singular value, for discriminators.

Miyato et al. 2018, "Spectral Normalization for Generative Adversarial Networks", algorithm 1. The kernel is
taken as a matrix: one row for each of its cells and input channels, one column per filter. A layer that
`keeps_norm` multiplies the quotient by the greatest singular value of the kernel's initial values, so that
signals do not fade in a deep Transformer (Lee et al. 2022, "ViTGAN: Training GANs with Vision Transformers",
section 3.2, "improved spectral normalization").
"""

from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.layers.compiler.products import multiply
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.empty_batch import never_empty
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.rematerialization import Reading
from keras_tfm.layers.signatures import Activation, Axes
from keras_tfm.registry import register

EPSILON = 1e-12
Base: Any = object  # a mixin: a Keras layer follows it


class Spectral(Base):
    """The two vectors of the power method, of which `vector` (filters,) is kept: the other follows from it.

    A call in training improves the estimate by one step. Gradients pass through the singular value, but not
    through its two vectors. `initial_norm` is there with `keeps_norm` alone.
    """

    keeps_norm: bool
    communicates = True  # `vector` gets the first replica's value: see `ExactTrainer._forward`

    def add_vector(self, kernel):
        """Make the weights that belong to a new `kernel` (..., filters)."""
        options: dict[str, Any] = {"trainable": False, "aggregation": "only_first_replica", "autocast": False}
        initializer = keras.initializers.RandomNormal()
        self.vector = self.add_weight((kernel.shape[-1],), initializer, name="vector", **options)
        self.reading = Reading(self.vector)
        if self.keeps_norm:

            def norm(shape, dtype=None):
                matrix = ops.reshape(ops.cast(kernel, "float32"), (-1, kernel.shape[-1]))
                return ops.cast(ops.max(ops.svd(matrix, compute_uv=False)), dtype or "float32")

            self.initial_norm = self.add_weight((), norm, name="initial_norm", **options)

    def normalized(self, kernel, training=None):
        """The `kernel` divided by its greatest singular value, in the dtype of the computation."""
        kernel = ops.cast(kernel, "float32")
        matrix = ops.reshape(kernel, (-1, kernel.shape[-1]))
        right = _unit(self.reading.next())
        left = _unit(ops.stop_gradient(ops.matmul(matrix, right[:, None]))[:, 0])
        if training:
            right = _unit(ops.stop_gradient(ops.matmul(left[None], matrix))[0])
            self.vector.assign(right)
        value = ops.sum(left * ops.matmul(matrix, right[:, None])[:, 0])
        if self.keeps_norm:
            value = value / ops.convert_to_tensor(self.initial_norm)
        return ops.cast(kernel / value, self.compute_dtype)


class SpectralConvolution(Spectral, Convolution):
    """A `Convolution` without groups, whose kernel is divided by an estimate of its greatest singular value.

    A call in training improves the estimate by one step of the power method. With `keeps_norm` the quotient
    is multiplied by the greatest singular value of the initial kernel.

    >>> keras_tfm.layers.SpectralConvolution(16)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 8, 8, 16])
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Axes = 3,
        stride: Axes = 1,
        padding: Axes | Literal["same"] | None = None,
        groups: int = 1,
        norm: keras.layers.Layer | None = None,
        activation: Activation = None,
        use_bias: bool | None = None,
        dilation: int = 1,
        keeps_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            filters, kernel_size, stride, padding, groups, norm, activation, use_bias, dilation, **kwargs
        )
        self.keeps_norm = keeps_norm

    def build(self, x_shape):
        if self.groups > 1:
            raise ValueError(f"`groups` must be 1 in a {type(self).__name__}; it is {self.groups}.")
        super().build(x_shape)
        self.add_vector(self.convolution.kernel)

    def convolved(self, x, training=None):
        layer, kernel = self.convolution, self.normalized_kernel(training)
        y = never_empty(lambda x: layer.convolution_op(x, kernel), x)
        return y + ops.cast(layer.bias, y.dtype) if layer.use_bias else y

    def normalized_kernel(self, training=None):
        """The kernel divided by its greatest singular value, in the dtype of the computation."""
        return self.normalized(self.convolution.kernel, training)


@register
class SpectralDense(Spectral, Dense):
    """A dense layer, (..., D) -> (..., `units`), whose kernel is divided by an estimate of its greatest
    singular value, as in `SpectralConvolution`. The other arguments are `keras.layers.Dense`'s.

    >>> keras_tfm.layers.SpectralDense(16)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 16])
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        use_bias: bool = True,
        keeps_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, activation_of(activation), use_bias, **kwargs)
        self.keeps_norm = keeps_norm

    def build(self, x_shape):
        super().build(x_shape)
        self.add_vector(self.kernel)

    def call(self, x, training=None):
        """(..., D) -> (..., units)."""
        return self.activation(multiply(x, self.normalized(self.kernel, training), self.bias))

    @property
    def variable_serialization_spec(self):
        """What Keras keeps in a file of a dense layer's weights, {None: the names of its variables}."""
        return {None: ["kernel", "bias", "vector", *(["initial_norm"] if self.keeps_norm else [])]}

    def quantize(self, *args, **kwargs):
        raise ValueError(f"{self.path!r} has a kernel that is normalised at each call: it stays in floats.")

    def get_config(self):
        return {**super().get_config(), "keeps_norm": self.keeps_norm}


def _unit(vector):
    return vector / (ops.sqrt(ops.sum(ops.square(vector))) + EPSILON)
