"""Features of boxes on a map: RoIAlign (He et al. 2017, "Mask R-CNN", section 3).

A box is cut into rows x columns bins. In each bin lie `sampling_ratio` x `sampling_ratio` points, at which
the map is interpolated between the centres of its cells; a bin is their mean.

    + - - + - - +
    | . . | . . |     a box of 2 x 3 bins, with 2 x 2 points in each
    | . . | . . |
    + - - + - - +     A point less than a cell outside of the map has the value at the border,
    | . . | . . |     one further away is 0.
    ...

How many points a bin has is a constant. With torchvision's ratio -1 the number depends on each box's size,
and so would the shapes of what is computed.
"""

import math
from typing import Any

import numpy as np
from keras import ops

from keras_tfm.layers.attention.deformable import read_cells
from keras_tfm.layers.base import WithoutMask
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.signatures import Sides, Tensor


def roi_align(
    maps: Tensor,
    boxes: Tensor,
    size: Sides,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 2,
    aligned: bool = True,
) -> Tensor:
    """The features of `boxes` (B, N, 4) on `maps` (B, rows, columns, D): (B, N, height, width, D).

    The arguments are `RoIAlign`'s. The numbers equal `torchvision.ops.roi_align` with a
    positive `sampling_ratio`.

    >>> boxes = np.array([[[0, 0, 4, 4], [1, 1, 3, 2]]], "float32")
    >>> keras_tfm.layers.roi_align(np.ones((1, 4, 4, 8), "float32"), boxes, size=(3, 2)).shape
    TensorShape([1, 2, 3, 2, 8])
    """
    rows, columns, dim = maps.shape[1:]
    corners = ops.cast(boxes, "float32") * spatial_scale - (0.5 if aligned else 0.0)
    if not aligned:
        start, end = ops.split(corners, 2, axis=-1)
        corners = ops.concatenate([start, ops.maximum(end, start + 1.0)], axis=-1)
    values = ops.reshape(maps, (-1, rows * columns, dim))
    sides = np.array([[[columns, rows]]], "float32")
    return read_regions(values, corners, sides, np.zeros((1, 1), "int32"), size, sampling_ratio)


def read_regions(
    values: Tensor, corners: Tensor, sides: Tensor, firsts: Tensor, size: Sides, sampling_ratio: int = 2
) -> Tensor:
    """The features of boxes, each on a map of its own: (B, N, height, width, D).

    `values` (B, cells, D) are the cells of all maps, map by map and row by row. A box has its `corners` (B,
    N, 4) in cells, from the centre of its map's first cell; its map has `sides` (B or 1, N or 1, 2), columns
    and rows, float32, and begins at the cell `firsts` (B or 1, N or 1), int32.
    """
    (height, width), dim = height_and_width(size), values.shape[-1]
    start, end = ops.split(corners, 2, axis=-1)  # (B, N, 2), x and y
    places = _places(height, width, sampling_ratio)
    points = start[:, :, None, None] + (end - start)[:, :, None, None] * places  # (B, N, bins, S S, 2)
    last = (sides - 1)[:, :, None, None]
    inside = ops.all(ops.logical_and(points >= -1, points <= last + 1), axis=-1)
    points = ops.minimum(ops.maximum(points, 0.0), last)
    cells = ops.floor(points)[..., None, :] + np.array([(0, 0), (1, 0), (0, 1), (1, 1)], "float32")
    weights = ops.prod(1 - ops.abs(points[..., None, :] - cells), axis=-1)  # (B, N, bins, S S, 4)
    weights *= ops.cast(inside, "float32")[..., None] / sampling_ratio**2
    cells = ops.cast(ops.minimum(cells, last[..., None, :]), "int32")  # beyond the map the weight is 0
    columns = ops.cast(sides[..., 0], "int32")[:, :, None, None, None]
    numbers = firsts[:, :, None, None, None] + cells[..., 1] * columns + cells[..., 0]
    batch_size, count = ops.shape(corners)[:2]
    shape = (batch_size, count * height * width, 1, 4 * sampling_ratio**2)
    numbers, weights = ops.reshape(numbers, shape), ops.reshape(weights, shape)
    means = read_cells(values[:, :, None], numbers, weights)  # (B, T, 1, D)
    return ops.reshape(means, (batch_size, count, height, width, dim))


def _places(height, width, count):
    """The points of all bins, row by row, as parts (x, y) of a box's width and height: (bins, S S, 2)."""
    y, x = ((np.arange(side * count) + 0.5) / (side * count) for side in (height, width))
    grid = np.stack(np.broadcast_arrays(x, y[:, None]), axis=-1)  # (height S, width S, 2)
    grid = grid.reshape(height, count, width, count, 2).swapaxes(1, 2)  # (height, width, S, S, 2)
    return grid.reshape(height * width, count**2, 2).astype("float32")


class RoIAlign(WithoutMask):
    """The features of boxes (B, N, 4) on maps (B, rows, columns, D): (B, N, height, width, D).

    He et al. 2017, "Mask R-CNN", section 3. Boxes that fill up a batch may be zeros.

    Args:
        size: a side of the features, or their (height, width).
        spatial_scale: the map's size divided by the size of the image to which the boxes, (left, top, right,
            bottom) in pixels, belong: 1/16 for a map whose cells are 16 pixels wide.
        sampling_ratio: how many points a bin has along each axis.
        aligned: whether pixels are areas, whose centres lie half a pixel inside, as in Detectron2. Without it
            boxes are half a cell off, and at least one cell large, as they first were.

    Raises:
        ValueError: if `sampling_ratio` is below 1. A number that depends on the boxes is not possible.

    >>> layer = keras_tfm.layers.RoIAlign(size=7, spatial_scale=1 / 16)
    >>> layer(np.ones((1, 14, 14, 8)), np.array([[[32, 16, 150, 200]]])).shape
    TensorShape([1, 1, 7, 7, 8])
    """

    def __init__(
        self,
        size: Sides,
        spatial_scale: float = 1.0,
        sampling_ratio: int = 2,
        aligned: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # pixels are not whole numbers in lower precision
        height_and_width(size)
        if sampling_ratio < 1:
            raise ValueError(
                "`sampling_ratio` must be at least 1, since shapes may not depend on the boxes; it is "
                f"{sampling_ratio}."
            )
        if not (math.isfinite(spatial_scale) and spatial_scale > 0):
            raise ValueError(f"`spatial_scale` must be above 0; it is {spatial_scale}.")
        self.size = size
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.aligned = aligned

    def build(self, maps_shape, boxes_shape):
        if len(maps_shape) != 4 or None in tuple(maps_shape[1:]):
            raise ValueError(f"`maps` must have the shape (B, rows, columns, D); it is {tuple(maps_shape)}.")
        if len(boxes_shape) != 3 or boxes_shape[-1] != 4:
            raise ValueError(f"`boxes` must have the shape (B, N, 4); it is {tuple(boxes_shape)}.")

    def call(self, maps, boxes):
        """(B, rows, columns, D), (B, N, 4) -> (B, N, height, width, D)."""
        options = (self.size, self.spatial_scale, self.sampling_ratio, self.aligned)
        return roi_align(ops.cast(maps, self.compute_dtype), boxes, *options)

    def compute_output_shape(self, maps_shape, boxes_shape):
        return (*boxes_shape[:2], *height_and_width(self.size), maps_shape[-1])
