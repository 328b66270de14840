"""A Transformer block whose norms, and the weights of whose parts, are functions of a vector.

    x --> norm --> attention --> * --> + --> norm --> feed-forward --> * --> + -->
    |      ^                     ^     |      ^                        ^     |
    |      w                 w, if gated      w                    w, if gated
    |__________________________________|_____________________________________|

Lee et al. 2022, "ViTGAN", section 3.3; gated, as in Peebles and Xie 2023, "Scalable Diffusion Models with
Transformers", section 3.2.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import SameShape
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import ModulatedNormalization


class ModulatedBlock(SameShape):
    """Attention and a feed-forward layer, at whose inputs stand norms that a vector `w` modulates.

    With `is_gated` each part is also multiplied by a linear function of w before it is added. The functions
    for the gates begin at 0, and modulations at none: the block is the identity at first ("adaLN-Zero").

    >>> attention, feedforward = keras_tfm.layers.MultiHeadAttention(2), keras_tfm.layers.FeedForward(16)
    >>> block = keras_tfm.layers.ModulatedBlock(attention, feedforward, is_gated=True)
    >>> x = np.ones((1, 5, 8), "float32")
    >>> bool(np.all(block(x, np.ones((1, 3))) == x))
    True
    """

    is_block = True  # read by `rematerialize`, and where learning rates or freezing depend on depth

    def __init__(
        self,
        attention: keras.layers.Layer,
        feedforward: keras.layers.Layer,
        epsilon: float = 1e-6,
        is_gated: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attention = attention
        self.feedforward = feedforward
        self.epsilon = epsilon
        self.is_gated = is_gated
        initial = "zeros" if is_gated else "glorot_uniform"
        self.attention_norm = ModulatedNormalization(epsilon, initial)
        self.feedforward_norm = ModulatedNormalization(epsilon, initial)

    def build(self, x_shape, w_shape):
        for norm in (self.attention_norm, self.feedforward_norm):
            norm.build(x_shape, w_shape)
        for part in (self.attention, self.feedforward):
            part.build(x_shape)
        self.attention_gate: Any = None
        self.feedforward_gate: Any = None
        if self.is_gated:
            self.attention_gate = Dense(x_shape[-1], kernel_initializer="zeros", name="attention_gate")
            self.feedforward_gate = Dense(x_shape[-1], kernel_initializer="zeros", name="feedforward_gate")
            for gate in (self.attention_gate, self.feedforward_gate):
                gate.build(w_shape)

    def call(self, x, w, training=None):
        """`x` (B, T, D) and `w` (B, W), or (B, T, W) for a modulation of each token: (B, T, D)."""
        y = self.attention(self.attention_norm(x, w), training=training)
        x = x + _gated(y, w, self.attention_gate)
        y = self.feedforward(self.feedforward_norm(x, w), training=training)
        return x + _gated(y, w, self.feedforward_gate)


def _gated(y, w, gate):
    """`y` (B, T, D) times the `gate` of `w`, if there is one."""
    if gate is None:
        return y
    w = w if len(w.shape) == len(y.shape) else w[:, None]
    return y * ops.cast(gate(w), y.dtype)
