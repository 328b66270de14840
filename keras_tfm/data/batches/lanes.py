"""Batches of images on a canvas with the lanes in them, which are mirrored, cropped and scaled together."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.data.batches.views import Views
from keras_tfm.data.sources.lanes import LEAST_POINTS, NOWHERE

ENDS = 3  # numbers of a target in front of the heights: its kind, and its ends


def lane_targets(heights: Sequence[np.ndarray], lanes: Sequence[np.ndarray]) -> np.ndarray:
    """Targets (N, M, 3 + 2 P) of `heads.LaneLoss` of the columns of `Lanes`: 1 for a lane or 0 for padding,
    its upper and its lower end, heights and x.

    >>> from keras_tfm.data.batches.lanes import lane_targets
    >>> heights, lanes = [np.array([0.5, 0.75, 1.0])], [np.array([[-1.0, 0.5, 0.25]])]
    >>> lane_targets(heights, lanes).tolist()
    [[[1.0, 0.625, 1.125, 0.5, 0.75, 1.0, -1.0, 0.5, 0.25]]]
    """
    most, points = (max(1, *map(len, column)) for column in (lanes, heights))
    targets = np.zeros((len(lanes), most, ENDS + 2 * points), "float32")
    targets[..., ENDS + points :] = NOWHERE
    for target, rows, found in zip(targets, heights, lanes, strict=True):
        target[: len(found), 0] = 1.0
        target[:, ENDS : ENDS + len(rows)] = rows
        target[: len(found), ENDS + points : ENDS + points + len(rows)] = found
    return with_ends(targets).numpy()


def with_ends(targets: tf.Tensor) -> tf.Tensor:
    """The `targets` (N, M, 3 + 2 P) with the ends that follow from their points; lanes of fewer than two
    points become padding.

    A lane ends somewhere between the last height at which it is and the next, so half a step between its
    points is added. With ends at its last points themselves, every second answer would lack one of them.
    """
    targets = tf.convert_to_tensor(targets)
    heights, x = tf.split(targets[..., ENDS:], 2, axis=-1)  # (N, M, P)
    is_there = x >= 0
    count = tf.reduce_sum(tf.cast(is_there, targets.dtype), axis=-1)
    is_lane = (targets[..., 0] > 0) & (count >= LEAST_POINTS)
    upper = tf.reduce_min(tf.where(is_there, heights, np.inf), axis=-1)
    lower = tf.reduce_max(tf.where(is_there, heights, -np.inf), axis=-1)
    half = (lower - upper) / (count - 1) / 2
    ends = tf.stack([tf.where(is_lane, end, 0.0) for end in (upper - half, lower + half)], axis=-1)
    kind = tf.where(is_lane, targets[..., 0], 0.0)[..., None]
    return tf.concat([kind, ends, targets[..., ENDS:]], axis=-1)


class LaneBatches(CanvasBatches):
    """`CanvasBatches` whose targets `lane_targets` makes. A point outside of a crop is in no lane.

    >>> images, heights = np.zeros((2, 8, 8, 3), "uint8"), [np.array([0.5, 1.0])] * 2
    >>> targets = keras_tfm.data.batches.lanes.lane_targets(heights, [np.array([[0.5, 0.25]])] * 2)
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> batches = keras_tfm.data.LaneBatches(images, [(8, 8)] * 2, targets, canvas, shape, batch_size=2)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["images"].shape, targets.shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 1, 7]))
    """

    def _in_views(self, targets, views, places, pixel_mask):
        return lanes_in(views, targets)


def lanes_in(views: Views, targets: tf.Tensor) -> tf.Tensor:
    """Targets (n, M, 3 + 2 P) in the `views` of n images."""
    heights, x = tf.split(targets[..., ENDS:], 2, axis=-1)
    is_there = x >= 0
    heights, moved = (
        (values - views.start[:, None, axis, None]) / views.sides[:, None, axis, None]
        for axis, values in enumerate((heights, x))
    )
    is_there &= (moved >= 0) & (moved <= 1) & (heights >= 0) & (heights <= 1)
    moved = tf.where(views.is_mirrored[:, None, None], 1 - moved, moved)
    points = tf.concat([heights, tf.where(is_there, moved, NOWHERE)], axis=-1)
    return with_ends(tf.concat([targets[..., :ENDS], points], axis=-1))
