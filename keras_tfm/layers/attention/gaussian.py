"""A bias of attention that keeps each query near a place of its own on a map.

Gao et al. 2021, "Fast Convergence of DETR with Spatially Modulated Co-Attention", section 3.2.
"""

from typing import Any, cast

import numpy as np
from keras import ops

from keras_tfm.layers.base import WithoutMask, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.signatures import Tensor


def gaussian_bias(centres: Tensor, scales: Tensor, grid: tuple[int, int], smoothness: float = 8.0) -> Tensor:
    """The logarithm of a Gaussian around each of the `centres` (..., 2), at all N cells of a map: (..., N).

    It is -((s_x (x - c_x))² + (s_y (y - c_y))²) / `smoothness` at the cell in column x and row y, with the
    centre c and the `scales` s, (..., 2 or 1). Columns and rows are counted from 0. `grid` is (rows,
    columns), and cells stand row by row. In float32.

    >>> centre, scale = np.array([0.5, 0.0]), np.array([2.0])
    >>> keras_tfm.layers.gaussian_bias(centre, scale, grid=(1, 3)).numpy().tolist()
    [-0.125, -0.125, -1.125]
    """
    rows, columns = grid
    y, x = np.divmod(np.arange(rows * columns), columns)
    cells = np.stack([x, y], axis=-1).astype("float32")  # (N, 2)
    centres, scales = (ops.cast(values, "float32")[..., None, :] for values in (centres, scales))
    return -ops.sum(ops.square(scales * (centres - cells)), axis=-1) / smoothness


class GaussianBias(WithoutMask):
    """A `gaussian_bias` (B, H, Q, N) for attention scores; its offsets and scales come from the queries.

    A head's Gaussian is centred at the query's centre plus an offset. The offset and the scales are linear
    functions of the query's vector, for each head its own; at first the offsets are 0 and the scales 1.

    Args:
        num_heads: H.
        grid: (rows, columns) of the map of N cells that is attended to.
        num_scales: 2 for a scale along each axis, 1 for a common one, 0 for a constant scale of 1.
        smoothness: divides the squared distance: with a scale of 1 the variance is half of it.

    >>> bias = keras_tfm.layers.GaussianBias(num_heads=2, grid=(3, 4))
    >>> bias(np.ones((1, 5, 8)), np.ones((1, 5, 2))).shape
    TensorShape([1, 2, 5, 12])
    """

    def __init__(
        self,
        num_heads: int,
        grid: tuple[int, int],
        num_scales: int = 2,
        smoothness: float = 8.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # lower precision moves centres
        require_sizes(num_heads=num_heads)
        if num_scales not in (0, 1, 2):
            raise ValueError(f"`num_scales` must be 0, 1 or 2; it is {num_scales}.")
        if not smoothness > 0:
            raise ValueError(f"`smoothness` must be above 0; it is {smoothness}.")
        self.num_heads = num_heads
        self.grid = cast(tuple[int, int], tuple(grid))
        self.num_scales = num_scales
        self.smoothness = smoothness
        self.offsets = Dense(2 * num_heads, kernel_initializer="zeros")
        self.scales = None
        if num_scales:
            size = num_scales * num_heads
            self.scales = Dense(size, kernel_initializer="zeros", bias_initializer="ones")

    def build(self, query_shape, centres_shape=None):
        for layer in (self.offsets, self.scales):
            if layer is not None:
                layer.build(query_shape)

    def call(self, query, centres):
        """(B, H, Q, N) for the `query` (B, Q, D) and its `centres` (B, Q, 2), (column, row) in cells."""
        query = ops.cast(query, self.compute_dtype)
        offsets = in_float32(self._of_heads(self.offsets(query), 2))
        centres = ops.cast(centres, offsets.dtype)[:, None] + offsets  # (B, H, Q, 2)
        if self.scales is None:
            scales = ops.ones_like(centres)
        else:
            scales = self._of_heads(self.scales(query), self.num_scales)
        return ops.cast(gaussian_bias(centres, scales, self.grid, self.smoothness), self.compute_dtype)

    def _of_heads(self, x, count):
        batch_size, length = ops.shape(x)[:2]
        x = ops.reshape(x, (batch_size, length, self.num_heads, count))  # (B, Q, H, count)
        return ops.transpose(x, (0, 2, 1, 3))  # (B, H, Q, count)

    def compute_output_shape(self, query_shape, centres_shape=None):
        rows, columns = self.grid
        return (query_shape[0], self.num_heads, query_shape[1], rows * columns)
