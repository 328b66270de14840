"""Key/value caches of incremental decoding: fixed shapes, updated in place, making their own mask.

A cache goes in and comes out: `step(x, cache) -> (y, cache)`. Caches are named tuples of tensors,
so a whole model's cache is one nest that a `while_loop` carries. In it a number () counts what was
written, and every other tensor has a row for each sequence, but for what several in a row (beams) may
share: a `ContextCache` and the entries of a `KeyValueCache`.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_tfm.layers.masks import causal_mask


class KeyValueCache(NamedTuple):
    """The keys and values that self-attention has seen so far, of B = N G sequences in N groups.

    `key` (N H, S G, K) and `value` (N H, S G, Kv) hold G entries for each of S positions, one of each
    sequence of a group, heads folded into rows: the form in which XLA updates them in place, and
    multiplies them, without a copy. `mask` (B, S, G) says which entries of its group a sequence may
    attend to: its own or, where it is a beam (G > 1), those of its ancestors; so beams are reordered by
    their masks alone. `index` () is the next position to write.
    """

    key: Any
    value: Any
    mask: Any
    index: Any

    @classmethod
    def empty(cls, batch_size, num_heads, max_length, key_dim, value_dim, dtype):
        """A cache of `max_length` positions, nothing written yet, of sequences each by itself."""
        return cls(
            ops.zeros((batch_size * num_heads, max_length, key_dim), dtype),
            ops.zeros((batch_size * num_heads, max_length, value_dim), dtype),
            ops.zeros((batch_size, max_length, 1), "bool"),
            ops.zeros((), "int32"),
        )

    @property
    def group_size(self):
        """G."""
        return self.mask.shape[2]

    def append(self, key, value, mask=None):
        """Write T more keys (B, H, T, K) and values at `index`; `mask` (B, T) hides padding among them."""
        batch_size, length = ops.shape(key)[0], ops.shape(key)[2]
        size = self.group_size
        is_own = ops.arange(batch_size)[:, None] % size == ops.arange(size)  # (B, G)
        if mask is None:
            mask = ops.ones((batch_size, length), "bool")
        mask = ops.logical_and(ops.cast(mask, "bool")[:, :, None], is_own[:, None])  # (B, T, G)

        def entries(x):
            x = self.group(x)  # (N, H, T G, K)
            return ops.reshape(x, (-1, length * size, x.shape[-1]))  # (N H, T G, K)

        return KeyValueCache(
            ops.slice_update(self.key, (0, self.index * size, 0), entries(key)),
            ops.slice_update(self.value, (0, self.index * size, 0), entries(value)),
            ops.slice_update(self.mask, (0, self.index, 0), mask),
            self.index + length,
        )

    def positions(self, query_length):
        """Where the next T = `query_length` queries stand, and all entries, by groups: (T G,) and (S G,)."""
        length, size = self.mask.shape[1] or ops.shape(self.mask)[1], self.group_size
        queries = self.index + ops.arange(query_length, dtype="int32")
        return ops.repeat(queries, size), ops.arange(length * size, dtype="int32") // size

    def group(self, heads):
        """Heads (B, H, T, K) as the groups have them, position by position: (N, H, T G, K)."""
        if self.group_size == 1:
            return heads
        _, num_heads, length, dim = ops.shape(heads)
        heads = ops.reshape(heads, (-1, self.group_size, num_heads, length, dim))  # (N, G, H, T, K)
        heads = ops.transpose(heads, (0, 2, 3, 1, 4))  # (N, H, T, G, K)
        return ops.reshape(heads, (-1, num_heads, length * self.group_size, dim))  # (N, H, T G, K)

    def ungroup(self, heads):
        """What `group` did, taken back: (B, H, T, K)."""
        if self.group_size == 1:
            return heads
        _, num_heads, length, dim = ops.shape(heads)
        length = length // self.group_size
        heads = ops.reshape(heads, (-1, num_heads, length, self.group_size, dim))  # (N, H, T, G, K)
        heads = ops.transpose(heads, (0, 3, 1, 2, 4))  # (N, G, H, T, K)
        return ops.reshape(heads, (-1, num_heads, length, dim))  # (B, H, T, K)

    def attention_mask(self, query_length):
        """Which entries the last T = `query_length` positions written may see: (N, 1, T G, S G)."""
        length, size = self.mask.shape[1] or ops.shape(self.mask)[1], self.group_size
        causal = causal_mask(query_length, length, self.index - query_length)  # (1, T, S)
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
        """`function` of every tensor's rows, one for each sequence; of a group's masks, for it stays one."""
        if self.group_size > 1:
            return self._replace(mask=function(self.mask))

        def entries(x):
            _, length, dim = ops.shape(x)
            rows = ops.reshape(x, (ops.shape(self.mask)[0], -1, length, dim))  # (B, H, S, K)
            return ops.reshape(function(rows), (-1, length, dim))  # (B H, S, K)

        return KeyValueCache(entries(self.key), entries(self.value), function(self.mask), self.index)


class ContextCache(NamedTuple):
    """The projected keys and values of B contexts (an encoder's outputs), and their masks (B, S).

    Queries are those of R = B G sequences, of which G > 1 in a row, beams, share a context.
    """

    key: Any
    value: Any
    mask: Any

    def group(self, query):
        """Queries (R, T, D) as the contexts have them: (B, G T, D)."""
        _, length, dim = ops.shape(query)
        num_contexts, size = ops.shape(self.key)[0], self.group_size(query)
        return ops.reshape(query, (num_contexts, size * length, dim))  # (B, G T, D)

    def ungroup(self, x, query):
        """What was made of `query` (R, T, D), grouped, as its sequences have it: (R, T, .)."""
        return ops.reshape(x, (*ops.shape(query)[:2], x.shape[-1]))  # (R, T, .)

    def positions(self, query, positions=None):
        """Where grouped queries stand (G T,), each sequence's at `positions` (T,), by default 0 .. T-1."""
        if positions is None:
            positions = ops.arange(ops.shape(query)[1], dtype="int32")
        return ops.tile(ops.cast(positions, "int32"), (self.group_size(query),))  # (G T,)

    def group_size(self, query):
        """G."""
        rows, num_contexts = ops.shape(query)[0], ops.shape(self.key)[0]
        if isinstance(rows, int) and isinstance(num_contexts, int):
            return rows // max(num_contexts, 1)
        return rows // ops.maximum(num_contexts, 1)


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
    return _map(
        lambda x: function(x) if len(x.shape) else x, cache, lambda entries: entries.map_rows(function)
    )


def repeat_rows(cache, count):
    """`cache` for each sequence `count` times, beams one after the other, which may then be reordered."""
    return _map(
        lambda x: ops.repeat(x, count, axis=0) if len(x.shape) else x,
        cache,
        lambda entries: entries.repeat(count),
    )


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

    cache = _map(back, cache, lambda entries: entries._replace(index=back(entries.index)))
    if not counters:
        raise ValueError("This cache holds a recurrent state, which cannot be rewound.")
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
