"""Whole images on a canvas of the model's size, as detectors take them: no object is cut off.

Carion et al. 2020 resize an image by one factor and pad it below and on the right. Boxes are relative to the
sides of the image without padding, so that they are the same on every canvas. Since all images have one
canvas, with a mask of what is image, shapes stay the same in training, under XLA and in an export, which
buckets by size would change.
"""

import dataclasses
from typing import Annotated

import tensorflow as tf

from keras_tfm.configs import Between, Option
from keras_tfm.data.sources.preprocessing import Preprocessing, decode_pixels


@dataclasses.dataclass(frozen=True, kw_only=True)
class Canvas(Preprocessing):
    """`Preprocessing` that keeps an image whole: it is stretched to the model's size or, with `keep_aspect`,
    resized until it fits and padded.

    >>> canvas = keras_tfm.data.Canvas(keep_aspect=True)
    >>> canvas.content(np.array([[480, 640]]), height=224, width=224).numpy().tolist()
    [[168, 224]]
    """

    crop_fraction: Annotated[float, Between(1, 1)] = 1.0
    keep_aspect: Annotated[
        bool, Option("keep the aspect ratio: resize images until they fit the model's size, then pad")
    ] = False

    def placed(self, size: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
        return self.content(size, height, width), tf.zeros(2, tf.int64)

    def content(self, sizes: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """The (height, width) that images of these `sizes` have on the canvas: (..., 2) int64 each."""
        canvas = tf.constant([height, width], tf.int64)
        if not self.keep_aspect:
            return tf.broadcast_to(canvas, tf.shape(sizes))
        by_height = (height * sizes[..., 1] <= width * sizes[..., 0])[..., None]
        # One side equals the canvas's; the other is scaled by the same factor, to at least one pixel.
        scaled = canvas[::-1] * sizes // tf.maximum(sizes[..., ::-1], 1)
        fitting = tf.where(by_height, tf.constant([True, False]), tf.constant([False, True]))
        return tf.where(fitting, canvas, tf.maximum(scaled, 1))

    def pixel_mask(self, sizes: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """(B, height, width), True where images of these `sizes` (B, 2) cover the canvas."""
        content = self.content(sizes, height, width)
        rows, columns = (
            tf.range(count, dtype=tf.int64) < content[:, place, None]
            for place, count in enumerate((height, width))
        )
        return rows[:, :, None] & columns[:, None]

    def inputs(self, images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
        """A detector's inputs for raw images on the canvas (B, height, width, C) and their original
        `sizes`.
        """
        mask = self.pixel_mask(sizes, *images.shape[1:3])
        return {"images": self.masked(images, mask), "pixel_mask": mask}

    def masked(self, images: tf.Tensor, pixel_mask: tf.Tensor) -> tf.Tensor:
        """A model's input for raw images (B, H, W, C) that are where the `pixel_mask` (B, H, W) is True."""
        # Padding is 0 after normalisation, as in the published preprocessor.
        return self.normalized(images) * tf.cast(pixel_mask, tf.float32)[..., None]

    def decoded_whole(
        self, data: tf.Tensor, height: int, width: int, channels: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """(8-bit pixels (height, width, channels), original size (2,) int64) from the bytes of an image
        file.
        """
        pixels = decode_pixels(data, channels)
        return self.resized(pixels[None], height, width)[0], tf.cast(tf.shape(pixels)[:2], tf.int64)
