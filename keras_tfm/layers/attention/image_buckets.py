"""iRPE: positions for attention between cells of a grid, where similar offsets share a bucket.

Wu et al. 2021, "Rethinking and Improving Relative Position Encoding for Vision Transformer". A small offset
has a bucket of its own; larger ones share buckets that become coarser with the distance (eq. 18, g below).
The `method` says how the offset (y, x) of two cells becomes a bucket:

    "product"        the pair (g(y), g(x)): opposite directions differ
    "cross"          g(y) in one table and g(x) in another, whose entries are summed
    "euclidean"      g of the rounded distance
    "quantization"   g of the distance's rank among all distances of the grid: 0, 1, sqrt 2, 2, sqrt 5, ...

A bucket holds a number that is added to the scores (`BucketedBias`), or a vector whose product with the
query is added (`BucketedContext`).
"""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.attention.grid_position import PairwisePosition, require_tokens
from keras_tfm.layers.base import copy_of
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.signatures import Initializer, Sides

CURVE = (1.9, 3.8, 15.2)  # the authors' alpha, beta and gamma
METHODS = ("product", "cross", "euclidean", "quantization")


def piecewise_index(distance, curve=CURVE):
    """Eq. 18: whole numbers from -beta to beta for signed distances, as a NumPy array.

    `curve` is (alpha, beta, gamma). Up to alpha a distance is rounded. Beyond, the index grows with the
    logarithm of the distance and reaches beta at gamma; all larger distances have the index beta.
    """
    alpha, beta, gamma = curve
    distance = np.asarray(distance, "float64")
    size = np.maximum(np.abs(distance), alpha)
    far = alpha + np.log(size / alpha) / np.log(gamma / alpha) * (beta - alpha)
    far = np.minimum(np.round(far), beta).astype(int)  # truncated where beta is a fraction
    near = np.round(distance).astype(int)
    return np.where(np.abs(distance) <= alpha, near, np.sign(distance).astype(int) * far)


def image_buckets(grid, method="product", curve=CURVE, prefix=0):
    """(the bucket of each query and key on a grid, how many buckets a table has).

    The buckets are int32 arrays (1 or 2, T, T), one for each table; the tokens are the cells, row by row.
    The first `prefix` tokens are not on the grid: pairs with one of them have the last bucket.
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}; it is {method!r}.")
    cells = np.indices(height_and_width(grid, "grid")).reshape(2, -1)
    offsets = cells[:, None, :] - cells[:, :, None]  # key - query: (2, T, T)
    reach = int(curve[1])
    side = 2 * reach + 1
    if method in ("product", "cross"):
        rows = piecewise_index(offsets, curve) + reach
        if method == "product":
            rows = (rows[0] * side + rows[1])[None]
        count = side**2 if method == "product" else side
    else:
        squares = (offsets**2).sum(axis=0)
        ranks = np.unique(squares, return_inverse=True)[1].reshape(squares.shape)
        distance = ranks if method == "quantization" else np.round(np.sqrt(squares))
        rows, count = piecewise_index(distance, curve)[None], reach + 1
    edges = ((0, 0), (prefix, 0), (prefix, 0))
    return np.pad(rows, edges, constant_values=count).astype("int32"), count + bool(prefix)


class BucketedPosition(PairwisePosition):
    """What both kinds of iRPE have in common: the buckets of a grid's cells after `prefix` tokens. Abstract.

    `method` and `curve` are those of `image_buckets`.
    """

    def __init__(
        self,
        grid: Sides,
        method: Literal["product", "cross", "euclidean", "quantization"] = "product",
        curve: Sequence[float] = CURVE,
        prefix: int = 0,
        initializer: Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        height_and_width(grid, "grid")
        if method not in METHODS:
            raise ValueError(f"`method` must be one of {', '.join(METHODS)}; it is {method!r}.")
        if prefix < 0:
            raise ValueError(f"`prefix` must be at least 0; it is {prefix}.")
        if len(curve) != 3 or not 0 < curve[0] < curve[1] < curve[2] or curve[1] < 1:
            raise ValueError(
                f"`curve` must be three growing numbers above 0, the second at least 1; it is {curve}."
            )
        self.grid = grid
        self.method = method
        self.curve = tuple(curve)
        self.prefix = prefix
        self.initializer = initializer

    def _make_tables(self, width, name):
        """The tables, one or one for each axis; sets `indices`, the rows to read from each."""
        self.indices, count = image_buckets(self.grid, self.method, self.curve, self.prefix)
        names = (f"{name}_vertical", f"{name}_horizontal") if len(self.indices) == 2 else (name,)
        initializer = keras.initializers.get(self.initializer)
        return [self.add_weight((count, width), copy_of(initializer), name=table) for table in names]


class BucketedBias(BucketedPosition):
    """iRPE's bias mode: a learned number for each head and bucket, added to the scores.

    The arguments `method` and `curve` are described in `keras_tfm.layers.attention.image_buckets`.

    >>> position = keras_tfm.layers.BucketedBias(grid=3)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 9, 8))).shape
    TensorShape([1, 9, 8])
    """

    def build(self, heads):
        self.tables = self._make_tables(heads[0], "table")

    def scores(self, query, key, positions, key_positions, scale):
        """The bias (H, T, T). Raises ValueError unless there is a token for each cell and for the prefix."""
        require_tokens(self, self.indices.shape[1], query, key)
        return ops.transpose(self._entries(self.tables, "float32"), (2, 0, 1))


class BucketedContext(BucketedPosition):
    """iRPE's contextual mode: a learned vector for each bucket, whose product with the query is added to the
    scores.

    All heads share the vectors. With `with_values` other such vectors are added to the values. Both start at
    zero, as in the authors' code, so that attention starts without positions.

    >>> position = keras_tfm.layers.BucketedContext(grid=3, with_values=True)
    >>> keras_tfm.layers.MultiHeadAttention(2, position=position)(np.ones((1, 9, 8))).shape
    TensorShape([1, 9, 8])
    """

    def __init__(
        self,
        grid: Sides,
        method: Literal["product", "cross", "euclidean", "quantization"] = "product",
        curve: Sequence[float] = CURVE,
        prefix: int = 0,
        initializer: Initializer = "zeros",
        with_values: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(grid, method, curve, prefix, initializer, **kwargs)
        self.with_values = with_values

    def build(self, heads):
        _, key_dim, value_dim = heads
        self.key_tables = self._make_tables(key_dim, "key")
        self.value_tables = self._make_tables(value_dim, "value") if self.with_values else None
