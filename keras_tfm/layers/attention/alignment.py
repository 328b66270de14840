"""What a recurrent decoder attends by: how the states h of an encoder become one context for each step.

    additive    v . tanh(W s + U h + b)     Bahdanau, Cho and Bengio 2015, section 3.1
    dot         s . W h                     Luong, Pham and Manning 2015, section 3.1, "general"
    static      a learnt table T_y x T_x    independent of s and h
    none        no context at all           Sutskever, Vinyals and Le 2014

A decoder takes any layer with `start_context` and `step_context`, `MultiHeadAttention` for example.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import Layer
from keras_tfm.layers.cache import ContextCache
from keras_tfm.layers.masks import combine_masks, key_mask_of, masked_softmax
from keras_tfm.layers.positions import outside_is_nan


def additive_attention_weights(query, key, scale, mask=None):
    """softmax(scale . tanh(query + key)) over the keys that `mask` allows: (B, T, S).

    `query` (B, T, U) and `key` (B, S, U) are projected already, `scale` is a vector (U,); `mask`
    follows `keras_tfm.layers.masks`. Rows sum to 1, in float32 at least; a row with nothing to
    attend to is zero.
    """
    return masked_softmax(additive_scores(query, key, scale), combine_masks(mask, rank=3))


def additive_scores(query, key, scale):
    """scale . tanh(query + key), (B, T, S) of (B, T, U), (B, S, U) and (U,).

    The hidden layer (B, T, S, U) is computed again for the gradient: a loop would keep that of every step.
    """

    def hidden_of(query, key):
        return ops.tanh(query[:, :, None] + key[:, None])  # (B, T, S, U)

    @ops.custom_gradient
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
    """Averages of a context's own states: one head, no projection of values. Abstract: a kind has `weigh`.

    `follows_state` says whether the weights depend on the query. If they do, `query` is the layer without
    bias that projects it, `key` that of the states, None where they are keys themselves.
    """

    follows_state = True
    key: Any = None

    def weigh(self, query, cache):
        """The weights (B, T, S) of the projected queries (B, T, U), or of positions (B, T)."""
        raise NotImplementedError

    def call(self, query, value, mask=None):
        """Average `value` (B, S, Dv) for each of `query` (B, T, Dq): (B, T, Dv).

        `mask` (B, S) or (B or 1, T, S) follows `keras_tfm.layers.masks`; a mask that Keras carries
        on `value` is ANDed in.
        """
        return self.step_context(query, self._cache(value, combine_masks(mask, key_mask_of(value), rank=3)))

    def start_context(self, context, mask=None):
        """The cache of a context (B, S, D): its projected keys, itself, and its mask (B, S)."""
        if mask is None:
            mask = ops.ones(ops.shape(context)[:2], "bool")
        return self._cache(context, mask)

    def _cache(self, value, mask):
        return ContextCache(value if self.key is None else self.key(value), value, mask)

    def step_context(self, query, cache, positions=None):
        """What `call` gives for `query` (B, T, D), or beams (B G, T, D), and the B contexts of `cache`.

        `positions` (B, T) are where the queries stand, by default 0 .. T-1: fixed weights alone heed them.
        """
        return self.step_projected(self.query(query), cache)

    def step_projected(self, query, cache):
        """The same for queries (B, T, U) that `self.query` projected."""
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
    """Attention by a small network: scores v . tanh(W s + U h + b) of width `units`.

    Bahdanau et al. 2015, section 3.1 and appendix A.1.2. W s + U h is one layer over [s; h], split
    so that U h is computed once for all queries. A bias of the scores themselves would leave the softmax as
    it is, so there is none.
    """

    def __init__(self, units, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be at least 1; it is {units}.")
        self.units = units
        self.use_bias = use_bias

    def build(self, query_shape, value_shape, mask_shape=None):
        # Not a Dense layer: on three axes its gradient inside a loop does not compile with XLA.
        self.query = keras.layers.EinsumDense("btd,du->btu", (None, self.units), name="query")
        self.query.build(query_shape)
        self.key = keras.layers.Dense(self.units, use_bias=self.use_bias, name="key")
        self.key.build(value_shape)
        self.scale = self.add_weight((self.units,), "glorot_uniform", name="scale")
        self.built = True

    def weigh(self, query, cache):
        return additive_attention_weights(query, cache.key, self.scale, cache.mask)


class DotAttention(Alignment):
    """Attention by products: scores s . W h, W bringing h to the width of s.

    Luong et al. 2015, section 3.1, where this score is called "general"; it is not scaled. W is applied to
    the query, s W, so that the states are the keys themselves.
    """

    def build(self, query_shape, value_shape, mask_shape=None):
        self.query = keras.layers.EinsumDense("btd,du->btu", (None, value_shape[-1]), name="query")
        self.query.build(query_shape)
        self.built = True

    def weigh(self, query, cache):
        scores = ops.einsum("btd,bsd->bts", query, cache.key)
        return masked_softmax(scores, combine_masks(cache.mask, rank=3))


class StaticAlignment(Alignment):
    """Weights that are parameters: softmax over T_x of a table `max_target_length` x `max_source_length`.

    The alignment is the same for every input, whatever s and h are; padding is masked, and the rest sums to
    1. A context of known length that exceeds the table is a ValueError; any other position beyond it raises,
    or gives NaN where a graph cannot raise (XLA, GPU).
    """

    follows_state = False

    def __init__(self, max_target_length, max_source_length, **kwargs):
        super().__init__(**kwargs)
        for name, size in (
            ("max_target_length", max_target_length),
            ("max_source_length", max_source_length),
        ):
            if size < 1:
                raise ValueError(f"`{name}` must be at least 1; it is {size}.")
        self.max_target_length = max_target_length
        self.max_source_length = max_source_length

    def build(self, query_shape, value_shape, mask_shape=None):
        shape = (self.max_target_length, self.max_source_length)
        self.table = self.add_weight(shape, "glorot_uniform", name="table")
        self.built = True

    def step_context(self, query, cache, positions=None):
        if positions is None:
            positions = ops.broadcast_to(ops.arange(ops.shape(query)[1], dtype="int32"), ops.shape(query)[:2])
        grouped = cache.group(positions[..., None])[..., 0]  # (B, G T)
        return self._average(self.weigh(grouped, cache), cache, query)

    def weigh(self, positions, cache):
        """The weights (B, T, S) at `positions` (B, T)."""
        known = cache.value.shape[1]
        if known is not None and known > self.max_source_length:
            raise ValueError(
                f"The context must have at most {self.max_source_length} positions; it has {known}."
            )
        length = ops.shape(cache.value)[1]
        columns = ops.arange(length, dtype="int32")
        table = ops.take(ops.cast(self.table, "float32"), columns, axis=1)  # (T_y, S)
        table = table + outside_is_nan(columns, self.max_source_length, "float32")[:, 0]
        scores = ops.take(table, positions, axis=0)  # (B, T, S)
        scores = scores + outside_is_nan(positions, self.max_target_length, "float32")
        return masked_softmax(scores, combine_masks(cache.mask, rank=3))


class NoAttention(Alignment):
    """No context: vectors of width 0, (B, T, 0), for a decoder that starts from all it is to know."""

    follows_state = False

    def build(self, query_shape, value_shape, mask_shape=None):
        self.built = True

    def step_context(self, query, cache, positions=None):
        return ops.zeros_like(query[..., :0])

    def compute_output_shape(self, query_shape, value_shape, mask_shape=None):
        return (*query_shape[:-1], 0)
