"""Sequences of a grid's cells, row by row, and maps: what a convolution sees between layers of tokens.

sequence (B, M + rows columns, D)   [class] a b c d e f

map (B, rows, columns, D)           a b c
                                    d e f
"""

import math

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import Layer


def to_map(x, grid):
    """(B, rows columns, D) -> (B, rows, columns, D)."""
    return ops.reshape(x, (-1, *grid, x.shape[-1]))  # (B, rows, columns, D)


def to_sequence(x):
    """(B, rows, columns, D), of known sides -> (B, rows columns, D)."""
    _, rows, columns, width = x.shape
    return ops.reshape(x, (-1, rows * columns, width))  # (B, N, D)


def every_nth(x, grid, n):
    """The cells of every `n`th row and column: (B, rows columns, D) -> (B, N', D)."""
    return to_sequence(to_map(x, grid)[:, ::n, ::n])


def every_nth_grid(grid, n):
    """The (rows, columns) of `every_nth`'s cells."""
    return tuple(-(-side // n) for side in grid)


def grid_sines(grid, width, base=10_000.0, scale=2 * math.pi):
    """Sines of a grid's rows and columns (rows, columns, 2 `width`), the rows' first, as an array.

    Vaswani et al.'s, with rows and columns counted from 1 and stretched so that the last is at `scale`
    (Carion et al. 2020, "DETR", appendix A.4).
    """
    frequencies = base ** (-2 * (np.arange(width) // 2) / width)

    def sines(size):
        positions = np.arange(1, size + 1) / (size + 1e-6) * scale
        angles = positions[:, None] * frequencies  # (size, width)
        return np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))

    rows, columns = grid
    parts = (sines(rows)[:, None], sines(columns)[None])
    return np.concatenate([np.broadcast_to(part, (rows, columns, width)) for part in parts], axis=-1)


class FourierPositions(Layer):
    """A linear layer of `num_sines` sines of each cell's row, and of its column, to be added to a map.

    El-Nouby et al. 2021, "XCiT", section 3.4.
    """

    def __init__(self, num_sines=32, **kwargs):
        super().__init__(**kwargs)
        self.num_sines = num_sines

    def build(self, x_shape):
        self.projection = keras.layers.Dense(x_shape[-1], name="projection")
        self.projection.build((None, 2 * self.num_sines))
        self.built = True

    def call(self, x):
        """(B, rows, columns, D) -> (B, rows, columns, D)."""
        sines = ops.cast(grid_sines(x.shape[1:3], self.num_sines), self.compute_dtype)
        return ops.broadcast_to(self.projection(sines[None]), ops.shape(x))

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)


class OnGrid(Layer):
    """`layer`, which takes maps, on sequences: (B, M + rows columns, D) in and out.

    The first `prefix` tokens, a class token for example, pass it by. A padding mask is not taken: a grid has
    no padding.
    """

    def __init__(self, layer, grid, prefix=0, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer
        self.grid = tuple(grid)
        self.prefix = prefix

    def build(self, x_shape):
        rows, columns = self.grid
        length = self.prefix + rows * columns
        if x_shape[1] not in (None, length):
            raise ValueError(
                f"A grid of {rows} x {columns} behind {self.prefix} tokens makes {length}; "
                f"the sequence has {x_shape[1]}."
            )
        self.layer.build((x_shape[0], *self.grid, x_shape[-1]))
        self.built = True

    def call(self, x, training=None):
        """(B, M + rows columns, D) -> (B, M + rows columns, D)."""
        y = to_sequence(self.layer(to_map(x[:, self.prefix :], self.grid), training=training))
        return ops.concatenate([x[:, : self.prefix], y], axis=1) if self.prefix else y

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)
