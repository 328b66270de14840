"""A learned bias of attention among the cells of a grid, by their offset."""

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.attention.positions import AttentionPosition
from keras_tfm.layers.base import own
from keras_tfm.layers.patches import height_and_width


class GridPositionBias(AttentionPosition):
    """A learned bias for each head and offset between two cells of a `grid`, added to the scores.

    The queries and keys are the cells of a grid of this side or (height, width), row by row. Liu et al. 2021,
    "Swin Transformer", eq. 4: with `signed` offsets the table has (2 height - 1)(2 width - 1) rows, row by
    row by query - key. Graham et al. 2021, "LeViT", eq. 1: without, height x width rows, by |query - key|.
    With a `query_stride` n the queries are the cells of every n-th row and column, from the first (LeViT's
    shrinking attention). The first `prefix` tokens, class tokens for example, stand on no cell: their scores
    are left as they are.
    """

    def __init__(self, grid, signed=True, query_stride=1, prefix=0, initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        height_and_width(grid, "grid")
        if query_stride < 1 or prefix < 0:
            raise ValueError(
                "`query_stride` must be at least 1, and `prefix` at least 0; "
                f"they are {query_stride} and {prefix}."
            )
        self.grid = grid
        self.signed = signed
        self.query_stride = query_stride
        self.prefix = prefix
        self.initializer = initializer

    def build(self, heads):
        height, width = height_and_width(self.grid)
        num_rows = (2 * height - 1) * (2 * width - 1) if self.signed else height * width
        initializer = own(keras.initializers.get(self.initializer))
        self.table = self.add_weight((num_rows, heads[0]), initializer, name="table")
        self.built = True

    def rows(self):
        """The table's row of each query and key that is a cell: (T, S), a NumPy array."""
        height, width = height_and_width(self.grid)
        vertical, horizontal = (
            np.arange(side)[:: self.query_stride, None] - np.arange(side) for side in (height, width)
        )
        if self.signed:
            vertical, horizontal, width = vertical + height - 1, horizontal + width - 1, 2 * width - 1
        vertical, horizontal = np.abs(vertical), np.abs(horizontal)
        rows = vertical[:, None, :, None] * width + horizontal[None, :, None, :]
        return rows.reshape(len(vertical) * len(horizontal), -1).astype("int32")

    def scores(self, query, key, positions, key_positions, scale):
        """The bias (H, T, S); ValueError where there are not as many tokens as cells and prefix."""
        rows = self.rows()
        lengths, expected = (query.shape[2], key.shape[2]), tuple(n + self.prefix for n in rows.shape)
        if any(length not in (None, n) for length, n in zip(lengths, expected, strict=True)):
            raise ValueError(
                f"{self.name!r} is for {expected[0]} queries and {expected[1]} keys; "
                f"there are {lengths[0]} and {lengths[1]}."
            )
        bias = ops.transpose(ops.take(self.table, rows, axis=0), (2, 0, 1))  # (H, T, S)
        prefix = (self.prefix, 0)
        return ops.pad(bias, ((0, 0), prefix, prefix)) if self.prefix else bias
