"""Maps (B, height, width, D) of another size: by linear or cubic changes between centres, or by the nearest
cell.
"""

import numpy as np
from keras import ops


def resize_bilinear(x, size):
    """`x` (B, height, width, D) in the `size` (rows, columns): (B, rows, columns, D).

    Values belong to the centres of cells and are constant beyond the outermost ones, as in
    `torch.nn.functional.interpolate` with `align_corners=False`. A smaller map is sampled, not smoothed.
    """
    if tuple(x.shape[1:3]) == tuple(size):
        return x
    # TensorFlow gives float32 for lower precisions.
    return ops.cast(ops.image.resize(x, tuple(size), "bilinear", antialias=False), x.dtype)


def resize_bicubic(x, size, smooths=False):
    """`x` (B, height, width, D) in the `size` (rows, columns): (B, rows, columns, D), by cubic convolution.

    As `torch.nn.functional.interpolate` does, with a = -3/4 and the outermost cells repeated beyond the ends.
    With `smooths`, as Pillow resizes images: with a = -1/2, averaged over more cells where there are fewer
    new ones, and cut off at the ends; `keras.ops.image.resize` does so with `antialias`, which XLA cannot
    compile.
    """
    weights = _smoothing_weights if smooths else _sampled_weights
    rows, columns = (ops.cast(weights(*sides), x.dtype) for sides in zip(x.shape[1:3], size, strict=True))
    x = ops.einsum("rh,bhwd->brwd", rows, x)  # (B, rows, width, D)
    return ops.einsum("cw,brwd->brcd", columns, x)  # (B, rows, columns, D)


def _smoothing_weights(length, new_length):
    """The weights (new_length, length) by which a line of `length` points is resized to `new_length` points.

    Keys 1981, "Cubic Convolution Interpolation for Digital Image Processing", with a = -1/2. The kernel is
    stretched if there are fewer new points, and cut off at the ends of the line.
    """
    scale = length / new_length
    places = (np.arange(new_length) + 0.5) * scale - 0.5
    x = np.abs(np.arange(length) - places[:, None]) / max(scale, 1.0)
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)


def _sampled_weights(length, new_length, a=-0.75):
    """The weights (new_length, length) by which a line is sampled at the centres of `new_length` cells."""
    places = (np.arange(new_length) + 0.5) * length / new_length - 0.5
    first = np.floor(places).astype(int) - 1
    weights = np.zeros((new_length, length))
    for cell in (first + i for i in range(4)):
        x = np.abs(places - cell)
        near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
        weight = np.where(x < 1, near, np.where(x < 2, far, 0.0))
        np.add.at(weights, (np.arange(new_length), np.clip(cell, 0, length - 1)), weight)
    return weights


def resize_nearest(x, size):
    """`x` (B, height, width, ...) in the `size` (rows, columns): (B, rows, columns, ...).

    A cell takes the value at its upper left corner, rounded down in float32, as
    `torch.nn.functional.interpolate` does.
    """
    for axis, (count, length) in enumerate(zip(size, x.shape[1:3], strict=True), start=1):
        if count != length:
            places = np.floor(np.arange(count, dtype="float32") * np.float32(length / count)).astype("int32")
            x = ops.take(x, np.minimum(places, length - 1), axis=axis)
    return x


def resize_between_corners(x, size):
    """`x` (B, height, width, D) in the `size` (rows, columns): (B, rows, columns, D).

    The corners' cells keep their values, and others are interpolated linearly between them, as in
    `torch.nn.functional.interpolate` with `align_corners=True`.
    """
    rows, columns = (
        np.maximum(0, 1 - abs(np.linspace(0, length - 1, count)[:, None] - np.arange(length)))
        for count, length in zip(size, x.shape[1:3], strict=True)
    )
    x = ops.einsum("rh,bhwd->brwd", ops.convert_to_tensor(rows, x.dtype), x)  # (B, rows, width, D)
    return ops.einsum("cw,brwd->brcd", ops.convert_to_tensor(columns, x.dtype), x)  # (B, rows, columns, D)
