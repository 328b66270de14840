"""Images whole on a canvas of the model's size, as a detector takes them: no object is cut off.

Carion et al. 2020 resize images by one factor and pad them below and on the right; boxes are parts of the
image's sides, padding apart, so that they are the same on every canvas.
"""

import dataclasses
from typing import Annotated

import tensorflow as tf

from keras_tfm.configs import Between, Option
from keras_tfm.data.sources.preprocessing import Preprocessing, decode_pixels


@dataclasses.dataclass(frozen=True, kw_only=True)
class Canvas(Preprocessing):
    """`Preprocessing` that leaves an image whole: it is stretched to the model's size or, with `keep_aspect`,
    resized until it fits, and the rest is padding.
    """

    crop_fraction: Annotated[float, Between(1, 1)] = 1.0
    keep_aspect: Annotated[
        bool, Option("do not stretch images: resize them until they fit into the model's, and pad the rest")
    ] = False

    def placed(self, size: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
        return self.content(size, height, width), tf.zeros(2, tf.int64)

    def content(self, sizes: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """The (height, width) on the canvas of images of these `sizes`: (..., 2) int64 both."""
        canvas = tf.constant([height, width], tf.int64)
        if not self.keep_aspect:
            return tf.broadcast_to(canvas, tf.shape(sizes))
        by_height = (height * sizes[..., 1] <= width * sizes[..., 0])[..., None]
        # One side is the canvas's, the other shorter by the same factor, one pixel at least.
        scaled = canvas[::-1] * sizes // tf.maximum(sizes[..., ::-1], 1)
        fitting = tf.where(by_height, tf.constant([True, False]), tf.constant([False, True]))
        return tf.where(fitting, canvas, tf.maximum(scaled, 1))

    def pixel_mask(self, sizes: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """(B, height, width), True where images of these `sizes` (B, 2) stand on the canvas."""
        content = self.content(sizes, height, width)
        rows, columns = (
            tf.range(count, dtype=tf.int64) < content[:, place, None]
            for place, count in enumerate((height, width))
        )
        return rows[:, :, None] & columns[:, None]

    def inputs(self, images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
        """What a detector takes, of raw images on the canvas (B, height, width, C) and their own `sizes`."""
        height, width = images.shape[1:3]
        mask = self.pixel_mask(sizes, height, width)
        # Padding is 0 after the mean is taken off, as the published preprocessor has it.
        return {"images": self.normalized(images) * tf.cast(mask, tf.float32)[..., None], "pixel_mask": mask}

    def decoded_whole(
        self, data: tf.Tensor, height: int, width: int, channels: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """(8-bit pixels (height, width, channels), own size (2,) int64) of the bytes of an image file."""
        pixels = decode_pixels(data, channels)
        return self.resized(pixels[None], height, width)[0], tf.cast(tf.shape(pixels)[:2], tf.int64)
