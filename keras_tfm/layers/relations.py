"""What attention and convolutions have in common, as functions that compute the one by the other.

Both filter a sequence, then mix the features of each token by a linear layer:

    z[t, d] = sum over r of filter[t, r, d] x[t + r, d]

    depthwise convolution   filter[r, d]      learned; the same at every token, one for each feature; local
    attention               filter[t, r, h]   made of the data; another at every token, one for each head,
                                              the same for all its features; as long as the sequence

A separable convolution is the first and a linear layer, multi-head attention the second and its output's.
The heads give back the several filters that a single one would lack.
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


def filtered(x, filters):
    """z of the formula above: (B, T, D), tokens outside counting as zeros.

    `filters` are (B or 1, T or 1, R, D or 1), R odd, for the offsets -(R - 1) / 2 .. (R - 1) / 2.
    """
    length, size = x.shape[1], filters.shape[2]
    if size % 2 == 0:
        raise ValueError(f"`filters` must have an odd number of offsets, their third axis; it is {size}.")
    reach = size // 2
    x = ops.pad(x, ((0, 0), (reach, reach), (0, 0)))
    windows = np.arange(length)[:, None] + np.arange(size)  # (T, R)
    return ops.sum(filters * ops.take(x, windows, axis=1), axis=2)


def depthwise_filters(kernel):
    """The filters of a depthwise convolution's `kernel` (R, D): (1, 1, R, D)."""
    return kernel[None, None]


def attention_filters(weights, head_width=1):
    """The filters that attention's `weights` (B, H, T, T) are: (B, T, 2 T - 1, H `head_width`).

    Each head's serves `head_width` features, those of its values, side by side.
    """
    length = weights.shape[2]
    keys = np.arange(length)[:, None] + np.arange(1 - length, length)  # (T, R): the key at each offset
    inside = (keys >= 0) & (keys < length)
    rows = np.arange(length)[:, None] * length + np.where(inside, keys, 0)
    flat = ops.reshape(weights, (*ops.shape(weights)[:2], length * length))
    filters = ops.take(flat, rows, axis=2) * ops.cast(inside, weights.dtype)  # (B, H, T, R)
    return ops.repeat(ops.transpose(filters, (0, 2, 3, 1)), head_width, axis=3)


def as_column(x):
    """A sequence as a map of one column, for 1-D convolutions, of kernels (k, 1): (B, T, 1, D)."""
    return ops.expand_dims(x, 2)


def as_image(x):
    """A sequence of vectors as a grey image, for 2-D convolutions over tokens and features: (B, T, D, 1)."""
    return ops.expand_dims(x, 3)


def receptive_field(function, x, position):
    """Which tokens of `x` (T, D) change what `function`, (B, T, D) -> (B, T, .), gives at `position`: (T,).

    Each in turn is changed by 1. A NumPy array of booleans.
    """
    x = np.asarray(x)
    changed = x[None] + np.eye(len(x), dtype=x.dtype)[..., None]  # (T, T, D)
    y = ops.convert_to_numpy(function(np.concatenate([x[None], changed])))[:, position]
    return (y[1:] != y[:1]).any(axis=-1)


def local_attention_mask(grid, window):
    """The mask (1, T, T) by which cells of a `grid` attend to the window around them alone; a NumPy array.

    `window` is an odd side, or a (height, width) pair of those. At the grid's borders windows are cut off.
    Parmar et al. 2018, "Image Transformer"; Ramachandran et al. 2019, "Stand-Alone Self-Attention".
    """
    sides = height_and_width(window, "window")
    if not all(side % 2 for side in sides):
        raise ValueError(f"`window` must be odd, the query in its middle; it is {window}.")
    cells = np.indices(height_and_width(grid, "grid")).reshape(2, -1)
    offsets = np.abs(cells[:, None, :] - cells[:, :, None])
    return (offsets <= np.array(sides)[:, None, None] // 2).all(axis=0)[None]


class AttentionCost(NamedTuple):
    """What one layer of attention over an image costs, see `attention_cost`."""

    tokens: int
    weights: int
    multiplications: int
    num_bytes: int


def attention_cost(image_size, patch_size=1, dim=768, num_heads=12, bytes_per_weight=4):
    """The `AttentionCost` of multi-head attention among all patches of one image; of pixels by default.

    `weights` are those of all heads, N^2 each, `num_bytes` the memory that they take. The multiplications
    are 4 N D^2 of the four linear layers and 2 N^2 D of scores and averages. An image of 224 x 224 pixels is
    50,176 tokens: 2.5 thousand million weights a head, against 38,416 with patches of 16 x 16.
    """
    rows, columns = patch_grid(height_and_width(image_size, "image_size"), patch_size)
    tokens = rows * columns
    weights = num_heads * tokens**2
    multiplications = 4 * tokens * dim**2 + 2 * tokens**2 * dim
    return AttentionCost(tokens, weights, multiplications, weights * bytes_per_weight)


def attention_from_convolution(kernel, grid, bias=None, sharpness=60.0):
    """Multi-head attention that computes a convolution: a layer of maps (B, height, width, C) of this `grid`.

    `kernel` is (kh, kw, C, filters) with odd sides, of a convolution of stride 1 between zeros as thick as
    keep the map's size. There is one head for each cell of the kernel, which looks at the cell that lies
    there from the query: its values are the features as they are, and its part of the output's layer is the
    kernel's cell. Weights of all cells but one are below exp(-`sharpness`). Queries and keys are zero.
    Cordonnier et al. 2020, theorem 1. The zeros are part of the map that is attended to: a head
    whose cell lay outside would look at another.
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
