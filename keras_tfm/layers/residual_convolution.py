"""The residual block of generative convolutional networks: two convolutions, each behind a norm and swish.

    x --> norm --> swish --> 3 x 3 --> [context] --> norm --> swish --> dropout --> 3 x 3 --> [gate] --> + -->
      |                             ^           ^                                                        |
      |                          condition, added, or a scale and a shift of the norm                    |
      |__________________________________ x, or a 1 x 1 convolution of it _______________________________|

Ho et al. 2020, "Denoising Diffusion Probabilistic Models", appendix B; without a condition Esser et al. 2021,
"Taming Transformers" (VQGAN); with a scale and a shift Dhariwal and Nichol 2021, section 3.1.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import Layer, pattern, require_sizes
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import silu
from keras_tfm.layers.normalization import GroupNormalization
from keras_tfm.layers.regularization import Dropout


class ResidualConvolution(Layer):
    """Two 3 x 3 convolutions in a residual: (B, height, width, C) -> (B, height, width, `filters`).

    Args:
        filters: the number of output channels; where it is not C, a 1 x 1 convolution makes the shortcut.
        norm: the layer of which both norms are copies, by default a group normalisation of 32 groups with an
            epsilon of 1e-6.
        dropout: the rate before the second convolution.
        modulates: whether the condition makes a scale and a shift of the second norm's output, y (1 + scale)
            + shift, instead of being added before it.
        context_attention: a layer called on the map and the `context`, which keeps the map's shape.
        gate: a layer applied to the output of the second convolution, which keeps its shape.
        kernel_size: the side of both convolutions' kernels; with 1 no cell sees another one.

    >>> norm = keras_tfm.layers.GroupNormalization(4)
    >>> layer = keras_tfm.layers.ResidualConvolution(16, norm)
    >>> layer(np.ones((1, 5, 6, 8)), condition=np.ones((1, 3))).shape
    TensorShape([1, 5, 6, 16])
    """

    is_block = True  # read by `rematerialize`, and where learning rates or freezing depend on depth

    def __init__(
        self,
        filters: int,
        norm: keras.layers.Layer | None = None,
        dropout: float = 0.0,
        modulates: bool = False,
        context_attention: keras.layers.Layer | None = None,
        gate: keras.layers.Layer | None = None,
        kernel_size: int = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(filters=filters, kernel_size=kernel_size)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must lie in [0, 1); it is {dropout}.")
        self.filters = filters
        self.norm = pattern(norm or GroupNormalization(32, epsilon=1e-6))
        self.dropout = dropout
        self.modulates = modulates
        self.context_attention = context_attention
        self.gate = gate
        self.kernel_size = kernel_size
        self.value_dropout = Dropout(dropout, name="dropout") if dropout else None

    def build(self, x_shape, condition_shape=None, context_shape=None):
        shape = self.compute_output_shape(x_shape)
        self.norm_1, self.norm_2 = self.norm.new("norm_1"), self.norm.new("norm_2")
        self.convolution_1 = Convolution(self.filters, self.kernel_size, name="convolution_1")
        self.convolution_2 = Convolution(self.filters, self.kernel_size, name="convolution_2")
        for layer, input_shape in (
            (self.norm_1, x_shape),
            (self.convolution_1, x_shape),
            (self.norm_2, shape),
            (self.convolution_2, shape),
        ):
            layer.build(input_shape)
        self.projection: Any = None
        self.shortcut: Any = None
        if condition_shape is not None:
            self.projection = Dense(self.filters * (2 if self.modulates else 1), name="condition")
            self.projection.build(condition_shape)
        if x_shape[-1] != self.filters:
            self.shortcut = Convolution(self.filters, 1, name="shortcut")
            self.shortcut.build(x_shape)
        if self.context_attention is not None:
            if context_shape is None:
                raise ValueError(f"{self.name!r} attends to a context: call it with a `context` (B, S, D).")
            self.context_attention.build(shape, context_shape)
        if self.gate is not None:
            self.gate.build(shape)

    def call(self, x, condition=None, context=None, training=None):
        """(B, height, width, C) -> (B, height, width, filters), with a `condition` (B, K) and a `context` (B,
        S, D) if it was built with them.
        """
        if (condition is None) != (self.projection is None):
            with_or_without = "without" if self.projection is None else "with"
            raise ValueError(f"{self.name!r} was built {with_or_without} a `condition`: call it so again.")
        if context is not None and self.context_attention is None:
            raise ValueError(f"{self.name!r} has no `context_attention`: call it without a `context`.")
        shift = scale = None
        if condition is not None:
            shift = self.projection(silu(condition))[:, None, None]  # (B, 1, 1, filters)
            if self.modulates:
                scale, shift = ops.split(shift, 2, axis=-1)
        y = self.convolution_1(silu(self.norm_1(x)))
        if self.context_attention is not None:
            y = self.context_attention(y, context, training=training)
        if shift is not None and scale is None:
            y = y + shift
        y = self.norm_2(y)
        if scale is not None:
            y = y * (1 + scale) + shift
        y = silu(y)
        if training and self.value_dropout is not None:
            y = self.value_dropout(y, training=True)
        y = self.convolution_2(y)
        if self.gate is not None:
            y = self.gate(y)
        return y + (x if self.shortcut is None else self.shortcut(x))

    def compute_output_shape(self, x_shape, condition_shape=None, context_shape=None):
        return (*x_shape[:-1], self.filters)
