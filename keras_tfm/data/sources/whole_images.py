"""Pictures that keep their own sizes: checked once, and decoded when they are needed."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.image_arrays import is_array_file, read_arrays
from keras_tfm.data.sources.image_files import (
    MAX_BYTES,
    EncodedImages,
    decoded_or_problem,
    in_threads,
    kept_rows,
    size_in,
)
from keras_tfm.data.sources.images import read_images
from keras_tfm.data.sources.lines import DataError, Inputs, Paths, files_of
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.data.sources.rows import ColumnNames, parse_layout
from keras_tfm.log import Bar
from keras_tfm.serving.image_headers import Size, Source, read_bytes


class WholeImages(EncodedImages):
    """Encoded images of any sizes, each a path or bytes, with 1 or 3 `channels`.

    >>> tf.io.write_file("wide.png", tf.io.encode_png(np.zeros((2, 9, 3), "uint8")))
    >>> images = keras_tfm.data.sources.whole_images.WholeImages(["wide.png"] * 3, channels=1)
    >>> len(images[:2]), images[np.array([2])].decoded(0).shape
    (2, TensorShape([2, 9, 1]))
    """

    def __init__(self, sources: Sequence[Source], channels: int, places: Sequence[str] | None = None):
        super().__init__(sources, places)
        self.channels = channels

    @property
    def form(self) -> str:
        return f"{self.channels}"

    def decoded(self, row: int) -> tf.Tensor:
        """One image, 8-bit (H, W, C)."""
        return decode_pixels(tf.constant(read_bytes(self.sources[row])), self.channels)

    def decoder(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function of a row, int64 (), to the image, 8-bit (H, W, C), for graphs. The pixels are held in
        memory if all have at most `image_files.MAX_BYTES`, else decoded at each call.
        """
        sizes = [size_in(source) or (0, 0) for source in self.sources]
        if self.channels * sum(height * width for height, width in sizes) > MAX_BYTES:
            read = self.reader()
            return lambda row: decode_pixels(read(row), self.channels)
        images = list(in_threads(lambda row: self.decoded(row).numpy(), range(len(self))))
        with tf.device("cpu"):
            shapes = tf.constant([image.shape for image in images], tf.int64)
            pixels = tf.constant(np.concatenate([image.ravel() for image in images]))
        counts = tf.reduce_prod(shapes, 1)
        starts = tf.cumsum(counts, exclusive=True)

        def take(row: tf.Tensor) -> tf.Tensor:
            image = tf.reshape(tf.slice(pixels, starts[row][None], counts[row][None]), shapes[row])
            return tf.ensure_shape(image, (None, None, self.channels))

        return take

    def problems(self, least: int | Size = 1) -> dict[int, str]:
        """{row: reason} of images that cannot be decoded, or are `too_small`."""
        with Bar(total=len(self), desc="reading", unit="image") as bar:

            def one(source: Source) -> str | None:
                bar.update()
                return undecodable(source) or too_small(source, least)

            found = list(in_threads(one, self.sources))
        return {row: problem for row, problem in enumerate(found) if problem}


def undecodable(source: Source) -> str | None:
    """Why an image file cannot be decoded; None if it can be."""
    decoded = decoded_or_problem(source, lambda data: decode_pixels(data, 1))
    return decoded if isinstance(decoded, str) else None


def too_small(source: Source, least: int | Size) -> str | None:
    """Why an image file has a side below `least` pixels, or below `least`, of its shorter and its longer
    side; None if it has not.
    """
    height, width = size_in(source) or (0, 0)
    shorter, longer = least if isinstance(least, tuple) else (least, least)
    if min(height, width) >= shorter and max(height, width) >= longer:
        return None
    return f"expected at least {shorter} x {longer} pixels, got {width} x {height}"


def encoded(image: Any) -> Source:
    """An image as a file: a path or bytes as they are, an array (H, W) or (H, W, 1, 3 or 4), 8-bit or from 0
    to 1, as the bytes of a PNG.
    """
    if isinstance(image, str | bytes | os.PathLike):
        return image
    pixels = np.asarray(image)
    pixels = pixels if pixels.dtype == np.uint8 else np.round(pixels * 255).astype("uint8")
    return tf.io.encode_png(pixels if pixels.ndim == 3 else pixels[..., None]).numpy()


def read_sources(paths: Paths, columns: ColumnNames = None) -> Inputs:
    """(A path or the bytes of an image, its place) of each image in what `read_images` reads, at its own
    size.
    """
    layout = parse_layout(columns, counts=(1, 2))
    for file in files_of(paths):
        if is_array_file(file):
            arrays = read_arrays(file, layout.columns and layout.names_in(file))
            for number, image in enumerate(arrays.images, start=1):
                yield encoded(image), f"{file}, image {number}"
        else:
            yield from read_images(file, (1, 1, 3), columns)


def read_whole_images(
    paths: Paths, channels: int, columns: ColumnNames = None, least: int | Size = 1
) -> WholeImages:
    """The images in these files; broken ones, and ones that are `too_small`, are skipped, with a warning.
    DataError if none is left.

    >>> np.savez("digits.npz", images=np.zeros((3, 28, 20), "uint8"))
    >>> len(keras_tfm.data.sources.whole_images.read_whole_images("digits.npz", channels=1))
    3
    """
    sources, places = [], []
    for source, place in read_sources(paths, columns):
        sources.append(source)
        places.append(place)
    if not sources:
        raise DataError(files_of(paths)[0], None, "expected images, there are none")
    images = WholeImages(sources, channels, places)
    if problems := images.problems(least):
        return images[kept_rows(problems, images.place, None, len(images))]
    return images
