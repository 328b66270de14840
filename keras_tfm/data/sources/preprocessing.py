"""From the bytes of an image, or an array of another size, to a model's input; runs in a graph.

The steps are the same as in published preprocessors: decode to 8-bit pixels, resize with an antialiased
filter, round to 8 bits, crop the centre, scale to 0 .. 1, and normalise by (x - mean) / std.
"""

import dataclasses
from typing import Annotated, Literal

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Config, Option
from keras_tfm.data.sources import image_formats, orientations

# Keys's kernel with a = -1/2, and Lanczos's of radius 3, as in Pillow
KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic", "lanczos": "lanczos3"}
LUMINANCE = (0.299, 0.587, 0.114)  # weights of red, green and blue, ITU-R 601


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing(Config):
    """How images are resized and normalised.

    Args:
        image_size: the side of the images; None takes the model's.
        mean, std: pixels from 0 to 1 become (x - mean) / std; one number for all channels, or one per
            channel.
        interpolation: "bilinear", "bicubic" or "lanczos".
        crop_fraction: images are resized to `image_size` / `crop_fraction`, then the centre is cropped.
        keep_aspect: resize until both sides are long enough, instead of stretching the image.
        rounds_crop: half of an odd number of pixels to cut off is rounded to an even number, as in
            torchvision, instead of down.

    >>> preprocessing = keras_tfm.data.Preprocessing(mean=(0.5,), std=(0.5,))
    >>> images = np.full((1, 8, 8, 1), 255, "uint8")
    >>> preprocessing.prepared(images, height=2, width=2).numpy().ravel().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    image_size: Annotated[
        Annotated[int, Between(1, 2**14)] | None,
        Option("side of the images; learned positions are interpolated to it", default="the model's"),
    ] = None
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    interpolation: Annotated[Literal["bilinear", "bicubic", "lanczos"], Option("how images are resized")] = (
        "bilinear"
    )
    crop_fraction: Annotated[
        Annotated[float, Between(0.1, 1)],
        Option("share of a resized image's sides that is kept, at the centre"),
    ] = 1.0
    keep_aspect: Annotated[
        bool, Option("keep the aspect ratio: resize images until they cover the model's size, then crop")
    ] = False
    rounds_crop: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # JSON has lists, callers pass arrays
            object.__setattr__(self, name, tuple(np.atleast_1d(getattr(self, name)).tolist()))
        super().__post_init__()
        if not all(value > 0 for value in self.std):
            raise ValueError(f"`std` must be positive; it is {self.std}.")

    def resized(self, images: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """Images (B, H, W, C) resized to (B, height, width, C); 8-bit images are rounded to 8 bits."""
        size = tf.cast(tf.shape(images)[1:3], tf.int64)
        whole, cut = self.placed(size, height, width)
        # Only the part that is kept is computed: the whole of a resized panorama may be large.
        cut = tf.cast(cut, tf.float32)
        scale = tf.cast(whole, tf.float32) / tf.cast(size, tf.float32)
        is_bytes, channels = images.dtype == tf.uint8, images.shape[-1]
        images = tf.cast(images, tf.float32)
        # Columns first, then rows, each rounded and clipped, as published preprocessors do for 8 bits.
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
        """(The height and width to which an image of `size` (2,) is resized; how much is cut off above and on
        the left), int64 (2,) each.
        """
        whole = tf.constant([int(side / self.crop_fraction + 1e-6) for side in (height, width)], tf.int64)
        if self.keep_aspect:
            by_height = whole[0] * size[1] >= whole[1] * size[0]
            longer = tf.where(by_height, whole[0] * size[1] // size[0], whole[1] * size[0] // size[1])
            whole = tf.where(by_height, tf.stack([whole[0], longer]), tf.stack([longer, whole[1]]))
        rest = whole - tf.constant([height, width], tf.int64)
        # rest % 4 // 3 is 1 for 3, 7, 11 ..., whose halves round up to an even number.
        return whole, (rest + int(self.rounds_crop) * (rest % 4 // 3)) // 2

    def fitted(self, images: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """`resized` images; images of this size already count as resized and cropped, and stay."""
        if tuple(images.shape[-3:-1]) == (height, width):
            return images
        return self.resized(images, height, width)

    def normalized(self, images: tf.Tensor) -> tf.Tensor:
        """Raw images, 8-bit or from 0 to 1, as a model's input."""
        scale = 255.0 if images.dtype == tf.uint8 else 1.0
        return (tf.cast(images, tf.float32) / scale - tf.constant(self.mean)) / tf.constant(self.std)

    def prepared(self, images: tf.Tensor, height: int, width: int) -> tf.Tensor:
        """Raw images (B, H, W, C) as the input of a model of images (B, height, width, C)."""
        return self.normalized(self.fitted(images, height, width))

    def decoded(self, data: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
        """The bytes of an image file, a string (), as 8-bit pixels (height, width, channels)."""
        return self.resized(decode_pixels(data, channels)[None], height, width)[0]


def decode_pixels(data: tf.Tensor, channels: int) -> tf.Tensor:
    """The bytes of an image file, a string (), as 8-bit pixels (H, W, channels) at the image's own size.

    PNG, JPEG, GIF, BMP and WebP are decoded; of an animation, the first image. With 1 channel, colours become
    luminance; with 3, grey is repeated. CMYK becomes RGB, 16-bit values keep their upper 8 bits, and alpha is
    dropped. The image is turned as the orientation in its EXIF says. InvalidArgumentError, also in a graph,
    if the bytes are not an image.
    """
    return in_channels(_upright(data), channels)


@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
def decode_opacity(data: tf.Tensor) -> tf.Tensor:
    """The alpha of the pixels that `decode_pixels` decodes, 8-bit (H, W, 1): 255 where nothing shines
    through, as in a file without alpha.
    """
    alpha = tf.repeat(image_formats.opacity(data), 3, axis=-1)
    return orientations.turned(alpha, orientations.orientation_in(data))[..., :1]


@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)  # traced once: it is large
def _upright(data: tf.Tensor) -> tf.Tensor:
    """RGB (H, W, 3), since not all formats support 1 channel."""
    return orientations.turned(image_formats.decoded(data), orientations.orientation_in(data))


def in_channels(images: tf.Tensor, channels: int) -> tf.Tensor:
    """8-bit images (..., 1, 3 or 4) with 1 or 3 channels, converted as in `decode_pixels`."""
    images = images[..., :3]
    if images.shape[-1] == channels:
        return images
    if channels == 3:
        return tf.repeat(images, 3, axis=-1)
    grey = tf.tensordot(tf.cast(images, tf.float32), tf.constant(LUMINANCE), 1)[..., None]
    return tf.saturate_cast(tf.round(grey), tf.uint8)
