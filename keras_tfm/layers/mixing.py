"""Mixing of tokens without attention: by a layer on the transposed sequence, by a Fourier transform."""

from keras import ops

from keras_tfm.layers.base import Layer


class TokenMixing(Layer):
    """`layer` along the tokens in place of the features, the same for every feature: (B, T, D) in and out.

    Tolstikhin et al. 2021, "MLP-Mixer: An all-MLP Architecture for Vision", eq. 1, where it is a feed-forward
    layer. It is built for sequences of one length.
    """

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, x_shape):
        if len(x_shape) != 3 or x_shape[1] is None:
            raise ValueError(f"`x` must have the shape (B, T, D), T known; it is {tuple(x_shape)}.")
        self.layer.build((x_shape[0], x_shape[2], x_shape[1]))
        self.built = True

    def call(self, x, training=None):
        """(B, T, D) -> (B, T, D)."""
        y = self.layer(ops.transpose(x, (0, 2, 1)), training=training)  # (B, D, T)
        return ops.transpose(y, (0, 2, 1))

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)


class FourierMixing(Layer):
    """The real part of the discrete Fourier transform along tokens and features: (B, T, D) in and out.

    Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms", eq. 3. It has no weights and takes
    no mask: padding is mixed in as all else is. It computes in float32.
    """

    def call(self, x):
        """(B, T, D) -> (B, T, D)."""
        # Five to ten times faster on CPUs than products with the cosines and sines, and more exact.
        real = ops.cast(x, "float32")
        y, _ = ops.fft2((real, ops.zeros_like(real)))
        return ops.cast(y, x.dtype)

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)
