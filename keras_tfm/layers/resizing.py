"""Maps (B, height, width, D) of another size: by linear changes between centres, or by the nearest cell."""

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
