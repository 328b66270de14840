"""Attention as a layer, in five stages of which each can be replaced.

    project     `projections`: tokens to the queries q, keys k and values v of the heads
    score       scale * q kᵀ, a bias, what the position adds; `on_scores`
    weigh       softmax over the keys that the mask allows; `on_weights`; the tap; dropout
    average     weights v, and what the position adds
    merge       the averages of all heads side by side; `output_layer`

Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

from keras import ops

from keras_tfm.layers.attention.functional import add_bias, add_if_given, attention_scores, multiply_heads
from keras_tfm.layers.attention.projections import HeadProjections, join_heads
from keras_tfm.layers.attention.tap import is_recorded, tap
from keras_tfm.layers.base import Layer, own
from keras_tfm.layers.cache import ContextCache, KeyValueCache
from keras_tfm.layers.compiler.blockwise import blockwise_attention
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import causal_mask, combine_masks, key_mask_of, masked_softmax
from keras_tfm.layers.regularization import Dropout


class Attention(Layer):
    """Attention made of its stages, the queries' length in and out.

    `projections` are `HeadProjections`, or a layer with their methods and widths. `position` is an
    `AttentionPosition`: rotary, relative or bucketed. `scale` multiplies the scores, by default 1/sqrt(K).
    `on_scores` and `on_weights` are layers (B, H, T, S) -> (B, H, T, S), None for none; `dropout` acts on the
    weights last. `output_layer` is called on (B, T, H Kv), by default a `Dense` to the queries' width.
    """

    def __init__(
        self,
        projections,
        position=None,
        scale=None,
        dropout=0.0,
        on_scores=None,
        on_weights=None,
        output_layer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.projections = projections
        self.position = position
        self.scale = scale
        self.dropout = dropout
        self.on_scores = on_scores
        self.on_weights = on_weights
        self.output_layer = output_layer
        self.weight_dropout = Dropout(dropout, name="dropout")

    def build(self, query_shape, value_shape=None, key_shape=None):
        heads = self.projections
        heads.build(query_shape, value_shape, key_shape)
        if self.position is not None:
            self.position.build_for(heads.num_heads, heads.key_width, heads.value_width)
        for layer in (self.on_scores, self.on_weights):
            if layer is not None:
                layer.build((None, heads.num_heads, None, None))
        self.output_projection = self.output_layer or self._new_output(query_shape[-1])
        self.output_projection.build((*query_shape[:-1], heads.num_heads * heads.value_width))
        self.built = True

    def _new_output(self, width):
        return Dense(width, name="output")

    def call(self, query, value=None, key=None, mask=None, bias=None, causal=False, training=None):
        """Attend from `query` (B, T, D) to `value` (B, S, Dv), by `key` (B, S, Dk) if given.

        Without either it is self-attention. `mask` follows `keras_tfm.layers.masks`; a mask that Keras
        carries on the keys is ANDed in; `bias` is added to the scores; `causal` hides later keys. Returns
        (B, T, D).
        """
        keys = next(x for x in (key, value, query) if x is not None)
        mask = combine_masks(mask, key_mask_of(keys))
        query, key, value = self.projections.project(query, value, key)
        if self.position is not None:
            query, key = self.position.rotate(query, key)
        return self.merge(self.attend(query, key, value, mask, bias, causal, training))

    def attend(self, query, key, value, mask=None, bias=None, causal=False, training=None):
        """The averages (B, H, T, Kv) for heads (B, H, T, K), (B, H, S, K) and (B, H, S, Kv)."""
        if causal:
            mask = combine_masks(mask, causal_mask(ops.shape(query)[2], ops.shape(key)[2]))
        weights = self.weigh(self.score(query, key, bias), mask, training)
        return self.average(weights, value)

    def score(self, query, key, bias=None, positions=None, key_positions=None):
        """The scores (B, H, T, S). Positions, (T,) or (B, T), are by default 0, 1, 2, ..."""
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        tap(self, (query, key, scale), "products")
        if self.position is not None:
            positions, key_positions = counted(positions, query), counted(key_positions, key)
            bias = add_if_given(bias, self.position.scores(query, key, positions, key_positions, scale))
        scores = add_bias(attention_scores(query, key, scale), bias)
        return scores if self.on_scores is None else self.on_scores(scores)

    def weigh(self, scores, mask=None, training=None):
        """The weights (B, H, T, S) of `scores`: 0 where `mask`, which broadcasts over them, is False."""
        weights = masked_softmax(scores, mask)
        if self.on_weights is not None:
            weights = self.on_weights(weights, training=training)
        tap(self, weights)
        if training and self.dropout:
            weights = self.weight_dropout(ops.cast(weights, self.compute_dtype), training=True)
        return weights

    def average(self, weights, value, positions=None, key_positions=None):
        """The means (B, H, T, Kv) of the values (B, H, S, Kv)."""
        weights = ops.cast(weights, value.dtype)
        heads = multiply_heads("...ts,...sk->...tk", weights, value)  # (B, H, T, Kv)
        if self.position is None:
            return heads
        positions, key_positions = counted(positions, weights), counted(key_positions, value)
        return add_if_given(heads, self.position.values(weights, positions, key_positions))

    def merge(self, heads):
        """(B, H, T, Kv) to the layer's output (B, T, D)."""
        return self.output_projection(join_heads(heads))

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        if self.output_layer is None:
            return tuple(query_shape)
        heads = self.projections
        return self.output_layer.compute_output_shape(
            (*query_shape[:-1], heads.num_heads * heads.value_width)
        )

    def compute_mask(self, query, previous_mask=None):
        return key_mask_of(query)

    # Decoding --------------------------------------------------------------------------------------------

    def start(self, batch_size, max_length):
        """An empty cache for self-attention over up to `max_length` positions."""
        heads = self.projections
        return KeyValueCache.empty(
            batch_size, heads.num_heads, max_length, heads.key_width, heads.value_width, self.compute_dtype
        )

    def step(self, query, cache, mask=None, bias=None):
        """Causal self-attention of the next T positions (B, T, D); `mask` (B, T) hides padding.

        Returns what `call(..., causal=True)` gives at these positions, and the cache with them. `bias` is for
        the queries and keys as `cache.positions(T)` numbers them.
        """
        length = ops.shape(query)[1]
        positions = cache.index + ops.arange(length, dtype="int32")
        query, key, value = self.projections.project(query)
        if self.position is not None:
            query, key = self.position.rotate(query, key, positions, positions)
        positions = cache.positions(length)
        cache = cache.append(key, value, mask)
        scores = self.score(cache.group(query), cache.key, bias, *positions)
        weights = self.weigh(scores, cache.attention_mask(length))
        heads = cache.ungroup(self.average(weights, cache.value, *positions))
        return self.merge(heads), cache

    def start_context(self, context, mask=None):
        """The cache of a context (B, S, D) for cross-attention; `mask` (B, S) hides its padding."""
        if mask is None:
            mask = ops.ones(ops.shape(context)[:2], "bool")
        key, value = self.projections.project_context(context)
        if self.position is not None:
            _, key = self.position.rotate(None, key)
        return ContextCache(key, value, mask)

    def step_context(self, query, cache, positions=None):
        """Cross-attention from (B, T, D), or beams (B G, T, D), to the B contexts that `cache` holds.

        `positions` (T,) are the queries', by default 0 .. T-1; only a layer with a `position` heeds them.
        """
        (heads,) = self.projections.project_query(cache.group(query))  # (B, H, G T, K)
        if self.position is not None:
            positions = cache.positions(query, positions)
            heads, _ = self.position.rotate(heads, None, positions)
        scores = self.score(heads, cache.key, positions=positions)
        weights = self.weigh(scores, combine_masks(cache.mask))
        return cache.ungroup(self.merge(self.average(weights, cache.value, positions)), query)


class MultiHeadAttention(Attention):
    """Multi-head attention (section 3.2.2), the queries' width in and out.

    `num_heads`, `key_dim`, `value_dim`, `use_bias` and `kernel_initializer` are those of `HeadProjections`,
    the last two of the output's layer too; `dropout`, `position` and `scale` are `Attention`'s.

    `layer(x)` is self-attention and projects queries, keys and values in one product;
    `layer(x, context)` is cross-attention and projects the context's keys and values in one;
    with a `key` of its own each has its own product. The first build fixes which form is used.
    """

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        position=None,
        scale=None,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        projections = HeadProjections(
            num_heads, key_dim, value_dim, use_bias, kernel_initializer, name="projections"
        )
        super().__init__(projections, position, scale, dropout, **kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer

    def _new_output(self, width):
        initializer = own(self.kernel_initializer)
        return Dense(width, use_bias=self.use_bias, kernel_initializer=initializer, name="output")


class BlockwiseAttention(MultiHeadAttention):
    """Multi-head attention in memory linear in the length, also while training, by `blockwise_attention`.

    Blocks are at most `block_size` long; dropout is drawn by blocks. The position may rotate, none may act on
    all scores at once. Where its weights are recorded they are computed as a whole.
    """

    def __init__(
        self,
        num_heads,
        block_size=512,
        key_dim=None,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        position=None,
        scale=None,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(
            num_heads, key_dim, value_dim, dropout, use_bias, position, scale, kernel_initializer, **kwargs
        )
        if block_size < 1:
            raise ValueError(f"`block_size` must be at least 1; it is {block_size}.")
        if self.position is not None and self.position.acts_on_scores:
            raise ValueError(
                f"Attention by blocks goes with no position or one that rotates, such as RotaryEmbedding; "
                f"{type(self.position).__name__} acts on all scores at once."
            )
        self.block_size = block_size

    def attend(self, query, key, value, mask=None, bias=None, causal=False, training=None):
        """The averages (B, H, T, Kv), a block of scores at a time."""
        if is_recorded():
            return super().attend(query, key, value, mask, bias, causal, training)
        dropout = self.dropout if training else 0.0
        seed = self.weight_dropout.seed_generator.next() if dropout else None
        return blockwise_attention(
            query, key, value, mask, bias, self.scale, causal, dropout, seed, block_size=self.block_size
        )


def counted(positions, x):
    """`positions`, or by default 0, 1, 2, ... for the next to last axis of `x`."""
    return ops.arange(ops.shape(x)[-2], dtype="int32") if positions is None else positions
