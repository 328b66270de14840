"""A feature pyramid, and regions of the levels that fit their sizes.

Lin et al. 2017, "Feature Pyramid Networks for Object Detection", sections 3 and 4.2.
"""

import math

import numpy as np
from keras import ops

from keras_tfm.layers.base import WithoutMask
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.regions import read_regions
from keras_tfm.layers.resizing import resize_nearest

CANONICAL_SIDE, CANONICAL_STRIDE = 224.0, 16.0  # a box of this side is read where a cell is so many pixels


def pyramid_of(maps, dim):
    """A level (B, rows, columns, `dim`) for each of the `maps`, the largest first: each is projected, the
    next coarser level is enlarged and added, and the sum is convolved.
    """
    x, levels = None, []
    for i in reversed(range(len(maps))):
        side = Convolution(dim, 1, name=f"pyramid_side_{i}")(maps[i])
        x = side if x is None else side + resize_nearest(x, side.shape[1:3])
        levels.append(Convolution(dim, 3, name=f"pyramid_level_{i}")(x))
    return levels[::-1]


def strides_of(levels, height):
    """How many pixels a cell of each level is wide, a power of two, for images of this `height`.

    Levels whose sides were rounded up, as by convolutions with padding, have cells beyond the image.
    """
    return [2 ** math.ceil(math.log2(height / level.shape[1])) for level in levels]


class PyramidRoIAlign(WithoutMask):
    """`RoIAlign` of each box on the level that fits its size: levels [(B, rows, columns, D)] and boxes (B, N,
    4) in pixels, as `RoIAlign` has them, give (B, N, size, size, D).

    A box of the area A is read at the level whose cells are nearest below 16 sqrt(A) / 224 pixels wide, by
    powers of two, or at the first or the last.

    Args:
        size: a side of the features.
        strides: the pixels that a cell of each level is wide, powers of two in ascending order.
        sampling_ratio: as in `RoIAlign`.
    """

    def __init__(self, size, strides, sampling_ratio=2, **kwargs):
        super().__init__(autocast=False, **kwargs)  # pixels are not whole numbers in lower precision
        self.size = size
        self.strides = tuple(strides)
        self.sampling_ratio = sampling_ratio

    def build(self, levels_shape, boxes_shape):
        if len(levels_shape) != len(self.strides):
            raise ValueError(
                f"`levels` must be {len(self.strides)}, as `strides`; it is {len(levels_shape)}."
            )

    def call(self, levels, boxes):
        """(B, N, size, size, D)."""
        chosen = self.level_of(boxes)  # (B, N)
        sides = np.array([(level.shape[2], level.shape[1]) for level in levels])
        firsts = np.cumsum([0, *sides.prod(axis=1)])[:-1]
        cells = [
            ops.reshape(level, (-1, size, level.shape[3]))
            for level, size in zip(levels, sides.prod(1), strict=True)
        ]
        values = ops.cast(ops.concatenate(cells, axis=1), self.compute_dtype)  # (B, all cells, D)
        scales = ops.take(1 / np.array(self.strides, "float32"), chosen)[..., None]
        corners = ops.cast(boxes, "float32") * scales - 0.5
        own = ops.take(sides.astype("float32"), chosen, axis=0), ops.take(firsts.astype("int32"), chosen)
        return read_regions(values, corners, *own, self.size, self.sampling_ratio)

    def level_of(self, boxes):
        """The number of the level of each box, (B, N)."""
        boxes = ops.cast(boxes, "float32")
        sides = ops.maximum(boxes[..., 2:] - boxes[..., :2], 0.0)
        side = ops.sqrt(sides[..., 0] * sides[..., 1]) / CANONICAL_SIDE
        octaves = ops.log(side + 1e-8) / np.log(2.0) + np.log2(CANONICAL_STRIDE)  # of the cells' width
        number = ops.floor(octaves) - np.log2(self.strides[0])
        return ops.cast(ops.clip(number, 0, len(self.strides) - 1), "int32")

    def compute_output_shape(self, levels_shape, boxes_shape):
        return (*boxes_shape[:2], self.size, self.size, levels_shape[0][-1])
