"""Rotary positions for the cells of a grid: half of each head turns with the row, half with the column."""

import math
from typing import Any

import numpy as np
from keras import ops

from keras_tfm.layers.attention.positions import AttentionPosition, rotate_pairs
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.signatures import Sides


class GridRotaryEmbedding(AttentionPosition):
    """Rotary positions in two dimensions: pairs of components are rotated by a cell's row or by its column.

    The cell at (row, column) has its centre at (y, x), from -1 at one border of the grid to 1 at the other,
    so that the angles do not grow with the resolution. The pairs k < K/4 are rotated by 2 pi y base^(-4k/K),
    the next K/4 by the same angles of x. Component k is paired with component k + K/2, as in
    `RotaryEmbedding`. Siméoni et al. 2025, "DINOv3", section 3.2; the authors' random shifts and scales of
    the coordinates in pre-training are left out.

    Args:
        grid: the side of the grid, or its (height, width). The tokens are its cells, row by row.
        prefix: how many tokens, such as class tokens, come before the cells. They are not rotated.
        base: about the ratio of the largest to the smallest frequency.

    >>> position = keras_tfm.layers.GridRotaryEmbedding(grid=3, prefix=1)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 10, 8))).shape
    TensorShape([1, 10, 8])
    """

    def __init__(self, grid: Sides, prefix: int = 0, base: float = 100.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        height_and_width(grid, "grid")
        if prefix < 0 or base <= 0:
            raise ValueError(
                f"`prefix` must be at least 0, and `base` positive; they are {prefix} and {base}."
            )
        self.grid = grid
        self.prefix = prefix
        self.base = base

    def build(self, heads):
        if heads[1] % 4:
            raise ValueError(
                "The width of a head, `key_dim`, must be a multiple of four, for pairs of the rows and of "
                f"the columns; it is {heads[1]}."
            )

    def angles(self, width):
        """What each token's pairs are rotated by, for heads of this width: a NumPy array (T, width / 2)."""
        height_of_grid, width_of_grid = height_and_width(self.grid)
        frequencies = 2 * math.pi * self.base ** (-4 * np.arange(width // 4) / width)
        y, x = (
            ((2 * np.arange(side) + 1) / side - 1)[:, None] * frequencies
            for side in (height_of_grid, width_of_grid)
        )
        rows = np.repeat(y, width_of_grid, axis=0)  # (N, K/4)
        columns = np.tile(x, (height_of_grid, 1))  # (N, K/4)
        cells = np.concatenate([rows, columns], axis=1)  # (N, K/2)
        return np.pad(cells, ((self.prefix, 0), (0, 0))).astype("float32")

    def rotate(self, query, key, positions=None, key_positions=None):
        """Rotated queries and keys. Raises ValueError unless there is a token for each cell and prefix."""
        return self._rotated(query), self._rotated(key)

    def _rotated(self, x):
        if x is None:
            return None
        angles = self.angles(x.shape[-1])
        if x.shape[2] not in (None, len(angles)):
            raise ValueError(
                f"{self.name!r} has a `grid` and `prefix` for {len(angles)} tokens; there are {x.shape[2]}."
            )
        return rotate_pairs(x, ops.convert_to_tensor(angles))
