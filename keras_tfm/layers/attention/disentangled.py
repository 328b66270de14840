"""Disentangled attention: contents and relative positions attend to each other by projections of their own.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1. With d = i - j
for query i and key j, the scores before the softmax are

    (q_i · k_j  +  q_i · kr(d)  +  k_j · qr(d)) / sqrt(3 K)
     content       content to      position to
                   position        content

where kr and qr are projections of a table of distances, which all layers of a model share. The positional
scores are computed once for each distance and then shifted into place row by row (`shear`), which is faster
than a look-up for each pair of tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjection, HeadProjections
from keras_tfm.layers.base import WithoutMask, copy_of, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.signatures import Initializer

FARTHEST = 2**20  # a limit of memory: each distance has an entry in an array
CONTENT_TO_POSITION, POSITION_TO_CONTENT = "c2p", "p2c"


class DistanceEmbedding(WithoutMask):
    """A learned vector for each distance i - j: for length T the vectors of T-1, T-2, ..., -T, of shape (2T,
    D).

    Args:
        dim: D, the width of the vectors.
        max_distance: larger distances use the vector of this one.
        num_buckets: 0, or a number of buckets. Then half of them are for single distances, and the others
            grow with the logarithm of the distance ("DeBERTaV3", He et al. 2023, and the released code of
            version 2).
        epsilon: of a layer normalisation of the table; None leaves the table as it is.

    >>> keras_tfm.layers.DistanceEmbedding(dim=8, max_distance=4)(np.ones((1, 5, 16))).shape
    TensorShape([10, 8])
    """

    def __init__(
        self,
        dim: int,
        max_distance: int,
        num_buckets: int = 0,
        epsilon: float | None = None,
        initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(dim=dim)
        if not 1 <= max_distance <= FARTHEST:
            raise ValueError(f"`max_distance` must lie in 1 to {FARTHEST}; it is {max_distance}.")
        if num_buckets and (num_buckets % 2 or not 2 <= num_buckets < 2 * (max_distance - 1)):
            raise ValueError(
                f"`num_buckets` must be 0, or even, at least 2 and below 2 (`max_distance` - 1) = "
                f"{2 * (max_distance - 1)}; it is {num_buckets}."
            )
        self.dim = dim
        self.max_distance = max_distance
        self.num_buckets = num_buckets
        self.epsilon = epsilon
        self.initializer = initializer
        self.norm = None if epsilon is None else LayerNormalization(epsilon, name="norm")

    @property
    def span(self):
        """How many rows of the table each of the two directions has."""
        return self.num_buckets or self.max_distance

    def build(self, x_shape):
        self.embeddings = self.add_weight(
            (2 * self.span, self.dim), copy_of(self.initializer), name="embeddings"
        )
        if self.norm is not None:
            self.norm.build(self.embeddings.shape)

    def call(self, x):
        """The vectors (2T, D) for a sequence `x` (B, T, ...)."""
        length = ops.shape(x)[1]
        table = ops.cast(self.embeddings, self.compute_dtype)
        table = table if self.norm is None else self.norm(table)
        distances = length - 1 - ops.arange(2 * length, dtype="int32")
        farthest = self.max_distance
        distances = ops.clip(distances, -farthest, farthest) + farthest
        return ops.take(table, ops.take(self.rows(), distances), axis=0)  # (2T, D)

    def compute_output_shape(self, x_shape):
        return (None if x_shape[1] is None else 2 * x_shape[1], self.dim)

    def rows(self):
        """The table's row for each distance from -`max_distance` to `max_distance`."""
        distances = np.arange(-self.max_distance, self.max_distance + 1)
        if self.num_buckets:
            distances = log_buckets(distances, self.num_buckets, self.max_distance)
        return np.clip(distances + self.span, 0, 2 * self.span - 1).astype("int32")


def log_buckets(distances, num_buckets, max_distance):
    """Signed bucket numbers: up to num_buckets / 2 the distance itself, beyond that its logarithm, scaled.

    Computed in float32 and rounded up, as in the released code of DeBERTa's version 2.
    """
    exact = num_buckets // 2
    far = np.maximum(np.abs(distances), exact).astype("float32") / np.float32(exact)
    scale = np.log(np.float32((max_distance - 1) / exact))
    far = np.ceil(np.log(far) / scale * np.float32(exact - 1)) + exact
    return np.where(np.abs(distances) <= exact, distances, np.sign(distances) * far).astype("int32")


class OfOneSequence(HeadProjections):
    """Projections for self-attention whose queries may come from other states at the same positions."""

    def project(self, query, value=None, key=None):
        """The queries of `query` (B, T, D), the keys and values of `value` (B, T, D) or, by default, of
        `query`.
        """
        heads = super().project(query)
        return heads if value is None else [heads[0], *super().project(value)[1:]]


class DisentangledAttention(Attention):
    """Self-attention by contents and distances, see the module: (B, T, D) -> (B, T, D).

    It is called with a `bias`: the vectors (2T, D) of a `DistanceEmbedding`. Called with a `value` (B, T, D)
    too, it attends to these states instead of to the query's own.

    Args:
        num_heads: H, the number of heads.
        terms: the positional terms in the scores: "c2p" (content to position), "p2c" (position to content),
            both or none. The scale is 1 / sqrt(K (1 + the number of terms)).
        share_projections: whether the contents' projections are used for the distances too; otherwise each
            term has its own.
        key_bias: False leaves out the biases of the keys, of contents and of distances, as in version 1.
        dropout: the rate for the attention weights.
        distance_dropout: the rate for the vectors of the distances.

    Raises:
        ValueError: for a `scale`.

    >>> x = np.ones((1, 5, 8))
    >>> distances = keras_tfm.layers.DistanceEmbedding(dim=8, max_distance=4)(x)
    >>> keras_tfm.layers.DisentangledAttention(num_heads=2)(x, bias=distances).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        terms: Sequence[str] = (CONTENT_TO_POSITION, POSITION_TO_CONTENT),
        share_projections: bool = False,
        key_bias: bool = True,
        dropout: float = 0.0,
        distance_dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        if len({*terms}) != len(terms) or not {*terms} <= {CONTENT_TO_POSITION, POSITION_TO_CONTENT}:
            raise ValueError(f"`terms` must be 'c2p', 'p2c' or both, each once; they are {terms}.")
        use_bias = True if key_bias else ("query", "value")
        projections = OfOneSequence(
            num_heads, use_bias=use_bias, kernel_initializer=kernel_initializer, name="projections"
        )
        super().__init__(projections, dropout=dropout, **kwargs)
        if self.scale is not None:
            raise ValueError(f"`scale` must be None, as it follows from the `terms`; it is {self.scale}.")
        self.num_heads = num_heads
        self.terms = tuple(terms)
        self.share_projections = share_projections
        self.key_bias = key_bias
        self.distance_dropout = distance_dropout
        self.kernel_initializer = kernel_initializer
        self.table_dropout = Dropout(distance_dropout, name="distance_dropout")

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape)
        self.scale = (self.projections.key_width * (1 + len(self.terms))) ** -0.5
        if not self.share_projections and CONTENT_TO_POSITION in self.terms:
            self.position_key = self._heads("position_key", query_shape, use_bias=self.key_bias)
        if not self.share_projections and POSITION_TO_CONTENT in self.terms:
            self.position_query = self._heads("position_query", query_shape, use_bias=True)

    def _heads(self, name, x_shape, use_bias):
        width, initializer = self.projections.key_width, copy_of(self.kernel_initializer)
        layer = HeadProjection(
            self.num_heads, [width], use_bias=use_bias, kernel_initializer=initializer, name=name
        )
        layer.build(x_shape)
        return layer

    def _new_output(self, width):
        return Dense(width, kernel_initializer=copy_of(self.kernel_initializer), name="output")

    def attend(self, query, keys, bias=None, training=None):
        """The averages (B, H, T, K) for heads (B, H, T, K); `bias` holds the distances' vectors (2T, D)."""
        if (bias is not None) != bool(self.terms):
            wanted = "the vectors (2T, D) of a DistanceEmbedding" if self.terms else "None without `terms`"
            raise ValueError(f"`bias` must be {wanted}; it is {'None' if bias is None else 'given'}.")
        distances = None if bias is None else self.table_dropout(bias, training=training)
        return super().attend(query, keys, distances, training)

    def score(self, query, key, distances=None, positions=None, key_positions=None):
        """The scores (B, H, T, T) of the contents and, given `distances` (2T, D), of the positional terms."""
        bias = None if distances is None else self.scale * self._positional(query, key, distances[None])
        return super().score(query, key, bias)

    def _positional(self, query, key, table):
        """The unscaled scores (B, H, T, T) of the positional terms, for the distances' vectors `table` (1,
        2T, D).
        """
        length = ops.shape(query)[2]
        if self.share_projections:
            position_query, position_key, _ = self.projections.project(table)
        scores = 0.0
        if CONTENT_TO_POSITION in self.terms:
            if not self.share_projections:
                (position_key,) = self.position_key(table)
            of_distances = scores_of(query, position_key[0])  # (B, H, T, 2T)
            scores = scores + shear(of_distances, length - 1)
        if POSITION_TO_CONTENT in self.terms:
            if not self.share_projections:
                (position_query,) = self.position_query(table)
            position_query = ops.flip(position_query[0], axis=1)  # for the distances -T, ..., T-1
            of_distances = scores_of(key, position_query)  # (B, H, T, 2T)
            scores = scores + ops.transpose(shear(of_distances, length), (0, 1, 3, 2))
        return scores


def scores_of(x, vectors):
    """The products (B, H, T, S) of x (B, H, T, K) with each head's vectors (H, S, K).

    It is an einsum, not a batched matrix product with the vectors broadcast over B: that product of
    TensorFlow 2.21 with oneDNN writes outside its arrays (TensorFlow's issue 117700).
    """
    return ops.einsum("bhtk,hsk->bhts", x, vectors)


def shear(x, first):
    """y[t, s] = x[t, first - t + s] for each head: (B, H, T, 2T) -> (B, H, T, T), where `first` is T-1 or T.

    For first = 2 and T = 3 the numbers show which entries of x become the rows of y:

        . . 0 1 2 .
        . 3 4 5 . .
        6 7 8 . . .
    """
    batch_size, num_heads, length = ops.shape(x)[:3]
    width = 2 * length - 1  # one less than the length of a row, so each row starts one entry earlier
    x = ops.reshape(x, (batch_size, num_heads, length * 2 * length))
    x = x[:, :, first : first + length * width]
    return ops.reshape(x, (batch_size, num_heads, length, width))[..., :length]  # (B, H, T, T)
