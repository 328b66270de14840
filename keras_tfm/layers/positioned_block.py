"""Blocks that add positions to queries and keys in every block, and never to values.

    x + position ---> query, key --+
                                   attention --> + --> norm     then cross-attention in the same way,
    x --------------> value -------+             |              then a feed-forward layer
    |____________________________________________|

Carion et al. 2020, "End-to-End Object Detection with Transformers", figure 10.
"""

from typing import Any

import keras

from keras_tfm.layers.attention.functional import add_if_given
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import combine_masks, key_mask_of
from keras_tfm.layers.signatures import Activation


class PositionedAttention(Layer):
    """Applies `attention` after adding positions to its queries and keys, but not to its values.

    >>> attention = keras_tfm.layers.PositionedAttention(keras_tfm.layers.MultiHeadAttention(num_heads=2))
    >>> attention(np.ones((1, 5, 8)), position=np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(self, attention: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention = attention

    def build(self, x_shape, context_shape=None, position_shape=None, context_position_shape=None):
        value_shape = x_shape if context_shape is None else context_shape
        self.attention.build(x_shape, value_shape, value_shape)

    def call(
        self, x, context=None, position=None, context_position=None, mask=None, bias=None, training=None
    ):
        """Attend from `x` (B, T, D) to `context` (B, S, D) or, without one, to `x` itself: (B, T, D).

        `position` (B or 1, T, D) belongs to `x`, `context_position` (B or 1, S, D) to the context; None adds
        nothing. `mask`, combined by AND with the one that Keras carries on the values, and `bias` are passed
        to the attention.
        """
        query = add_if_given(x, position)
        key = query if context is None else add_if_given(context, context_position)
        value = x if context is None else context
        mask = combine_masks(mask, key_mask_of(value))  # a sum with a position carries none
        return self.attention(query, value, key, mask=mask, bias=bias, training=training)

    def compute_output_shape(
        self, x_shape, context_shape=None, position_shape=None, context_position_shape=None
    ):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class PositionedBlock(Block):
    """A `Block` whose attention parts are `Residual`s of `PositionedAttention`.

    It is not causal and cannot decode step by step.

    >>> part = keras_tfm.layers.Residual
    >>> attention = keras_tfm.layers.PositionedAttention(keras_tfm.layers.MultiHeadAttention(num_heads=2))
    >>> block = keras_tfm.layers.PositionedBlock(part(attention), part(keras_tfm.layers.FeedForward(16)))
    >>> block(np.ones((1, 5, 8)), position=np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def call(
        self,
        x,
        context=None,
        mask=None,
        context_mask=None,
        bias=None,
        training=None,
        position=None,
        context_position=None,
        context_bias=None,
    ):
        """(B, T, D) -> (B, T, D), attending to `context` (B, S, D) too if there is cross-attention.

        The positions are those of `PositionedAttention`, `context_bias` is added to the scores of
        cross-attention, and the other arguments are those of `Block`.
        """
        x = self.attention.around(x, position=position, mask=mask, bias=bias, training=training)
        places = {"position": position, "context_position": context_position}
        return self.rest(x, context, training, **places, mask=context_mask, bias=context_bias)

    def rest(self, x, context=None, training=None, **options):
        """What follows self-attention; `options` are those of cross-attention."""
        if self.context_attention is not None:
            x = self.context_attention.around(x, context, **options, training=training)
        return self.feedforward(x, training=training)


class DETRBlock(PositionedBlock):
    """The block of DETR's encoder or, with `cross_attention`, of its decoder.

    Args:
        num_heads: H, of each attention layer.
        intermediate_dim: F, the width of the feed-forward layer.
        dropout: the rate for attention weights and for the output of each part.
        activation: of the feed-forward layer.
        normalize_first: whether the norms are at the input of each part instead of at the sums.
        cross_attention: whether the block also attends to a `context`.

    >>> block = keras_tfm.layers.DETRBlock(num_heads=2, intermediate_dim=32)
    >>> block(np.ones((1, 5, 8)), position=np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        activation: Activation = "relu",
        normalize_first: bool = False,
        cross_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        part = residuals(normalize_first, dropout, epsilon=1e-5)

        def attention():
            return part(PositionedAttention(MultiHeadAttention(num_heads, dropout=dropout)))

        super().__init__(
            attention(),
            part(FeedForward(intermediate_dim, activation)),
            attention() if cross_attention else None,
            **kwargs,
        )
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.activation = activation
        self.normalize_first = normalize_first
        self.cross_attention = cross_attention
