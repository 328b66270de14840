"""Attention to some of the earlier positions: rows, columns, neighbourhoods of a picture read line by line.

A pattern is a layer from the positions of queries and of keys to a boolean mask. In a picture of 4 x 3 the
query q sees, with causality:

    row        . . . .     column     . . 1 .     convolution    . . . .
               1 1 q .                . . q .     (kernel 2)     . 1 1 .
               . . . .                . . . .                    . 1 q .

Neighbours see about the same keys. A pattern says which positions are, by the number of the `tile` in which
each lies; over a whole sequence each tile then computes its scores with the keys that any of it sees.

Ramesh et al. 2021, "Zero-Shot Text-to-Image Generation", appendix B.1; Child et al. 2019, "Generating Long
Sequences with Sparse Transformers".
"""

import functools
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.attention.functional import attention_scores
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.tap import is_recorded
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

    def tile_of(self, positions):
        """The column, or the row; the text's rows have numbers below 0."""
        positions = positions - self.prefix
        is_by_column = (positions >= 0) & (self.kind == "column")
        return np.where(is_by_column, positions % self.columns, positions // self.columns)

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
        distance = self.tile_of(queries)[..., :, None] - self.tile_of(keys)[..., None, :]
        return (distance == 0) | (distance == 1)

    def tile_of(self, positions):
        """The number of the block."""
        return positions // self.length

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

    def tile_of(self, positions):
        """The number of the tile, which are counted line by line."""
        rows, columns = positions // self.columns, positions % self.columns
        return rows // self.tile[0] * self.columns + columns // self.tile[1]

    def compute_output_shape(self, queries_shape, keys_shape):
        return (*queries_shape, keys_shape[-1])


class PatternAttention(Attention):
    """Causal self-attention to the positions that a `pattern` allows: (B, T, D) in and out.

    Positions count from 0; while decoding, padding before a prompt takes none. A call on sequences of known
    length computes the scores of `tiles`, where these are fewer than half of all; all other calls compute all
    scores, also of positions that are not allowed. The other arguments are as in `Attention`.

    Raises:
        ValueError: for a `window`, an `on_scores`, an `on_weights`, or a `position` that acts on the scores:
            in tiles there are no scores of all pairs.

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
        if self.window is not None:
            raise ValueError(f"`window` must be None, as the pattern says what is seen; it is {self.window}.")
        if self.needs_positions or self.on_scores is not None or self.on_weights is not None:
            raise ValueError(
                "`on_scores` and `on_weights` must be None, and `position` None or one that only rotates "
                "queries and keys: scores are computed in tiles."
            )
        self.pattern = pattern

    def attend(self, query, keys, bias=None, training=None):
        """The averages (B, H, T, Kv) for queries (B, H, T, K) and `keys`: a `Keys` or a cache of them."""
        in_tiles = self._tiles(query, keys) if bias is None else None
        if in_tiles is not None:
            return self._attend_in_tiles(query, keys, in_tiles, training)
        allowed = self.pattern(*unpadded_positions(query, keys))  # (T, S) or (B, T, S)
        allowed = allowed[None] if len(allowed.shape) == 2 else allowed
        mask = combine_masks(keys.attention_mask(query), allowed)
        weights = self.weigh(self.score(query, keys.key, bias), mask, training)
        return self.average(weights, keys.value)

    def _tiles(self, query, keys):
        """The `Tiles` of whole sequences, or None where all scores have to be computed."""
        length = query.shape[2]
        is_whole = isinstance(keys, Keys) and keys.query_positions is None and length == keys.key.shape[2]
        is_of_keys = is_whole and (keys.mask is None or keys.mask.shape[2] == 1)
        if length is None or not is_of_keys or self.heads_per_key > 1 or is_recorded():
            return None
        return tiles(self.pattern, length, keys.causal)

    def _attend_in_tiles(self, query, keys, tiles, training):
        length = query.shape[2]
        columns = np.minimum(tiles.keys, length - 1)
        query = ops.take(query, np.minimum(tiles.queries, length - 1), axis=2)  # (B, H, G, Q, K)
        key = ops.take(keys.key, columns, axis=2)  # (B, H, G, S, K)
        value = ops.take(keys.value, columns, axis=2)  # (B, H, G, S, Kv)
        mask = self.pattern(tiles.queries, tiles.keys) & (tiles.keys < length)[:, None]  # (G, Q, S)
        if keys.causal:
            mask = mask & (tiles.keys[:, None] <= tiles.queries[..., None])
        if keys.mask is not None:
            mask = mask & ops.swapaxes(ops.take(keys.mask, columns, axis=3), 2, 3)  # (B, H, G, Q, S)
        weights = self.weigh(attention_scores(query, key, self.scale), mask, training)
        heads = self.average(weights, value)  # (B, H, G, Q, Kv)
        heads = ops.reshape(heads, (*ops.shape(heads)[:2], -1, heads.shape[-1]))  # (B, H, G Q, Kv)
        return ops.take(heads, tiles.places, axis=2)  # (B, H, T, Kv)


class Tiles(NamedTuple):
    """The positions of queries and keys in each of G tiles, arrays of NumPy.

    - `queries` (G, Q) and `keys` (G, S): T in a tile that has fewer.
    - `places` (T,): where each of the T queries stands among all G Q.
    """

    queries: np.ndarray
    keys: np.ndarray
    places: np.ndarray


@functools.lru_cache(maxsize=64)
def tiles(pattern: keras.layers.Layer, length: int, causal: bool = True) -> Tiles | None:
    """The `Tiles` of a `pattern` over `length` positions; None unless they hold fewer than half of all
    scores.

    >>> keras_tfm.layers.attention.patterns.tiles(keras_tfm.layers.BlockPattern(2), 9).keys.tolist()
    [[0, 1, 9, 9], [0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 8, 9]]
    """
    positions = np.arange(length)
    seen = pattern.call(positions, positions) & (np.tri(length, dtype=bool) | (not causal))
    numbers = pattern.tile_of(positions)
    members = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    queries = _table(members, length)
    keys = _table([np.flatnonzero(seen[rows].any(axis=0)) for rows in members], length)
    if 2 * queries.size * keys.shape[1] >= length**2:
        return None
    places = np.empty(length, "int32")
    places[queries[queries < length]] = np.flatnonzero(queries < length)
    return Tiles(queries, keys, places)


def _table(rows, padding):
    """Arrays of different lengths as rows of one, with `padding` behind the shorter ones."""
    table = np.full((len(rows), max(map(len, rows), default=0)), padding, "int32")
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


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
