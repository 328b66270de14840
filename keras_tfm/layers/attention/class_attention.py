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


class ClassAttentionBlock(Layer):
    """A block that changes the first token alone, the class's: (B, N + 1, D) in and out.

    `attention` is a `Residual` of cross-attention from the token to all tokens, itself among them, which are
    normalised together; `feedforward` is a `Residual` of the token. Touvron et al. 2021, section 3.
    """

    is_block = True

    def __init__(self, attention, feedforward, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.feedforward = feedforward

    def build(self, x_shape):
        token_shape = (x_shape[0], 1, x_shape[-1])
        self.attention.build(token_shape, x_shape)
        self.feedforward.build(token_shape)
        self.built = True

    def call(self, x, training=None):
        """(B, N + 1, D) -> (B, N + 1, D)."""
        part, normed = self.attention, self.attention.before(x)
        token = part.branch(normed[:, :1], normed, training=training)
        token = self.feedforward(part.after(x[:, :1], token, training), training=training)
        return ops.concatenate([token, x[:, 1:]], axis=1)

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)
