"""Convolutions of maps (B, height, width, D) with a norm and an activation; batch normalisation.

Padding is explicit: a map is padded by the same number of zeros before and after it, as `torch.nn.Conv2d`
does, and then convolved where the kernel fits. Keras's "same" pads a stride of 2 after the map alone.
"""

import keras
from keras import ops

from keras_tfm.jit import is_cpu_alone
from keras_tfm.layers.base import Layer
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.patches import grid_of_windows, height_and_width, pair_of
from keras_tfm.registry import register


@register
class BatchNormalization(keras.layers.BatchNormalization):
    """Keras's, with the constants of vision's families: 1e-5, and moving statistics that keep nine tenths.

    Ioffe and Szegedy 2015. PyTorch calls the second its `momentum` of 0.1.
    """

    def __init__(self, epsilon=1e-5, momentum=0.9, **kwargs):
        super().__init__(epsilon=epsilon, momentum=momentum, **kwargs)


class Convolution(Layer):
    """A convolution, then `norm` and `activation` where they are given.

    (B, height, width, C) becomes (B, height', width', `filters`), each side (side + 2 padding - kernel) //
    stride + 1 long. `kernel_size` and `padding` are a number or a (height, width) pair; the padding is by
    default (kernel - 1) // 2, which at stride 1 and odd kernels keeps the size. `groups` cut the channels
    into as many parts that are convolved on their own; where there are C of them each channel is (a
    depthwise convolution, with `filters` / C filters for each channel). `norm` is a layer. A bias is added,
    by default, where there is no norm: a norm has its own. Raises ValueError where `groups` do not divide C
    and `filters`, and where a map is smaller than the kernel.
    """

    def __init__(
        self,
        filters,
        kernel_size=3,
        stride=1,
        padding=None,
        groups=1,
        norm=None,
        activation=None,
        use_bias=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        height_and_width(kernel_size, "kernel_size")
        for name, size in (("filters", filters), ("stride", stride), ("groups", groups)):
            if size < 1:
                raise ValueError(f"`{name}` must be at least 1; it is {size}.")
        if padding is not None and min(pair_of(padding)) < 0:
            raise ValueError(f"`padding` must be at least 0; it is {padding}.")
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.groups = groups
        self.norm = norm
        self.activation = activation
        self.use_bias = use_bias
        self.function = activation_of(activation)

    @property
    def margins(self):
        """The zeros (above and below, left and right) of a map."""
        if self.padding is not None:
            return pair_of(self.padding)
        height, width = height_and_width(self.kernel_size)
        return (height - 1) // 2, (width - 1) // 2

    def build(self, x_shape):
        if len(x_shape) != 4:
            raise ValueError(f"`x` must have the shape (B, height, width, C); it is {tuple(x_shape)}.")
        channels = x_shape[-1]
        if channels % self.groups or self.filters % self.groups:
            raise ValueError(
                f"`groups` must divide the channels and `filters`, {channels} and {self.filters}; "
                f"they are {self.groups}."
            )
        use_bias = self.norm is None if self.use_bias is None else self.use_bias
        options = {"strides": self.stride, "use_bias": use_bias, "name": "convolution"}
        self.convolution = self._new_convolution(channels, height_and_width(self.kernel_size), options)
        output_shape = self.compute_output_shape(x_shape)
        self.convolution.build(self._padded_shape(x_shape))
        if self.norm is not None:
            self.norm.build(output_shape)
        self.built = True

    def _new_convolution(self, channels, size, options):
        """Keras's layer for maps of so many `channels`."""
        if 1 < self.groups == channels:
            multiplier = self.filters // channels
            return keras.layers.DepthwiseConv2D(size, depth_multiplier=multiplier, **options)
        if self.groups > 1:
            return GroupedConv2D(self.filters, size, groups=self.groups, **options)
        return keras.layers.Conv2D(self.filters, size, **options)

    def call(self, x, training=None):
        """(B, height, width, C) -> (B, height', width', filters)."""
        rows, columns = self.margins
        if rows or columns:
            x = ops.pad(x, ((0, 0), (rows, rows), (columns, columns), (0, 0)))
        x = self.convolution(x)
        if self.norm is not None:
            x = self.norm(x, training=training)
        return self.function(x)

    def compute_output_shape(self, x_shape):
        grid = grid_of_windows(x_shape[1:3], self.kernel_size, self.stride, self.margins)
        return (x_shape[0], *grid, self.filters)

    def _padded_shape(self, x_shape):
        batch_size, *sides, channels = x_shape
        sides = [
            None if side is None else side + 2 * margin
            for side, margin in zip(sides, self.margins, strict=True)
        ]
        return (batch_size, *sides, channels)


@register
class GroupedConv2D(keras.layers.Conv2D):
    """Keras's with `groups`; on a CPU each of them is a convolution of its own.

    TensorFlow has no gradient of grouped convolutions there, so Keras compiles them by XLA, where forward
    and backward take 30 to 45 times as long as the groups one by one.
    """

    def convolution_op(self, inputs, kernel):
        if not is_cpu_alone():
            return super().convolution_op(inputs, kernel)
        parts = zip(ops.split(inputs, self.groups, -1), ops.split(kernel, self.groups, -1), strict=True)
        return ops.concatenate([super(GroupedConv2D, self).convolution_op(*part) for part in parts], -1)


class StandardizedConvolution(Convolution):
    """A `Convolution` without a bias, whose kernel is standardised before use: (B, height, width, C) in.

    Each filter's weights have the mean 0 and the variance 1 (Qiao et al. 2019, "Micro-Batch Training with
    Batch-Channel Normalization and Weight Standardization", eq. 5); `epsilon` is added to their variance.
    """

    def __init__(
        self,
        filters,
        kernel_size=3,
        stride=1,
        padding=None,
        norm=None,
        activation=None,
        epsilon=1e-8,
        **kwargs,
    ):
        options = {"norm": norm, "activation": activation, "use_bias": False}
        super().__init__(filters, kernel_size, stride, padding, **options, **kwargs)
        self.epsilon = epsilon

    def _new_convolution(self, channels, size, options):
        return StandardizedConv2D(self.filters, size, epsilon=self.epsilon, **options)


@register
class StandardizedConv2D(keras.layers.Conv2D):
    """Keras's, with a kernel that is standardised in float32."""

    def __init__(self, filters, kernel_size, epsilon=1e-8, **kwargs):
        super().__init__(filters, kernel_size, **kwargs)
        self.epsilon = epsilon

    def call(self, inputs):
        kernel = ops.cast(self.kernel, "float32")
        mean, variance = ops.moments(kernel, axes=(0, 1, 2), keepdims=True)
        kernel = (kernel - mean) * ops.rsqrt(variance + self.epsilon)
        return self.convolution_op(inputs, ops.cast(kernel, self.compute_dtype))

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


class NormalizedDense(Layer):
    """A dense layer without a bias, `norm`, and an `activation`: (..., D) -> (..., `units`).

    `norm` is a layer, by default a `BatchNormalization` (Graham et al. 2021, "LeViT", section 4.2).
    """

    def __init__(self, units, norm=None, activation=None, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be at least 1; it is {units}.")
        self.units = units
        self.norm = BatchNormalization() if norm is None else norm
        self.activation = activation
        self.function = activation_of(activation)
        self.dense = Dense(units, use_bias=False)

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.norm.build(self.compute_output_shape(x_shape))
        self.built = True

    def call(self, x, training=None):
        """(..., D) -> (..., units)."""
        return self.function(self.norm(self.dense(x), training=training))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.units)


class ConvolutionalStem(Chain):
    """`num_convolutions` of stride 2, each normalised and twice as wide as the one before it, up to `dim`.

    `activation` stands between them. An image's sides become 2^`num_convolutions` times shorter (Xiao et
    al. 2021, "Early Convolutions Help Transformers See Better").
    """

    def __init__(self, dim, num_convolutions, activation="relu", **kwargs):
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
