"""Attention that adds positions to queries and keys, and never to values.

    x + position ---> query, key --+
                                   attention
    x --------------> value -------+

Carion et al. 2020, "End-to-End Object Detection with Transformers", figure 10.
"""

from typing import Any

import keras

from keras_tfm.layers.attention.functional import add_if_given
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.masks import combine_masks, key_mask_of


class PositionedAttention(SameShape):
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

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)
