"""Attention of a recurrent decoder: how an encoder's states h become one context vector for each step.

With s the decoder's state, the score of an encoder state is

    additive    v · tanh(W s + U h + b)     Bahdanau, Cho and Bengio 2015, section 3.1
    dot         s · W h                     Luong, Pham and Manning 2015, section 3.1, "general"
    static      an entry of a learned table, T_y x T_x, which does not depend on s and h
    none        there is no context vector: Sutskever, Vinyals and Le 2014

A decoder also takes any other layer that has `start_context` and `step_context`, such as
`MultiHeadAttention`.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.cache import ContextCache
from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.layers.masks import combine_masks, fitting, key_mask_of, masked_softmax, padding_mask_of
from keras_tfm.layers.positions import outside_is_nan
from keras_tfm.layers.signatures import Tensor


def additive_attention_weights(
    query: Tensor, key: Tensor, scale: Tensor, mask: Tensor | None = None
) -> Tensor:
    """softmax(scale · tanh(query + key)) over the keys that `mask` allows, of shape (B, T, S).

    `query` (B, T, U) and `key` (B, S, U) are already projected; `scale` is a vector (U,); `mask` is
    described in `keras_tfm.layers.masks`. Each row sums to 1, in float32 or float64; a query that may attend
    to no key gets zeros.

    >>> query, key = np.ones((1, 2, 4)), np.ones((1, 3, 4))
    >>> keras_tfm.layers.additive_attention_weights(query, key, np.ones(4)).shape
    TensorShape([1, 2, 3])
    """
    mask = fitting(combine_masks(mask, rank=3), query, key)
    return masked_softmax(additive_scores(query, key, scale), mask)


def additive_scores(query, key, scale):
    """scale · tanh(query + key), (B, T, S), for (B, T, U), (B, S, U) and (U,).

    The hidden layer (B, T, S, U) is recomputed for the gradient. A loop over steps would otherwise keep the
    hidden layer of every step in memory.
    """

    def hidden_of(query, key):
        return ops.tanh(query[:, :, None] + key[:, None])  # (B, T, S, U)

    @custom_gradient
    def scores(query, key, scale):
        def gradient(upstream):
            hidden = hidden_of(query, key)
            of_sum = upstream[..., None] * scale * (1 - ops.square(hidden))  # (B, T, S, U)
            return (
                ops.sum(of_sum, axis=2),
                ops.sum(of_sum, axis=1),
                ops.einsum("bts,btsu->u", upstream, hidden),
            )

        return ops.einsum("btsu,u->bts", hidden_of(query, key), scale), gradient

    return scores(query, key, ops.cast(scale, query.dtype))


class Alignment(Layer):
    """Averages a context's own states: one head, no projection of the values. Abstract: subclasses define
    `weigh`.

    `follows_state` says whether the weights depend on the query, the decoder's state. If so, `query` is the
    layer that projects it, without a bias, and `key` the layer that projects the context's states, or None
    if these are used as keys directly.
    """

    follows_state = True
    key: Any = None

    def weigh(self, query, cache):
        """The weights (B, T, S) for projected queries (B, T, U), or for positions (B, T)."""
        raise NotImplementedError

    def call(self, query, value, mask=None):
        """Average `value` (B, S, Dv) for each query of `query` (B, T, Dq): (B, T, Dv).

        `mask` (B, S) or (B or 1, T, S) is described in `keras_tfm.layers.masks`; a mask that Keras carries
        on `value` is combined with it by AND.
        """
        mask = fitting(combine_masks(mask, key_mask_of(value), rank=3), query, value)
        return self.step_context(query, self._cache(value, mask))

    def start_context(self, context, mask=None):
        """The cache of a context (B, S, D): its projected keys, the context itself and its mask (B, S)."""
        mask = padding_mask_of(context, mask)
        if mask is None:
            mask = ops.ones(ops.shape(context)[:2], "bool")
        return self._cache(context, mask)

    def _cache(self, value, mask):
        return ContextCache(value if self.key is None else self.key(value), value, mask)

    def step_context(self, query, cache, positions=None):
        """What `call` gives for `query` (B, T, D) and the B contexts in `cache`; in beam search (B G, T, D),
        G beams each.

        `positions` (B, T) are the queries' positions, by default 0 .. T-1; only `StaticAlignment` uses them.
        """
        return self.step_projected(self.query(query), cache)

    def step_projected(self, query, cache):
        """The same for queries (B, T, U) that `self.query` has projected already."""
        return self._average(self.weigh(cache.group(query), cache), cache, query)

    def _average(self, weights, cache, query):
        tap(self, weights[:, None])  # (B, 1, T, S): one head
        y = ops.matmul(ops.cast(weights, cache.value.dtype), cache.value)  # (B, G T, Dv)
        return cache.ungroup(y, query)

    def compute_output_shape(self, query_shape, value_shape, mask_shape=None):
        return (*query_shape[:-1], value_shape[-1])

    def compute_mask(self, query, previous_mask=None):
        return key_mask_of(query)


class AdditiveAttention(Alignment):
    """Additive attention: the scores v · tanh(W s + U h + b), by a hidden layer of width `units`.

    Bahdanau et al. 2015, section 3.1 and appendix A.1.2. W s + U h is one layer on [s; h], split so that U h
    is computed once for all queries. There is no bias after v: it would not change the softmax.

    >>> attention = keras_tfm.layers.AdditiveAttention(units=4)
    >>> attention(np.ones((1, 2, 8)), np.ones((1, 5, 6))).shape
    TensorShape([1, 2, 6])
    """

    def __init__(self, units: int, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(units=units)
        self.units = units
        self.use_bias = use_bias

    def build(self, query_shape, value_shape, mask_shape=None):
        # EinsumDense, not Dense: inside a loop XLA cannot compile the gradient of Dense on three axes.
        self.query = keras.layers.EinsumDense("btd,du->btu", (None, self.units), name="query")
        self.query.build(query_shape)
        self.key = keras.layers.Dense(self.units, use_bias=self.use_bias, name="key")
        self.key.build(value_shape)
        self.scale = self.add_weight((self.units,), "glorot_uniform", name="scale")

    def weigh(self, query, cache):
        return additive_attention_weights(query, cache.key, self.scale, cache.mask)


class DotAttention(Alignment):
    """Attention by dot products: the scores s · W h, where W maps h to the width of s.

    Luong et al. 2015, section 3.1, where it is called "general"; the scores are not scaled. W is applied to
    the query, s W, so that the encoder's states serve as keys without a projection.

    >>> keras_tfm.layers.DotAttention()(np.ones((1, 2, 8)), np.ones((1, 5, 6))).shape
    TensorShape([1, 2, 6])
    """

    def build(self, query_shape, value_shape, mask_shape=None):
        self.query = keras.layers.EinsumDense("btd,du->btu", (None, value_shape[-1]), name="query")
        self.query.build(query_shape)

    def weigh(self, query, cache):
        scores = ops.einsum("btd,bsd->bts", query, cache.key)
        return masked_softmax(scores, combine_masks(cache.mask, rank=3))


class StaticAlignment(Alignment):
    """Attention weights that are parameters: the softmax over the source positions of a learned table.

    The table is `max_target_length` x `max_source_length`, so the alignment is the same for every input.
    Padding of the source is masked, and the remaining weights sum to 1.

    Raises:
        ValueError: if the context's length is known and exceeds the table. Where it is not known, a position
            outside the table raises when it is looked up, or gives NaN where a compiled graph cannot raise
            (XLA, GPU).

    >>> attention = keras_tfm.layers.StaticAlignment(max_target_length=4, max_source_length=8)
    >>> attention(np.ones((1, 2, 8)), np.ones((1, 5, 6))).shape
    TensorShape([1, 2, 6])
    """

    follows_state = False

    def __init__(self, max_target_length: int, max_source_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(max_target_length=max_target_length, max_source_length=max_source_length)
        self.max_target_length = max_target_length
        self.max_source_length = max_source_length

    def build(self, query_shape, value_shape, mask_shape=None):
        shape = (self.max_target_length, self.max_source_length)
        self.table = self.add_weight(shape, "glorot_uniform", name="table")

    def step_context(self, query, cache, positions=None):
        if positions is None:
            positions = ops.broadcast_to(ops.arange(ops.shape(query)[1], dtype="int32"), ops.shape(query)[:2])
        grouped = cache.group(positions[..., None])[..., 0]  # (B, G T)
        return self._average(self.weigh(grouped, cache), cache, query)

    def weigh(self, positions, cache):
        """The weights (B, T, S) at the target positions `positions` (B, T)."""
        source_length = cache.value.shape[1]
        if source_length is not None and source_length > self.max_source_length:
            raise ValueError(
                f"The context must have at most `max_source_length` = {self.max_source_length} positions; "
                f"it has {source_length}."
            )
        length = ops.shape(cache.value)[1]
        columns = ops.arange(length, dtype="int32")
        table = ops.take(ops.cast(self.table, "float32"), columns, axis=1)  # (T_y, S)
        table = table + outside_is_nan(columns, self.max_source_length, "float32")[:, 0]
        scores = ops.take(table, positions, axis=0)  # (B, T, S)
        scores = scores + outside_is_nan(positions, self.max_target_length, "float32")
        return masked_softmax(scores, combine_masks(cache.mask, rank=3))


class NoAttention(Alignment):
    """No attention: context vectors of width 0, for a decoder that only knows the encoder's last state.

    >>> keras_tfm.layers.NoAttention()(np.ones((1, 2, 8)), np.ones((1, 5, 6))).shape
    TensorShape([1, 2, 0])
    """

    follows_state = False

    def build(self, query_shape, value_shape, mask_shape=None):
        self.built = True

    def step_context(self, query, cache, positions=None):
        return ops.zeros_like(query[..., :0])

    def compute_output_shape(self, query_shape, value_shape, mask_shape=None):
        return (*query_shape[:-1], 0)
