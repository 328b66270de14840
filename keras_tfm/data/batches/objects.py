"""Batches of images with boxes, which are mirrored and cropped together.

A target is (class, x, y, width, height): the centre and the sizes of a box as shares of the image's sides.
The class -1 means no object, and fills up the row.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.augmentation import ASPECTS
from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import ImageFiles

NONE = -1.0  # the class of a target that stands for no object


def targets_of(boxes: Sequence[np.ndarray], classes: Sequence[Sequence[int]]) -> np.ndarray:
    """Targets (N, M, 5) of boxes (left, top, right, bottom), (m, 4) as shares of the sides, and classes.

    M is the largest number of boxes in an image, at least 1.
    """
    most = max(1, *map(len, boxes)) if boxes else 1
    targets = np.zeros((len(boxes), most, 5), "float32")
    targets[..., 0] = NONE
    for target, corners, numbers in zip(targets, boxes, classes, strict=True):
        count = len(numbers)
        target[:count, 0] = numbers
        target[:count, 1:3] = (corners[:, :2] + corners[:, 2:]) / 2
        target[:count, 3:] = corners[:, 2:] - corners[:, :2]
    return targets


class ObjectBatches(ImageBatches):
    """Batches ({"images": (B, H, W, C), "pixel_mask": (B, H, W)}, targets (B, M, 5)) of raw images.

    Args:
        sizes: the images' own (height, width), (N, 2).
        targets: their objects, (N, M, 5).
        shape: that of the canvas, (H, W, C).
        seed: shuffles and changes the images of each epoch, always in the same way; None does neither.
        flips: whether half of the images are mirrored.
        least_area: the smallest share of an image that a crop may have. An object whose centre is outside the
            crop is removed.

    >>> images, targets = np.zeros((2, 8, 8, 3), "uint8"), np.full((2, 1, 5), 0.5, "float32")
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> batches = keras_tfm.data.ObjectBatches(images, [(8, 8)] * 2, targets, canvas, shape, batch_size=2)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["images"].shape, inputs["pixel_mask"].shape, targets.shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 8, 8]), TensorShape([2, 1, 5]))
    """

    def __init__(
        self,
        images: np.ndarray | ImageFiles,
        sizes: np.ndarray,
        targets: np.ndarray,
        canvas: Canvas,
        shape: tuple[int, int, int],
        batch_size: int,
        seed: int | None = None,
        flips: bool = False,
        least_area: float = 1.0,
    ):
        super().__init__(images, targets, None, batch_size, seed)
        self.sizes = tf.constant(sizes, tf.int64)
        self.canvas, self.shape = canvas, shape
        self.flips, self.least_area = flips, least_area

    def _batch(self, step: tf.Tensor, images: tf.Tensor, rows: tf.Tensor) -> tuple[dict, tf.Tensor]:
        height, width, _ = self.shape
        sizes, targets = tf.gather(self.sizes, rows), tf.gather(self.labels, rows)
        images = self.canvas.fitted(images, height, width)
        if self.seed is not None:
            content = self.canvas.content(sizes, height, width)
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            if self.least_area < 1:
                images, targets = cut_out(images, content, targets, self.least_area, key)
            if self.flips:
                images, targets = mirror(images, content, targets, key + 1)
        return self.canvas.inputs(images, sizes), targets


def mirror(
    images: tf.Tensor, content: tf.Tensor, targets: tf.Tensor, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mirror half of the images (B, H, W, C) within their `content` (B, 2), and their targets."""
    is_chosen = tf.random.stateless_uniform(tf.shape(targets)[:1], key) < 0.5
    columns = tf.range(images.shape[2], dtype=tf.int64)[None]
    mirrored = tf.where(columns < content[:, 1:], content[:, 1:] - 1 - columns, columns)
    images = tf.gather(images, tf.where(is_chosen[:, None], mirrored, columns), axis=2, batch_dims=1)
    other = tf.concat([targets[..., :1], 1 - targets[..., 1:2], targets[..., 2:]], axis=-1)
    is_changed = is_chosen[:, None, None] & (targets[..., :1] >= 0)
    return images, tf.where(is_changed, other, targets)


def cut_out(
    images: tf.Tensor, content: tf.Tensor, targets: tf.Tensor, least_area: float, key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """A random crop of each image's `content` (B, 2), resized to its size, and the targets in the crop."""
    draws = tf.random.stateless_uniform((4, tf.shape(targets)[0]), key)
    area = least_area + (1 - least_area) * draws[0]
    low, high = (float(np.log(aspect)) for aspect in ASPECTS)
    aspect = tf.exp(low + (high - low) * draws[1])
    sides = tf.transpose(tf.minimum(tf.sqrt(tf.stack([area / aspect, area * aspect])), 1.0))  # (B, 2): y, x
    start = (1 - sides) * tf.transpose(draws[2:])
    # `crop_and_resize` takes the centres of a crop's first and last pixels, as shares of the distance between
    # the outermost centres of the canvas.
    canvas = tf.constant([float(side) for side in images.shape[1:3]])
    first = start * tf.cast(content, tf.float32) + 0.5 * sides - 0.5
    places = tf.concat([first, first + (canvas - 1) * sides], axis=1)
    places /= tf.tile(tf.maximum(canvas - 1, 1.0), [2])
    changed = tf.image.crop_and_resize(images, places, tf.range(tf.shape(images)[0]), images.shape[1:3])
    if images.dtype == tf.uint8:
        changed = tf.saturate_cast(tf.round(changed), tf.uint8)
    centre, half = targets[..., 1:3], targets[..., 3:] / 2
    start, sides = (x[:, None, ::-1] for x in (start, sides))  # x, y
    is_inside = tf.reduce_all((centre >= start) & (centre <= start + sides), axis=-1, keepdims=True)
    least, most = (tf.clip_by_value((x - start) / sides, 0.0, 1.0) for x in (centre - half, centre + half))
    kept = tf.concat([targets[..., :1], (least + most) / 2, most - least], axis=-1)
    none = tf.constant([NONE, 0.0, 0.0, 0.0, 0.0])
    return changed, tf.where(is_inside & (targets[..., :1] >= 0), kept, none)


class ToldObjectBatches(ObjectBatches):
    """`ObjectBatches` whose inputs hold the targets too, as `objects`, for a model that learns to denoise
    them.

    >>> images, targets = np.zeros((2, 8, 8, 3), "uint8"), np.full((2, 1, 5), 0.5, "float32")
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> batches = keras_tfm.data.ToldObjectBatches(images, [(8, 8)] * 2, targets, canvas, shape, batch_size=2)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> bool(np.all(inputs["objects"] == targets))
    True
    """

    def _batch(self, step: tf.Tensor, images: tf.Tensor, rows: tf.Tensor) -> tuple[dict, tf.Tensor]:
        inputs, targets = super()._batch(step, images, rows)
        return {**inputs, "objects": targets}, targets
