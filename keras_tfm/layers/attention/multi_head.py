"""Attention as a layer, in five stages, each of which can be replaced.

    project     `projections`: tokens become the queries q, keys k and values v of the heads
    score       scale * q kᵀ, plus a bias and what the position adds
    weigh       `on_scores`; softmax over the keys that the mask allows; `on_weights`; the tap; dropout
    average     weights times v, plus what the position adds
    merge       the averages of all heads side by side; `output_layer`

Between the first and the last stage stands one method, `attend`: queries in, averages out. Its `keys` hold
what is attended to, whether that was projected a moment before (`Keys`) or is a cache of earlier steps; both
know their masks and positions. So `call`, `step` and `step_context` differ in where the keys come from alone.

Vaswani et al. 2017, "Attention Is All You Need", section 3.2. The tap is where `record_attention` reads the
weights.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_tfm.jit import is_cpu_alone, is_fusing
from keras_tfm.layers.attention.functional import add_bias, add_if_given, attention_scores
from keras_tfm.layers.attention.projections import HeadProjections, join_heads
from keras_tfm.layers.attention.tap import recorders, tap
from keras_tfm.layers.base import Layer, copy_of, require_sizes
from keras_tfm.layers.cache import ContextCache, Keys, KeyValueCache
from keras_tfm.layers.compiler.averages import softmax_average
from keras_tfm.layers.compiler.blockwise import blockwise_attention
from keras_tfm.layers.compiler.products import product
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import combine_masks, fitting, key_mask_of, masked_softmax, padding_mask_of
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.signatures import Initializer


class Attention(Layer):
    """Attention composed of its stages: queries (B, T, D) in, (B, T, D) out.

    Args:
        projections: a `HeadProjections`, or a layer with its methods and its attributes `num_heads`,
            `key_width`, `value_width` and, if there are fewer heads of keys, `num_key_value_heads`.
        position: an `AttentionPosition`: rotary, relative or bucketed positions.
        scale: multiplies the scores; by default 1/sqrt(K).
        dropout: the rate at which weights are dropped in training.
        on_scores: a layer (B, H, T, S) -> (B, H, T, S) applied to the scores. If its `call` has an argument
            `mask`, it gets the mask too.
        on_weights: a layer of the same shapes applied to the weights; masked keys weigh 0 after it.
        output_layer: a layer called on the merged heads (B, T, H Kv); by default a `Dense` layer to D.
        window: how many positions causal attention sees, the query's own included; None for all before it.

    >>> projections = keras_tfm.layers.HeadProjections(num_heads=2)
    >>> attention = keras_tfm.layers.Attention(projections, on_scores=keras_tfm.layers.TopK(3))
    >>> attention(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        projections: keras.layers.Layer,
        position: keras.layers.Layer | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        on_scores: keras.layers.Layer | None = None,
        on_weights: keras.layers.Layer | None = None,
        output_layer: keras.layers.Layer | None = None,
        window: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if window is not None:
            require_sizes(window=window)
        self.projections = projections
        self.position = position
        self.needs_positions = position is not None and position.acts_on_scores
        self.scale = scale
        self.dropout = dropout
        self.on_scores = on_scores
        self.masks_scores = on_scores is not None and "mask" in inspect.signature(on_scores.call).parameters
        self.on_weights = on_weights
        self.output_layer = output_layer
        self.window = window
        num_key_value_heads = getattr(projections, "num_key_value_heads", None) or projections.num_heads
        self.heads_per_key = projections.num_heads // num_key_value_heads
        self.weight_dropout = Dropout(dropout, name="dropout")
        self.input_spec = keras.InputSpec(ndim=3)  # queries of another rank are refused by the layer's name

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

    def _new_output(self, width):
        return Dense(width, name="output")

    def call(self, query, value=None, key=None, mask=None, bias=None, causal=False, training=None):
        """Attend from `query` (B, T, D) to `value` (B, S, Dv), compared by `key` (B, S, Dk) or by `value`
        itself.

        With the query alone it is self-attention. `mask` is described in `keras_tfm.layers.masks`; a mask
        that Keras carries on the keys is combined with it by AND. `bias` is added to the scores. `causal`
        hides later keys from each query. Returns (B, T, D).

        Raises ValueError for a `window` without `causal`.
        """
        if self.window is not None and not causal:
            raise ValueError(f"{self.name!r} has a `window`, which is for causal attention alone.")
        sequence = key if key is not None else query if value is None else value
        mask = fitting(combine_masks(mask, key_mask_of(sequence)), query, sequence)
        query, key, value = self.projections.project(query, value, key)
        if self.position is not None:
            query, key = self.position.rotate(query, key)
        return self.merge(self.attend(query, Keys(key, value, mask, causal), bias, training))

    def attend(self, query, keys, bias=None, training=None):
        """The averages (B, H, T, Kv) for queries (B, H, T, K) and `keys`: a `Keys` or a cache of them."""
        positions = keys.positions(query) if self.needs_positions else ()
        scores, mask = self.score(query, keys.key, bias, *positions), keys.attention_mask(query, self.window)
        if training and self._averages_at_once(scores, keys.value):
            return softmax_average(scores, keys.value, mask)
        return self.average(self.weigh(scores, mask, training), keys.value, *positions)

    def _averages_at_once(self, scores, value):
        """Whether nothing stands between the scores and the averages but a softmax, in float32 on a CPU."""
        is_plain = self.on_scores is None and self.on_weights is None and not self.needs_positions
        kinds = {keras.backend.standardize_dtype(x.dtype) for x in (scores, value)}
        has_own_keys = scores.shape[:2] == value.shape[:2]
        is_open = is_plain and has_own_keys and not self.dropout and not recorders
        return is_open and kinds == {"float32"} and is_cpu_alone() and not is_fusing()

    def score(self, query, key, bias=None, positions=None, key_positions=None):
        """The scores (B, H, T, S). Positions are (T,) or (B, T), by default 0, 1, 2, ..."""
        scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
        if recorders:
            keys = key if self.heads_per_key == 1 else repeat_heads(key, self.heads_per_key)
            tap(self, (query, keys, scale), "products")
        if self.position is not None and self.needs_positions:
            if positions is None:
                positions, key_positions = Keys(key, key).positions(query)
            bias = add_if_given(bias, self.position.scores(query, key, positions, key_positions, scale))
        scores = attention_scores(query, key, scale, self.heads_per_key)
        return scores if bias is None else add_bias(scores, bias)

    def weigh(self, scores, mask=None, training=None):
        """The weights (B, H, T, S): a softmax of `scores`, 0 where `mask`, broadcast over them, is False."""
        if self.on_scores is not None:
            scores = self.on_scores(scores, **({"mask": mask} if self.masks_scores else {}))
        weights = masked_softmax(scores, mask)
        if self.on_weights is not None:
            weights = self.on_weights(weights, training=training)
            weights = weights if mask is None else weights * ops.cast(mask, weights.dtype)
        if recorders:
            tap(self, weights)
        if training and self.dropout:
            weights = self.weight_dropout(ops.cast(weights, self.compute_dtype), training=True)
        return weights

    def average(self, weights, value, positions=None, key_positions=None):
        """The means (B, H, T, Kv) of the values (B, H, S, Kv), weighed by `weights`."""
        weights = ops.cast(weights, value.dtype)
        heads = product(weights, value, heads_per_key=self.heads_per_key)  # (B, H, T, Kv)
        if self.position is None or not self.needs_positions:
            return heads
        if positions is None:
            positions, key_positions = Keys(value, value).positions(weights)
        return add_if_given(heads, self.position.values(weights, positions, key_positions))

    def merge(self, heads):
        """The layer's output (B, T, D) from the heads' averages (B, H, T, Kv)."""
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
        num_heads = heads.num_heads // self.heads_per_key
        return KeyValueCache.empty(
            batch_size, num_heads, max_length, heads.key_width, heads.value_width, self.compute_dtype
        )

    def step(self, query, cache, mask=None, bias=None):
        """Causal self-attention of the next T positions (B, T, D); `mask` (B, T) is False at padding.

        Returns what `call(..., causal=True)` gives at these positions, and the cache extended by them.
        `bias` is for the queries and keys in the order of `cache.next_positions(T)`.
        """
        if key_mask_of(query) is not None:
            mask = padding_mask_of(query, mask)
        query, key, value = self.projections.project(query)
        if self.position is not None:
            positions = cache.index + ops.arange(ops.shape(query)[2], dtype="int32")
            query, key = self.position.rotate(query, key, positions, positions)
        cache = cache.append(key, value, mask)
        heads = self.attend(cache.group(query), cache, bias)
        return self.merge(cache.ungroup(heads)), cache

    def start_context(self, context, mask=None):
        """The cache of a context (B, S, D) for cross-attention; `mask` (B, S) is False at its padding."""
        mask = padding_mask_of(context, mask)
        if mask is None:
            mask = ops.ones(ops.shape(context)[:2], "bool")
        key, value = self.projections.project_context(context)
        if self.position is not None:
            _, key = self.position.rotate(None, key)
        return ContextCache(key, value, mask)

    def step_context(self, query, cache, positions=None):
        """Cross-attention from (B, T, D) to the B contexts that `cache` holds.

        In beam search the queries are (B G, T, D): G beams share each context. `positions` (T,) are the
        queries' positions, by default 0 .. T-1; a layer without a `position` ignores them.
        """
        (heads,) = self.projections.project_query(cache.group(query))  # (B, H, G T, K)
        if self.position is not None:
            positions = cache.positions(query, positions)
            heads, _ = self.position.rotate(heads, None, positions)
        keys = Keys(cache.key, cache.value, combine_masks(cache.mask), query_positions=positions)
        return cache.ungroup(self.merge(self.attend(heads, keys)), query)


def repeat_heads(key, heads_per_key):
    """A key for each head, of keys (B, G, S, K) or (B G, S, K) that heads share."""
    return ops.repeat(key, heads_per_key, axis=len(key.shape) - 3)  # (B, H, S, K) or (B H, S, K)


class MultiHeadAttention(Attention):
    """Multi-head attention (section 3.2.2): Concat(head_1, ..., head_H) W_O, from (B, T, D) to (B, T, D).

    `layer(x)` is self-attention and projects queries, keys and values in one matrix product; `layer(x,
    context)` is cross-attention and projects the context's keys and values in one; with a third argument,
    `key`, each has its own product. The first build fixes which form is used.

    Args:
        num_heads: H, the number of heads.
        key_dim: K, the width of a head's queries and keys; by default D / num_heads.
        value_dim: Kv, the width of a head's values; by default `key_dim`.
        dropout: the rate at which attention weights are dropped in training.
        use_bias: whether the projections and the output layer have biases; with names of projections, which
            may be none, these and the output layer: see `HeadProjections`.
        position: an `AttentionPosition`.
        scale: multiplies the scores; by default 1/sqrt(K).
        num_key_value_heads: how many heads keys and values have; see `HeadProjections`.
        window: how many positions causal attention sees; see `Attention`.

    Raises:
        ValueError: for the last two in a subclass that has an `attend` of its own.

    >>> layer = keras_tfm.layers.MultiHeadAttention(num_heads=2, position=keras_tfm.layers.RotaryEmbedding())
    >>> layer(np.ones((1, 5, 8)), causal=True).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool | Sequence[str] = True,
        position: keras.layers.Layer | None = None,
        scale: float | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        num_key_value_heads: int | None = None,
        window: int | None = None,
        **kwargs: Any,
    ) -> None:
        projections = HeadProjections(
            num_heads,
            key_dim,
            value_dim,
            use_bias,
            kernel_initializer,
            num_key_value_heads,
            name="projections",
        )
        super().__init__(projections, position, scale, dropout, window=window, **kwargs)
        if type(self).attend is not Attention.attend and (window, num_key_value_heads) != (None, None):
            raise ValueError(
                f"A {type(self).__name__} attends in its own way: `window` and `num_key_value_heads` must be "
                f"None; they are {window} and {num_key_value_heads}."
            )
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.num_key_value_heads = num_key_value_heads

    def _new_output(self, width):
        initializer = copy_of(self.kernel_initializer)
        has_bias = self.use_bias is not False
        return Dense(width, use_bias=has_bias, kernel_initializer=initializer, name="output")


class BlockwiseAttention(MultiHeadAttention):
    """Multi-head attention whose memory is linear in the length, in training too: see `blockwise_attention`.

    The scores are computed in blocks of at most `block_size` queries and keys, and never held as a whole.
    Recording the weights with `record_attention` computes them as a whole again. The other arguments are as
    in `MultiHeadAttention`.

    Raises:
        ValueError: for an `on_scores` or `on_weights`, or if `position` acts on the scores or values. One
            that only rotates queries and keys is possible.

    >>> layer = keras_tfm.layers.BlockwiseAttention(num_heads=2, block_size=4)
    >>> layer(np.ones((1, 10, 8))).shape
    TensorShape([1, 10, 8])
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool | Sequence[str] = True,
        position: keras.layers.Layer | None = None,
        scale: float | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        block_size: int = 512,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads, key_dim, value_dim, dropout, use_bias, position, scale, kernel_initializer, **kwargs
        )
        require_sizes(block_size=block_size)
        if self.position is not None and self.position.acts_on_scores:
            raise ValueError(
                "`position` must be None or one that only rotates queries and keys, such as RotaryEmbedding; "
                f"it is a {type(self.position).__name__}, which needs all scores at once."
            )
        if self.on_scores is not None or self.on_weights is not None:
            raise ValueError("`on_scores` and `on_weights` must be None: they need all scores at once.")
        self.block_size = block_size

    def attend(self, query, keys, bias=None, training=None):
        """The averages (B, H, T, Kv), computed one block of scores at a time; of a cache of self-attention,
        whose scores are few, as a whole.
        """
        if recorders or not isinstance(keys, Keys):
            return super().attend(query, keys, bias, training)
        dropout = self.dropout if training else 0.0
        seed = self.weight_dropout.seed_generator.next() if dropout else None
        return blockwise_attention(
            query,
            keys.key,
            keys.value,
            keys.mask,
            bias,
            self.scale,
            keys.causal,
            dropout,
            seed,
            self.block_size,
        )
