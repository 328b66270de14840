"""Key/value caches of incremental decoding: fixed shapes, updated in place, making their own mask.

A cache goes in and comes out: `step(x, cache) -> (y, cache)`. Caches are named tuples of tensors,
so a whole model's cache is one nest that a `while_loop` carries. In it a number () counts what was
written, every other tensor has a row for each sequence, and a `ContextCache` one for each context,
which several sequences in a row (beams) may share.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_tfm.layers.masks import causal_mask, expand_mask


class KeyValueCache(NamedTuple):
    """The keys and values that self-attention has seen so far.

    `key` (B, H, S, K) and `value` (B, H, S, Kv) hold S = the maximal length; `mask` (B, S) is True
    where something was written that may be attended to; `index` () is the next position to write.
    """

    key: Any
    value: Any
    mask: Any
    index: Any

    @classmethod
    def empty(cls, batch_size, num_heads, max_length, key_dim, value_dim, dtype):
        """A cache of `max_length` positions, nothing written yet."""
        return cls(
            ops.zeros((batch_size, num_heads, max_length, key_dim), dtype),
            ops.zeros((batch_size, num_heads, max_length, value_dim), dtype),
            ops.zeros((batch_size, max_length), "bool"),
            ops.zeros((), "int32"),
        )

    def append(self, key, value, mask=None):
        """Write T more keys and values at `index`; `mask` (B, T) hides padding among them."""
        length = ops.shape(key)[2]
        if mask is None:
            mask = ops.ones((ops.shape(key)[0], length), "bool")
        return KeyValueCache(
            ops.slice_update(self.key, (0, 0, self.index, 0), key),
            ops.slice_update(self.value, (0, 0, self.index, 0), value),
            ops.slice_update(self.mask, (0, self.index), ops.cast(mask, "bool")),
            self.index + length,
        )

    def attention_mask(self, query_length):
        """Which keys the last `query_length` positions written may see: (B, 1, T, S)."""
        offset = self.index - query_length
        causal = causal_mask(query_length, self.key.shape[2] or ops.shape(self.key)[2], offset)
        return ops.logical_and(expand_mask(self.mask), expand_mask(causal))


class ContextCache(NamedTuple):
    """The projected keys and values of a context (an encoder's output), and its mask (B, S)."""

    key: Any
    value: Any
    mask: Any


class BlockCache(NamedTuple):
    """What a decoder block keeps: its self-attention's cache and, if it has one, its context's."""

    attention: KeyValueCache
    context: Any = ()


class PositionCache(NamedTuple):
    """Where the next token stands: `index` () positions were written, `padding` (B,) of them padding."""

    index: Any
    padding: Any

    @classmethod
    def empty(cls, batch_size):
        """Before the first position."""
        return cls(ops.zeros((), "int32"), ops.zeros((batch_size,), "int32"))

    def append(self, length, mask=None):
        """The positions (B, T) of the next T tokens, cumsum(mask) - 1 over all so far, and the new cache."""
        before, padding = self.padding[:, None], self.padding
        if mask is not None:
            is_padding = 1 - ops.cast(mask, "int32")
            before = before + ops.cumsum(is_padding, axis=1)  # (B, T)
            padding = padding + ops.sum(is_padding, axis=1)
        positions = ops.maximum(self.index + ops.arange(length, dtype="int32") - before, 0)
        return positions, PositionCache(self.index + length, padding)


def map_rows(function, cache):
    """`cache` with `function` applied to every tensor that has a row for each sequence."""
    return _map(lambda x: function(x) if len(x.shape) else x, cache)


def rewind(cache, count):
    """`cache` before its last `count` positions were written: the next ones overwrite them.

    Raises ValueError where nothing counts the positions: a recurrent state has no way back.
    """
    counters = []

    def back(x):
        if len(x.shape):
            return x
        counters.append(x)
        return x - count

    cache = _map(back, cache)
    if not counters:
        raise ValueError("This cache holds a recurrent state, which cannot be rewound.")
    return cache


def _map(function, cache):
    if isinstance(cache, ContextCache):
        return cache
    if isinstance(cache, tuple | list):
        parts = [_map(function, part) for part in cache]
        return type(cache)(*parts) if hasattr(cache, "_fields") else type(cache)(parts)
    return function(cache)


def group_rows(query, num_contexts):
    """Queries (R, T, D) of R = B G sequences that share B contexts, as (B, G T, D): G > 1 are beams."""
    rows, length, dim = ops.shape(query)
    if isinstance(rows, int) and isinstance(num_contexts, int):
        group = rows // max(num_contexts, 1)
    else:
        group = rows // ops.maximum(num_contexts, 1)
    return ops.reshape(query, (num_contexts, group * length, dim))  # (B, G T, D)
