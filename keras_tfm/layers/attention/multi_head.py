"""The layer that projects to heads, attends and projects back.

Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

from keras import ops

from keras_tfm.layers.attention.functional import add_if_given, attention_weights, multiply_heads
from keras_tfm.layers.attention.projections import HeadProjection
from keras_tfm.layers.base import Layer, own
from keras_tfm.layers.cache import ContextCache, KeyValueCache, group_rows
from keras_tfm.layers.compiler.blockwise import blockwise_attention
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import causal_mask, combine_masks, key_mask_of
from keras_tfm.layers.regularization import Dropout


class MultiHeadAttention(Layer):
    """Multi-head attention (section 3.2.2), the queries' width in and out.

    `key_dim` is a head's width: by default the model's width over `num_heads` (truncated heads; the
    number of weights does not depend on the number of heads), or any width (full-width heads);
    `value_dim` defaults to it. `dropout` acts on the attention weights. `position` is an
    `AttentionPosition`: rotary, relative or bucketed. `scale` multiplies the scores, by default
    1/sqrt(key_dim).

    `layer(x)` is self-attention and projects queries, keys and values in one product;
    `layer(x, context)` is cross-attention and projects the context's keys and values in one;
    with a `key` of its own each has its own product. The first build fixes which form is used.

    With a `block_size` (512 is a good one) memory is linear in the length while training: `call` is
    `blockwise_attention`, with dropout drawn by blocks, and without relative or bucketed positions.
    """

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        position=None,
        kernel_initializer="glorot_uniform",
        block_size=None,
        scale=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if num_heads < 1:
            raise ValueError(f"`num_heads` must be at least 1; it is {num_heads}.")
        for name, size in (("key_dim", key_dim), ("value_dim", value_dim), ("block_size", block_size)):
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be at least 1, or None; it is {size}.")
        if block_size is not None and position is not None and position.acts_on_scores:
            raise ValueError(
                f"`block_size` goes with no position or one that rotates, such as RotaryEmbedding; "
                f"{type(position).__name__} acts on all scores at once. Leave one of the two out."
            )
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.position = position
        self.kernel_initializer = kernel_initializer
        self.block_size = block_size
        self.scale = scale
        self.weight_dropout = Dropout(dropout, name="dropout")

    def build(self, query_shape, value_shape=None, key_shape=None):
        width = query_shape[-1]
        if self.key_dim is None and width % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide the queries' width {width} where `key_dim` is "
                f"not given; it is {self.num_heads}."
            )
        self.key_width = self.key_dim or width // self.num_heads
        self.value_width = self.value_dim or self.key_width
        self.is_self_attention = value_shape is None and key_shape is None

        def options():
            return {
                "use_bias": self.use_bias,
                "kernel_initializer": own(self.kernel_initializer),
            }

        def heads(name, input_shape, *widths):
            projection = HeadProjection(self.num_heads, widths, name=name, **options())
            projection.build(input_shape)
            return projection

        if self.is_self_attention:
            widths = (self.key_width, self.key_width, self.value_width)
            self.query_key_value = heads("query_key_value", query_shape, *widths)
        else:
            self.query = heads("query", query_shape, self.key_width)
            if key_shape is None:
                self.key_value = heads("key_value", value_shape, self.key_width, self.value_width)
            else:
                self.key = heads("key", key_shape, self.key_width)
                self.value = heads("value", value_shape or key_shape, self.value_width)
        self.output_projection = Dense(width, name="output", **options())
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.value_width))
        if self.position is not None:
            self.position.build_for(self.num_heads, self.key_width, self.value_width)
        self.built = True

    def call(self, query, value=None, key=None, mask=None, bias=None, causal=False, training=None):
        """Attend from `query` (B, T, D) to `value` (B, S, Dv), by `key` (B, S, Dk) if given.

        `mask` follows `keras_tfm.layers.masks`; a mask that Keras carries on the keys is ANDed in;
        `bias` is added to the scores; `causal` hides later keys. Returns (B, T, D).
        """
        keys = next(x for x in (key, value, query) if x is not None)
        mask = combine_masks(mask, key_mask_of(keys))
        query, key, value = self._project(query, value, key)
        if self.block_size is not None:
            return self._attend_by_blocks(query, key, value, mask, bias, causal, training)
        if causal:
            mask = combine_masks(mask, causal_mask(ops.shape(query)[2], ops.shape(key)[2]))
        return self._attend(query, key, value, mask, bias, training=training)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return tuple(query_shape)

    def compute_mask(self, query, previous_mask=None):
        return key_mask_of(query)

    def start(self, batch_size, max_length):
        """An empty cache for self-attention over up to `max_length` positions."""
        return KeyValueCache.empty(
            batch_size, self.num_heads, max_length, self.key_width, self.value_width, self.compute_dtype
        )

    def step(self, query, cache, mask=None):
        """Causal self-attention of the next T positions (B, T, D); `mask` (B, T) hides padding.

        Returns what `call(..., causal=True)` gives at these positions, and the cache with them.
        """
        length = ops.shape(query)[1]
        positions = cache.index + ops.arange(length, dtype="int32")
        query, key, value = self._project(query, positions=positions)
        cache = cache.append(key, value, mask)
        heads = self._heads(
            cache.group(query),
            cache.key,
            cache.value,
            cache.attention_mask(length),
            positions=ops.repeat(positions, cache.group_size),
            group_size=cache.group_size,
        )
        return self._join(cache.ungroup(heads)), cache

    def start_context(self, context, mask=None):
        """The cache of a context (B, S, D) for cross-attention; `mask` (B, S) hides its padding."""
        if mask is None:
            mask = ops.ones(ops.shape(context)[:2], "bool")
        key, value = self.key_value(context)
        if self.position is not None:
            _, key = self.position.rotate(None, key)
        return ContextCache(key, value, mask)

    def step_context(self, query, cache, positions=None):
        """Cross-attention from (B, T, D), or beams (B G, T, D), to the B contexts that `cache` holds.

        `positions` (T,) are the queries', by default 0 .. T-1; only a layer with a `position` heeds them.
        """
        (heads,) = self.query(group_rows(query, ops.shape(cache.key)[0]))  # (B, H, G T, K)
        if self.position is not None:
            if positions is None:
                positions = ops.arange(ops.shape(query)[1], dtype="int32")
            group_size = ops.shape(heads)[2] // ops.shape(positions)[0]
            positions = ops.tile(ops.cast(positions, "int32"), (group_size,))
            heads, _ = self.position.rotate(heads, None, positions)
        y = self._heads(heads, cache.key, cache.value, cache.mask, positions=positions)
        return ops.reshape(self._join(y), ops.shape(query))

    def _project(self, query, value=None, key=None, positions=None):
        if self.is_self_attention != (value is None and key is None):
            built = (
                "self-attention, `layer(x)`" if self.is_self_attention else "two inputs, `layer(x, context)`"
            )
            raise ValueError(f"{self.name!r} was built for {built}, and is called the other way.")
        if not self.is_self_attention:
            (query,) = self.query(query)
            if hasattr(self, "key_value"):
                key, value = self.key_value(value)
            else:
                (value,) = self.value(key if value is None else value)
                (key,) = self.key(key)
        else:
            query, key, value = self.query_key_value(query)
        if self.position is not None:
            query, key = self.position.rotate(query, key, positions, positions)
        return query, key, value

    def _attend(self, query, key, value, mask=None, bias=None, training=None):
        """Heads in (B, H, T, K), (B, H, S, K), (B, H, S, Kv); the layer's output (B, T, D) out."""
        return self._join(self._heads(query, key, value, mask, bias, training=training))

    def _heads(self, query, key, value, mask, bias=None, positions=None, group_size=1, training=None):
        """Heads in, the first axes of keys and values apart or as one; (B, H, T, Kv) out."""
        position = self.position
        if position is not None:
            positions = ops.arange(ops.shape(query)[2], dtype="int32") if positions is None else positions
            key_positions = ops.arange(ops.shape(key)[-2], dtype="int32") // group_size
            scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
            bias = add_if_given(bias, position.scores(query * scale, positions, key_positions))
        weights = attention_weights(query, key, mask, bias, self.scale)
        weights = self.weight_dropout(ops.cast(weights, value.dtype), training=training)
        heads = multiply_heads("...ts,...sk->...tk", weights, value)  # (B, H, T, Kv)
        if position is not None:
            heads = add_if_given(heads, position.values(weights, positions, key_positions))
        return heads

    def _attend_by_blocks(self, query, key, value, mask, bias, causal, training):
        dropout = self.weight_dropout.rate if training else 0.0
        seed = self.weight_dropout.seed_generator.next() if dropout else None
        return self._join(
            blockwise_attention(
                query, key, value, mask, bias, self.scale, causal, dropout, seed, block_size=self.block_size
            )
        )

    def _join(self, heads):
        """(B, H, T, Kv) to the layer's output (B, T, D)."""
        heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, T, H, Kv)
        heads = ops.reshape(heads, (*ops.shape(heads)[:2], self.num_heads * self.value_width))  # (B, T, H Kv)
        return self.output_projection(heads)
