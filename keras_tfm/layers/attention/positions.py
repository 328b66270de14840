"""Positions that act inside attention: on queries and keys, on the scores, or on the averaged values."""

import math
from collections.abc import Mapping
from typing import Any

from keras import ops

from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.positions import angles_of


class AttentionPosition(Layer):
    """What a position does inside attention. Abstract: a subclass defines those of the three hooks that it
    needs.

    The hooks are `rotate`, `scores` and `values`. Queries are (B, H, T, K) at `positions` (T,) or (B, T),
    keys (B, H, S, K) at `key_positions` (S,) or (B, S). In cross-attention the positions of both sequences
    count from 0.

    >>> class Nearness(keras_tfm.layers.AttentionPosition):
    ...     def scores(self, query, key, positions, key_positions, scale):
    ...         return -abs(keras.ops.cast(positions[:, None] - key_positions, query.dtype))  # (T, S)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=Nearness())(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def build_for(self, num_heads, key_dim, value_dim):
        """Create the weights for heads of these widths, unless they exist."""
        if not self.built:
            self.build((num_heads, key_dim, value_dim))

    def build(self, heads):
        self.built = True

    @property
    def acts_on_scores(self):
        """Whether it does more than rotate queries and keys: it defines `scores` or `values`."""
        subclass, base = type(self), AttentionPosition
        return subclass.scores is not base.scores or subclass.values is not base.values

    def rotate(self, query, key, positions=None, key_positions=None):
        """New queries and keys, either of which may be None; positions are by default 0, 1, 2, ..."""
        return query, key

    def scores(self, query, key, positions, key_positions, scale):
        """What is added to scale * query keyᵀ, broadcasting over (B, H, T, S), or None.

        While decoding, `key` has its first two axes folded into one; see `KeyValueCache`.
        """
        return None

    def values(self, weights, positions, key_positions):
        """What is added to the averaged values (B, H, T, Kv), or None; `weights` are (B, H, T, S)."""
        return None


class RotaryEmbedding(AttentionPosition):
    """Rotary positions: pair k of a query's or key's components is rotated by position * base^(-2k/K).

    The score of a query and a key then depends on their distance alone (Su et al. 2021, "RoFormer", section
    3.4). Component k is paired with component k + K/2, as in the checkpoints of GPT-NeoX and Llama; the
    paper pairs neighbours, which is the same up to a permutation.

    Args:
        base: of the frequencies.
        scaling: how a model reads longer texts than it was first trained on: {"rope_type": "linear",
            "factor"}, where positions are divided by the factor (Chen et al. 2023, "Extending Context Window
            of Large Language Models via Positional Interpolation"), or {"rope_type": "llama3", "factor",
            "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}, where the slow
            frequencies alone are (Grattafiori et al. 2024, "The Llama 3 Herd of Models", released code).

    Raises:
        ValueError: for another scaling.

    >>> position = keras_tfm.layers.RotaryEmbedding()
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self, base: float = 10_000.0, scaling: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.base = base
        self.scaling = None if scaling is None else dict(scaling)
        check_scaling(self.scaling)

    def build(self, heads):
        if heads[1] % 2:
            raise ValueError(
                f"The width of a head, `key_dim`, must be even to rotate pairs; it is {heads[1]}."
            )

    def rotate(self, query, key, positions=None, key_positions=None):
        return self._rotated(query, positions), self._rotated(key, key_positions)

    def _rotated(self, x, positions):
        if x is None:
            return None
        if positions is None:
            positions = ops.arange(ops.shape(x)[2], dtype="int32")
        angles = angles_of(positions, x.shape[-1], self.base, self.scaling)  # (..., T, K/2)
        angles = angles if len(angles.shape) == 2 else angles[:, None]  # (B, 1, T, K/2) where rows differ
        return rotate_pairs(x, angles)


SCALINGS = {
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
}


def check_scaling(scaling, name="scaling"):
    """ValueError, with the argument's `name`, unless it is None or a known kind with its numbers."""
    if scaling is None:
        return
    kind, numbers = scaling.get("rope_type"), {name: x for name, x in scaling.items() if name != "rope_type"}
    if kind not in SCALINGS:
        raise ValueError(f"`{name}` must have the rope_type {' or '.join(SCALINGS)}; it is {kind!r}.")
    if numbers.keys() != SCALINGS[kind] or not all(
        isinstance(x, int | float) and math.isfinite(x) and x > 0 for x in numbers.values()
    ):
        wanted = ", ".join(sorted(SCALINGS[kind]))
        raise ValueError(f"`{name}` of rope_type {kind!r} must have positive {wanted}; it is {scaling}.")
    if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise ValueError(f"`{name}` must have low_freq_factor below high_freq_factor; it is {scaling}.")


def rotate_pairs(x, angles):
    """Rotate component k of `x` (B, H, T, K) with component k + K/2, by `angles` that broadcast to (B, H, T,
    K/2).
    """
    cosine, sine = ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)
    first, second = ops.split(x, 2, axis=-1)
    return ops.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


class RelativePositionEmbedding(AttentionPosition):
    """A learned vector for each distance j - i, added to the keys and, with `with_values`, to the values.

    Shaw et al. 2018, "Self-Attention with Relative Position Representations", eqs. 3-5. Distances beyond
    `max_distance` in either direction use the vector of `max_distance`.

    >>> position = keras_tfm.layers.RelativePositionEmbedding(max_distance=4)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(self, max_distance: int = 16, with_values: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(max_distance=max_distance)
        self.max_distance = max_distance
        self.with_values = with_values

    def build(self, heads):
        _, key_dim, value_dim = heads
        self.key_table = self.add_weight(
            (2 * self.max_distance + 1, key_dim), "glorot_uniform", name="key_table"
        )
        if self.with_values:
            self.value_table = self.add_weight(
                (2 * self.max_distance + 1, value_dim), "glorot_uniform", name="value_table"
            )

    def scores(self, query, key, positions, key_positions, scale):
        vectors = ops.take(self.key_table, self._rows(positions, key_positions), axis=0)  # (..., T, S, K)
        equation = "bhtk,tsk->bhts" if len(vectors.shape) == 3 else "bhtk,btsk->bhts"
        return ops.einsum(equation, query * scale, ops.cast(vectors, query.dtype))

    def values(self, weights, positions, key_positions):
        if not self.with_values:
            return None
        vectors = ops.take(self.value_table, self._rows(positions, key_positions), axis=0)  # (..., T, S, Kv)
        equation = "bhts,tsk->bhtk" if len(vectors.shape) == 3 else "bhts,btsk->bhtk"
        return ops.einsum(equation, weights, ops.cast(vectors, weights.dtype))

    def _rows(self, positions, key_positions):
        distance = distances(positions, key_positions)
        return ops.clip(distance, -self.max_distance, self.max_distance) + self.max_distance


class RelativePositionBias(AttentionPosition):
    """A learned bias for each head and each bucket of distances, added to the scores.

    Small distances have a bucket each; larger ones share buckets whose size grows with the logarithm of the
    distance, up to `max_distance`. With `bidirectional`, half of the buckets are for keys before the query
    and half for keys after it; without, all later keys share the bucket of distance 0. Raffel et al. 2020,
    "T5", section 2.1.

    Given to an attention layer as its `position`, it takes over that layer's number of heads. Called by
    itself on a sequence (B, T, ...) it returns the bias (1, H, T, T), which several layers can share;
    `num_heads` is then required.

    >>> bias = keras_tfm.layers.RelativePositionBias(num_heads=2)(np.ones((1, 5, 8)))
    >>> bias.shape
    TensorShape([1, 2, 5, 5])
    """

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        num_heads: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.num_heads = num_heads
        num_exact = num_buckets // (4 if bidirectional else 2)
        if num_exact < 1 or max_distance <= num_exact:
            raise ValueError(
                f"`num_buckets` must be at least {4 if bidirectional else 2}, and `max_distance` above "
                f"{num_exact}, the distances with a bucket each; they are {num_buckets} and {max_distance}."
            )

    def build_for(self, num_heads, key_dim, value_dim):
        """Create the table for the heads of an attention layer, unless it exists."""
        if not self.built:
            self._make_table(self.num_heads or num_heads)

    def build(self, x_shape):
        if self.num_heads is None:
            raise ValueError("`num_heads` must be given if the layer is called by itself; it is None.")
        self._make_table(self.num_heads)

    def _make_table(self, num_heads):
        self.table = self.add_weight((self.num_buckets, num_heads), "glorot_uniform", name="table")
        self.built = True

    def call(self, x):
        """The bias (1, H, T, T) for self-attention over a sequence `x` (B, T, ...)."""
        positions = ops.arange(ops.shape(x)[1], dtype="int32")
        return self.bias(positions, positions)

    def compute_output_shape(self, x_shape):
        return (1, self.num_heads, x_shape[1], x_shape[1])

    def bias(self, positions, key_positions):
        """The bias (1 or B, H, T, S) of queries at `positions` and keys at `key_positions`."""
        bias = ops.take(self.table, self.buckets(distances(positions, key_positions)), axis=0)
        bias = bias[None] if len(bias.shape) == 3 else bias  # (1 or B, T, S, H)
        return ops.transpose(bias, (0, 3, 1, 2))  # (1 or B, H, T, S)

    def scores(self, query, key, positions, key_positions, scale):
        return self.bias(positions, key_positions)

    def buckets(self, distance):
        """The bucket of each distance, key position - query position."""
        num_buckets, offset = self.num_buckets, 0
        if self.bidirectional:
            num_buckets //= 2
            offset = ops.where(distance > 0, num_buckets, 0)
            distance = ops.absolute(distance)
        else:
            distance = ops.maximum(-distance, 0)
        num_exact = num_buckets // 2
        far = ops.log(ops.cast(ops.maximum(distance, 1), "float32") / num_exact)
        far = far / math.log(self.max_distance / num_exact) * (num_buckets - num_exact)
        far = ops.minimum(num_exact + ops.cast(far, "int32"), num_buckets - 1)
        return offset + ops.where(distance < num_exact, distance, far)


def distances(positions, key_positions):
    """Key position - query position, as int32 (T, S) or (B, T, S), of positions (T,) or (B, T) and (S,) or
    (B, S).
    """
    return ops.cast(key_positions[..., None, :] - positions[..., :, None], "int32")
