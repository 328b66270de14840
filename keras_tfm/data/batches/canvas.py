"""Batches of images on a canvas with what is where in them; both are mirrored, cropped, scaled together."""

import abc
from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.batches.views import Places, Views, are_inside, between_pixels, nearest_pixels
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import ImageFiles

WHOLE = (1.0, 1.0)  # the areas of no crop


class CanvasBatches(ImageBatches):
    """Batches ({"images": (B, H, W, C), "pixel_mask": (B, H, W)}, targets) of raw images. Abstract: a
    subclass says how targets move with the pixels.

    Args:
        sizes: the images' own (height, width), (N, 2).
        targets: what is where in each image.
        shape: that of the canvas, (H, W, C).
        seed: shuffles and changes the images of each epoch, always in the same way; None does neither.
        flips: whether half of the images are mirrored.
        areas: (least, most) of a crop's share of the image, which is then resized. Above 1 the image shrinks.
        inputs: those that a model takes: "images", "pixel_mask", True where the image is, and "objects", the
            targets once more.
    """

    by_ratio: bool  # how the areas of crops are drawn, see `Views.drawn`

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
    ):
        super().__init__(images, targets, None, batch_size, seed)
        self.sizes = tf.constant(sizes, tf.int64)
        self.canvas, self.shape = canvas, shape
        self.flips, self.areas = flips, areas
        self.inputs = tuple(inputs)

    def _targets(self, targets: tf.Tensor) -> tf.Tensor:
        """The targets as a batch has them."""
        return targets

    @abc.abstractmethod
    def _moved(self, targets: tf.Tensor, views: Views, places: Places, pixel_mask: tf.Tensor) -> tf.Tensor:
        """The targets in views, whose pixels lie at `places` of the canvas where the `pixel_mask` is True."""

    def _batch(self, step: tf.Tensor, images: tf.Tensor, rows: tf.Tensor) -> tuple[dict, tf.Tensor]:
        size = self.shape[:2]
        sizes, targets = tf.gather(self.sizes, rows), self._targets(tf.gather(self.labels, rows))
        images, pixel_mask = self.canvas.fitted(images, *size), self.canvas.pixel_mask(sizes, *size)
        if self.seed is not None and (self.flips or self.areas != WHOLE):
            views, content = self._views(step, tf.shape(rows)[0]), self.canvas.content(sizes, *size)
            places = views.places(content, content, size)
            pixel_mask &= are_inside(places, content)
            images = nearest_pixels(images, places) if self.areas == WHOLE else _resized(images, places)
            targets = self._moved(targets, views, places, pixel_mask)
        parts = {
            "pixel_mask": pixel_mask,
            "images": self.canvas.masked(images, pixel_mask),
            "objects": targets,
        }
        return {name: parts[name] for name in self.inputs}, targets

    def _views(self, step: tf.Tensor, count: tf.Tensor) -> Views:
        key = tf.random.experimental.stateless_fold_in(step, self.seed)
        is_whole = self.areas == WHOLE
        views = Views.whole(count) if is_whole else Views.drawn(count, self.areas, key, self.by_ratio)
        return views.mirrored(key + 1) if self.flips else views


def _resized(images: tf.Tensor, places: Places) -> tf.Tensor:
    """Raw images at places between their pixels, as numbers from 0 to 1."""
    scale = 255.0 if images.dtype == tf.uint8 else 1.0
    return between_pixels(images, places) / scale
