"""SpanBERT's pre-training: each token of a masked span is predicted from the tokens next to the span.

Joshi et al. 2020, "SpanBERT: Improving Pre-training by Representing and Predicting Spans", sections 2.2 and
3.2.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.language_model import LanguageModelHead
from keras_tfm.heads.masked_language_model import MaskedLMHead, take_positions
from keras_tfm.layers.base import Layer
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import outside_is_nan


class SpanBoundaryHead(Layer):
    """Logits over the vocabulary from the boundaries of a span: (B, T, D) -> (B, M, V).

    It is called with the hidden states, `mask_positions` (B, M), the tokens to predict, and
    `span_boundaries` (B, M, 2), the positions before and after the span of each. Two dense layers with
    activation and norm read the hidden states at both boundaries and a vector for the token's position
    within the span; the transposed table of `embedding`, with a bias, follows. The token's own hidden state
    is not used. Positions outside the sequence raise, or give NaN where a compiled graph cannot raise (XLA,
    GPU).

    Args:
        embedding: the embedding whose table gives the logits.
        max_length: the longest span.
        position_dim: the width of the vectors for the position in the span.

    >>> embedding = keras_tfm.layers.TokenEmbedding(10, 8)
    >>> embedding.build((None, None))
    >>> head = keras_tfm.heads.SpanBoundaryHead(embedding)
    >>> head(np.ones((1, 5, 8)), np.array([[2]]), np.array([[[1, 3]]])).shape
    TensorShape([1, 1, 10])
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        max_length: int = 512,
        position_dim: int = 200,
        activation: str | Callable | None = "gelu",
        epsilon: float = 1e-12,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.embedding = embedding
        self.max_length = max_length
        self.position_dim = position_dim
        self.activation = activation
        self.epsilon = epsilon
        self.vocabulary = LanguageModelHead(
            embedding.vocabulary_size, embedding, use_bias=True, name="vocabulary"
        )

    def build(self, x_shape, mask_positions_shape=None, span_boundaries_shape=None):
        dim = self.embedding.dim

        def initializer():
            return keras.initializers.TruncatedNormal(stddev=0.02)

        self.position = keras.layers.Embedding(
            self.max_length, self.position_dim, initializer(), name="position"
        )
        self.position.build()
        self.dense, self.norms = [], []
        for i, width in enumerate((2 * x_shape[-1] + self.position_dim, dim)):
            self.dense.append(
                keras.layers.Dense(
                    dim,
                    activation_of(self.activation),
                    kernel_initializer=initializer(),
                    name=f"dense_{i}",
                )
            )
            self.dense[-1].build((None, None, width))
            self.norms.append(LayerNormalization(self.epsilon, name=f"norm_{i}"))
            self.norms[-1].build((None, None, dim))
        self.vocabulary.build((*x_shape[:-1], dim))

    def call(self, x, mask_positions, span_boundaries):
        """(B, T, D) -> (B, M, V)."""
        before, after = (ops.squeeze(place, -1) for place in ops.split(span_boundaries, 2, axis=-1))
        places = ops.cast(mask_positions, before.dtype) - before - 1
        position = ops.cast(self.position(places), self.compute_dtype)  # a table in 8 bits gives float32
        position = position + outside_is_nan(places, self.max_length, self.compute_dtype)
        x = ops.concatenate([take_positions(x, before), take_positions(x, after), position], axis=-1)
        for dense, norm in zip(self.dense, self.norms, strict=True):
            x = norm(dense(x))
        return self.vocabulary(x)

    def compute_output_shape(self, x_shape, mask_positions_shape=None, span_boundaries_shape=None):
        return (*mask_positions_shape, self.embedding.vocabulary_size)


class SpanMaskedLM(ModelWithHead):
    """A `backbone` with a masked language model's head and a `SpanBoundaryHead`: {"mlm", "sbo"}, (B, M, V)
    each.

    `mask_positions` (B, M) are the tokens to predict, `span_boundaries` (B, M, 2) the positions before and
    after their spans. Both heads predict the same labels; pre-training adds their losses,
    `TokenCrossEntropy` weighed by `mask_weights`.

    >>> model = keras_tfm.heads.SpanMaskedLM(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> sorted(model.output)
    ['mlm', 'sbo']
    """

    def __init__(self, backbone: keras.Model, name: str = "span_masked_lm", **kwargs: Any) -> None:
        config, hidden = backbone.config, backbone.output["sequence_output"]
        inputs = {
            **backbone.input,
            "mask_positions": keras.Input((None,), dtype="int32", name="mask_positions"),
            "span_boundaries": keras.Input((None, 2), dtype="int32", name="span_boundaries"),
        }
        masked = MaskedLMHead(backbone.embedding, config.activation, config.epsilon, name="mlm")
        boundary = SpanBoundaryHead(
            backbone.embedding,
            config.max_length,
            activation=config.activation,
            epsilon=config.epsilon,
            name="sbo",
        )
        outputs = {
            "mlm": masked(hidden, inputs["mask_positions"]),
            "sbo": boundary(hidden, inputs["mask_positions"], inputs["span_boundaries"]),
        }
        super().__init__(backbone, inputs, outputs, name=name, **kwargs)
