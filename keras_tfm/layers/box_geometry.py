"""How much boxes mind others for where these lie (Hu et al. 2018, "Relation Networks for Object Detection",
section 3.1).
"""

from typing import Any

import numpy as np
from keras import ops

from keras_tfm.layers.base import WithoutMask, require_sizes
from keras_tfm.layers.boxes import correction_of
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.positions import sines

LEAST_SHIFT = 1e-3  # of two centres, in sides of a box
LEAST_WEIGHT = 1e-6
BASE = 1000.0  # of the sines' periods


class BoxGeometry(WithoutMask):
    """The logarithms of weights by which boxes attend to others, for where both lie: `boxes` (B, T, 4) and
    `others` (B, S, 4), (x, y, width, height), give (B, H, T, S), which is the `bias` of an `Attention`.

    A weight is max(0, W E(g) + b), but 1e-6 at least, where E are sines and cosines of `scale` times

        g = (log |x - x'| / w', log |y - y'| / h', log w / w', log h / h')

    and (x', y', w', h') the other box (equations 4 and 5). Centres count as 1e-3 of a side apart at least,
    and sides as 1e-4 long at least, so that boxes which fill up a batch may be zeros.

    Args:
        num_heads: H, each with its own W.
        dim: the width of E, a multiple of 8.
        scale: the authors' code has 100: a difference of one per cent matters, and so do roundings.

    >>> boxes = np.array([[[0.5, 0.5, 0.2, 0.4], [0.1, 0.1, 0.2, 0.2]]])
    >>> keras_tfm.layers.BoxGeometry(num_heads=4)(boxes, boxes).shape
    TensorShape([1, 4, 2, 2])
    """

    def __init__(self, num_heads: int, dim: int = 64, scale: float = 100.0, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # lower precision moves boxes
        require_sizes(num_heads=num_heads, dim=dim)
        if dim % 8:
            raise ValueError(f"`dim` must be a multiple of 8, for sines and cosines of four; it is {dim}.")
        self.num_heads = num_heads
        self.dim = dim
        self.scale = scale
        self.weight = Dense(num_heads, activation="relu")

    def build(self, boxes_shape, others_shape=None):
        self.weight.build((None, None, None, self.dim))

    def call(self, boxes, others):
        """(B, T, 4) and (B, S, 4) -> (B, H, T, S)."""
        place = correction_of(others[:, None], boxes[:, :, None], np.ones(4, "float32"))  # (B, T, S, 4)
        shift = ops.log(ops.maximum(ops.abs(place[..., :2]), LEAST_SHIFT))
        place = ops.concatenate([shift, place[..., 2:]], axis=-1)
        encoding = sines(self.scale * place, self.dim // 4, BASE)  # (B, T, S, 4, dim / 4)
        encoding = ops.reshape(encoding, (*ops.shape(place)[:3], self.dim))  # (B, T, S, dim)
        weights = in_float32(self.weight(ops.cast(encoding, self.compute_dtype)))  # (B, T, S, H)
        bias = ops.log(ops.maximum(weights, LEAST_WEIGHT))
        return ops.cast(ops.transpose(bias, (0, 3, 1, 2)), self.compute_dtype)

    def compute_output_shape(self, boxes_shape, others_shape):
        return (boxes_shape[0], self.num_heads, boxes_shape[1], others_shape[1])
