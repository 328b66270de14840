"""What attention attends to: the keys of a call, and the caches of incremental decoding.

A layer of attention reads all of them by the same names: `key`, `value`, `attention_mask` and `positions`.
Caches are tensors of fixed shapes, updated in place.

A layer that decodes has `step(x, cache) -> (y, cache)`. A cache is a named tuple of tensors, so the caches
of a whole model are one nested structure that a `while_loop` can carry. A scalar () in it counts the
positions written so far. Every other tensor has one row per sequence, except for what several neighbouring
sequences (the beams of a beam search) share: a `ContextCache`, and the entries of a `KeyValueCache`. A cache
makes its own attention mask.
"""

import math
from typing import Any, NamedTuple

from keras import ops

from keras_tfm.layers.masks import causal_mask, combine_masks


class Keys(NamedTuple):
    """The keys (B, G, S, K) and values (B, G, S, Kv) of whole sequences.

    A layer makes it inside its call; given to the call of another layer, a functional model would lose its
    tensors.

    - `mask`: of rank 4, which keys the queries may attend to; None for all.
    - `causal`: whether later keys are hidden from each query.
    - `query_positions` (T,): by default 0, 1, 2, ...; the keys count from 0.
    """

    key: Any
    value: Any
    mask: Any = None
    causal: bool = False
    query_positions: Any = None

    def positions(self, query):
        """The positions of the `query` (B, H, T, K), (T,), and of the keys, (S,)."""
        queries = self.query_positions
        if queries is None:
            queries = ops.arange(ops.shape(query)[2], dtype="int32")
        return queries, ops.arange(ops.shape(self.key)[2], dtype="int32")

    def attention_mask(self, query, window=None):
        """Which keys the `query` (B, H, T, K) may attend to: (B or 1, H or 1, T or 1, S), None for all.

        With a `window`, which is for causal keys alone, those at the last `window` positions.
        """
        if not self.causal:
            return self.mask
        seen = causal_mask(ops.shape(query)[2], ops.shape(self.key)[2], window=window)
        return combine_masks(self.mask, seen)


class KeyValueCache(NamedTuple):
    """The keys and values that self-attention has seen so far, of B = N G sequences in N groups of G.

    A sequence that does not belong to a beam search is a group by itself, G = 1. The beams of one input are
    a group.

    - `key` (N H, S G, K) and `value` (N H, S G, Kv): at each of S positions one entry per sequence of the
      group. Heads are folded into the first axis, because XLA then updates and multiplies these tensors
      without copying them.
    - `mask` (B, S, G): which entries of its group a sequence may attend to. A beam attends to the entries of
      the beams that it descends from, so beams are reordered by changing their masks, not their entries.
    - `index` (): the next position to write.

    >>> attention = keras_tfm.layers.MultiHeadAttention(num_heads=2)
    >>> y = attention(np.ones((1, 1, 8)))  # creates the weights
    >>> y, cache = attention.step(np.ones((1, 1, 8)), attention.start(1, max_length=4))
    >>> int(cache.index), cache.attention_mask(np.ones((1, 2, 1, 4))).numpy().tolist()
    (1, [[[[True, False, False, False]]]])
    """

    key: Any
    value: Any
    mask: Any
    index: Any

    @classmethod
    def empty(cls, batch_size, num_heads, max_length, key_dim, value_dim, dtype):
        """A cache for `max_length` positions with nothing written yet; each sequence is a group by itself."""
        return cls(
            ops.zeros((batch_size * num_heads, max_length, key_dim), dtype),
            ops.zeros((batch_size * num_heads, max_length, value_dim), dtype),
            ops.zeros((batch_size, max_length, 1), "bool"),
            ops.zeros((), "int32"),
        )

    @property
    def group_size(self):
        """How many sequences share one set of entries: 1, or the number of beams."""
        return self.mask.shape[2]

    def append(self, key, value, mask=None):
        """Write T more keys (B, H, T, K) and values at `index`; `mask` (B, T) is False at padding among
        them.

        Raises ValueError if there is no room for them. A graph does not know `index`: the keys are NaN there.
        """
        batch_size, length = ops.shape(key)[0], ops.shape(key)[2]
        size = self.group_size
        end, room = self.index + length, self.mask.shape[1] or ops.shape(self.mask)[1]
        if not hasattr(end, "numpy"):
            key = ops.where(end <= room, key, math.nan)
        elif end > room:
            raise ValueError(
                f"The cache has room for `max_length` = {room} positions; a step ends at {int(end)}."
            )
        if mask is None:
            mask = ops.ones((batch_size, length), "bool")
        mask = ops.expand_dims(ops.cast(mask, "bool"), 2)  # (B, T, 1)
        if size > 1:
            is_own = ops.arange(batch_size)[:, None] % size == ops.arange(size)  # (B, G)
            mask = ops.logical_and(mask, is_own[:, None])  # (B, T, G)

        def entries(x):
            x = self.group(x)  # (N, H, T G, K)
            return ops.reshape(x, (-1, length * size, x.shape[-1]))  # (N H, T G, K)

        return KeyValueCache(
            ops.slice_update(self.key, (0, self.index * size, 0), entries(key)),
            ops.slice_update(self.value, (0, self.index * size, 0), entries(value)),
            ops.slice_update(self.mask, (0, self.index, 0), mask),
            end,
        )

    def positions(self, query):
        """The positions of the grouped `query` (N, H, T G, K), the last ones written, (T G,), and of all
        entries, (S G,).
        """
        query_length = ops.shape(query)[2] // self.group_size
        return self._positions(self.index - query_length, query_length)

    def next_positions(self, query_length):
        """What `positions` gives for the next T = `query_length` queries."""
        return self._positions(self.index, query_length)

    def _positions(self, first, query_length):
        length, size = self.mask.shape[1] or ops.shape(self.mask)[1], self.group_size
        queries = first + ops.arange(query_length, dtype="int32")
        return ops.repeat(queries, size), ops.arange(length * size, dtype="int32") // size

    def group(self, heads):
        """Heads (B, H, T, K) in the order of the groups, position by position: (N, H, T G, K)."""
        if self.mask.shape[2] == 1:
            return heads
        _, num_heads, length, dim = ops.shape(heads)
        heads = ops.reshape(heads, (-1, self.group_size, num_heads, length, dim))  # (N, G, H, T, K)
        heads = ops.transpose(heads, (0, 2, 3, 1, 4))  # (N, H, T, G, K)
        return ops.reshape(heads, (-1, num_heads, length * self.group_size, dim))  # (N, H, T G, K)

    def ungroup(self, heads):
        """The inverse of `group`: (B, H, T, K)."""
        if self.mask.shape[2] == 1:
            return heads
        _, num_heads, length, dim = ops.shape(heads)
        length = length // self.group_size
        heads = ops.reshape(heads, (-1, num_heads, length, self.group_size, dim))  # (N, H, T, G, K)
        heads = ops.transpose(heads, (0, 3, 1, 2, 4))  # (N, G, H, T, K)
        return ops.reshape(heads, (-1, num_heads, length, dim))  # (B, H, T, K)

    def attention_mask(self, query, window=None):
        """Which entries the grouped `query` (N, H, T G, K), at the last T positions written, may attend to,
        with a `window` only the entries of the last `window` positions: (N, 1, T G, S G).
        """
        length, size = self.mask.shape[1] or ops.shape(self.mask)[1], self.group_size
        query_length = ops.shape(query)[2] // size
        causal = causal_mask(query_length, length, self.index - query_length, window)  # (1, T, S)
        mask = ops.logical_and(self.mask[:, None], causal[..., None])  # (B, T, S, G)
        mask = ops.reshape(mask, (-1, size, query_length, length * size))  # (N, G, T, S G)
        mask = ops.transpose(mask, (0, 2, 1, 3))  # (N, T, G, S G)
        return ops.reshape(mask, (-1, 1, query_length * size, length * size))  # (N, 1, T G, S G)

    def repeat(self, count):
        """Each sequence `count` times, as a group that shares its entries."""

        def widen(x, axis):
            return ops.pad(x, [(0, count - 1 if i == axis else 0) for i in range(len(x.shape))])

        def entries(x):
            length, dim = x.shape[1] or ops.shape(x)[1], x.shape[2]
            return ops.reshape(widen(x[:, :, None], 2), (-1, length * count, dim))  # (N H, S G, K)

        mask = widen(ops.repeat(self.mask, count, axis=0), 2)  # (B, S, G)
        return KeyValueCache(entries(self.key), entries(self.value), mask, self.index)

    def map_rows(self, function):
        """Apply `function` to all tensors with one row per sequence; in a group that is the mask alone."""
        if self.group_size > 1:
            return self._replace(mask=function(self.mask))

        def entries(x):
            _, length, dim = ops.shape(x)
            rows = ops.reshape(x, (ops.shape(self.mask)[0], -1, length, dim))  # (B, H, S, K)
            return ops.reshape(function(rows), (-1, length, dim))  # (B H, S, K)

        return KeyValueCache(entries(self.key), entries(self.value), function(self.mask), self.index)


class PastCache(NamedTuple):
    """A `KeyValueCache` whose entries the caller keeps: they are only read, new ones are returned in `new`.

    A loop outside TensorFlow owns arrays with room for S positions, and writes the new entries into them, so
    that nothing is copied in between. Each sequence is a group by itself.

    - `key` (B, H, S, K) and `value` (B, H, S, Kv): the entries so far, and after `append` the T new ones
      behind them.
    - `mask` (B, S): which of them a sequence may attend to.
    - `index` (): how many positions were written before.
    - `new`: the new keys (B, H, T, K) and values.
    """

    key: Any
    value: Any
    mask: Any
    index: Any
    new: Any = ()

    def append(self, key, value, mask=None):
        """With T more keys (B, H, T, K) and values at the end; `mask` (B, T) is False at padding among
        them.
        """
        if mask is None:
            mask = ops.ones((ops.shape(key)[0], ops.shape(key)[2]), "bool")
        return PastCache(
            ops.concatenate([self.key, key], axis=2),
            ops.concatenate([self.value, value], axis=2),
            ops.concatenate([self.mask, ops.cast(mask, "bool")], axis=1),
            self.index,
            (key, value),
        )

    def positions(self, query):
        """The positions of the `query` (B, H, T, K), the last entries, (T,), and of all, (S + T,)."""
        query_length = ops.shape(query)[2]
        return self._positions(ops.shape(self.key)[2] - query_length, query_length)

    def next_positions(self, query_length):
        """What `positions` gives for the next T = `query_length` queries."""
        return self._positions(ops.shape(self.key)[2], query_length)

    def _positions(self, past_length, query_length):
        past = ops.arange(past_length, dtype="int32")
        queries = self.index + ops.arange(query_length, dtype="int32")
        return queries, ops.concatenate([past, queries], axis=0)

    def attention_mask(self, query, window=None):
        """Which entries the `query` (B, H, T, K), the last T of them, may attend to, as in `KeyValueCache`:
        (B, 1, T, S + T).
        """
        # Not by `causal_mask`, which counts places: between the past and the new entries there may be room.
        # The length is the mask's: an exported graph need not join keys to know it.
        count = ops.shape(query)[2]
        queries, keys = self._positions(ops.shape(self.mask)[1] - count, count)
        distances = queries[:, None] - keys[None, :]  # (T, S + T)
        seen = distances >= 0 if window is None else (distances >= 0) & (distances < window)
        return ops.logical_and(self.mask[:, None], seen[None])[:, None]

    def group(self, heads):
        """The heads as they are."""
        return heads

    def ungroup(self, heads):
        """The heads as they are."""
        return heads


class ContextCache(NamedTuple):
    """The projected keys and values of B contexts (encoder outputs, for example) and their masks (B, S).

    The queries come from R = B G sequences: G neighbouring ones, the beams of one input, share a context.

    >>> attention = keras_tfm.layers.MultiHeadAttention(num_heads=2)
    >>> y = attention(np.ones((1, 1, 8)), np.ones((1, 5, 8)))  # creates the weights
    >>> cache = attention.start_context(np.ones((1, 5, 8)))
    >>> cache.key.shape, attention.step_context(np.ones((1, 1, 8)), cache).shape
    (TensorShape([1, 2, 5, 4]), TensorShape([1, 1, 8]))
    """

    key: Any
    value: Any
    mask: Any

    def group(self, query):
        """Queries (R, T, D) as one row per context: (B, G T, D)."""
        _, length, dim = ops.shape(query)
        num_contexts, size = ops.shape(self.key)[0], self.group_size(query)
        return ops.reshape(query, (num_contexts, size * length, dim))  # (B, G T, D)

    def ungroup(self, x, query):
        """The inverse of `group` for a result computed from `query` (R, T, D): (R, T, .)."""
        return ops.reshape(x, (*ops.shape(query)[:2], x.shape[-1]))  # (R, T, .)

    def positions(self, query, positions=None):
        """The positions (G T,) of grouped queries, given one sequence's (T,), by default 0 .. T-1."""
        if positions is None:
            positions = ops.arange(ops.shape(query)[1], dtype="int32")
        return ops.tile(ops.cast(positions, "int32"), (self.group_size(query),))  # (G T,)

    def group_size(self, query):
        """How many sequences share one context: 1, or the number of beams."""
        rows, num_contexts = ops.shape(query)[0], ops.shape(self.key)[0]
        if isinstance(rows, int) and isinstance(num_contexts, int):
            return rows // max(num_contexts, 1)
        return rows // ops.maximum(num_contexts, 1)


class BlockCache(NamedTuple):
    """The cache of a decoder block: its self-attention's cache and, with cross-attention, its context's
    cache.

    >>> block = keras_tfm.layers.TransformerBlock(num_heads=2, intermediate_dim=16, causal=True)
    >>> y = block(np.ones((1, 3, 8)))  # creates the weights
    >>> y, cache = block.step(np.ones((1, 1, 8)), block.start(1, max_length=4))
    >>> int(cache.attention.index), cache.context
    (1, ())
    """

    attention: KeyValueCache
    context: Any = ()


class PositionCache(NamedTuple):
    """Where the next token stands: `index` () positions are written, of which `padding` (B,) are padding."""

    index: Any
    padding: Any

    @classmethod
    def empty(cls, batch_size):
        """The cache before the first position."""
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
    """`cache` with `function` applied to every tensor that has one row per sequence."""
    return _map(
        lambda x: function(x) if len(x.shape) else x, cache, lambda entries: entries.map_rows(function)
    )


def repeat_rows(cache, count):
    """`cache` with each sequence repeated `count` times, side by side, as the beams of a beam search."""
    return _map(
        lambda x: ops.repeat(x, count, axis=0) if len(x.shape) else x,
        cache,
        lambda entries: entries.repeat(count),
    )


def rewind(cache, count):
    """`cache` as it was before its last `count` positions; the next ones overwrite them.

    Raises ValueError for the cache of a recurrent network: it has no positions, and a state cannot be
    undone.
    """
    counters = []

    def back(x):
        if len(x.shape):
            return x
        counters.append(x)
        return x - count

    cache = _map(back, cache, lambda entries: entries._replace(index=back(entries.index)))
    if not counters:
        raise ValueError(
            "This cache holds a recurrent state, which cannot be rewound: use a model with attention alone."
        )
    return cache


def _map(function, cache, of_entries):
    if isinstance(cache, ContextCache):
        return cache
    if isinstance(cache, KeyValueCache):
        return of_entries(cache)
    if isinstance(cache, tuple | list):
        parts = [_map(function, part, of_entries) for part in cache]
        return type(cache)(*parts) if hasattr(cache, "_fields") else type(cache)(parts)
    return function(cache)
