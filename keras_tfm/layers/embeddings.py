"""Embeddings: from token ids to vectors, and back from vectors to logits by the same table."""

from typing import Any

import keras
from keras import ops

from keras_tfm.inputs import as_integers, refuse_outside
from keras_tfm.layers.base import Layer, WithoutMask, copy_of, require_sizes
from keras_tfm.layers.compiler.products import multiply_transposed
from keras_tfm.layers.positions import PositionEmbedding, outside_is_nan
from keras_tfm.layers.signatures import Initializer


class LearnedVectors(WithoutMask):
    """`count` learned vectors, the same for each example: of a `context` (B, ...) it gives (B, N, D).

    Object queries are such vectors, and so are positions that a decoder begins with.

    Args:
        count: N, how many there are.
        dim: D, by default the width of the context.
        initializer: by default normal, of deviation 1, as torch.nn.Embedding's.

    >>> keras_tfm.layers.LearnedVectors(count=3)(np.ones((2, 5, 8))).shape
    TensorShape([2, 3, 8])
    """

    def __init__(
        self, count: int, dim: int | None = None, initializer: Initializer | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(count=count)
        self.count = count
        self.dim = dim
        self.initializer = initializer

    def build(self, context_shape):
        initializer = copy_of(self.initializer) or keras.initializers.RandomNormal(stddev=1.0)
        self.table = self.add_weight((self.count, self.dim or context_shape[-1]), initializer, name="table")

    def call(self, context):
        """Only the batch's size is read of the `context`."""
        shape = (ops.shape(context)[0], *self.table.shape)
        return ops.broadcast_to(ops.cast(self.table, context.dtype), shape)  # (B, N, D)

    def compute_output_shape(self, context_shape):
        return (context_shape[0], self.count, self.dim or context_shape[-1])


class TokenEmbedding(Layer):
    """Token embeddings without positions: ids (B, T) -> vectors (B, T, D).

    `logits` is the output projection by the transposed table (Press and Wolf 2017). An id outside the
    vocabulary is refused with a ValueError; in a graph it raises, or gives NaN where a compiled graph cannot
    raise (XLA, GPU). Ids may be whole numbers in float32, which is what a `keras.Sequential` passes to its
    first layer.

    Args:
        vocabulary_size: V, the number of rows of the table.
        dim: D, the width of the vectors.
        scale: whether the vectors are multiplied by sqrt(D).

    >>> layer = keras_tfm.layers.TokenEmbedding(vocabulary_size=10, dim=4)
    >>> x = layer(np.array([[1, 2, 3]]))
    >>> x.shape, layer.logits(x).shape
    (TensorShape([1, 3, 4]), TensorShape([1, 3, 10]))
    """

    def __init__(
        self,
        vocabulary_size: int,
        dim: int,
        scale: bool = False,
        initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(vocabulary_size=vocabulary_size, dim=dim)
        self.vocabulary_size = vocabulary_size
        self.dim = dim
        self.scale = scale
        self.initializer = initializer
        self.token = self._table(vocabulary_size, "token")

    def _table(self, size, name):
        return keras.layers.ReversibleEmbedding(
            size,
            self.dim,
            embeddings_initializer=copy_of(self.initializer),
            name=name,
        )

    def build(self, token_ids_shape):
        self.token.build()

    def call(self, token_ids):
        """(B, T) -> (B, T, D)."""
        token_ids = as_integers(token_ids, "token_ids")
        refuse_outside(token_ids, self.vocabulary_size, "token_ids")
        x = self.token(token_ids)
        return (x * self.dim**0.5 if self.scale else x) + outside_is_nan(
            token_ids, self.vocabulary_size, x.dtype
        )

    def logits(self, x):
        """A logit for each token of the vocabulary, by the transposed table: (..., D) -> (..., V)."""
        if self.token.quantization_mode:
            return self.token(x, reverse=True)
        x = ops.cast(x, self.compute_dtype)
        return multiply_transposed(x, ops.cast(self.token.embeddings, x.dtype))

    def compute_output_shape(self, token_ids_shape):
        return (*token_ids_shape, self.dim)


class TokenAndPositionEmbedding(TokenEmbedding):
    """The sum of token, position and, if used, segment embeddings: ids (B, T) -> (B, T, D).

    Everything else is as in `TokenEmbedding`.

    Args:
        vocabulary_size: V, the number of rows of the token table.
        max_length: the number of rows of the position table.
        dim: D, the width of the vectors.
        num_segments: the number of rows of the segment table; 0 for no segments.
        scale: whether the token vectors are multiplied by sqrt(D) first (Vaswani et al. 2017, section 3.4).
        position: a layer that adds positions to its input; by default a learned `PositionEmbedding`.

    >>> layer = keras_tfm.layers.TokenAndPositionEmbedding(vocabulary_size=10, max_length=8, dim=4)
    >>> layer(np.array([[1, 2, 3]])).shape
    TensorShape([1, 3, 4])
    """

    def __init__(
        self,
        vocabulary_size: int,
        max_length: int,
        dim: int,
        num_segments: int = 0,
        scale: bool = False,
        position: keras.layers.Layer | None = None,
        initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, dim, scale, initializer, **kwargs)
        require_sizes(max_length=max_length)
        self.max_length = max_length
        self.num_segments = num_segments
        self.position = position or PositionEmbedding(max_length, initializer, name="position")
        self.segment = self._table(num_segments, "segment") if num_segments else None

    def build(self, token_ids_shape, segment_ids_shape=None, positions_shape=None):
        super().build(token_ids_shape)
        if self.segment is not None:
            self.segment.build()
        self.position.build((*token_ids_shape, self.dim))

    def call(self, token_ids, segment_ids=None, positions=None):
        """Embed `token_ids` (B, T); `segment_ids` (B, T) default to 0, `positions` to 0 .. T-1."""
        token_ids = as_integers(token_ids, "token_ids")
        x = super().call(token_ids)
        if self.segment is not None:
            segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
            refuse_outside(segment_ids, self.num_segments, "segment_ids")
            x = x + self.segment(segment_ids) + outside_is_nan(segment_ids, self.num_segments, x.dtype)
        return self.position(x, positions=positions)

    def compute_output_shape(self, token_ids_shape, segment_ids_shape=None, positions_shape=None):
        return (*token_ids_shape, self.dim)
