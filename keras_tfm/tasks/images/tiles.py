"""Pictures of any size through a model of tiles: cut with overlaps, and faded into each other.

tile 0   tile 1         beyond the ends of the picture stands its mirror image; what tile 0 shares with
[xx--xx]                the tile before it lies there, and is left out
    [xx--xx]
"""

from collections.abc import Callable

import tensorflow as tf


def in_tiles(
    run: Callable[[tf.Tensor], tf.Tensor], image: tf.Tensor, tile: int, scale: int, overlap: int
) -> tf.Tensor:
    """The picture (`scale` H, `scale` W, C), 8-bit, that `run` makes of `image` (H, W, C).

    `run` gets the tiles of a row, (B, `tile`, `tile`, C), and makes tiles from 0 to 1, with sides `scale`
    times as long. Neighbours share `overlap` pixels, at most half of a tile.

    >>> image = tf.reshape(tf.range(70 * 90) % 256, (70, 90, 1))
    >>> same = lambda tiles: tf.cast(tiles, tf.float32) / 255
    >>> y = keras_tfm.tasks.images.tiles.in_tiles(same, image, tile=16, scale=1, overlap=4)
    >>> bool(tf.reduce_all(tf.cast(y, tf.int32) == image))
    True
    """
    step, shared, size = tile - overlap, scale * overlap, tf.shape(image)
    sections = [shared, scale * (step - overlap), shared]  # with the tile before, alone, with the next one
    fade = ((tf.range(shared, dtype=tf.float32) + 0.5) / shared)[:, None, None]
    rows, columns = (_mirrored(size[axis], step, overlap) for axis in range(2))

    def strip_of(row: tf.Tensor) -> tf.Tensor:
        """A row of tiles as one: (scale tile, scale W, C)."""
        tiles = tf.gather(tf.gather(image, rows[row]), columns, axis=1)  # (tile, columns, tile, C)
        tiles = tf.ensure_shape(tf.transpose(tiles, (1, 0, 2, 3)), (None, tile, tile, image.shape[-1]))
        turned = tf.transpose(run(tiles), (0, 2, 1, 3))  # (columns, scale tile, scale tile, C)
        heads, middles, tails = tf.split(turned, sections, 1)
        before = tf.concat([tf.zeros_like(tails[:1]), tails[:-1]], 0)
        parts = tf.concat([fade * heads + (1 - fade) * before, middles], 1)
        line = tf.reshape(parts, (-1, scale * tile, image.shape[-1]))  # (columns scale step, scale tile, C)
        return tf.transpose(line[shared : shared + scale * size[1]], (1, 0, 2))

    def add(row: tf.Tensor, before: tf.Tensor, blocks: tf.TensorArray) -> tuple:
        head, middle, tail = tf.split(strip_of(row), sections, 0)
        block = tf.concat([fade * head + (1 - fade) * before, middle], 0)
        return row + 1, tail, blocks.write(row, tf.saturate_cast(tf.round(255 * block), tf.uint8))

    count = tf.shape(rows)[0]
    nothing = tf.zeros((shared, scale * size[1], image.shape[-1]))
    state = tf.constant(0), nothing, tf.TensorArray(tf.uint8, count)
    *_, blocks = tf.while_loop(lambda row, *_: row < count, add, state, parallel_iterations=1)
    whole = tf.ensure_shape(blocks.concat(), (None, None, image.shape[-1]))
    return whole[shared : shared + scale * size[0]]


def _mirrored(length: tf.Tensor, step: int, overlap: int) -> tf.Tensor:
    """The places of tiles on a line of this length, (N, tile): beyond its ends it is mirrored."""
    count = (length + overlap + step - 1) // step
    places = (step * tf.range(count)[:, None] - overlap + tf.range(step + overlap)) % (2 * length)
    return tf.minimum(places, 2 * length - 1 - places)
