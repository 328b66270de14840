"""EXIF's orientation in a graph, read from the bytes of an image file as `serving.image_headers` reads it."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from keras_tfm.serving.image_headers import EXIF, FLIPPED, JPEG_END, MAX_PARTS, MIRRORED, TAG, TRANSPOSED

HEAD = 10  # bytes of a part: a JPEG's marker, length and "Exif", or a chunk's length and kind


class Part(NamedTuple):
    """A segment or chunk of a file, all scalars: whether it is the block of EXIF, how many bytes after its
    beginning the block begins and how long it is, how long the part is, and whether the search ends here.
    """

    is_exif: tf.Tensor
    begin: int
    length: tf.Tensor
    step: tf.Tensor
    is_end: tf.Tensor


def orientation_in(data: tf.Tensor) -> tf.Tensor:
    """The orientation, int32 from 1 to 8, that an image file's bytes, a string (), state; 1 if none."""
    first = bytes_of(data, 0, 21)
    has_exif = are(first[12:16], b"VP8X") & (first[20] & 8 > 0)  # as a WebP's header says
    exif = tf.case(
        [
            (are(first[:2], b"\xff\xd8"), lambda: _exif_in(data, 2, _jpeg_part)),
            (are(first[:4], b"\x89PNG"), lambda: _exif_in(data, 8, _png_part)),
            (are(first[:4], b"RIFF") & has_exif, lambda: _exif_in(data, 12, _webp_part)),
        ],
        default=lambda: tf.constant(b""),
    )
    return orientation_of(exif)


def orientation_of(exif: tf.Tensor) -> tf.Tensor:
    """The orientation, int32 from 1 to 8, in a block of EXIF, a string ()."""
    length = tf.strings.length(exif)
    tiff = tf.strings.substr(exif, tf.where(tf.strings.substr(exif, 0, 6) == EXIF, 6, 0), length)
    order = tf.strings.substr(tiff, 0, 4)
    is_little = order == b"II*\0"
    is_tiff = (is_little | (order == b"MM\0*")) & (tf.strings.length(tiff) >= 8)
    return tf.cond(is_tiff, lambda: _first_orientation(tiff, is_little), lambda: tf.constant(1))


def turned(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Pixels (H, W, C) of one image as it is shown; see `image_headers.turned`."""
    for turn, orientations in (
        (lambda x: tf.transpose(x, (1, 0, 2)), TRANSPOSED),
        (lambda x: x[:, ::-1], MIRRORED),
        (lambda x: x[::-1], FLIPPED),
    ):
        is_one = tf.reduce_any(orientation == tf.constant(sorted(orientations)))
        pixels = tf.cond(is_one, lambda x=pixels, turn=turn: turn(x), lambda x=pixels: x)
    return tf.ensure_shape(pixels, (None, None, 3))


def _exif_in(data: tf.Tensor, place: int, part_of: Callable[[tf.Tensor], Part]) -> tf.Tensor:
    """The first block of EXIF in a file whose parts begin at `place`; b"" if there is none."""
    size = tf.cast(tf.strings.length(data), tf.int64)

    def goes_on(place: tf.Tensor, exif: tf.Tensor) -> tf.Tensor:
        return (place + HEAD <= size) & (exif == b"")

    def look(place: tf.Tensor, exif: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        part = part_of(bytes_of(data, place, HEAD))
        begin = tf.minimum(place + part.begin, size)
        exif = tf.strings.substr(data, begin, tf.where(part.is_exif, part.length, 0))
        return tf.where(part.is_end | part.is_exif, size, tf.minimum(place + part.step, size)), exif

    state = tf.constant(place, tf.int64), tf.constant(b"")
    return tf.while_loop(goes_on, look, state, maximum_iterations=MAX_PARTS)[1]


def _jpeg_part(head: tf.Tensor) -> Part:
    is_marker = (head[0] == 0xFF) & (head[1] != 0) & (head[1] != 0xFF)
    length = 256 * head[2] + head[3]
    is_exif = is_marker & (head[1] == 0xE1) & are(head[4:], EXIF)
    is_end = is_marker & tf.reduce_any(head[1] == tf.constant(sorted(JPEG_END), tf.int64))
    return Part(is_exif, 4, tf.maximum(length - 2, 0), tf.where(is_marker, 2 + length, 1), is_end)


def _png_part(head: tf.Tensor) -> Part:
    length = number_of(head[:4], is_little=False)
    is_end = are(head[4:8], b"IDAT") | are(head[4:8], b"IEND")
    return Part(are(head[4:8], b"eXIf"), 8, length, 12 + length, is_end)


def _webp_part(head: tf.Tensor) -> Part:
    length = number_of(head[4:8], is_little=True)
    return Part(are(head[:4], b"EXIF"), 8, length, 8 + length + length % 2, tf.constant(False))


def bytes_of(data: tf.Tensor, place: int | tf.Tensor, count: int) -> tf.Tensor:
    """So many bytes of a string (), from a place on, as int64 (count,); zeros after its end."""
    length = tf.cast(tf.strings.length(data), tf.int64)
    part = tf.strings.substr(data, tf.minimum(tf.cast(place, tf.int64), length), tf.constant(count, tf.int64))
    padded = tf.concat([tf.io.decode_raw(part, tf.uint8), tf.zeros(count, tf.uint8)], 0)
    return tf.cast(tf.ensure_shape(padded[:count], [count]), tf.int64)


def are(values: tf.Tensor, expected: bytes) -> tf.Tensor:
    """Whether values are these bytes."""
    return tf.reduce_all(values == tf.constant(list(expected), tf.int64))


def number_of(values: tf.Tensor, is_little: bool | tf.Tensor) -> tf.Tensor:
    """The numbers that bytes spell along the last axis."""
    values = tf.where(is_little, values, values[..., ::-1])
    return tf.reduce_sum(values * 256 ** tf.range(values.shape[-1], dtype=values.dtype), -1)


def _first_orientation(tiff: tf.Tensor, is_little: tf.Tensor) -> tf.Tensor:
    """The value of the first entry of that tag, a number of 16 bits, in the first directory."""
    values = tf.cast(tf.io.decode_raw(tiff, tf.uint8), tf.int64)
    place = number_of(tf.ensure_shape(values[4:8], [4]), is_little)
    count = tf.pad(values[place : place + 2], [[0, 2]])[:2]
    entries = values[place + 2 :]
    rows = tf.minimum(number_of(tf.ensure_shape(count, [2]), is_little), tf.size(entries, tf.int64) // 12)
    entries = tf.ensure_shape(tf.reshape(entries[: 12 * rows], (-1, 12)), [None, 12])
    is_it = (number_of(entries[:, :2], is_little) == TAG) & (number_of(entries[:, 2:4], is_little) == 3)
    values = tf.concat([tf.boolean_mask(number_of(entries[:, 8:10], is_little), is_it), [1]], 0)
    return tf.cast(tf.where((values[0] >= 1) & (values[0] <= 8), values[0], 1), tf.int32)
