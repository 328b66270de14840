"""Attention by the distance of queries and keys, whose gradients are bounded (Kim, Papamakarios and Mnih
2021, "The Lipschitz Constant of Self-Attention", section 3.3).
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.attention.functional import add_if_given
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import split_heads
from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import in_float32


class DistanceAttention(Attention):
    """Attention whose weights are softmax(-|q - k|² scale), the squared distance instead of the product.

    The arguments are `Attention`'s. Its Lipschitz constant is finite, on a bounded domain too, only
    with `TiedProjections`.

    >>> attention = keras_tfm.layers.DistanceAttention(keras_tfm.layers.TiedProjections(num_heads=2))
    >>> attention(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def score(self, query, key, bias=None, positions=None, key_positions=None):
        """-|q - k|² scale + scale |q|², whose last term is the same for all keys and leaves the softmax as it
        is: (B, H, T, S).
        """
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        lengths = ops.sum(ops.square(in_float32(key)), axis=-1)  # (B, G, S), of a cache (B G, S)
        heads = self.projections.num_heads // self.heads_per_key
        lengths = ops.reshape(lengths, (-1, heads, 1, ops.shape(lengths)[-1]))  # (B, G, 1, S)
        lengths = ops.repeat(lengths, self.heads_per_key, axis=1)  # (B, H, 1, S)
        return super().score(2 * query, key, add_if_given(bias, -scale * lengths), positions, key_positions)


class TiedProjections(Layer):
    """The projections of self-attention whose keys are its queries, as `Attention` takes them.

    `query_key` and `value` are dense layers of D units, by default without a bias; others, such as
    `SpectralDense`, can be given.

    >>> projections = keras_tfm.layers.TiedProjections(num_heads=2)
    >>> projections.build((None, 5, 8))
    >>> query, key, value = projections.project(np.ones((1, 5, 8)))
    >>> query is key
    True
    """

    def __init__(
        self,
        num_heads: int,
        query_key: keras.layers.Layer | None = None,
        value: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(num_heads=num_heads)
        self.num_heads = num_heads
        self.query_key = query_key
        self.value = value

    def build(self, query_shape, value_shape=None, key_shape=None):
        if value_shape is not None or key_shape is not None:
            raise ValueError(f"{self.name!r} is for self-attention, `layer(x)`; it has a context too.")
        dim = query_shape[-1]
        self.query_projection = self.query_key or Dense(dim, use_bias=False, name="query_key")
        self.value_projection = self.value or Dense(dim, use_bias=False, name="value")
        for projection in (self.query_projection, self.value_projection):
            projection.build(query_shape)
            width = projection.units
            if width % self.num_heads:
                raise ValueError(
                    f"`num_heads` must divide the width of the projections, {width}; it is {self.num_heads}."
                )
        self.key_width = self.query_projection.units // self.num_heads
        self.value_width = self.value_projection.units // self.num_heads

    def project(self, query, value=None, key=None):
        """Heads (B, H, T, K), the same again, and (B, H, T, Kv) of `query` (B, T, D)."""
        if value is not None or key is not None:
            raise ValueError(f"{self.name!r} is for self-attention, `layer(x)`; it is called with a context.")
        heads = split_heads(self.query_projection(query), self.num_heads)  # (B, H, T, K)
        return heads, heads, split_heads(self.value_projection(query), self.num_heads)
