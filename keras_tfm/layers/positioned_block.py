"""Blocks whose positions are added to queries and keys in every block, and not to values.

    x + position ---> query, key --+
                                   attention --> + --> norm     then the same from the context, then a
    x --------------> value -------+             |              feed-forward layer
    |____________________________________________|

Carion et al. 2020, "End-to-End Object Detection with Transformers", figure 10.
"""

from keras_tfm.layers.attention.functional import add_if_given
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.masks import key_mask_of


class PositionedAttention(Layer):
    """`attention` to whose queries and keys positions are added, and not to its values."""

    def __init__(self, attention, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention

    def build(self, x_shape, context_shape=None, position_shape=None, context_position_shape=None):
        value_shape = x_shape if context_shape is None else context_shape
        self.attention.build(x_shape, value_shape, value_shape)
        self.built = True

    def call(
        self, x, context=None, position=None, context_position=None, mask=None, bias=None, training=None
    ):
        """Attend from `x` (B, T, D) to the `context` (B, S, D), or without one to itself: (B, T, D).

        `position` (B or 1, T, D) is of `x`, `context_position` (B or 1, S, D) of the context; None adds
        nothing. `mask` and `bias` are the attention's.
        """
        query = add_if_given(x, position)
        key = query if context is None else add_if_given(context, context_position)
        value = x if context is None else context
        return self.attention(query, value, key, mask=mask, bias=bias, training=training)

    def compute_output_shape(
        self, x_shape, context_shape=None, position_shape=None, context_position_shape=None
    ):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class PositionedBlock(Block):
    """A `Block` that hands positions to its attentions, whose branches are `PositionedAttention`s.

    It decodes no step by step: its `causal` is False.
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
    ):
        """(B, T, D) -> (B, T, D), attending to `context` (B, S, D) where there is cross-attention.

        The positions are `PositionedAttention`'s, the other arguments `Block`'s.
        """
        positions: dict = {"position": position, "training": training}
        part = self.attention
        x = part.after(x, part.branch(part.before(x), mask=mask, bias=bias, **positions), training)
        if self.context_attention is not None:
            part = self.context_attention
            positions |= {"context_position": context_position, "mask": context_mask}
            x = part.after(x, part.branch(part.before(x), context, **positions), training)
        return self.feedforward(x, training=training)


class DETRBlock(PositionedBlock):
    """The plain one, of DETR's encoder, and with `cross_attention` of its decoder.

    `intermediate_dim` is the feed-forward width. `dropout` acts on the attention weights and on what each
    part adds. `normalize_first` normalises each part's input instead of each sum.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        dropout=0.1,
        activation="relu",
        normalize_first=False,
        cross_attention=False,
        **kwargs,
    ):
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
