"""Disentangled attention: contents and relative positions attend to each other, each by its own projections.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1. With d = i - j for
query i and key j, the scores before the softmax are

    (q_i . k_j  +  q_i . kr(d)  +  k_j . qr(d)) / sqrt(3 K)
     content       content to      position to
                   position        content

where kr and qr are projections of a table of distances that all layers share. The positional scores are made
for each distance once, and sheared into place: no look-up for each pair.
"""

import numpy as np
from keras import ops

from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjection, HeadProjections
from keras_tfm.layers.base import Layer, own
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout

FARTHEST = 2**20  # each distance has its entry in a list of rows
CONTENT_TO_POSITION, POSITION_TO_CONTENT = "c2p", "p2c"


class DistanceEmbedding(Layer):
    """A vector for each distance i - j: those of T-1, T-2, ..., -T for a sequence of length T, (2T, D).

    Distances count up to `max_distance`, farther ones as that. With `num_buckets` half of them are exact and
    the others' buckets grow with the logarithm ("DeBERTaV3", He et al. 2023, and version 2's released code).
    `epsilon` normalises the table, None leaves it as it is.
    """

    def __init__(
        self,
        dim,
        max_distance,
        num_buckets=0,
        epsilon=None,
        initializer="uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if dim < 1:
            raise ValueError(f"`dim` must be at least 1; it is {dim}.")
        if not 1 <= max_distance <= FARTHEST:
            raise ValueError(f"`max_distance` must lie in 1 to {FARTHEST}; it is {max_distance}.")
        if num_buckets and (num_buckets % 2 or not 2 <= num_buckets < 2 * (max_distance - 1)):
            raise ValueError(
                f"`num_buckets` must be even, at least 2 and below {2 * (max_distance - 1)}, which is "
                f"2 (`max_distance` - 1); it is {num_buckets}."
            )
        self.dim = dim
        self.max_distance = max_distance
        self.num_buckets = num_buckets
        self.epsilon = epsilon
        self.initializer = initializer
        self.norm = None if epsilon is None else LayerNormalization(epsilon, name="norm")

    @property
    def span(self):
        """Rows of the table for each of the two directions."""
        return self.num_buckets or self.max_distance

    def build(self, x_shape):
        self.embeddings = self.add_weight((2 * self.span, self.dim), own(self.initializer), name="embeddings")
        if self.norm is not None:
            self.norm.build(self.embeddings.shape)
        self.built = True

    def call(self, x):
        """The vectors for a sequence `x` (B, T, ...): (2T, D)."""
        length = ops.shape(x)[1]
        table = ops.cast(self.embeddings, self.compute_dtype)
        table = table if self.norm is None else self.norm(table)
        distances = length - 1 - ops.arange(2 * length, dtype="int32")
        farthest = self.max_distance
        distances = ops.clip(distances, -farthest, farthest) + farthest
        return ops.take(table, ops.take(self.rows(), distances), axis=0)  # (2T, D)

    def compute_output_shape(self, x_shape):
        return (None if x_shape[1] is None else 2 * x_shape[1], self.dim)

    def compute_mask(self, x, previous_mask=None):
        """None: it has no row for each example."""
        return None

    def rows(self):
        """The row of the table for each distance from -`max_distance` to `max_distance`."""
        distances = np.arange(-self.max_distance, self.max_distance + 1)
        if self.num_buckets:
            distances = log_buckets(distances, self.num_buckets, self.max_distance)
        return np.clip(distances + self.span, 0, 2 * self.span - 1).astype("int32")


def log_buckets(distances, num_buckets, max_distance):
    """Signed buckets: a distance itself up to num_buckets / 2, and from there ever wider up to num_buckets.

    In float32 and rounded up, as in version 2's released code.
    """
    exact = num_buckets // 2
    far = np.maximum(np.abs(distances), exact).astype("float32") / np.float32(exact)
    scale = np.log(np.float32((max_distance - 1) / exact))
    far = np.ceil(np.log(far) / scale * np.float32(exact - 1)) + exact
    return np.where(np.abs(distances) <= exact, distances, np.sign(distances) * far).astype("int32")


class OfOneSequence(HeadProjections):
    """Projections of a sequence to itself, whose queries may come from other states at the same positions."""

    def project(self, query, value=None, key=None):
        """Queries of `query` (B, T, D), keys and values of `value` (B, T, D), by default `query` itself."""
        heads = self.project_self(query)
        return heads if value is None else [heads[0], *self.project_self(value)[1:]]


class DisentangledAttention(Attention):
    """Self-attention of `num_heads` heads over contents and distances: (B, T, D) -> (B, T, D).

    Called with a `value` (B, T, D), that is what it attends to, at the same positions.
    Its `bias` is what `DistanceEmbedding` gives (2T, D), of which its scores are made: none without
    `terms`. These are the positional ones of the header, "c2p" and "p2c"; the scale divides by the root of
    their number plus one. `share_projections` has contents' queries and keys project the distances too;
    otherwise each term has its own. `key_bias` False leaves out the biases of both kinds of keys (version
    1). `dropout` acts on the attention weights, `distance_dropout` on the distances.
    """

    def __init__(
        self,
        num_heads,
        terms=(CONTENT_TO_POSITION, POSITION_TO_CONTENT),
        share_projections=False,
        key_bias=True,
        dropout=0.0,
        distance_dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        if len({*terms}) != len(terms) or not {*terms} <= {CONTENT_TO_POSITION, POSITION_TO_CONTENT}:
            raise ValueError(f"`terms` must be of 'c2p' and 'p2c', each once; they are {terms}.")
        use_bias = True if key_bias else ("query", "value")
        projections = OfOneSequence(
            num_heads, use_bias=use_bias, kernel_initializer=kernel_initializer, name="projections"
        )
        super().__init__(projections, dropout=dropout, **kwargs)
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
        width, initializer = self.projections.key_width, own(self.kernel_initializer)
        layer = HeadProjection(
            self.num_heads, [width], use_bias=use_bias, kernel_initializer=initializer, name=name
        )
        layer.build(x_shape)
        return layer

    def _new_output(self, width):
        return Dense(width, kernel_initializer=own(self.kernel_initializer), name="output")

    def attend(self, query, key, value, mask=None, bias=None, causal=False, training=None):
        """The averages (B, H, T, K) for heads (B, H, T, K) each; `bias` are the vectors of the distances."""
        if (bias is not None) != bool(self.terms):
            raise ValueError("`bias` must hold the distances where there are `terms`, and only there.")
        distances = None if bias is None else self.table_dropout(bias, training=training)
        return super().attend(query, key, value, mask, distances, causal, training)

    def score(self, query, key, distances=None, positions=None, key_positions=None):
        """The scores (B, H, T, T): of contents, and for `distances` (2T, D) those of `terms`."""
        bias = None if distances is None else self.scale * self._positional(query, key, distances[None])
        return super().score(query, key, bias)

    def _positional(self, query, key, table):
        """The unscaled scores of `terms` for the distances' vectors `table` (1, 2T, D): (B, H, T, T)."""
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
            position_query = ops.flip(position_query[0], axis=1)  # of the distances -T, ..., T-1
            of_distances = scores_of(key, position_query)  # (B, H, T, 2T)
            scores = scores + ops.transpose(shear(of_distances, length), (0, 1, 3, 2))
        return scores


def scores_of(x, vectors):
    """Products of x (B, H, T, K) with each head's vectors (H, S, K): (B, H, T, S).

    Not as a batched product that repeats the vectors: TensorFlow 2.21's, by oneDNN, writes outside its arrays
    (its issue 117700).
    """
    return ops.einsum("bhtk,hsk->bhts", x, vectors)


def shear(x, first):
    """y[t, s] = x[t, first - t + s] for each head: (B, H, T, 2T) -> (B, H, T, T), `first` T-1 or T.

    first = 2, T = 3:   . . 0 1 2 .
                        . 3 4 5 . .
                        6 7 8 . . .
    """
    batch_size, num_heads, length = ops.shape(x)[:3]
    width = 2 * length - 1  # one less than a row: each row begins one earlier than that before
    x = ops.reshape(x, (batch_size, num_heads, length * 2 * length))
    x = x[:, :, first : first + length * width]
    return ops.reshape(x, (batch_size, num_heads, length, width))[..., :length]  # (B, H, T, T)
