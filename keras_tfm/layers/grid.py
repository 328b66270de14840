"""Sequences of a grid's cells, row by row, and maps: what a convolution sees between layers of tokens.

sequence (B, M + rows columns, D)   [class] a b c d e f

map (B, rows, columns, D)           a b c
                                    d e f
"""

import math

import keras
from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.patches import flatten_map


def to_map(x, grid):
    """(B, rows columns, D) -> (B, rows, columns, D)."""
    return ops.reshape(x, (-1, *grid, x.shape[-1]))  # (B, rows, columns, D)


def every_nth(x, grid, n):
    """The cells of every `n`th row and column: (B, rows columns, D) -> (B, N', D)."""
    return flatten_map(to_map(x, grid)[:, ::n, ::n])


def every_nth_grid(grid, n):
    """The (rows, columns) of `every_nth`'s cells."""
    return tuple(-(-side // n) for side in grid)


class FourierPositions(Layer):
    """A linear layer of `num_sines` sines of each cell's row, and of its column, to be added to a map.

    El-Nouby et al. 2021, "XCiT", section 3.4.
    """

    def __init__(self, num_sines=32, **kwargs):
        super().__init__(**kwargs)
        self.num_sines = num_sines
        self.sines = SineGridPositionEncoding(normalize=True)

    def build(self, x_shape):
        sines_shape = (*x_shape[:-1], 2 * self.num_sines)
        self.sines.build(sines_shape)
        self.projection = keras.layers.Dense(x_shape[-1], name="projection")
        self.projection.build(sines_shape)
        self.built = True

    def call(self, x):
        """(B, rows, columns, D) -> (B, rows, columns, D)."""
        sines = self.sines(ops.zeros((1, *x.shape[1:3], 2 * self.num_sines), self.compute_dtype))
        return ops.broadcast_to(self.projection(sines), ops.shape(x))

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)


class OnGrid(Layer):
    """`layer`, which takes maps, on sequences: (B, M + rows columns, D) in and out.

    The first `prefix` tokens, a class token for example, skip it. A padding mask is not taken: a grid has
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
        y = flatten_map(self.layer(to_map(x[:, self.prefix :], self.grid), training=training))
        return ops.concatenate([x[:, : self.prefix], y], axis=1) if self.prefix else y

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)


class MapAttention(Layer):
    """`attention` among all cells of a map, which it takes as a sequence: (B, height, width, D) in and out.

    With `reduction`, a layer from maps to smaller ones, or to sequences, the cells attend to what that makes
    of the map (Wang et al. 2021, "Pyramid Vision Transformer", section 3.3, where it is a convolution and a
    norm). As the branch of a `Residual` it makes a block of maps.
    """

    def __init__(self, attention, reduction=None, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.reduction = reduction

    def build(self, x_shape):
        if len(x_shape) != 4 or None in tuple(x_shape[1:]):
            raise ValueError(f"`x` must have the shape (B, height, width, D); it is {tuple(x_shape)}.")
        if self.reduction is not None:
            self.reduction.build(x_shape)
        self.attention.build(*self._shapes(x_shape))
        self.built = True

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
        """Those of the queries and, where they are others, of the keys."""
        shapes = [_sequence_shape(x_shape)]
        if self.reduction is not None:
            shapes.append(_sequence_shape(self.reduction.compute_output_shape(x_shape)))
        return shapes


def _sequence_shape(shape):
    """The shape of a map's cells as a sequence; a sequence's stays."""
    return tuple(shape) if len(shape) == 3 else (shape[0], math.prod(shape[1:3]), shape[-1])
