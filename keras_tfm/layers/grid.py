"""Sequences of a grid's cells and maps, and layers that go from one form to the other.

sequence (B, M + rows columns, D)   [class] a b c d e f     the cells row by row, after M other tokens

map (B, rows, columns, D)           a b c
                                    d e f
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.patches import flatten_map


def to_map(x, grid):
    """A sequence of cells as a map: (B, rows columns, D) -> (B, rows, columns, D)."""
    return ops.reshape(x, (-1, *grid, x.shape[-1]))  # (B, rows, columns, D)


def shares_of(masks):
    """The parts of the maps' width and height that are no padding, by their first row and column: (B, L,
    2).
    """
    shares = [[ops.mean(ops.cast(x, "float32"), axis=1) for x in (m[:, 0], m[:, :, 0])] for m in masks]
    return ops.stack([ops.stack(pair, axis=-1) for pair in shares], axis=1)


def centres_of(grids, shares):
    """The centres (x, y) of all cells as parts of the image's sides, padding apart: (B, N, 2)."""
    centres = []
    for level, (rows, columns) in enumerate(grids):
        x, y = np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows)
        places = np.stack([x.ravel(), y.ravel()], axis=-1).astype("float32")  # (N, 2)
        centres.append(ops.divide(places, ops.maximum(shares[:, level : level + 1], 1e-6)))
    return ops.concatenate(centres, axis=1)


def every_nth(x, grid, n):
    """The cells of every `n`-th row and column: (B, rows columns, D) -> (B, N', D)."""
    return flatten_map(to_map(x, grid)[:, ::n, ::n])


def every_nth_grid(grid, n):
    """The (rows, columns) of the cells that `every_nth` returns."""
    return tuple(-(-side // n) for side in grid)


class FourierPositions(SameShape):
    """Positions of a map's cells, to be added to the map: a linear layer on sines of the row and the column.

    Each of the two has `num_sines` numbers, half of them sines and half cosines (El-Nouby et al. 2021,
    "XCiT", section 3.4). `num_sines` must be even.

    >>> keras_tfm.layers.FourierPositions()(np.ones((1, 3, 3, 8))).shape
    TensorShape([1, 3, 3, 8])
    """

    def __init__(self, num_sines: int = 32, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_sines = num_sines
        self.sines = SineGridPositionEncoding(normalize=True)

    def build(self, x_shape):
        sines_shape = (*x_shape[:-1], 2 * self.num_sines)
        self.sines.build(sines_shape)
        self.projection = keras.layers.Dense(x_shape[-1], name="projection")
        self.projection.build(sines_shape)

    def call(self, x):
        """(B, rows, columns, D) -> (B, rows, columns, D)."""
        sines = self.sines(ops.zeros((1, *x.shape[1:3], 2 * self.num_sines), self.compute_dtype))
        return ops.broadcast_to(self.projection(sines), ops.shape(x))


class OnGrid(SameShape):
    """Applies `layer`, which takes maps, to a sequence of a grid's cells: (B, M + rows columns, D) in and
    out.

    Args:
        layer: a layer from maps (B, rows, columns, D) to maps of the same shape.
        grid: (rows, columns).
        prefix: M, how many tokens, such as class tokens, come before the cells; they are returned unchanged.

    >>> convolution = keras_tfm.layers.Convolution(8)
    >>> keras_tfm.layers.OnGrid(convolution, grid=(3, 3), prefix=1)(np.ones((1, 10, 8))).shape
    TensorShape([1, 10, 8])
    """

    def __init__(
        self, layer: keras.layers.Layer, grid: tuple[int, int], prefix: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.layer = layer
        self.grid = tuple(grid)
        self.prefix = prefix

    def build(self, x_shape):
        rows, columns = self.grid
        length = self.prefix + rows * columns
        if x_shape[1] not in (None, length):
            raise ValueError(
                f"`x` must have {length} tokens, `prefix` {self.prefix} and a `grid` of {rows} x {columns}; "
                f"it has {x_shape[1]}."
            )
        self.layer.build((x_shape[0], *self.grid, x_shape[-1]))

    def call(self, x, training=None):
        """(B, M + rows columns, D) -> (B, M + rows columns, D)."""
        y = flatten_map(self.layer(to_map(x[:, self.prefix :], self.grid), training=training))
        return ops.concatenate([x[:, : self.prefix], y], axis=1) if self.prefix else y


class MapAttention(Layer):
    """Applies `attention` to the cells of a map as a sequence: (B, height, width, D) -> (B, height, width,
    D').

    As the branch of a `Residual` it makes blocks for maps.

    Args:
        attention: an attention layer for sequences.
        reduction: a layer that makes a smaller map or a sequence of the map. The cells then attend to its
            output instead (Wang et al. 2021, "Pyramid Vision Transformer", section 3.3, where it is a
            convolution and a norm).

    >>> attention = keras_tfm.layers.MultiHeadAttention(num_heads=2)
    >>> keras_tfm.layers.MapAttention(attention)(np.ones((1, 3, 3, 8))).shape
    TensorShape([1, 3, 3, 8])
    """

    def __init__(
        self, attention: keras.layers.Layer, reduction: keras.layers.Layer | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.attention = attention
        self.reduction = reduction

    def build(self, x_shape):
        if len(x_shape) != 4 or None in tuple(x_shape[1:]):
            raise ValueError(f"`x` must have the shape (B, height, width, D); it is {tuple(x_shape)}.")
        if self.reduction is not None:
            self.reduction.build(x_shape)
        self.attention.build(*self._shapes(x_shape))

    def call(self, x, bias=None, training=None):
        """(B, height, width, D) -> (B, height, width, D'); `bias` is added to the scores (B, H, N, S)."""
        sequences = [flatten_map(x)]
        if self.reduction is not None:
            reduced = self.reduction(x, training=training)
            sequences.append(flatten_map(reduced) if len(reduced.shape) == 4 else reduced)  # (B, S, D)
        options = {} if bias is None else {"bias": bias}
        return to_map(self.attention(*sequences, **options, training=training), x.shape[1:3])

    def compute_output_shape(self, x_shape):
        return (*x_shape[:3], self.attention.compute_output_shape(*self._shapes(x_shape))[-1])

    def _shapes(self, x_shape):
        """The shape of the queries and, if there is a reduction, the shape of the keys."""
        shapes = [_sequence_shape(x_shape)]
        if self.reduction is not None:
            shapes.append(_sequence_shape(self.reduction.compute_output_shape(x_shape)))
        return shapes


def _sequence_shape(shape):
    """The shape of a map's cells as a sequence; the shape of a sequence is returned unchanged."""
    return tuple(shape) if len(shape) == 3 else (shape[0], math.prod(shape[1:3]), shape[-1])
