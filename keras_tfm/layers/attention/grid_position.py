"""Positions of attention among the cells of a grid, by their offset: biases, or learned vectors."""

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
        self.indices = self.rows()
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
        rows = self.indices
        lengths, expected = (query.shape[2], key.shape[2]), tuple(n + self.prefix for n in rows.shape)
        if any(length not in (None, n) for length, n in zip(lengths, expected, strict=True)):
            raise ValueError(
                f"{self.name!r} is for {expected[0]} queries and {expected[1]} keys; "
                f"there are {lengths[0]} and {lengths[1]}."
            )
        bias = ops.transpose(ops.take(self.table, rows, axis=0), (2, 0, 1))  # (H, T, S)
        prefix = (self.prefix, 0)
        return ops.pad(bias, ((0, 0), prefix, prefix)) if self.prefix else bias


class ImageRelativePosition(AttentionPosition):
    """A learned vector for each clipped vertical and each horizontal offset, added to the keys.

    Wu et al. 2021, "Rethinking and Improving Relative Position Encoding for Vision Transformer" (iRPE), the
    cross method: of the cells of a `grid`, row by row, the sum of the vectors of both axes. Offsets are
    clipped, as Chen et al. 2021, "AutoFormer", have them, where iRPE counts far ones more coarsely: those
    of more than `max_distance` count as that. `with_values` adds other such vectors to the values. The
    first `prefix` tokens, class tokens for example, stand on no cell: pairs with one share a vector.
    """

    def __init__(
        self,
        grid,
        max_distance=14,
        with_values=False,
        prefix=0,
        initializer="glorot_uniform",
        **kwargs,
    ):
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
        self.built = True

    def _tables(self, name, width):
        """One for the vertical and one for the horizontal offsets; their first rows are the prefix's."""
        shape = (2 * self.max_distance + 2, width)
        return [
            self.add_weight(shape, own(keras.initializers.get(self.initializer)), name=f"{name}_{axis}")
            for axis in ("vertical", "horizontal")
        ]

    def rows(self):
        """The tables' rows of each query and key: vertical and horizontal, (T, T) each, NumPy arrays."""
        height, width = height_and_width(self.grid)
        cells = np.indices((height, width)).reshape(2, -1)  # (2, rows columns)
        offsets = cells[:, None, :] - cells[:, :, None]
        rows = np.clip(offsets, -self.max_distance, self.max_distance) + self.max_distance + 1
        return np.pad(rows, ((0, 0), (self.prefix, 0), (self.prefix, 0))).astype("int32")

    def _vectors(self, tables, dtype):
        """(T, T, K): the sum over both axes."""
        parts = (ops.take(table, rows, axis=0) for table, rows in zip(tables, self.indices, strict=True))
        return ops.cast(sum(parts), dtype)

    def scores(self, query, key, positions, key_positions, scale):
        """ValueError where there are not as many tokens as cells and prefix."""
        length = self.indices.shape[1]
        if any(x.shape[2] not in (None, length) for x in (query, key)):
            raise ValueError(f"{self.name!r} is for {length} tokens; there are {query.shape[2]}.")
        vectors = self._vectors(self.key_tables, query.dtype)
        return ops.einsum("bhtk,tsk->bhts", query * scale, vectors)

    def values(self, weights, positions, key_positions):
        if self.value_tables is None:
            return None
        return ops.einsum("bhts,tsk->bhtk", weights, self._vectors(self.value_tables, weights.dtype))


class QuadraticPosition(AttentionPosition):
    """Scores that fall with the squared distance from a place that each head looks at.

    What is added for a query at p and a key at p + d, cells of a `grid` of this side or (height, width), is
    -sharpness |d - centre|^2, with a learned sharpness and (vertical, horizontal) centre of each head.
    Cordonnier et al. 2020, "On the Relationship between Self-Attention and Convolutional Layers", section
    3.1: sharp enough, a head sees the one cell that lies at its centre from the query.
    """

    def __init__(self, grid, initializer="random_normal", **kwargs):
        super().__init__(**kwargs)
        height_and_width(grid, "grid")
        self.grid = grid
        self.initializer = initializer

    def build(self, heads):
        initializer = own(keras.initializers.get(self.initializer))
        self.centers = self.add_weight((heads[0], 2), initializer, name="centers")
        self.sharpness = self.add_weight((heads[0],), "ones", name="sharpness")
        cells = np.indices(height_and_width(self.grid)).reshape(2, -1)
        self.offsets = (cells[:, None, :] - cells[:, :, None]).astype("float32")  # key - query: (2, T, T)
        self.built = True

    def scores(self, query, key, positions, key_positions, scale):
        """(H, T, T) in float32; ValueError where there are not as many tokens as cells."""
        length = self.offsets.shape[1]
        if any(x.shape[2] not in (None, length) for x in (query, key)):
            raise ValueError(f"{self.name!r} is for {length} tokens; there are {query.shape[2]}.")
        centers = ops.cast(self.centers, "float32")[..., None, None]  # (H, 2, 1, 1)
        distances = ops.sum(ops.square(self.offsets - centers), axis=1)
        return -ops.cast(self.sharpness, "float32")[:, None, None] * distances
