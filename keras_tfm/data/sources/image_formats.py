"""The pixels of image files in a graph, also of files that `tf.io.decode_image` misreads or refuses.

TensorFlow takes the indices of a BMP's palette for grey values and refuses BMPs of 1, 4 and 16 bits; it
refuses to drop a WebP's alpha, and decodes all images of an animation.
"""

import tensorflow as tf

from keras_tfm.data.sources.orientations import are, bytes_of, number_of
from keras_tfm.serving.image_headers import BMP_MASKS, MAX_PARTS

LITTLE = True
ALPHA = 0x10  # of a WebP's flags
ANIMATION = 0x02


def decoded(data: tf.Tensor) -> tf.Tensor:
    """The bytes of a PNG, JPEG, GIF, BMP or WebP, a string (), as 8-bit RGB (H, W, 3), as they are stored; of
    an animation, the first image. InvalidArgumentError, also in a graph, for others.
    """
    first = bytes_of(data, 0, 12)
    image = tf.case(
        [
            (are(first[:2], b"BM"), lambda: _decoded_bmp(data)),
            (are(first[:4], b"RIFF") & are(first[8:], b"WEBP"), lambda: _decoded_webp(data)),
            (are(first[:4], b"GIF8"), lambda: _decoded_gif(data)),
        ],
        default=lambda: tf.io.decode_image(data, channels=3, expand_animations=False),
    )
    return tf.ensure_shape(image, (None, None, 3))


def opacity(data: tf.Tensor) -> tf.Tensor:
    """The alpha of a PNG or a WebP, 8-bit (H, W, 1), as it is stored; 255 where a file has none."""
    first = bytes_of(data, 0, 12)

    def of_png() -> tf.Tensor:
        return tf.io.decode_png(data, channels=4)[..., 3:]

    def of_others() -> tf.Tensor:
        return tf.fill(tf.concat([tf.shape(decoded(data))[:2], [1]], 0), tf.constant(255, tf.uint8))

    def of_webp() -> tf.Tensor:
        pixels = tf.raw_ops.DecodeWebP(contents=data, channels=0)[0]
        return tf.cond(tf.shape(pixels)[-1] == 4, lambda: pixels[..., 3:], of_others)

    is_webp = are(first[:4], b"RIFF") & are(first[8:], b"WEBP")
    is_animated = are(bytes_of(data, 12, 4), b"VP8X") & (bytes_of(data, 20, 1)[0] & ANIMATION > 0)
    cases = [(are(first[:4], b"\x89PNG"), of_png), (is_webp & ~is_animated, of_webp)]
    return tf.ensure_shape(tf.case(cases, default=of_others), (None, None, 1))


def _decoded_gif(data: tf.Tensor) -> tf.Tensor:
    """The first image of a GIF, which must cover its screen: TensorFlow would cut off another."""

    def goes_on(place: tf.Tensor, is_inside: tf.Tensor) -> tf.Tensor:
        return is_inside | are(bytes_of(data, place, 1), b"\x21")

    def after(place: tf.Tensor, is_inside: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        length = bytes_of(data, place, 1)[0]  # of a block of an extension, of which an empty one is the last
        return place + tf.where(is_inside, 1 + length, 2), (length != 0) | ~is_inside

    first = bytes_of(data, 0, 13)
    colours = tf.where(first[10] >= 0x80, 3 * 2 ** (first[10] % 8 + 1), 0)
    start = 13 + colours, tf.constant(False)
    place, _ = tf.while_loop(goes_on, after, start, maximum_iterations=MAX_PARTS)
    frame, screen = (
        number_of(tf.reshape(x, (-1, 2)), LITTLE) for x in (bytes_of(data, place + 1, 8), first[6:10])
    )
    is_whole = tf.reduce_all(frame[:2] == 0) & tf.reduce_all(frame[2:] >= screen)
    check = tf.debugging.Assert(is_whole, ["expected a GIF whose first frame covers the screen"])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.io.decode_image(tf.identity(data), channels=3, expand_animations=False)


def _decoded_webp(data: tf.Tensor) -> tf.Tensor:
    first = bytes_of(data, 0, 30)
    is_animated = are(first[12:16], b"VP8X") & (first[20] & ANIMATION > 0)
    data = tf.cond(is_animated, lambda: _first_image(data, first), lambda: data)
    # 0 channels: as many as the file has. On an animation TensorFlow would then write past its memory.
    return tf.raw_ops.DecodeWebP(contents=data, channels=0)[0, ..., :3]


def _first_image(data: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """A WebP of the first image of an animation, the bytes of a file that begins with `first`.

    InvalidArgumentError unless that image covers the canvas.
    """
    size = tf.cast(tf.strings.length(data), tf.int64)

    def is_before(place: tf.Tensor) -> tf.Tensor:
        return (place < size) & ~are(bytes_of(data, place, 4), b"ANMF")

    def after(place: tf.Tensor) -> tuple[tf.Tensor]:
        length = number_of(bytes_of(data, place + 4, 4), LITTLE)
        return (place + 8 + length + length % 2,)

    (place,) = tf.while_loop(is_before, after, (tf.constant(12, tf.int64),), maximum_iterations=16)
    frame = bytes_of(data, place, 24)  # its kind and length, its left, top, width and height
    is_whole = are(frame[8:14], bytes(6)) & tf.reduce_all(frame[14:20] == first[24:30])
    check = tf.debugging.Assert(
        are(frame[:4], b"ANMF") & is_whole, ["expected a WebP whose first image is whole"]
    )
    with tf.control_dependencies([] if check is None else [check]):
        length = number_of(frame[4:8], LITTLE)
    begin = tf.minimum(place + 24, size)
    content = tf.strings.substr(data, begin, tf.maximum(length - 16, 0))
    flags = tf.where(are(bytes_of(content, 0, 4), b"ALPH"), ALPHA, 0)
    head = tf.concat([tf.cast([flags, 0, 0, 0], tf.int64), first[24:30]], 0)
    body = tf.strings.join([b"WEBPVP8X\n\0\0\0", _text(head), content])
    length = tf.cast(tf.strings.length(body), tf.int64)
    return tf.strings.join([b"RIFF", _text(length // 256 ** tf.range(4, dtype=tf.int64) % 256), body])


def _text(values: tf.Tensor) -> tf.Tensor:
    """Bytes (N,) as a string ()."""
    characters = tf.gather(tf.constant([bytes([value]) for value in range(256)]), values)
    return tf.strings.reduce_join(characters)


def _decoded_bmp(data: tf.Tensor) -> tf.Tensor:
    """A BMP without compression: with a palette of 1, 4 or 8 bits, or of 16, 24 or 32 bits.

    The header has 12 bytes in old files, and otherwise 40 or more. Rows are padded to four bytes, and go from
    the bottom to the top unless the height is negative.
    """
    head = bytes_of(data, 0, 66)
    header = number_of(head[14:18], LITTLE)
    is_old = header == 12
    width = tf.where(is_old, number_of(head[18:20], LITTLE), number_of(head[18:22], LITTLE))
    height = tf.where(is_old, number_of(head[20:22], LITTLE), number_of(head[22:26], LITTLE))
    is_downwards = height >= 1 << 31
    height = tf.where(is_downwards, (1 << 32) - height, height)
    bits = tf.where(is_old, number_of(head[24:26], LITTLE), number_of(head[28:30], LITTLE))
    compression = tf.where(is_old, tf.constant(0, tf.int64), number_of(head[30:34], LITTLE))
    masks = number_of(tf.reshape(head[54:66], (3, 4)), LITTLE)
    named = number_of(head[46:50], LITTLE)
    stride = (width * bits + 31) // 32 * 4
    size, begin = tf.cast(tf.strings.length(data), tf.int64), number_of(head[10:14], LITTLE)
    is_plain = (compression == 0) & tf.reduce_any(bits == tf.constant([1, 4, 8, 16, 24, 32], tf.int64))
    is_masked = (compression == 3) & tf.reduce_any([
        (bits == count) & tf.reduce_all(masks == tf.constant(each, tf.int64))
        for count, known in BMP_MASKS.items() for each in known
    ])  # fmt: skip
    is_whole = (begin + stride * height <= size) & (width > 0) & (height > 0)
    check = tf.debugging.Assert((is_plain | is_masked) & is_whole, ["expected a whole BMP, not compressed"])
    with tf.control_dependencies([] if check is None else [check]):
        rows = tf.io.decode_raw(tf.strings.substr(data, begin, stride * height), tf.uint8)
    rows = tf.reshape(rows, tf.stack([height, stride]))

    def colours() -> tf.Tensor:
        step = tf.where(is_old, tf.constant(3, tf.int64), 4)
        count = tf.where(is_old | (named == 0), 2**bits, tf.minimum(named, 256))
        table = tf.io.decode_raw(tf.strings.substr(data, 14 + header, step * count), tf.uint8)
        table = tf.reshape(table[: tf.size(table, tf.int64) // step * step], tf.stack([-1, step]))[:, 2::-1]
        table = tf.pad(table, [[0, 256], [0, 0]])  # indices after the palette are black
        shifts = tf.cast(8 - bits * (1 + tf.range(8 // bits)), tf.uint8)
        most = tf.cast(2**bits - 1, tf.uint8)
        values = tf.bitwise.bitwise_and(tf.bitwise.right_shift(rows[..., None], shifts), most)
        indices = tf.reshape(values, tf.stack([height, -1]))[:, :width]
        return tf.gather(table, tf.cast(indices, tf.int32))

    def sixteen() -> tf.Tensor:
        pairs = tf.cast(tf.reshape(rows, tf.stack([height, -1, 2]))[:, :width], tf.int32)
        values = pairs[..., 0] + 256 * pairs[..., 1]
        greens = tf.where(is_masked & (masks[1] == 0x7E0), 64, 32)
        blue, green, red = values % 32, values // 32 % greens, values // (32 * greens) % 32
        parts = [red * 255 // 31, green * 255 // (greens - 1), blue * 255 // 31]
        return tf.cast(tf.stack(parts, -1), tf.uint8)

    def whole() -> tf.Tensor:
        parts = rows[:, : width * (bits // 8)]
        return tf.reshape(parts, tf.stack([height, width, bits // 8]))[..., 2::-1]

    image = tf.case([(bits <= 8, colours), (bits == 16, sixteen)], default=whole)
    return tf.cond(is_downwards, lambda: image, lambda: image[::-1])
