"""Disentangled attention: contents and relative positions attend to each other, each by its own projections.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1. With d = i - j for
query i and key j, the scores before the softmax are

    (q_i . k_j  +  q_i . kr(d)  +  k_j . qr(d)) / sqrt(3 K)
     content       content to      position to
                   position        content

where kr and qr are projections of a table of distances that all layers share. The positional scores are made
for each distance once, and sheared into place: no look-up for each pair.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.attention.functional import attention_weights
from keras_tfm.layers.attention.projections import HeadProjection
from keras_tfm.layers.base import Layer, own
from keras_tfm.layers.masks import causal_mask, combine_masks, key_mask_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regularization import Dropout

FARTHEST = 2**20  # each distance has its entry in a list of rows
CONTENT_TO_POSITION, POSITION_TO_CONTENT = "c2p", "p2c"


class DistanceEmbedding(Layer):
    """A vector for each distance i - j; `vectors` gives those of the distances T-1, T-2, ..., -T.

    Distances count up to `max_distance`, farther ones as that. With `num_buckets` half of them are exact and
    the others' buckets grow with the logarithm ("DeBERTaV3", He et al. 2023, and version 2's released code).
    `epsilon` normalises the table, None leaves it as it is; `dropout` acts on it.
    """

    def __init__(
        self,
        dim,
        max_distance,
        num_buckets=0,
        epsilon=None,
        dropout=0.0,
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
        self.dropout = dropout
        self.initializer = initializer
        self.norm = None if epsilon is None else LayerNormalization(epsilon, name="norm")
        self.table_dropout = Dropout(dropout, name="dropout")

    @property
    def span(self):
        """Rows of the table for each of the two directions."""
        return self.num_buckets or self.max_distance

    def build(self, _=None):
        self.embeddings = self.add_weight((2 * self.span, self.dim), own(self.initializer), name="embeddings")
        if self.norm is not None:
            self.norm.build(self.embeddings.shape)
        self.built = True

    def vectors(self, length, training=None):
        """Those for a `length` T: (2T, D)."""
        table = ops.cast(self.embeddings, self.compute_dtype)
        table = table if self.norm is None else self.norm(table)
        table = self.table_dropout(table, training=training)
        distances = length - 1 - ops.arange(2 * length, dtype="int32")
        farthest = self.max_distance
        distances = ops.clip(distances, -farthest, farthest) + farthest
        return ops.take(table, ops.take(self.rows(), distances), axis=0)  # (2T, D)

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


class DisentangledAttention(Layer):
    """Self-attention of `num_heads` heads over contents and distances: (B, T, D) -> (B, T, D).

    `terms` are the positional ones of the header, "c2p" and "p2c"; the scale divides by the root of their
    number plus one. `distances` is the `DistanceEmbedding` that all layers share. `share_projections` has
    contents' queries and keys project it too; otherwise each term has its own. `key_bias` False leaves out
    the biases of both kinds of keys (version 1). `dropout` acts on the attention weights.
    """

    def __init__(
        self,
        num_heads,
        distances=None,
        terms=(CONTENT_TO_POSITION, POSITION_TO_CONTENT),
        share_projections=False,
        key_bias=True,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if num_heads < 1:
            raise ValueError(f"`num_heads` must be at least 1; it is {num_heads}.")
        if len({*terms}) != len(terms) or not {*terms} <= {CONTENT_TO_POSITION, POSITION_TO_CONTENT}:
            raise ValueError(f"`terms` must be of 'c2p' and 'p2c', each once; they are {terms}.")
        if bool(terms) != (distances is not None):
            raise ValueError("`distances` must be given where there are `terms`, and only there.")
        self.num_heads = num_heads
        self.distances = distances
        self.terms = tuple(terms)
        self.share_projections = share_projections
        self.key_bias = key_bias
        self.dropout = dropout
        self.kernel_initializer = kernel_initializer
        self.weight_dropout = Dropout(dropout, name="dropout")

    def build(self, x_shape, value_shape=None):
        width = x_shape[-1]
        if width % self.num_heads:
            raise ValueError(f"`num_heads` must divide the width {width}; it is {self.num_heads}.")
        self.key_width = width // self.num_heads

        def heads(name, num_parts, use_bias):
            layer = HeadProjection(
                self.num_heads, [self.key_width] * num_parts, use_bias=use_bias, name=name, **self._options()
            )
            layer.build(x_shape)
            return layer

        self.query_key_value = heads("query_key_value", 3, use_bias=False)
        self.biases = [
            self.add_weight((width,), "zeros", name=f"{part}_bias") if part != "key" or self.key_bias else 0.0
            for part in ("query", "key", "value")
        ]
        if self.terms:
            if not self.distances.built:
                self.distances.build()
            if not self.share_projections and CONTENT_TO_POSITION in self.terms:
                self.position_key = heads("position_key", 1, use_bias=self.key_bias)
            if not self.share_projections and POSITION_TO_CONTENT in self.terms:
                self.position_query = heads("position_query", 1, use_bias=True)
        self.output_projection = keras.layers.Dense(width, name="output", **self._options())
        self.output_projection.build(x_shape)
        self.built = True

    def _options(self):
        return {"kernel_initializer": own(self.kernel_initializer)}

    def call(self, x, value=None, mask=None, causal=False, training=None):
        """(B, T, D) -> (B, T, D); `mask` follows `keras_tfm.layers.masks`, `causal` hides later keys.

        `value` (B, T, D) is what `x` attends to, at the same positions; by default `x` itself.
        """
        length = ops.shape(x)[1]
        hidden = x if value is None else value
        mask = combine_masks(mask, key_mask_of(hidden), causal_mask(length, length) if causal else None)
        query, key, value = self._project(hidden)
        if hidden is not x:
            query, *_ = self._project(x)
        scale = (self.key_width * (1 + len(self.terms))) ** -0.5
        bias = scale * self._positional(query, key, length, training) if self.terms else None
        weights = attention_weights(query, key, mask, bias, scale)
        weights = self.weight_dropout(ops.cast(weights, value.dtype), training=training)
        heads = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))  # (B, T, H, K)
        return self.output_projection(ops.reshape(heads, ops.shape(x)))  # (B, T, D)

    def compute_output_shape(self, x_shape, value_shape=None):
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)

    def _project(self, x):
        """Queries, keys and values (B, H, T, K), with their biases."""
        shape = (self.num_heads, 1, self.key_width)
        return [
            heads + ops.reshape(ops.cast(bias, heads.dtype), shape) if hasattr(bias, "shape") else heads
            for heads, bias in zip(self.query_key_value(x), self.biases, strict=True)
        ]

    def _positional(self, query, key, length, training):
        """The unscaled scores of `terms`: (B, H, T, T)."""
        table = self.distances.vectors(length, training)[None]  # (1, 2T, D)
        if self.share_projections:
            position_query, position_key, _ = self._project(table)
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
