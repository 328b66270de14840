"""BERT's pre-training: predicting masked tokens, and whether one text follows another.

Devlin et al. 2019, section 3.1.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.classification import ClassificationHead, pooled_of
from keras_tfm.heads.language_model import LanguageModelHead
from keras_tfm.layers.base import Layer
from keras_tfm.layers.compiler.rows import rows_at
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positions import outside_is_nan
from keras_tfm.layers.signatures import Backbone


class MaskedLMHead(Layer):
    """Logits over the vocabulary at `mask_positions` (B, M), by default everywhere: (B, T, D) -> (B, M, V).

    The hidden states of these positions go through a dense layer with an activation, a norm, and the
    transposed table of `embedding` with a bias. A position outside the sequence raises, or gives NaN where a
    compiled graph cannot raise (XLA, GPU).

    >>> embedding = keras_tfm.layers.TokenEmbedding(10, 8)
    >>> embedding.build((None, None))
    >>> keras_tfm.heads.MaskedLMHead(embedding)(np.ones((1, 5, 8)), mask_positions=np.array([[1, 3]])).shape
    TensorShape([1, 2, 10])
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        activation: str | Callable | None = "gelu",
        epsilon: float = 1e-12,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.embedding = embedding
        self.activation = activation
        self.epsilon = epsilon
        self.vocabulary = LanguageModelHead(
            embedding.vocabulary_size, embedding, use_bias=True, name="vocabulary"
        )

    def build(self, x_shape, mask_positions_shape=None):
        dim = self.embedding.dim
        initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        self.dense = keras.layers.Dense(
            dim,
            activation_of(self.activation),
            kernel_initializer=initializer,
            name="dense",
        )
        self.dense.build(x_shape)
        self.norm = LayerNormalization(self.epsilon, name="norm")
        self.norm.build((*x_shape[:-1], dim))
        self.vocabulary.build((*x_shape[:-1], dim))

    def call(self, x, mask_positions=None):
        """(B, T, D) -> (B, M, V), or (B, T, V) without `mask_positions`."""
        if mask_positions is not None:
            x = take_positions(x, mask_positions)
        return self.vocabulary(self.norm(self.dense(x)))

    def compute_output_shape(self, x_shape, mask_positions_shape=None):
        return (*(mask_positions_shape or x_shape[:-1]), self.embedding.vocabulary_size)


class NextSentenceHead(ClassificationHead):
    """Logits for "it follows" (0) and "it does not" (1) from a pooled vector: (B, D) -> (B, 2).

    `dropout` is the rate for the vector. The kernel is initialised as in BERT's released code, so that the
    loss starts at ln 2.

    >>> keras_tfm.heads.NextSentenceHead()(np.ones((3, 8))).shape
    TensorShape([3, 2])
    """

    def __init__(self, dropout: float = 0.0, **kwargs: Any) -> None:
        initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        super().__init__(2, dropout=dropout, kernel_initializer=initializer, **kwargs)


class MaskedLM(ModelWithHead):
    """A `backbone` with the masked language model's head: logits (B, M, V) at `mask_positions` (B, M), by
    default all.

    For pre-training the losses are `TokenCrossEntropy`, weighed by `mask_weights`, and, with
    `next_sentence`, `classification_loss`.

    Args:
        next_sentence: whether the outputs are {"mlm": (B, M, V), "nsp": (B, 2)}; see `NextSentence` for the
            latter. Trained with sentences in and out of order, "nsp" is ALBERT's sentence-order prediction
            (Lan et al. 2020, section 3.1).
        activation: of the head; by default the backbone's.
        dropout: the rate for the input of the next-sentence head.

    >>> model = keras_tfm.heads.MaskedLM(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> model({"token_ids": np.array([[1, 2, 3]]), "mask_positions": np.array([[1]])}).shape
    TensorShape([1, 1, 100])
    """

    def __init__(
        self,
        backbone: keras.Model,
        next_sentence: bool = False,
        activation: str | None = None,
        dropout: float = 0.0,
        name: str = "masked_lm",
        **kwargs: Any,
    ) -> None:
        config, hidden = backbone.config, backbone.output
        activation = activation or config.activation
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        mlm = MaskedLMHead(backbone.embedding, activation, config.epsilon, name="mlm")
        outputs = mlm(hidden["sequence_output"], positions)
        if next_sentence:
            nsp = NextSentenceHead(dropout=dropout, name="nsp")
            outputs = {"mlm": outputs, "nsp": nsp(pooled_of(backbone.input, hidden, "first"))}
        inputs = {**backbone.input, "mask_positions": positions}
        super().__init__(backbone, inputs, outputs, name=name, **kwargs)
        self.next_sentence = next_sentence
        self.activation = activation
        self.dropout = dropout


class NextSentence(ModelWithHead):
    """A `backbone` with a `NextSentenceHead`: the backbone's inputs in, logits (B, 2) out.

    The head reads the backbone's `pooled_output`, as in BERT, or, without one, the hidden state of the first
    token, [CLS].

    >>> model = keras_tfm.heads.NextSentence(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> model({"token_ids": np.array([[1, 2, 3]])}).shape
    TensorShape([1, 2])
    """

    def __init__(self, backbone: Backbone, name: str = "next_sentence", **kwargs: Any) -> None:
        head = NextSentenceHead(name="nsp")
        pooled = pooled_of(backbone.input, backbone.output, "first")
        super().__init__(backbone, backbone.input, head(pooled), name=name, **kwargs)


def take_positions(x, positions):
    """The vectors of `x` (B, T, D) at `positions` (B, M): (B, M, D); NaN for positions outside of it, where a
    graph cannot raise.
    """
    return rows_at(x, positions) + outside_is_nan(positions, ops.shape(x)[1], x.dtype)
