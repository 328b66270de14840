"""From the bytes of an image, or an array of another size, to what a model takes; wholly in a graph.

The stages are those of the published preprocessors: 8-bit pixels, resized by an antialiased filter and
rounded to 8 bits again, cut at the centre, from 0 to 1, (x - mean) / std.
"""

import dataclasses
from typing import Annotated, Literal

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Config, Option

KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic"}  # Keys's with a = -1/2, as Pillow has it
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue, ITU-R 601


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing(Config):
    """Images are resized to `image_size` / `crop_fraction`, of which the centre is left, by `interpolation`.

    They are stretched to that size or, with `keep_aspect`, resized until their sides are at least as long.
    `image_size` is a side, None where a model says it. Pixels from 0 to 1 become (x - `mean`) / `std`, each
    one number for all channels or one for each.
    """

    image_size: Annotated[
        Annotated[int, Between(1, 2**14)] | None,
        Option("side of the images, to which learned positions are stretched", default="the model's"),
    ] = None
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    interpolation: Annotated[Literal["bilinear", "bicubic"], Option("how images are resized")] = "bilinear"
    crop_fraction: Annotated[
        Annotated[float, Between(0.1, 1)],
        Option("of a resized image's sides, the part at the centre that is left"),
    ] = 1.0
    keep_aspect: Annotated[
        bool, Option("do not stretch images: resize them until they cover the model's, and cut off the rest")
    ] = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # JSON keeps lists, callers bring arrays
            object.__setattr__(self, name, tuple(np.atleast_1d(getattr(self, name)).tolist()))
        super().__post_init__()
        if not all(value > 0 for value in self.std):
            raise ValueError(f"`std` must be positive; it is {self.std}.")

    def resized(self, images: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """Images (B, H, W, C) as (B, height, width, C); 8-bit ones are rounded to 8 bits."""
        size = tf.cast(tf.shape(images)[1:3], tf.int64)
        whole, cut = self.placed(size, height, width)
        # The filter computes what is left of the resized image alone: of a panorama the whole may be large.
        cut = tf.cast(cut, tf.float32)
        scale = tf.cast(whole, tf.float32) / tf.cast(size, tf.float32)
        is_bytes, channels = images.dtype == tf.uint8, images.shape[-1]
        images = tf.cast(images, tf.float32)
        # Columns first, then rows, each rounded and bounded, as published preprocessors resize 8 bits.
        for target, axes in (((tf.shape(images)[1], width), (0.0, 1.0)), ((height, width), (1.0, 0.0))):
            images = tf.raw_ops.ScaleAndTranslate(
                images=images,
                size=target,
                scale=tf.where(tf.constant(axes) > 0, scale, 1.0),
                translation=-cut * tf.constant(axes),
                kernel_type=KERNELS[self.interpolation],
                antialias=True,
            )
            most = 255.0 if is_bytes else 1.0
            images = tf.clip_by_value(tf.floor(images + 0.5) if is_bytes else images, 0.0, most)
        images.set_shape((None, height, width, channels))
        return tf.cast(images, tf.uint8) if is_bytes else images

    def placed(self, size: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
        """(Height and width) to which an image of the `size` (2,) is resized, and how much of its upper and
        left side is cut off, int64 (2,) both.
        """
        whole = tf.constant([int(side / self.crop_fraction + 1e-6) for side in (height, width)], tf.int64)
        if self.keep_aspect:
            by_height = whole[0] * size[1] >= whole[1] * size[0]
            longer = tf.where(by_height, whole[0] * size[1] // size[0], whole[1] * size[0] // size[1])
            whole = tf.where(by_height, tf.stack([whole[0], longer]), tf.stack([longer, whole[1]]))
        return whole, (whole - tf.constant([height, width], tf.int64)) // 2

    def fitted(self, images: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """`resized`; images of that size are taken for such as have been resized and cut before."""
        if tuple(images.shape[-3:-1]) == (height, width):
            return images
        return self.resized(images, height, width)

    def normalized(self, images: tf.Tensor) -> tf.Tensor:
        """Raw images, 8-bit or from 0 to 1, as a model takes them."""
        scale = 255.0 if images.dtype == tf.uint8 else 1.0
        return (tf.cast(images, tf.float32) / scale - tf.constant(self.mean)) / tf.constant(self.std)

    def prepared(self, images: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """Raw images (B, H, W, C) as a model of images (B, height, width, C) takes them."""
        return self.normalized(self.fitted(images, height, width))

    def decoded(self, data: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
        """The bytes of an image file, a string (), as 8-bit pixels (height, width, channels)."""
        return self.resized(decode_pixels(data, channels)[None], height, width)[0]


def decode_pixels(data: tf.Tensor, channels: int) -> tf.Tensor:
    """The bytes of an image file, a string (), to 8-bit pixels (H, W, channels) of its own size.

    It is PNG, JPEG, GIF, BMP or WebP, of an animation the first image. With 1 channel colours become their
    luminance, with 3 grey ones repeat; CMYK becomes RGB, 16 bits the upper 8, an alpha channel is dropped. An
    orientation in EXIF is not followed. InvalidArgumentError, also in a graph, where the bytes are no image.
    """
    image = tf.io.decode_image(data, channels=3, expand_animations=False)  # not all formats have 1
    image.set_shape((None, None, 3))
    return in_channels(image, channels)


def in_channels(images: tf.Tensor, channels: int) -> tf.Tensor:
    """8-bit images (..., 1, 3 or 4) in 1 channel or 3, as `decode_pixels` has them."""
    images = images[..., :3]
    if images.shape[-1] == channels:
        return images
    if channels == 3:
        return tf.repeat(images, 3, axis=-1)
    grey = tf.tensordot(tf.cast(images, tf.float32), tf.constant(LUMINANCE), 1)[..., None]
    return tf.saturate_cast(tf.round(grey), tf.uint8)
