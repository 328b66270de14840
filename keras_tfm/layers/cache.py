"""Key/value caches of incremental decoding: fixed shapes, updated in place, making their own mask.

A cache goes in and comes out: `step(x, cache) -> (y, cache)`. Caches are named tuples of tensors,
so a whole model's cache is one nest that a `while_loop` carries.
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
