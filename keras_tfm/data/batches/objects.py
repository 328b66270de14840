"""Batches of images with boxes.

A target is (class, x, y, width, height): the centre and the sizes of a box as shares of the image's sides.
The class -1 means no object, and fills up the row.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.data.batches.views import NO_OBJECT, Places, Views


def targets_of(boxes: Sequence[np.ndarray], classes: Sequence[Sequence[int]]) -> np.ndarray:
    """Targets (N, M, 5) of boxes (left, top, right, bottom), (m, 4) as shares of the sides, and classes.

    M is the largest number of boxes in an image, at least 1.
    """
    most = max(1, *map(len, boxes)) if boxes else 1
    targets = np.zeros((len(boxes), most, 5), "float32")
    targets[..., 0] = NO_OBJECT
    for target, corners, numbers in zip(targets, boxes, classes, strict=True):
        count = len(numbers)
        target[:count, 0] = numbers
        target[:count, 1:3] = (corners[:, :2] + corners[:, 2:]) / 2
        target[:count, 3:] = corners[:, 2:] - corners[:, :2]
    return targets


class ObjectBatches(CanvasBatches):
    """`CanvasBatches` of targets (N, M, 5); an object whose centre is outside of a crop is removed.

    >>> images, targets = np.zeros((2, 8, 8, 3), "uint8"), np.full((2, 1, 5), 0.5, "float32")
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> batches = keras_tfm.data.ObjectBatches(images, [(8, 8)] * 2, targets, canvas, shape, batch_size=2)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["images"].shape, inputs["pixel_mask"].shape, targets.shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 8, 8]), TensorShape([2, 1, 5]))
    """

    by_ratio = False

    def _moved(self, targets: tf.Tensor, views: Views, places: Places, pixel_mask: tf.Tensor) -> tf.Tensor:
        return views.of_boxes(targets)
