"""Segmentation masks as files: PNGs whose grey values, or indices of a palette, are class numbers."""

import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.image_files import in_threads, source_identity
from keras_tfm.data.sources.lines import DataError
from keras_tfm.serving.image_headers import NOT_WHOLE, Source, problem_of, read_bytes

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, PALETTE, GREY_AND_ALPHA = 0, 3, 4  # the colour types of PNG
# {bits: the distance of neighbouring values after TensorFlow has scaled values of so few bits to 0 .. 255}
STEPS = {1: 255, 2: 85, 4: 17}
MANY = 256  # the number of values of 8 bits


class MaskFiles:
    """Encoded masks, each a path or the bytes of a PNG, which are iterated over as arrays (H, W).

    `files[3:5]` and `files[np.array([7, 2])]` select masks. `names` is {value in the masks: name of the
    class}.

    >>> values = np.array([[0, 1], [1, 1]], "uint8")
    >>> tf.io.write_file("mask.png", tf.io.encode_png(values[..., None]))
    >>> files = keras_tfm.data.MaskFiles(["mask.png"], {0: "background", 1: "cat"})
    >>> [mask.tolist() for mask in files]
    [[[0, 1], [1, 1]]]
    """

    dtype = np.dtype("uint8")

    def __init__(self, sources: Sequence[Source], names: Mapping[int, str]):
        self.sources = [source if isinstance(source, bytes) else os.fspath(source) for source in sources]
        self.names = dict(names)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, rows: Any) -> "MaskFiles":
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        return MaskFiles([self.sources[row] for row in chosen], self.names)

    def __iter__(self) -> Iterator[np.ndarray]:
        """The masks (H, W), each decoded when it is needed; DataError for one that cannot be decoded."""
        for row, source in enumerate(self.sources):
            mask = decoded_mask(source)
            if isinstance(mask, str):
                place = f"mask {row}" if isinstance(source, bytes) else source
                raise DataError(place, None, mask)
            yield mask

    def identity(self) -> Iterator[str]:
        """Strings that change if the masks change."""
        yield from in_threads(source_identity, self.sources)


def decoded_mask(source: Source) -> np.ndarray | str:
    """The values (H, W), 8-bit, in a mask's file, or the reason why it cannot be decoded."""
    data = _png_of(source)
    if isinstance(data, str):
        return data
    depth, colour = data[24], data[25]
    channels = 1 if colour in (GREY, PALETTE, GREY_AND_ALPHA) else 3
    try:
        grey = as_grey(data) if colour == PALETTE else data
        pixels = tf.io.decode_png(grey, channels, tf.uint16 if depth == 16 else tf.uint8).numpy()
    except (tf.errors.InvalidArgumentError, struct.error):
        return NOT_WHOLE
    values = pixels[..., 0] // STEPS.get(depth, 1)
    if channels == 3 and (pixels != pixels[..., :1]).any():
        return "expected a mask of grey values or of a palette, since other colours are not class numbers"
    if values.max(initial=0) >= MANY:
        return f"expected values below {MANY}, got {values.max():,}"
    return values.astype("uint8")


def _png_of(source: Source) -> bytes | str:
    """The content of a PNG, or the reason why it should not be decoded."""
    try:
        data = read_bytes(source)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not data.startswith(SIGNATURE) or len(data) < 33:
        return "expected a PNG, which stores values without loss"
    return problem_of(data) or data


def as_grey(data: bytes) -> bytes:
    """A PNG whose grey values are the palette indices of the given PNG; all other chunks are left out."""
    header = data[16:25] + bytes([GREY]) + data[26:29]
    parts, place = [SIGNATURE, _chunk(b"IHDR", header)], 33
    while place < len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        if kind in (b"IDAT", b"IEND"):
            parts.append(data[place : place + length + 12])
        place += length + 12
    return b"".join(parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def encoded_mask(values: np.ndarray) -> bytes:
    """A mask (H, W), 8-bit, as a PNG of grey values."""
    return tf.io.encode_png(values[..., None]).numpy()


def decoded_numbers(source: Source) -> np.ndarray | str:
    """The numbers (H, W), int32, that the colours of a PNG stand for, R + 256 G + 256² B, or why it
    cannot be decoded.
    """
    data = _png_of(source)
    if isinstance(data, str):
        return data
    try:
        pixels = tf.io.decode_png(data, 3).numpy().astype("int32")
    except (tf.errors.InvalidArgumentError, struct.error):
        return NOT_WHOLE
    return pixels[..., 0] + 256 * pixels[..., 1] + 256**2 * pixels[..., 2]


def encoded_numbers(numbers: np.ndarray | tf.Tensor) -> tf.Tensor:
    """Numbers (H, W), int32 and below 2^24, as a PNG of colours, (): see `decoded_numbers`."""
    colours = tf.stack([numbers % 256, numbers // 256 % 256, numbers // 256**2], axis=-1)
    return tf.io.encode_png(tf.cast(colours, tf.uint8))
