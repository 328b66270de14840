"""What attention and convolutions have in common: functions that compute the one by the other.

Both filter a sequence, and then mix the features of each token by a linear layer:

    z[t, d] = sum over r of filter[t, r, d] x[t + r, d]

    depthwise convolution   filter[r, d]      learned; the same at every token, one per feature; short
    attention               filter[t, r, h]   computed from the data; one per token and head, the same
                                              for all features of a head; as long as the sequence

A separable convolution is a depthwise convolution followed by a linear layer; multi-head attention is
attention followed by its output layer. Several heads give several filters, where a single head would have
one for all features.
"""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.attention.grid_position import QuadraticPosition
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.patches import height_and_width, patch_grid
from keras_tfm.layers.signatures import Sides, Tensor


def filtered(x, filters):
    """z of the formula above, (B, T, D); tokens outside the sequence count as zeros.

    `filters` are (B or 1, T or 1, R, D or 1), for the offsets -(R - 1) / 2 .. (R - 1) / 2; R must be odd.
    """
    length, size = x.shape[1], filters.shape[2]
    if size % 2 == 0:
        raise ValueError(f"`filters` must have an odd number of offsets, their third axis; it is {size}.")
    reach = size // 2
    x = ops.pad(x, ((0, 0), (reach, reach), (0, 0)))
    windows = np.arange(length)[:, None] + np.arange(size)  # (T, R)
    return ops.sum(filters * ops.take(x, windows, axis=1), axis=2)


def depthwise_filters(kernel):
    """The filters (1, 1, R, D) of a depthwise convolution with this `kernel` (R, D)."""
    return kernel[None, None]


def attention_filters(weights, head_width=1):
    """Attention's `weights` (B, H, T, T) as filters (B, T, 2 T - 1, H `head_width`).

    Each head's filter is repeated for the `head_width` features of its values.
    """
    length = weights.shape[2]
    keys = np.arange(length)[:, None] + np.arange(1 - length, length)  # (T, R): the key at each offset
    inside = (keys >= 0) & (keys < length)
    rows = np.arange(length)[:, None] * length + np.where(inside, keys, 0)
    flat = ops.reshape(weights, (*ops.shape(weights)[:2], length * length))
    filters = ops.take(flat, rows, axis=2) * ops.cast(inside, weights.dtype)  # (B, H, T, R)
    return ops.repeat(ops.transpose(filters, (0, 2, 3, 1)), head_width, axis=3)


def as_column(x):
    """A sequence (B, T, D) as a map of one column, (B, T, 1, D), for 1-D convolutions with kernels (k, 1)."""
    return ops.expand_dims(x, 2)


def as_image(x):
    """A sequence (B, T, D) as a grey image, (B, T, D, 1), for 2-D convolutions over tokens and features."""
    return ops.expand_dims(x, 3)


def receptive_field(function, x, position):
    """Which tokens of `x` (T, D) change the output of `function`, (B, T, D) -> (B, T, .), at `position`:
    (T,).

    Each token in turn is changed by 1. Returns a boolean NumPy array.
    """
    x = np.asarray(x)
    changed = x[None] + np.eye(len(x), dtype=x.dtype)[..., None]  # (T, T, D)
    y = ops.convert_to_numpy(function(np.concatenate([x[None], changed])))[:, position]
    return (y[1:] != y[:1]).any(axis=-1)


def local_attention_mask(grid: Sides, window: Sides) -> np.ndarray:
    """A mask (1, T, T) by which each cell of a `grid` attends only to the window around it; a NumPy array.

    `window` is an odd side, or a (height, width) pair of odd sides. At the borders of the grid the window is
    cut off. Parmar et al. 2018, "Image Transformer"; Ramachandran et al. 2019, "Stand-Alone Self-Attention".

    >>> keras_tfm.layers.local_attention_mask(grid=(1, 4), window=3)[0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    sides = height_and_width(window, "window")
    if not all(side % 2 for side in sides):
        raise ValueError(f"`window` must be odd, the query in its middle; it is {window}.")
    cells = np.indices(height_and_width(grid, "grid")).reshape(2, -1)
    offsets = np.abs(cells[:, None, :] - cells[:, :, None])
    return (offsets <= np.array(sides)[:, None, None] // 2).all(axis=0)[None]


class AttentionCost(NamedTuple):
    """What one layer of attention over an image costs; see `attention_cost`."""

    tokens: int
    weights: int
    multiplications: int
    num_bytes: int


def attention_cost(
    image_size: Sides, patch_size: Sides = 1, dim: int = 768, num_heads: int = 12, bytes_per_weight: int = 4
) -> AttentionCost:
    """The `AttentionCost` of multi-head attention between all patches of an image; by default each pixel is
    a patch.

    `weights` counts the attention weights of all heads, N² each, and `num_bytes` their memory.
    `multiplications` are 4 N D² for the four linear layers and 2 N² D for scores and averages.

    >>> keras_tfm.layers.attention_cost(image_size=224, patch_size=16, num_heads=1).weights
    38416
    >>> keras_tfm.layers.attention_cost(image_size=224, num_heads=1).weights
    2517630976
    """
    rows, columns = patch_grid(height_and_width(image_size, "image_size"), patch_size)
    tokens = rows * columns
    weights = num_heads * tokens**2
    multiplications = 4 * tokens * dim**2 + 2 * tokens**2 * dim
    return AttentionCost(tokens, weights, multiplications, weights * bytes_per_weight)


def attention_from_convolution(
    kernel: Tensor, grid: Sides, bias: Tensor | None = None, sharpness: float = 60.0
) -> keras.layers.Layer:
    """Multi-head attention that computes a given convolution: a layer for maps (B, height, width, C) of this
    `grid`.

    There is one head for each cell of the kernel, which attends to the cell at that offset from the query.
    Its values are the features as they are, and its part of the output layer is that cell of the kernel.
    Queries and keys are zero; a `QuadraticPosition` alone decides, so that the weights of all other cells
    are below exp(-`sharpness`). The zeros around the map are part of the map that is attended to: a head
    whose cell lay outside would otherwise attend to another cell. Cordonnier et al. 2020, theorem 1.

    Args:
        kernel: (kh, kw, C, filters) with odd kh and kw, of a convolution of stride 1 padded to keep the
            size.
        bias: the convolution's bias (filters,), or None.

    >>> layer = keras_tfm.layers.attention_from_convolution(np.ones((3, 3, 2, 4)), grid=5)
    >>> layer(np.ones((1, 5, 5, 2))).shape
    TensorShape([1, 5, 5, 4])
    """
    kernel = np.asarray(kernel, "float32")
    if kernel.ndim != 4 or not all(side % 2 for side in kernel.shape[:2]):
        raise ValueError(f"`kernel` must be (kh, kw, C, filters), kh and kw odd; it is {kernel.shape}.")
    *sides, channels, filters = kernel.shape
    num_heads, margins = sides[0] * sides[1], [side // 2 for side in sides]
    height, width = (
        side + 2 * margin for side, margin in zip(height_and_width(grid, "grid"), margins, strict=True)
    )
    position = QuadraticPosition((height, width))
    projections = HeadProjections(num_heads, key_dim=1, value_dim=channels, use_bias=False)
    attention = Attention(projections, position, output_layer=Dense(filters))
    edges = tuple((margin, margin) for margin in margins)
    layer = Chain(
        [keras.layers.ZeroPadding2D(edges), MapAttention(attention), keras.layers.Cropping2D(edges)]
    )
    layer.build((None, *height_and_width(grid), channels))

    copies = np.tile(np.eye(channels), num_heads)  # each head's values are the features: (C, H C)
    queries_and_keys = np.zeros((channels, 2 * num_heads))
    projections.query_key_value.kernel.assign(np.concatenate([queries_and_keys, copies], axis=1))
    attention.output_projection.kernel.assign(kernel.reshape(num_heads * channels, filters))
    attention.output_projection.bias.assign(np.zeros(filters) if bias is None else bias)
    position.centers.assign(np.indices(sides).reshape(2, -1).T - margins)  # row by row, as the kernel
    position.sharpness.assign(np.full(num_heads, sharpness))
    return layer
