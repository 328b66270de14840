"""Batches of images on a canvas with what is where in them; both are mirrored, cropped, scaled together."""

from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.batches.targets import NONE
from keras_tfm.data.batches.views import Places, Views, are_inside, between_pixels, nearest_pixels
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import ImageFiles

WHOLE = (1.0, 1.0)  # the areas of no crop


class CanvasBatches(ImageBatches):
    """Batches ({"images": (B, H, W, C), "pixel_mask": (B, H, W)}, targets) of raw images.

    Args:
        sizes: the images' own (height, width), (N, 2).
        targets: objects (N, M, 5 or more), float32; or masks of the canvas's size, 8-bit, (N, H, W) or, of
            sets, (N, M, H, W), or of each image a PNG with its masks one below the other. See
            `batches.targets`.
        shape: the canvas's, (H, W, C).
        seed: shuffles and changes the images of each epoch, always in the same way; None does neither.
        flips: whether half of the images are mirrored.
        areas: (least, most) of a crop's share of the image, which is then resized. Above 1 the image shrinks.
            An object whose centre is outside of the crop is removed. The share is uniform for objects; for
            masks its logarithm is.
        inputs: the inputs that a model takes: "images", "pixel_mask", True where the image is, and "objects",
            the targets once more.
        most: M, the most masks of a set in PNGs; None for one mask alone, without the axis.
        are_objects: whether the targets are objects rather than masks.

    >>> images, targets = np.zeros((2, 8, 8, 3), "uint8"), np.full((2, 1, 5), 0.5, "float32")
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> sizes, options = [(8, 8)] * 2, {"batch_size": 2, "are_objects": True}
    >>> batches = keras_tfm.data.CanvasBatches(images, sizes, targets, canvas, shape, **options)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["images"].shape, inputs["pixel_mask"].shape, targets.shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 8, 8]), TensorShape([2, 1, 5]))
    """

    def __init__(
        self,
        images: np.ndarray | ImageFiles,
        sizes: np.ndarray,
        targets: np.ndarray | Sequence[bytes],
        canvas: Canvas,
        shape: tuple[int, int, int],
        batch_size: int,
        seed: int | None = None,
        flips: bool = False,
        areas: tuple[float, float] = WHOLE,
        inputs: Collection[str] = ("images", "pixel_mask"),
        most: int | None = None,
        are_objects: bool = False,
    ):
        super().__init__(images, targets, None, batch_size, seed)
        self.sizes = tf.constant(sizes, tf.int64)
        self.canvas, self.shape = canvas, shape
        self.flips, self.areas = flips, areas
        self.inputs, self.most = tuple(inputs), most
        self.are_objects = are_objects

    def _batch(self, step: tf.Tensor, images: tf.Tensor, rows: tf.Tensor) -> tuple[dict, tf.Tensor]:
        size = self.shape[:2]
        sizes, targets = tf.gather(self.sizes, rows), tf.gather(self.labels, rows)
        if targets.dtype == tf.string:
            spec = tf.TensorSpec((self.most or 1, *size), tf.uint8)
            targets = tf.map_fn(self._decoded, targets, fn_output_signature=spec)
            targets = targets[:, 0] if self.most is None else targets
        images, pixel_mask = self.canvas.fitted(images, *size), self.canvas.pixel_mask(sizes, *size)
        if self.seed is not None and (self.flips or self.areas != WHOLE):
            views, content = self._views(step, tf.shape(rows)[0]), self.canvas.content(sizes, *size)
            places = views.places(content, content, size)
            pixel_mask &= are_inside(places, content)
            images = nearest_pixels(images, places) if self.areas == WHOLE else _resized(images, places)
            targets = self._in_views(targets, views, places, pixel_mask)
        images = self.canvas.masked(images, pixel_mask)
        parts = {"images": images, "pixel_mask": pixel_mask, "objects": targets}
        return {name: parts[name] for name in self.inputs}, targets

    def _in_views(self, targets: tf.Tensor, views: Views, places: Places, pixel_mask: tf.Tensor) -> tf.Tensor:
        return views.of_boxes(targets) if self.are_objects else _moved(targets, places, pixel_mask)

    def _views(self, step: tf.Tensor, count: tf.Tensor) -> Views:
        key = tf.random.experimental.stateless_fold_in(step, self.seed)
        views = Views.drawn(count, self.areas, key, by_ratio=not self.are_objects)
        return views.mirrored(key + 1) if self.flips else views

    def _decoded(self, data: tf.Tensor) -> tf.Tensor:
        """The masks (M, H, W) in a PNG, which has the first of them."""
        most, height, width = self.most or 1, *self.shape[:2]
        masks = tf.reshape(tf.io.decode_png(data, 1), (-1, height, width))
        nothing = tf.where(masks[:1] == NONE, masks[:1], 0)  # empty, but with the padding marked
        filling = tf.tile(nothing, [most - tf.shape(masks)[0], 1, 1])
        return tf.ensure_shape(tf.concat([masks, filling], axis=0), (most, height, width))


def _resized(images: tf.Tensor, places: Places) -> tf.Tensor:
    """Raw images at places between their pixels, as numbers from 0 to 1."""
    scale = 255.0 if images.dtype == tf.uint8 else 1.0
    return between_pixels(images, places) / scale


def _moved(masks: tf.Tensor, places: Places, pixel_mask: tf.Tensor) -> tf.Tensor:
    """Masks (B, ..., H, W) at places on the canvas, where the `pixel_mask` is True."""
    axis = len(masks.shape) - 2
    pixel_mask = pixel_mask if axis == 1 else pixel_mask[:, None]
    return tf.where(pixel_mask, nearest_pixels(masks, places, axis), NONE)
