"""From token ids to vectors and, by the same table, back to logits."""

import keras
from keras import ops

from keras_tfm.layers.base import Layer, own
from keras_tfm.layers.compiler.products import multiply_transposed
from keras_tfm.layers.positions import PositionEmbedding, outside_is_nan


class TokenEmbedding(Layer):
    """Token embeddings alone, for models that know order otherwise: (B, T) ids -> (B, T, D).

    `scale` multiplies the vectors by sqrt(D). `logits` is the tied output projection (Press and Wolf
    2017). An id outside the vocabulary raises, or gives NaN where a graph cannot raise (XLA, GPU). Ids may
    be whole numbers in float32, as a `keras.Sequential` hands them to its first layer.
    """

    def __init__(self, vocabulary_size, dim, scale=False, initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        for name, size in (("vocabulary_size", vocabulary_size), ("dim", dim)):
            if size < 1:
                raise ValueError(f"`{name}` must be at least 1; it is {size}.")
        self.vocabulary_size = vocabulary_size
        self.dim = dim
        self.scale = scale
        self.initializer = initializer
        self.token = self._table(vocabulary_size, "token")

    def _table(self, size, name):
        return keras.layers.ReversibleEmbedding(
            size,
            self.dim,
            embeddings_initializer=own(self.initializer),
            name=name,
        )

    def build(self, token_ids_shape):
        self.token.build()
        self.built = True

    def call(self, token_ids):
        """(B, T) -> (B, T, D)."""
        token_ids = as_integers(token_ids, "token_ids")
        x = self.token(token_ids)
        return (x * self.dim**0.5 if self.scale else x) + outside_is_nan(
            token_ids, self.vocabulary_size, x.dtype
        )

    def logits(self, x):
        """Scores of every token by the transposed table: (..., D) -> (..., V)."""
        if self.token.quantization_mode:
            return self.token(x, reverse=True)
        x = ops.cast(x, self.compute_dtype)
        return multiply_transposed(x, ops.cast(self.token.embeddings, x.dtype))

    def compute_output_shape(self, token_ids_shape):
        return (*token_ids_shape, self.dim)


class TokenAndPositionEmbedding(TokenEmbedding):
    """Token + position (+ segment) embeddings: (B, T) ids -> (B, T, D).

    `position` is a layer that adds itself to its input; by default a learned
    `PositionEmbedding(max_length)`. `scale` multiplies the tokens' vectors by sqrt(D) before
    (Vaswani et al. 2017, section 3.4). `logits` is the tied output projection of the same section.
    An id outside the vocabulary raises, or gives NaN where a graph cannot raise (XLA, GPU).
    """

    def __init__(
        self,
        vocabulary_size,
        max_length,
        dim,
        num_segments=0,
        scale=False,
        position=None,
        initializer="uniform",
        **kwargs,
    ):
        super().__init__(vocabulary_size, dim, scale, initializer, **kwargs)
        if max_length < 1:
            raise ValueError(f"`max_length` must be at least 1; it is {max_length}.")
        self.max_length = max_length
        self.num_segments = num_segments
        self.position = position or PositionEmbedding(max_length, initializer, name="position")
        self.segment = self._table(num_segments, "segment") if num_segments else None

    def build(self, token_ids_shape, segment_ids_shape=None, positions_shape=None):
        super().build(token_ids_shape)
        if self.segment is not None:
            self.segment.build()
        self.position.build((*token_ids_shape, self.dim))
        self.built = True

    def call(self, token_ids, segment_ids=None, positions=None):
        """Embed `token_ids` (B, T); `segment_ids` (B, T) default to 0, `positions` to 0 .. T-1."""
        token_ids = as_integers(token_ids, "token_ids")
        x = super().call(token_ids)
        if self.segment is not None:
            segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
            x = x + self.segment(segment_ids) + outside_is_nan(segment_ids, self.num_segments, x.dtype)
        return self.position(x, positions=positions)

    def compute_output_shape(self, token_ids_shape, segment_ids_shape=None, positions_shape=None):
        return (*token_ids_shape, self.dim)


def as_integers(ids, name):
    """Integers as they are, whole numbers in float32 or float64 as int32.

    A fraction raises ValueError, naming the argument, or becomes -1 where a graph is traced, which is outside
    of every table. So do half precisions, which round ids from 257 or 2,049 on.
    """
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if "int" in dtype:
        return ids
    whole = ops.cast(ids, "int32")
    is_whole = ops.equal(ops.cast(whole, ids.dtype), ids)
    has_values = hasattr(is_whole, "numpy")  # not while a graph is traced
    if dtype not in ("float32", "float64") or (has_values and not ops.convert_to_numpy(is_whole).all()):
        raise ValueError(
            f"`{name}` must be integers; they are {dtype}. A `keras.Sequential` takes integers where "
            'keras.Input((None,), dtype="int32") stands first.'
        )
    return ops.where(is_whole, whole, -1)
