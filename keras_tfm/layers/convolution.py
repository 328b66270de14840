"""Convolutions of maps (B, height, width, D) with a norm and an activation; batch normalisation.

Padding is explicit and symmetric, as in `torch.nn.Conv2d`: the same number of zeros before and after the
map. Keras's "same", which may be chosen, pads only after the map where the stride is 2. Videos are maps with
one more axis, the frames, before the height.
"""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_tfm.jit import is_cpu_alone
from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.compiler.unfused import unfused, unfused_leaky_relu
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.empty_batch import never_empty
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.patches import for_axes, grid_of_windows, require_axes, same_grid
from keras_tfm.layers.signatures import Activation, Axes, Sides
from keras_tfm.registry import register
from keras_tfm.training.replicas import is_one_of_several, sum_over_replicas


@register
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` with the defaults of vision models: epsilon 1e-5, momentum 0.9.

    Ioffe and Szegedy 2015. PyTorch counts the other way: its `momentum` of 0.1 is this 0.9. In training under
    `tf.distribute` it normalises by the mean and variance of the whole batch, not of a replica's part.

    >>> keras_tfm.layers.BatchNormalization()(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 8, 8, 3])
    """

    def __init__(self, epsilon: float = 1e-5, momentum: float = 0.9, **kwargs: Any) -> None:
        super().__init__(epsilon=epsilon, momentum=momentum, **kwargs)

    @property
    def communicates(self) -> bool:
        """Whether a call in training sums over the replicas: see `ExactTrainer._forward`."""
        return self.trainable

    def _moments(self, inputs, mask):
        """The mean and the variance (C,) of the whole batch, of which each replica has a part."""
        if not is_one_of_several():
            return super()._moments(inputs, mask)

        def total(x):
            return ops.sum(x, self._reduction_axes, keepdims=True)

        def kept(x):
            return x if mask is None else ops.where(ops.cast(ops.expand_dims(mask, -1), "bool"), x, 0)

        sizes = ops.stack([ops.shape(inputs)[axis] for axis in self._reduction_axes])
        count = ops.prod(ops.cast(sizes, inputs.dtype))  # whose product as an int32 could overflow
        count = count if mask is None else total(kept(ops.ones_like(inputs)))
        sums, counts = sum_over_replicas([total(kept(inputs)), count])
        counts = ops.maximum(counts, 1)
        mean = sums / counts
        # As in TensorFlow's own moments: the gradient by this mean is zero but for roundings.
        centred = kept(inputs - ops.stop_gradient(mean))
        (squares,) = sum_over_replicas([total(ops.square(centred))])
        return ops.reshape(mean, (-1,)), ops.reshape(squares / counts, (-1,))


class Convolution(Layer):
    """A convolution, then `norm` and `activation` if given: (B, height, width, C) -> (B, height', width',
    filters), or of videos (B, frames, height, width, C).

    Each side becomes (side + 2 padding - dilation (kernel - 1) - 1) // stride + 1 long.

    Args:
        filters: the number of output channels.
        kernel_size: a side, or one for each axis.
        stride: the step of the kernel along all axes, or one for each.
        padding: the zeros on each side of the map, a number or one for each axis; by default
            dilation (kernel - 1) // 2, which keeps the size at stride 1. "same" is Keras's: sides become
            ceil(side / stride) long, and an odd cell is added after the map.
        groups: the channels are cut into as many parts, convolved separately. With C groups it is a
            depthwise convolution, with `filters` / C filters per channel.
        norm: a normalisation layer, or None.
        activation: a name or None.
        use_bias: by default True only without a norm, since a norm has a bias of its own.
        dilation: the distance between the cells that the kernel reads.

    Raises:
        ValueError: if `groups` does not divide C and `filters`, or a map is smaller than the kernel.

    >>> keras_tfm.layers.Convolution(16, stride=2, activation="relu")(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 4, 4, 16])
    >>> keras_tfm.layers.Convolution(16, (1, 3, 3), (1, 2, 2))(np.ones((1, 4, 8, 8, 3))).shape
    TensorShape([1, 4, 4, 4, 16])
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_axes(kernel_size=kernel_size)
        require_sizes(filters=filters, stride=np.min(stride), groups=groups, dilation=dilation)
        if padding not in (None, "same") and np.min(padding) < 0:
            raise ValueError(f"`padding` must be at least 0; it is {padding}.")
        if dilation > 1 and np.max(stride) > 1:
            raise ValueError(f"`stride` must be 1 where `dilation` is {dilation}; it is {stride}.")
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.groups = groups
        self.norm = norm
        self.activation = activation
        self.use_bias = use_bias
        self.dilation = dilation
        self.function = activation_of(activation)

    def margins(self, rank):
        """The zeros before and after each of the `rank` axes that this layer adds itself."""
        if self.padding == "same":
            return (0,) * rank
        if self.padding is not None:
            return for_axes(self.padding, rank, "padding")
        return tuple(self.dilation * (side - 1) // 2 for side in self._kernel(rank))

    def _kernel(self, rank):
        return for_axes(self.kernel_size, rank, "kernel_size")

    @property
    def picks(self):
        """Whether the stride picks cells before the kernel: see `picks_cells`."""
        return picks_cells(self.kernel_size, self.stride)

    def build(self, x_shape):
        if len(x_shape) not in (4, 5):
            raise ValueError(
                "`x` must have the shape (B, height, width, C), of videos (B, frames, height, width, C); "
                f"it is {tuple(x_shape)}."
            )
        channels = x_shape[-1]
        if channels % self.groups or self.filters % self.groups:
            raise ValueError(
                f"`groups` must divide the channels, {channels}, and `filters`, {self.filters}; "
                f"it is {self.groups}."
            )
        use_bias = self.norm is None if self.use_bias is None else self.use_bias
        options = {"strides": 1 if self.picks else self.stride, "use_bias": use_bias, "name": "convolution"}
        options["padding"] = "same" if self.padding == "same" else "valid"
        options["dilation_rate"] = self.dilation
        output_shape = self.compute_output_shape(x_shape)
        self.convolution = self._new_convolution(channels, self._kernel(len(x_shape) - 2), options)
        self.convolution.build(self._padded_shape(x_shape))
        self.adds_bias_last = use_bias and self.norm is None and self.function is keras.activations.linear
        if self.norm is not None:
            self.norm.build(output_shape)
        elif not use_bias and len(x_shape) == 5 and self.function is keras.activations.leaky_relu:
            self.function = unfused_leaky_relu

    def _new_convolution(self, channels, size, options):
        """Keras's convolution layer for maps with this number of `channels`."""
        if len(size) == 3:
            return keras.layers.Conv3D(self.filters, size, groups=self.groups, **options)
        if 1 < self.groups == channels:
            multiplier = self.filters // channels
            return keras.layers.DepthwiseConv2D(size, depth_multiplier=multiplier, **options)
        if self.groups > 1:
            return GroupedConv2D(self.filters, size, groups=self.groups, **options)
        return keras.layers.Conv2D(self.filters, size, **options)

    def call(self, x, training=None):
        """(B, height, width, C) -> (B, height', width', filters), and videos likewise."""
        margins = self.margins(len(x.shape) - 2)
        if any(margins):
            x = ops.pad(x, ((0, 0), *((margin, margin) for margin in margins), (0, 0)))
        if self.picks:
            x = x[:, *(slice(None, None, step) for step in for_axes(self.stride, len(margins)))]
        x = self.convolved(x, training)
        if self.norm is not None:
            x = self.norm(x, training=training)
        return unfused(x, training) if self.adds_bias_last else self.function(x)

    def convolved(self, x, training=None):
        """The convolution of a padded map, before the norm."""
        return never_empty(self.convolution, x)

    def compute_output_shape(self, x_shape):
        sides = tuple(x_shape[1:-1])
        rank = len(sides)
        if self.padding == "same":
            grid = same_grid(sides, self.stride)
        else:
            reach = [self.dilation * (side - 1) + 1 for side in self._kernel(rank)]
            grid = grid_of_windows(sides, reach, for_axes(self.stride, rank, "stride"), self.margins(rank))
        return (x_shape[0], *grid, self.filters)

    def _padded_shape(self, x_shape):
        batch_size, *sides, channels = x_shape
        sides = [
            None if side is None else side + 2 * margin
            for side, margin in zip(sides, self.margins(len(sides)), strict=True)
        ]
        if self.picks:
            sides = same_grid(sides, self.stride)
        return (batch_size, *sides, channels)


def picks_cells(kernel_size, stride):
    """Whether every n-th cell is taken before a kernel of one cell, rather than by its stride.

    TensorFlow 2.21 on CPUs, by oneDNN, writes outside its arrays in the gradient of such a kernel whose
    stride leaves cells over at the end.
    """
    return np.max(kernel_size) == 1 and np.max(stride) > 1 and is_cpu_alone()


@register
class GroupedConv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D` with `groups`; on CPUs each group is computed as a convolution of its own.

    TensorFlow has no gradient of grouped convolutions on CPUs, so Keras compiles them with XLA, where
    forward and backward pass take 30 to 45 times as long as the groups one by one.
    """

    def convolution_op(self, inputs, kernel):
        if not is_cpu_alone():
            return super().convolution_op(inputs, kernel)
        parts = zip(ops.split(inputs, self.groups, -1), ops.split(kernel, self.groups, -1), strict=True)
        return ops.concatenate([super(GroupedConv2D, self).convolution_op(*part) for part in parts], -1)


class StandardizedConvolution(Convolution):
    """A `Convolution` without bias, whose kernel is standardised before use: each filter has mean 0 and
    variance 1.

    Qiao et al. 2019, "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", eq.
    5; `epsilon` is added to the variance. The other arguments are as in `Convolution`, without `groups`.

    >>> keras_tfm.layers.StandardizedConvolution(16)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 8, 8, 16])
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Sides = 3,
        stride: int = 1,
        padding: int | tuple[int, int] | None = None,
        norm: keras.layers.Layer | None = None,
        activation: Activation = None,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        options: dict[str, Any] = {"norm": norm, "activation": activation, "use_bias": False}
        super().__init__(filters, kernel_size, stride, padding, groups=1, **options, **kwargs)
        self.epsilon = epsilon

    def _new_convolution(self, channels, size, options):
        return StandardizedConv2D(self.filters, size, epsilon=self.epsilon, **options)


@register
class StandardizedConv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D` with a kernel that is standardised, in float32, before use."""

    def __init__(self, filters: int, kernel_size: Sides, epsilon: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(filters, kernel_size, **kwargs)
        self.epsilon = epsilon

    def call(self, inputs):
        kernel = ops.cast(self.kernel, "float32")
        mean, variance = ops.moments(kernel, axes=(0, 1, 2), keepdims=True)
        kernel = (kernel - mean) * ops.rsqrt(variance + self.epsilon)
        kernel = ops.cast(kernel, self.compute_dtype)
        return never_empty(lambda x: self.convolution_op(x, kernel), inputs)

    def convolution_op(self, inputs, kernel):
        if not picks_cells(self.kernel_size, self.strides):
            return super().convolution_op(inputs, kernel)
        rows, columns = self.strides
        return ops.conv(inputs[:, ::rows, ::columns], kernel)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


class NormalizedDense(Layer):
    """A dense layer, by default without bias, a `norm` and an `activation`: (..., D) -> (..., `units`).

    `norm` is a layer, by default a `BatchNormalization` (Graham et al. 2021, "LeViT", section 4.2).

    >>> keras_tfm.layers.NormalizedDense(16)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 16])
    """

    def __init__(
        self,
        units: int,
        norm: keras.layers.Layer | None = None,
        activation: Activation = None,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(units=units)
        self.units = units
        self.norm = BatchNormalization() if norm is None else norm
        self.activation = activation
        self.use_bias = use_bias
        self.function = activation_of(activation)
        self.dense = Dense(units, use_bias=use_bias)

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.norm.build(self.compute_output_shape(x_shape))

    def call(self, x, training=None):
        """(..., D) -> (..., units)."""
        return self.function(self.norm(self.dense(x), training=training))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.units)


class ConvolutionalStem(Chain):
    """`num_convolutions` convolutions of stride 2, each twice as wide as the one before, up to `dim`.

    Each is batch-normalised, and followed by `activation` except for the last. They divide the sides of an
    image by 2^`num_convolutions` (Xiao et al. 2021, "Early Convolutions Help Transformers See Better").

    >>> keras_tfm.layers.ConvolutionalStem(dim=16, num_convolutions=2)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 2, 2, 16])
    """

    def __init__(
        self, dim: int, num_convolutions: int, activation: Activation = "relu", **kwargs: Any
    ) -> None:
        widths = [dim // 2**i for i in reversed(range(num_convolutions))]
        super().__init__(
            [
                Convolution(
                    width, 3, 2, norm=BatchNormalization(), activation=None if width == dim else activation
                )
                for width in widths
            ],
            **kwargs,
        )
        self.dim = dim
        self.num_convolutions = num_convolutions
        self.activation = activation
