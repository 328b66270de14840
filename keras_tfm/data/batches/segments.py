"""Batches of images with a set of segments each, which are mirrored, cropped and scaled together.

A target is a mask of the canvas's size: 1 + the number of the segment's class in its pixels, 0 outside, and
`NONE` where no image is. A mask without pixels of a segment stands for none, and fills up the set.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.batches.masks import NONE, cut_out, mirror, on_canvas
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import MAX_BYTES, ImageFiles
from keras_tfm.data.sources.mask_files import encoded_mask
from keras_tfm.data.sources.segments import SegmentSets


def segment_targets(
    sets: SegmentSets, names: Sequence[str], canvas: Canvas, shape: tuple[int, int, int]
) -> np.ndarray | list[bytes]:
    """Targets of the segments of images, on a canvas of the `shape`, by the places of their classes in
    `names`.

    They are (N, M, H, W), 8-bit, of which M is the most segments of an image, at least 1; or, where these
    would take more than `MAX_BYTES`, a PNG of each image, in which its own m masks, at least 1, stand one
    below the other.

    >>> masks = np.array([[[True, False]], [[True, True]]])  # two segments of one row
    >>> sets = keras_tfm.data.SegmentSets.of([masks], [["cat", "dog"]])
    >>> canvas, names = keras_tfm.data.Canvas(), ["ground", "cat", "dog"]
    >>> keras_tfm.data.batches.segments.segment_targets(sets, names, canvas, (1, 2, 3)).tolist()
    [[[[2, 0]], [[3, 3]]]]
    """
    number = {name: place for place, name in enumerate(names, 1)}

    def all_of(count: int) -> Iterator[np.ndarray]:
        for masks, labels in sets:
            values = [number[name] * mask.astype("uint8") for mask, name in zip(masks, labels, strict=True)]
            values += [np.zeros(masks.shape[1:], "uint8")] * (max(count, 1) - len(masks))
            yield np.stack([on_canvas(mask, canvas, shape) for mask in values])

    most = max(1, *sets.counts)
    if len(sets) * most * shape[0] * shape[1] <= MAX_BYTES:
        return np.stack(list(all_of(most)))
    return [encoded_mask(masks.reshape(-1, shape[1])) for masks in all_of(1)]


class SegmentBatches(ImageBatches):
    """Batches ({"images": (B, H, W, C)}, targets (B, M, H, W)) of raw images and their segments.

    Args:
        sizes: the images' own (height, width), (N, 2).
        targets: what `segment_targets` gives of as many images.
        most: M, the most segments of an image.
        shape: that of the canvas, (H, W, C).
        seed: shuffles and changes the images of each epoch, always in the same way; None does neither.
        flips: whether half of the images are mirrored.
        areas: (least, most) of a crop's share of the image, which is then resized. Above 1 the image shrinks.
        has_pixel_mask: whether "pixel_mask" (B, H, W), True where an image is, is an input too.

    >>> images, targets = np.zeros((2, 8, 8, 3), "uint8"), np.ones((2, 1, 8, 8), "uint8")
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> batches = keras_tfm.data.SegmentBatches(images, [(8, 8)] * 2, targets, 1, canvas, shape, batch_size=2)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["images"].shape, targets.shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 1, 8, 8]))
    """

    def __init__(
        self,
        images: np.ndarray | ImageFiles,
        sizes: np.ndarray,
        targets: np.ndarray | Sequence[bytes],
        most: int,
        canvas: Canvas,
        shape: tuple[int, int, int],
        batch_size: int,
        seed: int | None = None,
        flips: bool = False,
        areas: tuple[float, float] = (1.0, 1.0),
        has_pixel_mask: bool = False,
    ):
        super().__init__(images, targets, None, batch_size, seed)
        self.sizes = tf.constant(sizes, tf.int64)
        self.most, self.canvas, self.shape = max(most, 1), canvas, shape
        self.flips, self.areas, self.has_pixel_mask = flips, areas, has_pixel_mask

    def _batch(self, step: tf.Tensor, images: tf.Tensor, rows: tf.Tensor) -> tuple[dict, tf.Tensor]:
        height, width, _ = self.shape
        sizes, targets = tf.gather(self.sizes, rows), tf.gather(self.labels, rows)
        if targets.dtype == tf.string:
            spec = tf.TensorSpec((self.most, height, width), tf.uint8)
            targets = tf.map_fn(self._decoded, targets, fn_output_signature=spec)
        images = self.canvas.inputs(self.canvas.fitted(images, height, width), sizes)["images"]
        if self.seed is not None:
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            masks = tf.transpose(targets, (0, 2, 3, 1))  # (B, H, W, M)
            if self.areas != (1.0, 1.0):
                images, masks = cut_out(images, masks, self.areas, key)
            if self.flips:
                images, masks = mirror(images, masks, key + 1)
            targets = tf.transpose(masks, (0, 3, 1, 2))
        inputs = {"images": images}
        if self.has_pixel_mask:
            inputs["pixel_mask"] = targets[:, 0] != NONE
        return inputs, targets

    def _decoded(self, data: tf.Tensor) -> tf.Tensor:
        """The M masks of an image (M, H, W), of which the PNG has the first."""
        height, width, _ = self.shape
        masks = tf.reshape(tf.io.decode_png(data, 1), (-1, height, width))
        nothing = tf.where(masks[:1] == NONE, masks[:1], 0)  # empty, but with the padding marked
        filling = tf.tile(nothing, [self.most - tf.shape(masks)[0], 1, 1])
        return tf.ensure_shape(tf.concat([masks, filling], axis=0), (self.most, height, width))
