"""Holes in videos: drawn ones, and what the pixels around them say of each.

Videos are (B, T, H, W, C), of numbers from 0 to 1; holes are (B, T, H, W, 1), 1 in them and 0 around.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import tensorflow as tf

from keras_tfm.data.batches.degradations import eight_bits, filled

Motion = Literal["moving", "still", "both"]
MOTIONS = get_args(Motion)
LEAST_SIDE, MOST_SIDE = 0.25, 0.5  # of a hole, as shares of the frame's


class Known(NamedTuple):
    """What is known of videos with holes.

    Args:
        videos: (B, T, H, W, C), each hole filled by the mean over time of what is seen in its place, or
            smoothly from around where nothing ever is.
        hints: (B, T, H, W, 2 C + 5), from -1 to 1: the holes; the colours last seen in the place, for how
            long they have been hidden as a share of the frames, and whether any was seen; the same of the
            colours seen next. In the place of none there are the filling's.
    """

    videos: tf.Tensor
    hints: tf.Tensor


def num_hints(num_channels: int) -> int:
    """The channels of `Known.hints` of videos of so many channels."""
    return 2 * num_channels + 5


def drawn_holes(shape: Iterable, key: tf.Tensor, motion: Motion = "both") -> tf.Tensor:
    """A rectangle in each video of a `shape` (B, T, H, W): "still", or "moving" from one place to another,
    straight on, or "both", each half of the time. `key`, integers (2,), determines the draws.

    >>> from keras_tfm.data.batches.video_holes import drawn_holes
    >>> holes = drawn_holes((1, 2, 8, 8), key=[0, 1], motion="still").numpy()
    >>> holes.shape, bool((holes[:, 0] == holes[:, 1]).all()), 4 <= int(holes[0, 0].sum()) <= 16
    ((1, 2, 8, 8, 1), True, True)
    """
    batch_size, length, height, width = shape
    draws = tf.random.stateless_uniform((batch_size, 7), key)
    size = tf.cast([height, width], tf.float32)  # (2,)
    sides = tf.round(size * (LEAST_SIDE + (MOST_SIDE - LEAST_SIDE) * draws[:, :2]))
    first, last = (size - sides) * draws[:, 2:4], (size - sides) * draws[:, 4:6]
    moves = {"still": 1.0, "moving": 0.0, "both": 0.5}[motion] <= draws[:, 6:]
    last = tf.where(moves, last, first)
    time = tf.linspace(0.0, 1.0, length)[:, None]  # (T, 1)
    starts = tf.round(first[:, None] + (last - first)[:, None] * time)  # (B, T, 2)

    def reaches(axis: int, side: int) -> tf.Tensor:
        """Which rows, or columns, a hole covers: (B, T, side)."""
        place = tf.range(side, dtype=tf.float32) - starts[..., axis, None]
        return (place >= 0) & (place < sides[:, None, axis, None])

    holes = reaches(0, height)[..., None] & reaches(1, width)[..., None, :]
    return tf.cast(holes[..., None], tf.float32)


class Seen(NamedTuple):
    """The sums of the colours seen in each place, (B, H, W, C), and in how many frames: (B, H, W, 1)."""

    colours: tf.Tensor
    count: tf.Tensor


def seen_in(videos: tf.Tensor, holes: tf.Tensor) -> Seen:
    """What is seen in videos outside of their holes."""
    seen = 1 - holes
    return Seen(tf.reduce_sum(videos * seen, 1), tf.reduce_sum(seen, 1))


def known_of(videos: tf.Tensor, holes: tf.Tensor, elsewhere: Seen | None = None) -> Known:
    """What is known of videos, whatever they have in the holes; what frames `elsewhere` show counts in
    places that these do not.

    >>> from keras_tfm.data.batches.video_holes import known_of
    >>> videos = np.array([0.2, 0.6, 0.0], "float32").reshape(1, 3, 1, 1, 1)
    >>> holes = np.array([0.0, 0.0, 1.0], "float32").reshape(1, 3, 1, 1, 1)
    >>> known = known_of(videos, holes)
    >>> [round(float(x), 2) for x in known.videos[0, :, 0, 0, 0]]
    [0.2, 0.6, 0.4]
    >>> [round(float(x), 2) for x in known.hints[0, 2, 0, 0]]
    [1.0, 0.2, 0.33, 1.0, -0.2, 0.0, 0.0]
    """
    seen, (colours, count) = 1 - holes, seen_in(videos, holes)
    if elsewhere is not None:
        is_hidden = count == 0
        colours = tf.where(is_hidden, elsewhere.colours, colours)
        count = tf.where(is_hidden, elsewhere.count, count)
    mean = tf.math.divide_no_nan(colours, count)
    mean = filled(eight_bits(mean), tf.cast(count == 0, tf.float32))  # (B, H, W, C)
    length = videos.shape[1]

    def last_seen(order: range) -> tf.Tensor:
        """The colours, how long they are hidden, and whether there are any: (B, T, H, W, C + 2)."""
        colours, hidden, is_any = mean, tf.zeros_like(count), tf.zeros_like(count)
        found = {}
        for place in order:
            is_seen = seen[:, place]
            colours = tf.where(is_seen > 0, videos[:, place], colours)
            is_any = tf.maximum(is_any, is_seen)
            hidden = tf.where(is_seen > 0, 0.0, hidden + is_any / length)
            found[place] = tf.concat([2 * colours - 1, hidden, is_any], -1)
        return tf.stack([found[place] for place in range(length)], 1)

    hints = tf.concat([holes, last_seen(range(length)), last_seen(range(length)[::-1])], -1)
    return Known(tf.where(holes > 0, mean[:, None], videos), hints)
