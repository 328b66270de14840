"""Predicting tokens: the vocabulary head, the model made of a backbone and the head, its loss and its
accuracy.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.loss import Loss
from keras_tfm.layers.attention.on_scores import SoftCap
from keras_tfm.layers.base import Layer
from keras_tfm.layers.compiler.fused import fused
from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.signatures import Tensor
from keras_tfm.registry import register


class LanguageModelHead(Layer):
    """Logits over the vocabulary at every position: (B, T, D) -> (B, T, V).

    Args:
        vocabulary_size: V.
        embedding: a `TokenEmbedding` whose transposed table is the projection (Press and Wolf 2017); None
            for a table of its own.
        use_bias: whether a bias is added to the logits.
        scale: a factor of the hidden states.
        train_bias: False for a bias that is loaded from a checkpoint and never trained.
        cap: the bound of a `SoftCap` of the logits; None for none.

    >>> keras_tfm.heads.LanguageModelHead(vocabulary_size=10)(np.ones((1, 3, 8))).shape
    TensorShape([1, 3, 10])
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding: TokenEmbedding | None = None,
        use_bias: bool = False,
        scale: float = 1.0,
        train_bias: bool = True,
        cap: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scale = scale
        self.vocabulary_size = vocabulary_size
        self.embedding = embedding
        self.use_bias = use_bias
        self.train_bias = train_bias
        self.cap = cap
        self.soft_cap = None if cap is None else SoftCap(cap)

    def build(self, x_shape):
        dense_has_bias = self.use_bias and self.train_bias and self.embedding is None
        if self.embedding is None:
            self.dense = keras.layers.Dense(self.vocabulary_size, use_bias=dense_has_bias, name="dense")
            self.dense.build(x_shape)
        self.bias = None
        if self.use_bias and not dense_has_bias:
            # A weight made with trainable=False stays so when a user sets `layer.trainable = True`.
            self.bias = self.add_weight(
                (self.vocabulary_size,), "zeros", trainable=self.train_bias, name="bias"
            )
        if self.soft_cap is not None:
            self.soft_cap.build(self.compute_output_shape(x_shape))

    def call(self, x):
        """(B, T, D) -> (B, T, V)."""
        x = x if self.scale == 1 else x * self.scale
        if self.embedding is None:
            logits = self.dense(x)
        else:
            logits = ops.cast(self.embedding.logits(x), self.compute_dtype)
        logits = logits if self.bias is None else logits + self.bias
        return logits if self.soft_cap is None else self.soft_cap(logits)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.vocabulary_size)


class LanguageModel(ModelWithHead):
    """A `backbone` that decodes, with a vocabulary head: token ids in, logits (B, T, V) out.

    The backbone has an `output_embedding`, and the methods `start` and `step`. Its last hidden states are
    `decoder_sequence_output` or, in a decoder-only model, `sequence_output`; its `output_scale`, if it has
    one, multiplies them before the head, its `output_cap` bounds the logits, and its `output_size` is V where
    not all of its tokens are predicted.

    Args:
        tied: whether the head uses the table of `output_embedding`; by default what the backbone's
            configuration says, or True.
        use_bias: whether a bias is added to the logits that is loaded but not trained, as in BART.

    >>> backbone = keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=100)
    >>> keras_tfm.heads.LanguageModel(backbone)({"token_ids": np.array([[1, 2, 3]])}).shape
    TensorShape([1, 3, 100])
    """

    def __init__(
        self,
        backbone: keras.Model,
        tied: bool | None = None,
        use_bias: bool = False,
        name: str = "language_model",
        **kwargs: Any,
    ) -> None:
        embedding = backbone.output_embedding
        tied = getattr(backbone.config, "tied", True) if tied is None else tied
        head = LanguageModelHead(
            getattr(backbone, "output_size", embedding.vocabulary_size),
            embedding if tied else None,
            use_bias,
            getattr(backbone, "output_scale", 1.0),
            train_bias=False,
            cap=getattr(backbone, "output_cap", None),
            name="head",
        )
        outputs = backbone.output
        hidden = outputs.get("decoder_sequence_output", outputs.get("sequence_output"))
        super().__init__(backbone, backbone.input, head(hidden), name=name, **kwargs)
        self.head = head
        self.tied = tied
        self.use_bias = use_bias

    def start(self, batch_size, max_length, context=None):
        """The backbone's cache for decoding up to `max_length` tokens."""
        return self.backbone.start(batch_size, max_length, context)

    def step(self, token_ids, cache, padding_mask=None):
        """Logits (B, T, V) for what follows each of the next T tokens (B, T), and the new cache.

        `padding_mask` (B, T) is False at padding, which comes before the tokens of a row.
        """
        hidden, cache = self.backbone.step(token_ids, cache, padding_mask)
        return self.head(hidden), cache


class TokenCrossEntropy(Loss):
    """The cross-entropy of each token in nats, averaged over the tokens with a `sample_weight`.

    Labels are (B, T), logits (B, T, V). `label_smoothing` is the share of the target that is spread evenly
    over the vocabulary (Szegedy et al. 2016; Vaswani et al. 2017, section 5.4).

    >>> loss = keras_tfm.heads.TokenCrossEntropy()
    >>> round(float(loss(np.array([[1, 0]]), np.zeros((1, 2, 4)))), 4)  # log 4
    1.3863
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        reduction: str | None = "mean_with_sample_weight",
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction=reduction, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must lie in [0, 1); it is {label_smoothing}.")
        self.label_smoothing = label_smoothing

    def call(self, labels, logits):
        return token_cross_entropy(labels, logits, self.label_smoothing)


@register
class TokenMean(keras.metrics.Mean):
    """The mean of a `function` of labels (B, T) and logits (B, T, V), one value (B, T) for each token, over
    the tokens of all batches. Keras averages each row over its length first, so that a token of a batch of
    short rows would count more than others. The name is the function's.

    >>> metric = keras_tfm.heads.TokenMean(keras_tfm.heads.token_accuracy)
    >>> metric.update_state(np.array([[1, 0]]), np.array([[[0.1, 0.9], [0.2, 0.8]]]))
    >>> metric.name, float(metric.result())
    ('token_accuracy', 0.5)
    """

    def __init__(
        self, function: Callable[[Tensor, Tensor], Tensor], name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name or function.__name__, dtype)
        self.function = function

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add the tokens of a batch, weighed by `sample_weight` (B, T) or, for None, alike."""
        values = self.function(y_true, y_pred)
        if sample_weight is not None:
            sample_weight = ops.reshape(ops.broadcast_to(sample_weight, ops.shape(values)), (-1,))  # (B T,)
        super().update_state(ops.reshape(values, (-1,)), sample_weight)  # values (B T,)

    def get_config(self):
        return {**super().get_config(), "function": keras.saving.serialize_keras_object(self.function)}

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"function": keras.saving.deserialize_keras_object(config["function"])})


@register
def token_accuracy(labels: Tensor, logits: Tensor) -> Tensor:
    """1 where the label has the highest logit, else 0: labels (B, T), logits (B, T, V) -> (B, T).

    >>> labels, logits = np.array([[1, 0]]), np.array([[[0.1, 0.9], [0.2, 0.8]]])
    >>> keras_tfm.heads.token_accuracy(labels, logits).numpy().tolist()
    [[1.0, 0.0]]
    """
    label_logits = ops.sum(logits * ops.one_hot(labels, logits.shape[-1], dtype=logits.dtype), axis=-1)
    return ops.cast(label_logits >= ops.max(logits, axis=-1), "float32")


@register
def token_cross_entropy(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """-log of the probability of each label (B, T) under the logits (B, T, V), in nats: (B, T).

    `label_smoothing` is the share of the label that is spread evenly over the vocabulary.

    >>> loss = keras_tfm.heads.token_cross_entropy(np.array([[1]]), np.zeros((1, 1, 2)))
    >>> round(float(loss[0, 0]), 3)
    0.693
    """
    return _token_cross_entropy(ops.cast(labels, "int32"), logits, label_smoothing=label_smoothing)


@fused
def _token_cross_entropy(labels, logits, *, label_smoothing):
    logits, size = ops.cast(logits, "float32"), logits.shape[-1]

    @custom_gradient
    def cross_entropy(logits):
        highest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - highest)  # the only tensor of this size that is kept for the gradient
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        target = ops.take_along_axis(logits, labels[..., None], axis=-1)
        if label_smoothing:
            mean = ops.mean(logits, axis=-1, keepdims=True)
            target = (1 - label_smoothing) * target + label_smoothing * mean

        def gradient(upstream):
            upstream = upstream[..., None]
            expected = (1 - label_smoothing) * ops.one_hot(labels, size) + label_smoothing / size
            return exponentials * (upstream / total) - expected * upstream

        return ops.squeeze(highest + ops.log(total) - target, axis=-1), gradient

    return cross_entropy(logits)
