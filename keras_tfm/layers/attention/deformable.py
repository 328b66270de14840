"""Attention that reads a few points of maps instead of all their cells.

Each head of a query looks at P points of each of L maps, around the query's reference. Where they are and how
much each counts are linear functions of the query: no query is compared with a key. Values between the
centres of cells are interpolated, so that the places are learnt by gradients.

    reference + offset ---> the four cells around it ---> their bilinear mean ---> times the point's weight

Zhu et al. 2021, "Deformable DETR: Deformable Transformers for End-to-End Object Detection", section 4.1.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.attention.functional import add_if_given
from keras_tfm.layers.attention.tap import is_recorded, tap
from keras_tfm.layers.base import SameShape, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import key_mask_of
from keras_tfm.layers.signatures import Tensor
from keras_tfm.registry import register


def sample_bilinear(maps: Tensor, points: Tensor) -> Tensor:
    """The values of `maps` (B, rows, columns, D) at `points` (B, ..., 2), bilinearly interpolated: (B, ...,
    D).

    A point is (x, y) as parts of the map's width and height, from its upper left corner. Values belong to
    the centres of cells; outside the map they are 0, as in `torch.nn.functional.grid_sample` with zeros for
    padding and `align_corners=False`.

    >>> keras_tfm.layers.sample_bilinear(np.eye(2).reshape(1, 2, 2, 1), np.array([[[0.5, 0.25]]])).numpy()
    array([[[0.5]]])
    """
    _, rows, columns, dim = maps.shape
    shape = ops.shape(points)[:-1]
    values = ops.reshape(maps, (-1, rows * columns, 1, dim))  # (B, N, 1, D)
    points = ops.reshape(points, (-1, math.prod(points.shape[1:-1]), 1, 1, 2))  # (B, T, 1, 1, 2)
    cells, weights = cells_around(points, ((rows, columns),))  # (B, T, 1, 4) both
    return ops.reshape(read_cells(values, cells, weights), (*shape, dim))


def cells_around(points, grids):
    """The cells around `points` (B, T, H, L P, 2) of maps with these `grids`, (rows, columns), and how much
    each counts: two arrays (B, T, H, L P 4).

    The first P points are on the first map, and so on. A cell is its number among the cells of all maps, map
    by map and row by row. Cells outside a map count 0.
    """
    num_points = points.shape[3] // len(grids)
    sizes = np.repeat([(columns, rows) for rows, columns in grids], num_points, axis=0)  # (L P, 2)
    firsts = np.cumsum([0, *(rows * columns for rows, columns in grids)])[:-1]
    firsts = np.repeat(firsts, num_points)[:, None].astype("int32")
    places = ops.cast(points, "float32") * sizes.astype("float32") - 0.5
    corners = np.array([(0, 0), (1, 0), (0, 1), (1, 1)], "float32")
    cells = ops.floor(places)[..., None, :] + corners  # (B, T, H, L P, 4, 2)
    weights = 1 - ops.abs(places[..., None, :] - cells)
    ends = (sizes - 1).astype("float32")[:, None]
    inside = ops.logical_and(cells >= 0, cells <= ends)
    weights = ops.prod(ops.where(inside, weights, 0.0), axis=-1)
    cells = ops.cast(ops.clip(cells, 0.0, ends), "int32")
    numbers = firsts + cells[..., 1] * sizes[:, :1].astype("int32") + cells[..., 0]
    shape = (*ops.shape(points)[:3], 4 * points.shape[3])
    return ops.reshape(numbers, shape), ops.reshape(weights, shape)  # (B, T, H, L P 4)


def read_cells(values, cells, weights):
    """The sums of `values` (B, N, H, K) at `cells` (B, T, H, P), times `weights` of that shape: (B, T, H,
    K).
    """
    batch_size, length, num_heads, width = ops.shape(values)
    rows = ops.reshape(values, (-1, width))  # (B N H, K)
    first = ops.arange(batch_size, dtype="int32")[:, None, None, None] * length
    index = (first + cells) * num_heads + ops.arange(num_heads, dtype="int32")[:, None]
    taken = ops.take(rows, index, axis=0)  # (B, T, H, P, K)
    return ops.einsum("bthp,bthpk->bthk", ops.cast(weights, values.dtype), taken)


class DeformableAttention(SameShape):
    """Deformable attention of queries (B, T, D) to the cells of several maps: (B, T, D).

    Args:
        num_heads: H, which must divide D.
        grids: the (rows, columns) of each of the L maps.
        num_points: P, how many points of each map a head looks at.

    The weights of a head's L P points are a softmax. Recorded weights (see `record_attention`) are the
    weights of the N cells, (B, H, T, N); the weights of points outside the maps are missing from their sum.
    Section 4.1, eq. 3 of Zhu et al. 2021.

    >>> attention = keras_tfm.layers.DeformableAttention(num_heads=2, grids=((2, 3), (1, 2)))
    >>> references = np.full((1, 5, 2, 2), 0.5)
    >>> attention(np.ones((1, 5, 8)), np.ones((1, 8, 8)), references).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self, num_heads: int, grids: Sequence[tuple[int, int]], num_points: int = 4, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # lower precision moves references
        require_sizes(num_heads=num_heads, num_points=num_points)
        self.num_heads = num_heads
        self.grids = tuple(map(tuple, grids))
        self.num_points = num_points
        count = num_heads * len(self.grids) * num_points
        self.offsets = Dense(2 * count, kernel_initializer="zeros", bias_initializer=self.first_offsets())
        self.point_weights = Dense(count, kernel_initializer="zeros")

    def first_offsets(self) -> keras.initializers.Initializer:
        """What the biases of the offsets begin with."""
        return OffsetRing(self.num_heads, len(self.grids), self.num_points)

    def build(self, query_shape, context_shape=None, references_shape=None, position_shape=None):
        width = query_shape[-1]
        if width % self.num_heads:
            raise ValueError(f"`num_heads` must divide the width {width}; it is {self.num_heads}.")
        self.values, self.output_projection = Dense(width, name="values"), Dense(width, name="output")
        for layer, shape in (
            (self.offsets, query_shape),
            (self.point_weights, query_shape),
            (self.values, context_shape or query_shape),
            (self.output_projection, query_shape),
        ):
            layer.build(shape)

    def call(self, query, context=None, references=None, position=None, mask=None):
        """Attend from `query` (B, T, D) to `context` (B, N, D), the cells of all maps, map by map and row by
        row; with None for the context, to the queries themselves.

        `references` (B, T, L, 2 or 4) are, for each map, a point (x, y) as parts of its sides, to which
        offsets in cells are added, or a box (x, y, width, height), to whose centre they are in units of a
        2P-th of its sides.
        `position` (B, T, D) is added to the queries, but not to values. The values of cells where `mask` (B,
        N) is False are zeros.

        Raises ValueError without `references`.
        """
        if references is None:
            raise ValueError(f"{self.name!r} needs `references` (B, T, L, 2 or 4); they are None.")
        query = ops.cast(query, self.compute_dtype)
        context, content = query if context is None else context, query
        query = add_if_given(query, None if position is None else ops.cast(position, query.dtype))
        batch_size, length = ops.shape(query)[:2]
        shape = (batch_size, length, self.num_heads, len(self.grids), self.num_points)
        values = self.values(context)
        if mask is not None:
            values = ops.where(ops.cast(mask, "bool")[..., None], values, ops.cast(0, values.dtype))
        values = ops.reshape(values, (batch_size, -1, self.num_heads, values.shape[-1] // self.num_heads))
        offsets = ops.cast(ops.reshape(self.offsets(query), (*shape, 2)), "float32")
        points = self._points(offsets, ops.cast(references, "float32")[:, :, None, :, None])
        points = ops.reshape(points, (*shape[:3], math.prod(shape[3:]), 2))  # (B, T, H, L P, 2)
        weights = ops.cast(
            ops.reshape(
                self.point_weights(self.weighed_by(content, query)), (*shape[:3], math.prod(shape[3:]))
            ),
            "float32",
        )
        cells, shares = cells_around(points, self.grids)  # (B, T, H, L P 4)
        shares *= ops.repeat(ops.softmax(weights), 4, axis=-1)
        if is_recorded():
            tap(self, self._of_cells(cells, shares))
        heads = read_cells(values, cells, shares)  # (B, T, H, K)
        return self.output_projection(ops.reshape(heads, (batch_size, length, query.shape[-1])))

    def weighed_by(self, content, query):
        """What the weights of points are read from: the queries (B, T, D), here with their positions, or
        their `content` alone.
        """
        return query

    def _points(self, offsets, references):
        """Where the `offsets` (B, T, H, L, P, 2) from `references` (B, T, 1, L, 1, 2 or 4) lie."""
        if references.shape[-1] == 2:
            sizes = np.array([(columns, rows) for rows, columns in self.grids], "float32")[:, None]
            return references + offsets / sizes
        return references[..., :2] + offsets * references[..., 2:] * (0.5 / self.num_points)

    def _of_cells(self, cells, shares):
        """The weights of all cells, (B, H, T, N), by the `shares` of cells near points, (B, T, H, L P 4)."""
        count = sum(rows * columns for rows, columns in self.grids)
        return ops.einsum("bthp,bthpn->bhtn", shares, ops.one_hot(cells, count))

    def compute_mask(self, query, previous_mask=None):
        return key_mask_of(query)


@register
class OffsetRing(keras.initializers.Initializer):
    """The first offsets of deformable attention: each head looks in a direction of its own, its points 1, 2,
    ... cells away, the same in each map (Zhu et al. 2021, appendix A.2).

    >>> keras_tfm.layers.OffsetRing(num_heads=4, num_levels=1, num_points=1)((4, 2)).numpy()[0]
    array([1., 0.])
    """

    def __init__(self, num_heads: int, num_levels: int, num_points: int) -> None:
        self.num_heads = num_heads
        self.num_levels = num_levels
        self.num_points = num_points

    def __call__(self, shape, dtype=None):
        angles = np.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        ring = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        ring /= np.abs(ring).max(axis=-1, keepdims=True)  # on a square
        steps = np.arange(1, self.num_points + 1)[:, None]
        offsets = np.broadcast_to(
            ring[:, None, None] * steps, (self.num_heads, self.num_levels, self.num_points, 2)
        )
        return ops.convert_to_tensor(offsets.reshape(shape), dtype)

    def get_config(self):
        return {name: getattr(self, name) for name in ("num_heads", "num_levels", "num_points")}
