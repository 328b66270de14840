"""Maps (B, height, width, D) of another size: between the centres of cells the values change linearly."""

from keras import ops


def resize_bilinear(x, size):
    """`x` (B, height, width, D) in the `size` (rows, columns): (B, rows, columns, D).

    Cells are squares whose centres are compared, and beyond the outermost centres values stay, as in
    `torch.nn.functional.interpolate` with `align_corners=False`. A smaller map is sampled, not smoothed.
    """
    if tuple(x.shape[1:3]) == tuple(size):
        return x
    # TensorFlow gives float32 for lower precisions.
    return ops.cast(ops.image.resize(x, tuple(size), "bilinear", antialias=False), x.dtype)
