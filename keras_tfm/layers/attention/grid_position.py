"""Positions for attention between the cells of a grid, by their offset: learned biases or learned vectors."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.inputs import fits
from keras_tfm.layers.attention.positions import AttentionPosition
from keras_tfm.layers.base import copy_of
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.signatures import Initializer, Sides


class PairwisePosition(AttentionPosition):
    """A learned vector for each pair of a grid's tokens, whose product with the query is added to the score.
    Abstract.

    A subclass's `build` makes `key_tables`, whose rows are summed for a pair, `indices` (tables, T, T), the
    row of each query and key in each table, and perhaps `value_tables`, such vectors for the values.
    """

    value_tables: list | None = None

    def scores(self, query, key, positions, key_positions, scale):
        """The scores (B, H, T, T) to add. Raises ValueError unless there is a token for each cell and the
        prefix.
        """
        require_tokens(self, self.indices.shape[1], query, key)
        return ops.einsum("bhtk,tsk->bhts", query * scale, self._entries(self.key_tables, query.dtype))

    def values(self, weights, positions, key_positions):
        if self.value_tables is None:
            return None
        return ops.einsum("bhts,tsk->bhtk", weights, self._entries(self.value_tables, weights.dtype))

    def _entries(self, tables, dtype):
        """The sums of the tables' entries for each pair of tokens: (T, T, width)."""
        parts = (ops.take(table, rows, axis=0) for table, rows in zip(tables, self.indices, strict=True))
        return ops.cast(sum(parts), dtype)


def require_tokens(position, length, query, key):
    """Raises ValueError unless there are `length` queries and keys, or their number is not known."""
    if any(x.shape[2] not in (None, length) for x in (query, key)):
        raise ValueError(
            f"{position.name!r} has a grid for {length} tokens; it is called with {query.shape[2]}."
        )


class GridPositionBias(AttentionPosition):
    """A learned bias for each head and each offset between two cells of a grid, added to the scores.

    With `signed` the offset is query - key, and the table has (2 height - 1)(2 width - 1) rows (Liu et al.
    2021, "Swin Transformer", eq. 4). Without, it is |query - key|, and there are height x width rows (Graham
    et al. 2021, "LeViT", eq. 1).

    Args:
        grid: the side of the grid, or its (height, width). The tokens are its cells, row by row.
        signed: whether opposite offsets have biases of their own.
        query_stride: n, if only every n-th row and column has a query (LeViT's shrinking attention).
        prefix: how many tokens, such as class tokens, come before the cells. Their scores get no bias.

    >>> position = keras_tfm.layers.GridPositionBias(grid=3)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 9, 8))).shape
    TensorShape([1, 9, 8])
    """

    def __init__(
        self,
        grid: Sides,
        signed: bool = True,
        query_stride: int = 1,
        prefix: int = 0,
        initializer: Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
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
        initializer = copy_of(keras.initializers.get(self.initializer))
        self.table = self.add_weight((num_rows, heads[0]), initializer, name="table")
        self.indices = self.rows()

    def rows(self):
        """The table's row for each query cell and key cell: a NumPy array (T, S)."""
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
        """The bias (H, T, S). Raises ValueError unless there is a token for each cell and for the prefix."""
        rows = self.indices
        lengths = query.shape[2], key.shape[2]
        expected = rows.shape[0] + self.prefix, rows.shape[1] + self.prefix
        if not fits(lengths, expected):
            raise ValueError(
                f"{self.name!r} has a `grid` and `prefix` for {expected[0]} queries and {expected[1]} keys; "
                f"it is called with {lengths[0]} and {lengths[1]}."
            )
        bias = ops.transpose(ops.take(self.table, rows, axis=0), (2, 0, 1))  # (H, T, S)
        prefix = (self.prefix, 0)
        return ops.pad(bias, ((0, 0), prefix, prefix)) if self.prefix else bias


class ImageRelativePosition(PairwisePosition):
    """A learned vector for each vertical and for each horizontal offset between cells, added to the keys.

    The vectors of both axes are summed: the cross method of Wu et al. 2021, "Rethinking and Improving
    Relative Position Encoding for Vision Transformer" (iRPE). Deviates from iRPE, which groups large offsets
    into buckets: offsets beyond `max_distance` use the vector of `max_distance`, as in Chen et al. 2021,
    "AutoFormer". See `BucketedContext` for the buckets.

    Args:
        grid: the side of the grid, or its (height, width). The tokens are its cells, row by row.
        max_distance: the largest offset with a vector of its own.
        with_values: whether the values get such vectors too.
        prefix: how many tokens, such as class tokens, come before the cells. All pairs with one of them
            share a vector.

    >>> position = keras_tfm.layers.ImageRelativePosition(grid=3, max_distance=2)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 9, 8))).shape
    TensorShape([1, 9, 8])
    """

    def __init__(
        self,
        grid: Sides,
        max_distance: int = 14,
        with_values: bool = False,
        prefix: int = 0,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        height_and_width(grid, "grid")
        if max_distance < 1 or prefix < 0:
            raise ValueError(
                "`max_distance` must be at least 1, and `prefix` at least 0; "
                f"they are {max_distance} and {prefix}."
            )
        self.grid = grid
        self.max_distance = max_distance
        self.with_values = with_values
        self.prefix = prefix
        self.initializer = initializer

    def build(self, heads):
        _, key_dim, value_dim = heads
        self.key_tables = self._tables("key", key_dim)
        self.value_tables = self._tables("value", value_dim) if self.with_values else None
        self.indices = self.rows()

    def _tables(self, name, width):
        """One table for the vertical and one for the horizontal offsets; row 0 of each is the prefix's."""
        shape = (2 * self.max_distance + 2, width)
        return [
            self.add_weight(shape, copy_of(keras.initializers.get(self.initializer)), name=f"{name}_{axis}")
            for axis in ("vertical", "horizontal")
        ]

    def rows(self):
        """The row of the vertical and of the horizontal table for each query and key: NumPy arrays (T, T)."""
        height, width = height_and_width(self.grid)
        cells = np.indices((height, width)).reshape(2, -1)  # (2, rows columns)
        offsets = cells[:, None, :] - cells[:, :, None]
        rows = np.clip(offsets, -self.max_distance, self.max_distance) + self.max_distance + 1
        return np.pad(rows, ((0, 0), (self.prefix, 0), (self.prefix, 0))).astype("int32")


class QuadraticPosition(AttentionPosition):
    """Scores that fall with the squared distance from a place that each head looks at.

    For a query at cell p and a key at cell p + d it adds -sharpness |d - centre|², where each head learns
    its sharpness and its (vertical, horizontal) centre. A head of high sharpness attends to the one cell at
    its centre, relative to the query. Cordonnier et al. 2020, "On the Relationship between Self-Attention
    and Convolutional Layers", section 3.1. `grid` is the side of the grid or its (height, width).

    >>> position = keras_tfm.layers.QuadraticPosition(grid=3)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 9, 8))).shape
    TensorShape([1, 9, 8])
    """

    def __init__(self, grid: Sides, initializer: Initializer = "random_normal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        height_and_width(grid, "grid")
        self.grid = grid
        self.initializer = initializer

    def build(self, heads):
        initializer = copy_of(keras.initializers.get(self.initializer))
        self.centers = self.add_weight((heads[0], 2), initializer, name="centers")
        self.sharpness = self.add_weight((heads[0],), "ones", name="sharpness")
        cells = np.indices(height_and_width(self.grid)).reshape(2, -1)
        self.offsets = (cells[:, None, :] - cells[:, :, None]).astype("float32")  # key - query: (2, T, T)

    def scores(self, query, key, positions, key_positions, scale):
        """The scores (H, T, T) to add, in float32. Raises ValueError unless each cell has a token."""
        require_tokens(self, self.offsets.shape[1], query, key)
        centers = ops.cast(self.centers, "float32")[..., None, None]  # (H, 2, 1, 1)
        distances = ops.sum(ops.square(self.offsets - centers), axis=1)
        return -ops.cast(self.sharpness, "float32")[:, None, None] * distances
