"""How far the heads of a vision Transformer look, in pixels.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words".
"""

from typing import Any

import numpy as np

from keras_tfm.layers.patches import height_and_width
from keras_tfm.visualize.record import by_layer, in_rows


def attention_distance(
    scores: Any, grid: tuple[int, int], patch_size: int | tuple[int, int] = 1
) -> np.ndarray:
    """The mean distance from a patch to the patches it attends to, by their weights: (L, H), in pixels.

    `scores` are what `record_attention` gives, {layer path: (B, H, T, T)}, or one array (B, H, T, T) or (H,
    T, T); `grid` are the (rows, columns) of patches, `patch_size` is a patch's side, or (height, width), by
    default one, which measures in patches. The first T - rows columns tokens are no patches, class tokens for
    example: they are left out, and what is left of a row sums to 1 again. NaN for a layer of fewer heads.
    ValueError where T is less than the patches.

    >>> weights = np.full((1, 4, 4), 0.25)  # one head, of 2 x 2 patches, which looks at all alike
    >>> keras_tfm.visualize.attention_distance(weights, (2, 2)).round(2).tolist()  # (0 + 1 + 1 + √2) / 4
    [[0.85]]
    """
    rows, columns = grid
    sides = np.array(height_and_width(patch_size, "patch_size"))
    centres = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), -1).reshape(-1, 2)
    steps = (centres[:, None] - centres) * sides  # (N, N, 2)
    distances = np.sqrt(np.square(steps).sum(-1))
    averages = []
    for name, weights in by_layer(scores):
        num_prefix = weights.shape[-1] - rows * columns
        if num_prefix < 0 or weights.shape[-2] != weights.shape[-1]:
            shape = " x ".join(map(str, weights.shape[-2:]))
            raise ValueError(f"{name}: expected {rows * columns} patches or more, squared; it is {shape}.")
        inner = weights[:, :, num_prefix:, num_prefix:]  # (B, H, N, N)
        with np.errstate(invalid="ignore"):
            means = (inner * distances).sum(-1) / inner.sum(-1)  # (B, H, N)
        averages.append(np.nanmean(means, axis=(0, 2)))
    return in_rows(averages)
