"""Positions of tokens in a sequence, added to their vectors."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.inputs import refuse_outside
from keras_tfm.layers.base import SameShape, copy_of, require_sizes
from keras_tfm.layers.signatures import Initializer


def outside_is_nan(indices, size, dtype):
    """0 where 0 <= index < `size` and NaN elsewhere, with a last axis of length 1, to be added to a look-up.

    Under XLA and on GPUs a look-up outside a table cannot raise: it returns the last row or zeros. NaN makes
    the mistake visible.
    """
    inside = ops.logical_and(indices >= 0, indices < size)
    return ops.cast(ops.where(inside, 0.0, math.nan), dtype)[..., None]


def angles_of(positions, dim, base=10_000.0, scaling=None):
    """The angles position / base^(2k/dim), for k = 0 .. dim/2 - 1, in float32: (...) -> (..., dim/2).

    `scaling` is as in `RotaryEmbedding`.
    """
    frequencies = scaled(base ** (-np.arange(0, dim, 2) / dim), scaling)
    return ops.cast(positions, "float32")[..., None] * frequencies.astype("float32")


def scaled(frequencies, scaling):
    """The `frequencies` as the `scaling` of a `RotaryEmbedding` says."""
    if scaling is None:
        return frequencies
    slow = frequencies / scaling["factor"]
    if scaling["rope_type"] == "linear":
        return slow
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    # Frequencies of more than `high` turns within the first length stay; with fewer than `low` they are slow.
    share = np.clip((turns - low) / (high - low), 0, 1)
    return share * frequencies + (1 - share) * slow


def sines(positions, dim, base=10_000.0):
    """PE[..., 2k] = sin(position / base^(2k/dim)), PE[..., 2k+1] = cos of the same: (...) -> (..., dim)."""
    # Divided, as in DETR's code: where all is padding its positions are so large that the last bit matters.
    periods = np.float32(base) ** (np.arange(0, dim, 2) / dim).astype("float32")
    angles = ops.cast(positions, "float32")[..., None] / periods  # (..., dim / 2)
    encoding = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(encoding, (*ops.shape(positions), dim))  # (..., dim)


class SinePositionEncoding(SameShape):
    """x + PE, where PE[t, 2k] = sin(t / base^(2k/D)) and PE[t, 2k+1] is the cosine of the same.

    Vaswani et al. 2017, section 3.5, with k = 0 .. D/2 - 1. D must be even; the length is not limited.

    >>> keras_tfm.layers.SinePositionEncoding()(np.zeros((1, 1, 4))).numpy().tolist()
    [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(self, base: float = 10_000.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base

    def build(self, x_shape, positions_shape=None):
        if x_shape[-1] % 2:
            raise ValueError(
                f"The width D must be even, for a sine and a cosine per frequency; it is {x_shape[-1]}."
            )

    def call(self, x, positions=None):
        """Add to `x` (B, T, D) the encoding of `positions` (T,) or (B, T), by default 0 .. T-1."""
        if positions is None:
            positions = ops.arange(ops.shape(x)[1], dtype="int32")
        return x + ops.cast(sines(positions, x.shape[-1], self.base), x.dtype)


class SineTable(SameShape):
    """x + PE, as `SinePositionEncoding`, of 0 .. T-1 for the one length T that the layer is built for.

    The table is computed once, in float64: in float32 the sines of position 1,000 are 3e-5 off.

    >>> keras_tfm.layers.SineTable()(np.zeros((1, 1, 4))).numpy().tolist()
    [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(self, base: float = 10_000.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base = base

    def build(self, x_shape):
        _, length, dim = x_shape
        if length is None or dim % 2:
            raise ValueError(
                f"`x` must have a known length and an even width D; its shape is {tuple(x_shape)}."
            )
        angles = np.outer(np.arange(length), self.base ** (-np.arange(0, dim, 2) / dim))
        table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, dim)  # (T, D)
        self.table = table.astype("float32")

    def call(self, x):
        """(B, T, D) -> (B, T, D)."""
        return x + ops.cast(self.table, x.dtype)


class PositionEmbedding(SameShape):
    """x + a learned vector for each of `max_length` positions (Gehring et al. 2017; BERT, GPT, ViT).

    >>> keras_tfm.layers.PositionEmbedding(max_length=8)(np.ones((1, 5, 4))).shape
    TensorShape([1, 5, 4])
    """

    def __init__(self, max_length: int, initializer: Initializer = "uniform", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(max_length=max_length)
        self.max_length = max_length
        self.initializer = initializer

    def build(self, x_shape, positions_shape=None):
        self.embedding = keras.layers.Embedding(
            self.max_length,
            x_shape[-1],
            name="embedding",
            embeddings_initializer=copy_of(self.initializer),
        )
        self.embedding.build()

    def call(self, x, positions=None):
        """Add to `x` (B, T, D) the vectors of `positions` (T,) or (B, T), by default 0 .. T-1.

        Raises ValueError if T is known and exceeds `max_length`.
        """
        if positions is None:
            if x.shape[1] is not None and x.shape[1] > self.max_length:
                raise ValueError(
                    f"The sequence must have at most `max_length` = {self.max_length} positions; "
                    f"it has {x.shape[1]}."
                )
            positions = ops.arange(ops.shape(x)[1], dtype="int32")
        else:
            refuse_outside(positions, self.max_length, "positions")
        vectors = ops.cast(self.embedding(positions), x.dtype)  # a table in 8 bits gives float32
        return x + vectors + outside_is_nan(positions, self.max_length, x.dtype)
