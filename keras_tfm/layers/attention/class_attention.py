"""Attention from the class token alone, as in CaiT and CeiT."""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import SameShape


class ClassAttention(SameShape):
    """Attention from the first token, the class token, to all tokens: (B, N + 1, D) in and out.

    `attention` is a layer called as cross-attention; the other tokens are returned unchanged. Touvron et al.
    2021, "Going Deeper with Image Transformers", section 3.

    >>> attention = keras_tfm.layers.MultiHeadAttention(num_heads=2)
    >>> keras_tfm.layers.ClassAttention(attention)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(self, attention: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention = attention

    def build(self, x_shape):
        self.attention.build((x_shape[0], 1, x_shape[-1]), x_shape)

    def call(self, x, training=None):
        """(B, N + 1, D) -> (B, N + 1, D)."""
        token = self.attention(x[:, :1], x, training=training)
        return ops.concatenate([token, x[:, 1:]], axis=1)


class ClassAttentionBlock(SameShape):
    """A block that updates only the first token, the class token: (B, N + 1, D) in and out.

    `attention` is a `Residual` whose branch attends from the class token to all tokens including itself;
    they are normalised together. `feedforward` is a `Residual` applied to the class token. Touvron et al.
    2021, section 3. It is no `Block`, whose parts see all tokens.

    >>> attention = keras_tfm.layers.Residual(keras_tfm.layers.MultiHeadAttention(num_heads=2))
    >>> feedforward = keras_tfm.layers.Residual(keras_tfm.layers.FeedForward(16))
    >>> keras_tfm.layers.ClassAttentionBlock(attention, feedforward)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    is_block = True

    def __init__(self, attention: keras.layers.Layer, feedforward: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention = attention
        self.feedforward = feedforward

    def build(self, x_shape):
        token_shape = (x_shape[0], 1, x_shape[-1])
        self.attention.build(token_shape, x_shape)
        self.feedforward.build(token_shape)

    def call(self, x, training=None):
        """(B, N + 1, D) -> (B, N + 1, D)."""
        part, normed = self.attention, self.attention.before(x)
        token = part.branch(normed[:, :1], normed, training=training)
        token = self.feedforward(part.after(x[:, :1], token, training), training=training)
        return ops.concatenate([token, x[:, 1:]], axis=1)
