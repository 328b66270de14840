"""Attention to some of the earlier positions: rows, columns, neighbourhoods of a picture read line by line.

A pattern is a layer from the positions of queries and of keys to a boolean mask. In a picture of 4 x 3 the
query q sees, with causality:

    row        . . . .     column     . . 1 .     convolution    . . . .
               1 1 q .                . . q .     (kernel 2)     . 1 1 .
               . . . .                . . . .                    . 1 q .

Ramesh et al. 2021, "Zero-Shot Text-to-Image Generation", appendix B.1; Child et al. 2019, "Generating Long
Sequences with Sparse Transformers".
"""

from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.cache import Keys
from keras_tfm.layers.masks import combine_masks

Kind = Literal["full", "row", "column", "convolution"]


class GridPattern(Layer):
    """Which positions of a text, and of the picture after it, see each other: (T,) and (S,) -> (T, S).

    The text is seen by all; a cell of the picture by cells of its row, of its column, or below and to the
    right of it.

    Args:
        kind: "row", "column", "convolution" or "full", which hides nothing.
        columns: of the picture.
        prefix: how many positions come before it.
        kernel_size: the side of the square that the "convolution" sees; the query is its last cell.

    >>> pattern = keras_tfm.layers.GridPattern("row", columns=2, prefix=1)
    >>> pattern(np.array([3]), np.arange(5)).numpy().tolist()
    [[True, False, False, True, True]]
    """

    def __init__(
        self, kind: Kind, columns: int, prefix: int = 0, kernel_size: int = 11, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if kind not in ("full", "row", "column", "convolution"):
            raise ValueError(f"`kind` must be one of full, row, column, convolution; it is {kind!r}.")
        require_sizes(columns=columns, kernel_size=kernel_size)
        self.kind = kind
        self.columns = columns
        self.prefix = prefix
        self.kernel_size = kernel_size
        self.built = True

    def call(self, queries, keys):
        """Positions (..., T) and (..., S) -> (..., T, S)."""
        queries, keys = queries[..., :, None] - self.prefix, keys[..., None, :] - self.prefix
        rows = queries // self.columns - keys // self.columns
        columns = queries % self.columns - keys % self.columns
        is_seen = {
            "full": lambda: columns == columns,
            "row": lambda: rows == 0,
            "column": lambda: columns == 0,
            "convolution": lambda: self._is_near(rows) & self._is_near(columns),
        }[self.kind]()
        return is_seen | (keys < 0) | (queries < 0)

    def _is_near(self, distance):
        return (distance >= 0) & (distance < self.kernel_size)

    def compute_output_shape(self, queries_shape, keys_shape):
        return (*queries_shape, keys_shape[-1])


class BlockPattern(Layer):
    """Positions in blocks of `length`, each of which sees its own block and the one before.

    Parmar et al. 2018, "Image Transformer", section 3.3, local attention in one dimension.

    >>> keras_tfm.layers.BlockPattern(2)(np.array([4]), np.arange(6)).numpy().tolist()
    [[False, False, True, True, True, True]]
    """

    def __init__(self, length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(length=length)
        self.length = length
        self.built = True

    def call(self, queries, keys):
        """Positions (..., T) and (..., S) -> (..., T, S)."""
        distance = queries[..., :, None] // self.length - keys[..., None, :] // self.length
        return (distance == 0) | (distance == 1)

    def compute_output_shape(self, queries_shape, keys_shape):
        return (*queries_shape, keys_shape[-1])


class TilePattern(Layer):
    """A picture in tiles of (rows, columns), each of which sees itself and a `margin` of (rows, columns).

    The margin lies above the tile and on both of its sides. Parmar et al. 2018, "Image Transformer", section
    3.3, local attention in two dimensions.

    >>> pattern = keras_tfm.layers.TilePattern((1, 2), margin=(1, 1), columns=4)
    >>> pattern(np.array([4]), np.arange(8)).numpy().tolist()  # its tile are 4 and 5
    [[True, True, True, False, True, True, True, False]]
    """

    def __init__(self, tile: tuple[int, int], margin: tuple[int, int], columns: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(tile=min(tile), columns=columns)
        if min(margin) < 0:
            raise ValueError(f"`margin` must be at least 0; it is {margin}.")
        self.tile = tuple(tile)
        self.margin = tuple(margin)
        self.columns = columns
        self.built = True

    def call(self, queries, keys):
        """Positions (..., T) and (..., S) -> (..., T, S)."""
        (height, width), (above, beside) = self.tile, self.margin
        queries, keys = queries[..., :, None], keys[..., None, :]
        # Where a key lies, less the tile's upper left corner.
        rows = keys // self.columns - queries // self.columns // height * height
        columns = keys % self.columns - queries % self.columns // width * width
        in_rows = (rows >= -above) & (rows < height)
        return in_rows & (columns >= -beside) & (columns < width + beside)

    def compute_output_shape(self, queries_shape, keys_shape):
        return (*queries_shape, keys_shape[-1])


class PatternAttention(Attention):
    """Causal self-attention to the positions that a `pattern` allows: (B, T, D) in and out.

    Positions count from 0; while decoding, padding before a prompt takes none. All scores are computed, also
    of positions that are not allowed. The other arguments are as in `Attention`.

    >>> projections = keras_tfm.layers.HeadProjections(num_heads=2)
    >>> pattern = keras_tfm.layers.GridPattern("column", columns=3)
    >>> keras_tfm.layers.PatternAttention(projections, pattern)(np.ones((1, 9, 8)), causal=True).shape
    TensorShape([1, 9, 8])
    """

    def __init__(
        self,
        projections: keras.layers.Layer,
        pattern: keras.layers.Layer,
        dropout: float = 0.0,
        output_layer: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(projections, dropout=dropout, output_layer=output_layer, **kwargs)
        self.pattern = pattern

    def attend(self, query, keys, bias=None, training=None):
        """The averages (B, H, T, Kv) for queries (B, H, T, K) and `keys`: a `Keys` or a cache of them."""
        allowed = self.pattern(*unpadded_positions(query, keys))  # (T, S) or (B, T, S)
        allowed = allowed[None] if len(allowed.shape) == 2 else allowed
        mask = combine_masks(keys.attention_mask(query), allowed)
        weights = self.weigh(self.score(query, keys.key, bias), mask, training)
        return self.average(weights, keys.value)


def unpadded_positions(query, keys):
    """The positions of the `query` (B, H, T, K) and of the `keys`: (T,) and (S,), of a cache (B, T)
    and (B, S), less the padding before each sequence.
    """
    if isinstance(keys, Keys):
        return keys.positions(query)
    is_written = ops.cast(keys.mask, "int32")
    if len(is_written.shape) == 2:  # a `PastCache`, whose last entries are the queries'
        positions = ops.cumsum(is_written, axis=1) - 1
        return positions[:, -ops.shape(query)[2] :], positions
    length, size = keys.mask.shape[1] or ops.shape(keys.mask)[1], keys.group_size
    # The beams of a group have the same padding: a position is written where any beam has an entry.
    is_written = ops.reshape(is_written, (-1, size, length, size))  # (N, G, S, G)
    positions = ops.cumsum(ops.max(is_written, axis=(1, 3)), axis=1) - 1  # (N, S)
    return tuple(ops.take(positions, columns, axis=1) for columns in keys.positions(query))
