"""The projections of LeViT's attention, which end with batch normalisation."""

from keras import ops

from keras_tfm.layers.attention.projections import split_heads
from keras_tfm.layers.base import Layer
from keras_tfm.layers.convolution import NormalizedDense


class NormalizedProjections(Layer):
    """Projections to queries, keys and values that end with batch normalisation (Graham et al. 2021,
    "LeViT", section 4).

    Self-attention has one `NormalizedDense`, cross-attention two. A head's queries and keys are `key_dim`
    wide, its values `value_dim`.
    """

    def __init__(self, num_heads, key_dim, value_dim, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = self.key_width = key_dim
        self.value_dim = self.value_width = value_dim

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.is_self_attention = value_shape is None
        keys, values = self.num_heads * self.key_dim, self.num_heads * self.value_dim
        if self.is_self_attention:
            self.query_key_value = NormalizedDense(2 * keys + values, name="query_key_value")
            self.query_key_value.build(query_shape)
        else:
            self.query = NormalizedDense(keys, name="query")
            self.key_value = NormalizedDense(keys + values, name="key_value")
            self.query.build(query_shape)
            self.key_value.build(value_shape)

    def project(self, query, value=None, key=None):
        """Heads (B, H, T, K), (B, H, S, K) and (B, H, S, Kv) of `query` (B, T, D) and `value` (B, S, D)."""
        keys = self.num_heads * self.key_dim
        if self.is_self_attention:
            parts = ops.split(self.query_key_value(query), (keys, 2 * keys), axis=-1)
        else:
            parts = [self.query(query), *ops.split(self.key_value(value), (keys,), axis=-1)]
        return [split_heads(part, self.num_heads) for part in parts]
