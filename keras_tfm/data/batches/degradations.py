"""Pictures made worse, as a model of restoration learns to mend them: smaller, noisy, rainy, with holes.

Each is a function of pictures (B, H, W, C) of numbers from 0 to 1 and of a key, integers (2,), by which it
draws. All results are rounded to 8 bits, as pictures to be mended are. Noise and sizes follow IPT's
tasks (Chen et al. 2021, section 4.1); its rain is from a data set, here streaks are drawn.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

CELL = 32  # pixels of the squares of which every second one has a hole
LEAST_HOLE, MOST_HOLE = 4, 16  # pixels of a hole's sides
STREAK = 21  # pixels of the square in which a drop's streak is drawn
LEVELS = 9  # halvings by which holes are filled: up to 512 pixels wide


class Degraded(NamedTuple):
    """Pictures (B, h, w, C) made worse, and where they have to be mended (B, H, W, 1): 1, or 0 where the
    pixels are right.
    """

    images: tf.Tensor
    damage: tf.Tensor


class Restoration(NamedTuple):
    """What is mended: how many times longer its pictures' sides become, what makes pictures worse, and what
    mends them as far as a rule can, in words.
    """

    scale: int
    degrade: Callable[[tf.Tensor, tf.Tensor], Degraded]
    rule: str


def everywhere(images: tf.Tensor) -> tf.Tensor:
    """Damage of all pixels."""
    return tf.ones_like(images[..., :1])


def shrunk(images: tf.Tensor, key: tf.Tensor, scale: int) -> Degraded:
    """Pictures with sides `scale` times shorter, by the bicubic filter of Pillow; `scale` divides them."""
    smaller = bicubic(images, tf.shape(images)[1:3] // scale)
    return Degraded(eight_bits(smaller), everywhere(images))


def bicubic(images: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Pictures of another `size` (height, width), by the bicubic filter of Pillow."""
    return tf.image.resize(images, size, "bicubic", antialias=True)


def noisy(images: tf.Tensor, key: tf.Tensor, deviation: int) -> Degraded:
    """Pictures with normal noise of this standard deviation, in levels of 255."""
    noise = tf.random.stateless_normal(tf.shape(images), key, stddev=deviation / 255)
    return Degraded(eight_bits(images + noise), everywhere(images))


def rainy(images: tf.Tensor, key: tf.Tensor) -> Degraded:
    """Pictures behind streaks of rain, of one direction and length in a batch."""
    shape, keys = tf.shape(images), tf.random.experimental.stateless_split(key, 3)
    angle, length, density, light = tf.unstack(tf.random.stateless_uniform([4], keys[0]))
    places = tf.range(-(STREAK // 2), STREAK // 2 + 1, dtype=tf.float32)
    angle = (angle - 0.5) * math.pi / 2  # up to 45 degrees from the vertical
    along = places[:, None] * tf.cos(angle) + places[None] * tf.sin(angle)
    across = places[None] * tf.cos(angle) - places[:, None] * tf.sin(angle)
    is_near = tf.abs(along) <= 3 + length * (STREAK // 2 - 3)
    streak = tf.exp(-2 * across**2) * tf.cast(is_near, tf.float32)
    draws = tf.random.stateless_uniform((shape[0], shape[1], shape[2], 1), keys[1])
    drops = tf.cast(draws < 0.002 + 0.008 * density, tf.float32)
    drops *= tf.random.stateless_uniform(tf.shape(drops), keys[2], 0.3, 1.0)
    rain = tf.nn.conv2d(drops, streak[..., None, None], 1, "SAME")
    rain = tf.minimum(rain, 1.0) * (0.3 + 0.4 * light)
    return Degraded(eight_bits(images + rain * (1 - images)), everywhere(images))


def holed(images: tf.Tensor, key: tf.Tensor) -> Degraded:
    """Pictures with holes, which are filled smoothly; only the holes are damage."""
    holes = holes_in(images, key)
    return Degraded(filled(images, holes), holes)


def holes_in(images: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Holes, 1 in them and 0 around, (B, H, W, 1): rectangles in about every second of all squares."""
    batch_size, height, width, _ = tf.unstack(tf.shape(images))
    rows, columns = -(-height // CELL), -(-width // CELL)
    draws = tf.random.stateless_uniform((batch_size, rows, columns, 5), key)
    sides = LEAST_HOLE + tf.floor((MOST_HOLE + 1 - LEAST_HOLE) * draws[..., :2])
    starts = tf.floor((CELL + 1 - sides) * draws[..., 2:4])
    is_hole = draws[..., 4] < 0.5

    def reaches(axis: int) -> tf.Tensor:
        """Which of a square's rows, or columns, its hole covers: (B, rows, columns, CELL)."""
        place = tf.range(CELL, dtype=tf.float32) - starts[..., axis, None]
        return (place >= 0) & (place < sides[..., axis, None])

    cells = reaches(0)[..., None] & reaches(1)[..., None, :] & is_hole[..., None, None]
    cells = tf.transpose(cells, (0, 1, 3, 2, 4))  # (B, rows, CELL, columns, CELL)
    whole = tf.reshape(cells, tf.stack([batch_size, rows * CELL, columns * CELL, 1]))
    return tf.cast(whole[:, :height, :width], tf.float32)


def filled(images: tf.Tensor, holes: tf.Tensor) -> tf.Tensor:
    """Pictures whose holes, where `holes` (B, H, W, 1) is 1, are filled from the colours around.

    Each halving of the picture averages its known pixels; a hole takes them from the first halving that knows
    some (Gortler et al. 1996, "The Lumigraph", section 3.4).
    """
    known = 1 - holes
    sums = [tf.concat([images * known, known], -1)]  # colours times their weight, and the weight
    for _ in range(LEVELS):
        sums.append(tf.nn.avg_pool2d(sums[-1], 2, 2, "SAME"))
    colours = tf.math.divide_no_nan(sums[-1][..., :-1], sums[-1][..., -1:])
    for level in sums[-2::-1]:
        weight = level[..., -1:]
        colours = tf.image.resize(colours, tf.shape(level)[1:3])
        colours = tf.math.divide_no_nan(level[..., :-1], weight) * weight + colours * (1 - weight)
    return eight_bits(tf.ensure_shape(colours, images.shape))


def eight_bits(images: tf.Tensor) -> tf.Tensor:
    """Numbers from 0 to 1, rounded to 256 levels."""
    return tf.round(tf.clip_by_value(images, 0.0, 1.0) * 255) / 255


def as_bytes(images: tf.Tensor) -> tf.Tensor:
    """Numbers from 0 to 1, where they leave that range its ends, as 8-bit ones."""
    return tf.saturate_cast(tf.round(255 * images), tf.uint8)


def _shrinking(scale: int) -> Restoration:
    return Restoration(scale, lambda images, key: shrunk(images, key, scale), "bicubic enlargement")


def _denoising(deviation: int) -> Restoration:
    return Restoration(1, lambda images, key: noisy(images, key, deviation), "the noisy picture")


RESTORATIONS = {
    **{f"x{scale}": _shrinking(scale) for scale in (2, 3, 4)},
    **{f"denoise{deviation}": _denoising(deviation) for deviation in (30, 50)},
    "derain": Restoration(1, rainy, "the rainy picture"),
    "inpaint": Restoration(1, holed, "holes filled smoothly"),
}
