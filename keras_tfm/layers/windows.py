"""Attention within windows of a map (Liu et al. 2021, "Swin Transformer", section 3.2).

A map of 4 x 4 cells, on the left in windows of 2 x 2 neighbouring cells, on the right in windows
spread over the map (Huang et al. 2021, "Shuffle Transformer"). Cells with the same letter attend to
each other:

    a a b b        a b a b
    a a b b        c d c d
    c c d d        a b a b
    c c d d        c d c d
    windows        spread
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.patches import height_and_width, pair_of
from keras_tfm.layers.signatures import Sides, Tensor


def split_windows(x: Tensor, size: Sides, spread: bool = False) -> Tensor:
    """Cut maps (B, H, W, D) into windows of T = size x size cells, each a sequence: (B N, T, D).

    The N windows of an example are neighbours in the batch, row by row, and so are the cells within a
    window: attention treats a window as an example. `size` is a side or a (height, width) pair. With `spread`
    the cells of a window are far apart on the map instead of neighbours. Raises ValueError if the size does
    not divide the map, or if the map's height or width is not known.

    >>> keras_tfm.layers.split_windows(np.ones((1, 4, 4, 8)), size=2).shape
    TensorShape([4, 4, 8])
    """
    return _split(x, _window_grid(x.shape[1:3], size), height_and_width(size), spread)


def _split(x, window_grid, size, spread):
    """`split_windows` of a map with (rows, columns) of windows."""
    (rows, columns), (height, width), dim = window_grid, size, x.shape[3]
    if spread:
        x = ops.reshape(x, (-1, height, rows, width, columns, dim))
        x = ops.transpose(x, (0, 2, 4, 1, 3, 5))  # (B, rows, columns, height, width, D)
    else:
        x = ops.reshape(x, (-1, rows, height, columns, width, dim))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, height, width, D)
    return ops.reshape(x, (-1, height * width, dim))  # (B N, T, D)


def join_windows(windows: Tensor, size: Sides, map_size: Sides, spread: bool = False) -> Tensor:
    """The inverse of `split_windows`: windows (B N, T, D) -> maps (B, H, W, D).

    `map_size` is the side of the map or its (H, W).

    >>> keras_tfm.layers.join_windows(np.ones((4, 4, 8)), size=2, map_size=4).shape
    TensorShape([1, 4, 4, 8])
    """
    window_grid = _window_grid(height_and_width(map_size, "map_size"), size)
    return _join(windows, window_grid, height_and_width(size), spread)


def _join(windows, window_grid, size, spread):
    """`join_windows` to a map with (rows, columns) of windows."""
    (rows, columns), (height, width), dim = window_grid, size, windows.shape[2]
    x = ops.reshape(windows, (-1, rows, columns, height, width, dim))
    x = ops.transpose(x, (0, 3, 1, 4, 2, 5) if spread else (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, rows * height, columns * width, dim))  # (B, H, W, D)


def shifted_window_mask(height: int, width: int, size: Sides, shift: Sides) -> np.ndarray:
    """Which cells of each window may attend to each other after a map was rolled up and left by `shift`: (N,
    T, T).

    A boolean NumPy array, True = attend. What the roll brings from the other end of the map is not a
    neighbour: two cells may attend to each other if both or neither of them came from the other end, on each
    axis. Here a map of 4 x 4 is rolled by 1; cells of a window with the same number may attend to each
    other:

        0 0 0|1
        0 0 0|1
        0 0 0|1
        2 2 2|3

    Swin's released code adds -100 to the scores of the other pairs, which leaves them a weight of about
    exp(-100).

    >>> keras_tfm.layers.shifted_window_mask(4, 4, size=2, shift=1).shape
    (4, 4, 4)
    """
    region = window_regions(height, width, size, shift)
    return region[:, :, None] == region[:, None, :]


def window_regions(height, width, size, shift):
    """The numbers that `shifted_window_mask` compares: a NumPy array (N, T)."""
    sides = zip((height, width), pair_of(shift), strict=True)
    below, right = (
        np.arange(side) + offset >= side for side, offset in sides
    )  # what comes from the other end
    region = (2 * below[:, None] + right[None, :]).astype("int32")  # (H, W)
    rows, columns = _window_grid((height, width), size)
    region = region.reshape(rows, height // rows, columns, width // columns).transpose(0, 2, 1, 3)
    return region.reshape(rows * columns, -1)  # (N, T)


class WindowAttention(Layer):
    """Applies a self-attention layer to the cells of each window of a map: (B, height, width, D) in and out.

    A map that is not a multiple of the window is padded with zeros at the bottom and on the right. The
    padding is attended to, as in Swin's code, and removed afterwards. An axis that is not longer than the
    window is one window, without a shift. As the branch of a `Residual` it makes blocks for maps.

    Args:
        attention: a self-attention layer for sequences.
        window: the side of a window or its (height, width), in cells.
        shift: how far the map is rolled up and left before, and back after; a number or a pair. Cells that
            are not neighbours on the map are masked; see `shifted_window_mask`.
        spread: whether a window takes cells that are far apart.
        keeps_size: whether an axis that is not longer than the window is padded to it, and shifted too.

    >>> attention = keras_tfm.layers.MultiHeadAttention(num_heads=2)
    >>> keras_tfm.layers.WindowAttention(attention, window=2, shift=1)(np.ones((1, 4, 4, 8))).shape
    TensorShape([1, 4, 4, 8])
    """

    def __init__(
        self,
        attention: keras.layers.Layer,
        window: Sides,
        shift: int | tuple[int, int] = 0,
        spread: bool = False,
        keeps_size: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        sides = height_and_width(window, "window")
        if not all(0 <= offset < side for offset, side in zip(pair_of(shift), sides, strict=True)):
            raise ValueError(f"`shift` must be at least 0 and less than `window`, {window}; it is {shift}.")
        if spread and any(pair_of(shift)):
            raise ValueError(f"`shift` must be 0 with `spread`; it is {shift}.")
        self.attention = attention
        self.window = window
        self.shift = shift
        self.spread = spread
        self.keeps_size = keeps_size

    def build(self, x_shape):
        if len(x_shape) != 4 or None in tuple(x_shape[1:]):
            raise ValueError(f"`x` must have the shape (B, height, width, D); it is {tuple(x_shape)}.")
        self.map_size = tuple(x_shape[1:3])
        sides = list(zip(self.map_size, height_and_width(self.window), strict=True))
        self.size = tuple(window if self.keeps_size else min(side, window) for side, window in sides)
        self.padding = tuple(-side % window for side, window in zip(self.map_size, self.size, strict=True))
        self.offsets = tuple(
            offset if self.keeps_size or side > window else 0
            for (side, window), offset in zip(sides, pair_of(self.shift), strict=True)
        )
        height, width = (side + more for side, more in zip(self.map_size, self.padding, strict=True))
        self.window_grid = _window_grid((height, width), self.size)
        self.regions = None
        if any(self.offsets):
            self.regions = window_regions(height, width, self.size, self.offsets)
        self.attention.build((None, self.size[0] * self.size[1], x_shape[3]))

    def call(self, x, training=None):
        """(B, height, width, D) -> (B, height, width, D)."""
        if tuple(x.shape[1:3]) != self.map_size:
            raise ValueError(
                f"{self.name!r} was built for maps of {self.map_size}; they are {tuple(x.shape[1:3])}."
            )
        height, width = self.map_size
        (bottom, right), (down, across) = self.padding, self.offsets
        if bottom or right:
            x = ops.pad(x, ((0, 0), (0, bottom), (0, right), (0, 0)))
        if down or across:
            x = ops.roll(x, (-down, -across), axis=(1, 2))
        y = _split(x, self.window_grid, self.size, self.spread)  # (B N, T, D)
        y = self.attention(y, mask=self._mask(x), training=training)
        y = _join(y, self.window_grid, self.size, self.spread)  # (B, H, W, D)
        if down or across:
            y = ops.roll(y, (down, across), axis=(1, 2))
        return y[:, :height, :width] if bottom or right else y

    @property
    def cells(self):
        """Which cell of the map is at each place of each window: a NumPy array (N, T).

        Cells are numbered row by row from 0; -1 is padding. Raises AttributeError before the layer is built.
        """
        (height, width), (bottom, right) = self.map_size, self.padding
        cells = np.arange(height * width).reshape(height, width)
        cells = np.pad(cells, ((0, bottom), (0, right)), constant_values=-1)
        cells = np.roll(cells, [-offset for offset in self.offsets], axis=(0, 1))
        return np.asarray(split_windows(cells[None, :, :, None], self.size, self.spread))[..., 0]

    def _mask(self, x):
        """The mask (B N, T, T) for the windows of `x`; None without a shift."""
        if self.regions is None:
            return None
        region = ops.convert_to_tensor(self.regions)  # (N, T)
        mask = ops.equal(region[:, :, None], region[:, None, :])  # (N, T, T)
        mask = ops.broadcast_to(mask, (ops.shape(x)[0], *mask.shape))  # (B, N, T, T)
        return ops.reshape(mask, (-1, *mask.shape[2:]))  # (B N, T, T)

    def compute_output_shape(self, x_shape):
        batch_size, height, width, dim = x_shape
        return (*x_shape[:3], self.attention.compute_output_shape((batch_size, height * width, dim))[-1])


def _window_grid(map_size, size):
    """The (rows, columns) of windows of a map."""
    sides = height_and_width(size)
    if None in tuple(map_size):
        raise ValueError(f"The height and width of a map must be known to cut windows; they are {map_size}.")
    if any(length == 0 or length % side for length, side in zip(map_size, sides, strict=True)):
        height, width = map_size
        raise ValueError(f"A map of {height} x {width} is not divisible into windows of {size}.")
    return tuple(length // side for length, side in zip(map_size, sides, strict=True))
