"""Pooling: cells of a map that lie near each other become one."""

from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.patches import grid_of_windows, height_and_width, pair_of


class MaxPooling(Layer):
    """The greatest value of each feature in windows of a map, `stride` apart: (B, height, width, D).

    Each side becomes (side + 2 padding - size) // stride + 1 long. `pool_size`, `stride` (by default the
    size) and `padding` are a number or a (height, width) pair; what pads is never the greatest.
    """

    def __init__(self, pool_size=3, stride=None, padding=0, **kwargs):
        super().__init__(**kwargs)
        sides = height_and_width(pool_size, "pool_size")
        if stride is not None:
            height_and_width(stride, "stride")
        if not all(0 <= 2 * margin <= side for margin, side in zip(pair_of(padding), sides, strict=True)):
            raise ValueError(
                f"`padding` must lie in 0 .. half of `pool_size`, which is {pool_size}; it is {padding}."
            )
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding

    def build(self, x_shape):
        if len(x_shape) != 4:
            raise ValueError(f"`x` must have the shape (B, height, width, D); it is {tuple(x_shape)}.")
        self.compute_output_shape(x_shape)  # refuses maps that are too small
        self.built = True

    def call(self, x):
        """(B, height, width, D) -> (B, height', width', D)."""
        rows, columns = pair_of(self.padding)
        if rows or columns:
            edges = ((0, 0), (rows, rows), (columns, columns), (0, 0))
            x = ops.pad(x, edges, constant_values=float("-inf"))
        size, stride = height_and_width(self.pool_size), self.stride or self.pool_size
        return ops.max_pool(x, size, height_and_width(stride), "valid")

    def compute_output_shape(self, x_shape):
        stride = self.stride or self.pool_size
        grid = grid_of_windows(x_shape[1:3], self.pool_size, stride, self.padding)
        return (x_shape[0], *grid, x_shape[-1])
