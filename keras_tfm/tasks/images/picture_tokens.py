"""Pictures as tokens, and tokens as pictures: the codes of a codec, the colours of pixels, or the values of
their channels.
"""

import abc
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.models import Palette
from keras_tfm.models.pictures.codec import ImageCodec

MOST_PIXELS = 100_000  # from which the colours of a palette are learnt


class PictureTokens(abc.ABC):
    """Pictures of one `shape` (H, W, C) as `length` tokens in [0, `count`). Abstract.

    `rows` are the lines of the grid in which tokens stand; `unit` is what has one token, in the names of
    measures.
    """

    shape: tuple[int, int, int]
    count: int
    length: int
    rows: int
    unit: str

    @abc.abstractmethod
    def encode(self, images: tf.Tensor) -> tf.Tensor:
        """The tokens (B, L) of images (B, H, W, C) from 0 to 1."""

    @abc.abstractmethod
    def decode(self, tokens: tf.Tensor) -> tf.Tensor:
        """The images (B, H, W, C) from 0 to 1 of tokens (B, L)."""

    def description(self) -> dict[str, Any]:
        """What config.json says of it."""
        return {}


class Codes(PictureTokens):
    """The codes of a `codec`."""

    unit = "code"

    def __init__(self, codec: ImageCodec) -> None:
        self.codec = codec
        self.shape = tuple(codec.input["images"].shape[1:])
        self.count, self.rows, self.length = codec.num_codes, codec.grid[0], math.prod(codec.grid)

    def encode(self, images: tf.Tensor) -> tf.Tensor:
        low, high = self.codec.value_range
        return tf.reshape(self.codec.encode(images * (high - low) + low), (-1, self.length))

    def decode(self, tokens: tf.Tensor) -> tf.Tensor:
        low, high = self.codec.value_range
        images = self.codec.decode(tf.reshape(tokens, (-1, *self.codec.grid)))
        return tf.clip_by_value((tf.cast(images, tf.float32) - low) / (high - low), 0, 1)


class Colours(PictureTokens):
    """The nearest of a palette's colours for each pixel; `colours` (K, 3) are from -1 to 1."""

    unit = "pixel"

    def __init__(self, colours: Any, side: int) -> None:
        self.palette = Palette(colours)
        self.shape, self.rows = (side, side, 3), side
        self.count, self.length = len(self.palette.colors), side * side

    def encode(self, images: tf.Tensor) -> tf.Tensor:
        return self.palette.encode(images)

    def decode(self, tokens: tf.Tensor) -> tf.Tensor:
        return self.palette.decode(tokens, self.rows)

    def description(self) -> dict[str, Any]:
        return {"colours": self.palette.colors.tolist(), "side": self.rows}


class Values(PictureTokens):
    """The 256 values of each channel, pixel by pixel."""

    unit, count = "dimension", 256

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape, self.rows, self.length = shape, shape[0], math.prod(shape)

    def encode(self, images: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.cast(tf.round(255 * images), tf.int32), (-1, self.length))

    def decode(self, tokens: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.cast(tokens, tf.float32) / 255, (-1, *self.shape))


def colours_of(images: Any, count: int, seed: int = 0) -> np.ndarray:
    """`count` colours (K, 3) from -1 to 1, or fewer if there are not as many, near to the pixels of images
    (B, H, W, 3) from 0 to 1: the means of k-means (Chen et al. 2020, section 3.4).
    """
    from sklearn.cluster import KMeans  # slow to import, and only needed here

    pixels = np.asarray(images, "float32").reshape(-1, 3)
    rows = np.random.default_rng(seed).permutation(len(pixels))[:MOST_PIXELS]
    different = np.unique(pixels[rows], axis=0)
    if len(different) <= count:
        return 2 * different - 1
    return 2 * KMeans(count, n_init=1, random_state=seed).fit(pixels[rows]).cluster_centers_ - 1


def tokens_for(
    backbone: keras.Model, codec: Any = None, colours: Any = None, side: Any = None
) -> PictureTokens:
    """The tokens that a decoder of pictures writes."""
    if codec is not None:
        return Codes(codec)
    if colours is not None:
        return Colours(colours, side)
    return Values((*backbone.config.image_size, backbone.config.num_channels))
