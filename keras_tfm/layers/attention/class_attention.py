"""Attention of the class token alone."""

from keras import ops

from keras_tfm.layers.base import Layer


class ClassAttention(Layer):
    """`attention` from the first token, the class's, to all; the others stay: (B, N + 1, D) in and out.

    Touvron et al. 2021, "Going Deeper with Image Transformers", section 3.
    """

    def __init__(self, attention, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention

    def build(self, x_shape):
        self.attention.build((x_shape[0], 1, x_shape[-1]), x_shape)
        self.built = True

    def call(self, x, training=None):
        """(B, N + 1, D) -> (B, N + 1, D)."""
        token = self.attention(x[:, :1], x, training=training)
        return ops.concatenate([token, x[:, 1:]], axis=1)

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)
