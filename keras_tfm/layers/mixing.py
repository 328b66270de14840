"""Mixing of tokens without attention: by a dense layer along the tokens, or by a Fourier transform."""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import SameShape


class TokenMixing(SameShape):
    """Applies `layer` along the tokens instead of the features, the same for every feature: (B, T, D) in and
    out.

    Tolstikhin et al. 2021, "MLP-Mixer: An all-MLP Architecture for Vision", eq. 1, where the layer is a
    feed-forward layer. T must be known and always the same.

    >>> keras_tfm.layers.TokenMixing(keras_tfm.layers.FeedForward(16))(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(self, layer: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, x_shape):
        if len(x_shape) != 3 or x_shape[1] is None:
            raise ValueError(f"`x` must have the shape (B, T, D) with a known T; it is {tuple(x_shape)}.")
        self.layer.build((x_shape[0], x_shape[2], x_shape[1]))

    def call(self, x, training=None):
        """(B, T, D) -> (B, T, D)."""
        y = self.layer(ops.transpose(x, (0, 2, 1)), training=training)  # (B, D, T)
        return ops.transpose(y, (0, 2, 1))


class FourierMixing(SameShape):
    """The real part of the discrete Fourier transform along tokens and features: (B, T, D) in and out.

    Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms", eq. 3. It has no weights, computes
    in float32 and takes no mask: padding is mixed in like any other token.

    >>> keras_tfm.layers.FourierMixing()(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def call(self, x):
        """(B, T, D) -> (B, T, D)."""
        # On CPUs the FFT is five to ten times as fast as products with sines and cosines, and more exact.
        real = ops.cast(x, "float32")
        y, _ = ops.fft2((real, ops.zeros_like(real)))
        return ops.cast(y, x.dtype)
