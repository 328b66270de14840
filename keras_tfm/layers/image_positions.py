"""Positions in two dimensions, for maps (B, rows, columns, D)."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import SameShape, copy_of
from keras_tfm.layers.positions import sines
from keras_tfm.layers.resizing import resize_bicubic
from keras_tfm.layers.signatures import Initializer, Sides
from keras_tfm.registry import register


def interpolate_positions(table, grid, new_grid, smooths=True):
    """Learned positions (M + N, D) resized from a `grid` of N = rows x columns to another: (M + N', D).

    The first M rows, of class tokens, stay as they are. The others are resized bicubically as an image, for
    fine-tuning at a higher resolution (Dosovitskiy et al. 2021, section 3.2); `resize_bicubic` says what
    `smooths` changes.
    """
    num_special = table.shape[0] - grid[0] * grid[1]
    plane = ops.reshape(table[num_special:], (1, *grid, table.shape[1]))  # (1, rows, columns, D)
    plane = resize_bicubic(plane, new_grid, smooths)
    return ops.concatenate([table[:num_special], ops.reshape(plane, (-1, table.shape[1]))], axis=0)


class GridPositionEmbedding(SameShape):
    """x + a learned vector for each cell of a map (B, rows, columns, D).

    `grid` is the side or the (rows, columns) of the table, by default the first map's. For a map of another
    size the table is resized bicubically.

    >>> keras_tfm.layers.GridPositionEmbedding()(np.ones((1, 3, 3, 8))).shape
    TensorShape([1, 3, 3, 8])
    """

    def __init__(
        self, grid: Sides | None = None, initializer: Initializer = "uniform", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.grid = grid
        self.initializer = initializer

    def build(self, x_shape):
        grid = tuple(x_shape[1:3]) if self.grid is None else self.grid
        rows, columns = grid if isinstance(grid, list | tuple) else (grid, grid)
        initializer = copy_of(keras.initializers.get(self.initializer))
        self.table = self.add_weight((rows, columns, x_shape[3]), initializer, name="table")

    def call(self, x):
        """(B, rows, columns, D) -> (B, rows, columns, D); rows and columns must be known."""
        table, grid = self.table, tuple(x.shape[1:3])
        if grid != tuple(self.table.shape[:2]):
            table = resize_bicubic(ops.cast(table, "float32")[None], grid, smooths=True)[0]
        return x + ops.cast(table, x.dtype)


@register
class GridSines(keras.initializers.Initializer):
    """An initializer for position tables (M + N, D): sines for the N cells of a `grid`, after M rows of
    zeros.

    `grid` is (rows, columns). The first quarter of a cell's numbers are sines of its column, the second
    cosines; then come sines and cosines of its row. The frequencies are as in `SinePositionEncoding`, and D
    must be a multiple of four. Masked autoencoders use it (He et al. 2022, the released code).

    >>> keras_tfm.layers.GridSines(grid=(2, 3))((7, 8)).shape
    TensorShape([7, 8])
    """

    def __init__(self, grid: tuple[int, int]) -> None:
        self.grid = tuple(grid)

    def __call__(self, shape, dtype=None):
        (length, dim), (rows, columns) = shape, self.grid
        if dim % 4:
            raise ValueError(f"The width D must be a multiple of four; it is {dim}.")
        frequencies = 10_000.0 ** (-np.arange(dim // 4) / (dim // 4))
        vertical, horizontal = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        angles = [np.outer(x.ravel(), frequencies) for x in (horizontal, vertical)]  # (N, D/4) each
        cells = np.concatenate([f(x) for x in angles for f in (np.sin, np.cos)], axis=1)
        table = np.concatenate([np.zeros((length - rows * columns, dim)), cells])
        return ops.convert_to_tensor(table, dtype)

    def get_config(self):
        return {"grid": self.grid}


class SineGridPositionEncoding(SameShape):
    """x + sines and cosines of a cell's row, in the first half of the features, and of its column in the
    second; in a clip of maps, of its frame, row and column in thirds.

    Each part is the vector of `SinePositionEncoding`, so D must be a multiple of four, for clips of six
    (Parmar et al. 2018, "Image Transformer"; Carion et al. 2020, "End-to-End Object Detection with
    Transformers", appendix A.4; Wang et al. 2021, "End-to-End Video Instance Segmentation with Transformers",
    section 3.1). The positions are 0, 1, ... With `normalize` they run from 2 pi / n to 2 pi along an axis of
    n cells, as in Carion et al.; `offset` is taken from them before, 0.5 for the centres of cells. Where a
    mask hides padding, only the visible cells of an axis are counted.

    >>> keras_tfm.layers.SineGridPositionEncoding()(np.ones((1, 3, 3, 8))).shape
    TensorShape([1, 3, 3, 8])
    """

    def __init__(
        self, base: float = 10_000.0, normalize: bool = False, offset: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.base = base
        self.normalize = normalize
        self.offset = offset

    def build(self, x_shape):
        multiple = 2 * (len(x_shape) - 2)
        if x_shape[-1] % multiple:
            words = {4: "four", 6: "six"}.get(multiple, multiple)
            raise ValueError(f"The width D must be a multiple of {words}; it is {x_shape[-1]}.")

    def call(self, x, mask=None):
        """A map (B, rows, columns, D) or a clip (B, frames, rows, columns, D) in and out; `mask`, of the same
        shape without D, is False at padding.
        """
        *grid, dim = x.shape[1:]
        if mask is None:
            mask = ops.ones((1, *grid), "bool")
        axes = range(1, len(grid) + 1)
        parts = [sines(self._positions(mask, axis), dim // len(grid), self.base) for axis in axes]
        return x + ops.cast(ops.concatenate(parts, axis=-1), x.dtype)

    def _positions(self, mask, axis):
        """The positions of cells along `axis` of their mask (B, rows, columns)."""
        counts = ops.cumsum(ops.cast(mask, "float32"), axis=axis)  # from 1
        if not self.normalize:
            return counts - 1 - self.offset
        last = ops.max(counts, axis=axis, keepdims=True)
        return (counts - self.offset) / (last + 1e-6) * (2 * math.pi)  # 1e-6 as in DETR's code, against 0 / 0
