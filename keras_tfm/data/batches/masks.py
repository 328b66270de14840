"""Batches of images with masks: one of the classes of all pixels, or a set with one for each segment.

Losses and metrics ignore pixels of the value `NONE`: there is no image, or the class is unknown. In a set a
mask has 1 + the number of its segment's class inside, and 0 outside; a mask without such pixels stands for no
segment, and fills up the set.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.data.batches.views import Places, Views, nearest_pixels
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import MAX_BYTES
from keras_tfm.data.sources.mask_files import encoded_mask
from keras_tfm.data.sources.segments import SegmentSets
from keras_tfm.data.sources.stated_sizes import resized

NONE = 255


class MaskBatches(CanvasBatches):
    """`CanvasBatches` of targets (N, H, W), or (N, M, H, W) of sets, 8-bit and of the canvas's size.

    Args:
        targets: an array or, of each image, a PNG with its masks one below the other.
        most: M, the most masks in a set; None for one mask alone, without the axis.
        options: those of `CanvasBatches`.

    >>> images, masks = np.zeros((2, 8, 8, 3), "uint8"), np.ones((2, 8, 8), "uint8")
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> batches = keras_tfm.data.MaskBatches(images, [(8, 8)] * 2, masks, canvas, shape, batch_size=2)
    >>> inputs, labels = next(iter(batches.dataset()))
    >>> inputs["images"].shape, labels.shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 8, 8]))
    """

    by_ratio = True

    def __init__(
        self,
        images: Any,
        sizes: np.ndarray,
        targets: np.ndarray | Sequence[bytes],
        canvas: Canvas,
        shape: tuple[int, int, int],
        batch_size: int,
        most: int | None = None,
        **options: Any,
    ):
        super().__init__(images, sizes, targets, canvas, shape, batch_size, **options)
        self.most = most

    def _targets(self, targets: tf.Tensor) -> tf.Tensor:
        if targets.dtype != tf.string:
            return targets
        spec = tf.TensorSpec((self.most or 1, *self.shape[:2]), tf.uint8)
        masks = tf.map_fn(self._decoded, targets, fn_output_signature=spec)
        return masks[:, 0] if self.most is None else masks

    def _decoded(self, data: tf.Tensor) -> tf.Tensor:
        """The masks (M, H, W) in a PNG, which has the first of them."""
        most, height, width = self.most or 1, *self.shape[:2]
        masks = tf.reshape(tf.io.decode_png(data, 1), (-1, height, width))
        nothing = tf.where(masks[:1] == NONE, masks[:1], 0)  # empty, but with the padding marked
        filling = tf.tile(nothing, [most - tf.shape(masks)[0], 1, 1])
        return tf.ensure_shape(tf.concat([masks, filling], axis=0), (most, height, width))

    def _moved(self, targets: tf.Tensor, views: Views, places: Places, pixel_mask: tf.Tensor) -> tf.Tensor:
        pixel_mask = pixel_mask if self.most is None else pixel_mask[:, None]
        return tf.where(pixel_mask, nearest_pixels(targets, places, axis=len(targets.shape) - 2), NONE)


def on_canvas(
    sets: Iterable[np.ndarray], count: int, most: int, canvas: Canvas, shape: tuple[int, int, int]
) -> np.ndarray | list[bytes]:
    """Masks of images' own sizes, `count` sets (m, H, W) of at most `most`, on a canvas of the `shape`:
    targets (count, most, H, W), each pixel from the nearest one. Where these would take more than
    `MAX_BYTES`, a PNG of each image, with its own m masks, at least 1.
    """
    height, width, _ = shape
    fits = count * most * height * width <= MAX_BYTES

    def placed(masks: np.ndarray) -> np.ndarray:
        missing = (most if fits else 1) - len(masks)
        masks = np.concatenate([masks, np.zeros((max(missing, 0), *masks.shape[1:]), "uint8")])
        content = canvas.content(tf.constant(masks.shape[1:], tf.int64), height, width).numpy().tolist()
        whole = np.full((len(masks), height, width), NONE, "uint8")
        whole[:, : content[0], : content[1]] = resized(masks, content)
        return whole

    if fits:
        return np.stack([placed(masks) for masks in sets])
    return [encoded_mask(placed(masks).reshape(-1, width)) for masks in sets]


def segment_targets(
    sets: SegmentSets, names: Sequence[str], canvas: Canvas, shape: tuple[int, int, int]
) -> np.ndarray | list[bytes]:
    """The segments of images `on_canvas`, by the places of their classes in `names`.

    >>> masks = np.array([[[True, False]], [[True, True]]])  # two segments of one row
    >>> sets = keras_tfm.data.SegmentSets.of([masks], [["cat", "dog"]])
    >>> canvas, names = keras_tfm.data.Canvas(), ["ground", "cat", "dog"]
    >>> keras_tfm.data.batches.masks.segment_targets(sets, names, canvas, (1, 2, 3)).tolist()
    [[[[2, 0]], [[3, 3]]]]
    """
    number = {name: place for place, name in enumerate(names, 1)}
    masks = (
        masks * np.array([number[name] for name in labels], "uint8")[:, None, None] for masks, labels in sets
    )
    return on_canvas(masks, len(sets), max(1, *sets.counts), canvas, shape)
