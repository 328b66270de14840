"""Predicting tokens: the vocabulary head, the model it makes of a backbone, its loss and accuracy."""

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.base import Layer
from keras_tfm.registry import register


class LanguageModelHead(Layer):
    """Logits over the vocabulary at every position: (B, T, D) -> (B, T, V).

    With `embedding` (a `TokenAndPositionEmbedding`) the projection is its transposed table (Press
    and Wolf 2017), without it a table of its own. `scale` multiplies the hidden states before. Where
    `train_bias` is False, the bias is loaded and never trained.
    """

    def __init__(self, vocabulary_size, embedding=None, use_bias=False, scale=1.0, train_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.vocabulary_size = vocabulary_size
        self.embedding = embedding
        self.use_bias = use_bias
        self.train_bias = train_bias

    def build(self, x_shape):
        dense_has_bias = self.use_bias and self.train_bias and self.embedding is None
        if self.embedding is None:
            self.dense = keras.layers.Dense(self.vocabulary_size, use_bias=dense_has_bias, name="dense")
            self.dense.build(x_shape)
        self.bias = None
        if self.use_bias and not dense_has_bias:
            # Made as one that is not trained: `trainable = True` of a layer leaves such weights as they are.
            self.bias = self.add_weight(
                (self.vocabulary_size,), "zeros", trainable=self.train_bias, name="bias"
            )
        self.built = True

    def call(self, x):
        """(B, T, D) -> (B, T, V)."""
        x = x if self.scale == 1 else x * self.scale
        if self.embedding is None:
            logits = self.dense(x)
        else:
            logits = ops.cast(self.embedding.logits(x), self.compute_dtype)
        return logits if self.bias is None else logits + self.bias

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.vocabulary_size)


class LanguageModel(ModelWithHead):
    """A `backbone` that decodes, and a vocabulary head: token batches in, logits (B, T, V) out.

    The backbone has `output_embedding` (to which `tied=True` ties the head; by default as the backbone's
    configuration says in `tied`, or else it does), `start` and `step`; its last hidden states are
    `decoder_sequence_output` or, decoder-only, `sequence_output`. Its `output_scale`, if there is one,
    multiplies them before the head. `use_bias` adds to the logits what is loaded, and not trained (BART).
    """

    def __init__(self, backbone, tied=None, use_bias=False, name="language_model", **kwargs):
        embedding = backbone.output_embedding
        tied = getattr(backbone.config, "tied", True) if tied is None else tied
        head = LanguageModelHead(
            embedding.vocabulary_size,
            embedding if tied else None,
            use_bias,
            getattr(backbone, "output_scale", 1.0),
            train_bias=False,
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
        """Logits (B, T, V) of what follows each of the next T tokens (B, T), and the new cache.

        `padding_mask` (B, T) is False at padding among them, which stands before a row's tokens.
        """
        hidden, cache = self.backbone.step(token_ids, cache, padding_mask)
        return self.head(hidden), cache


@register
class TokenCrossEntropy(keras.losses.Loss):
    """Cross-entropy of each token in nats, averaged over the tokens that `sample_weight` counts.

    `label_smoothing` spreads that share of the target evenly over the vocabulary (Szegedy et al.
    2016; Vaswani et al. 2017, section 5.4). Labels (B, T), logits (B, T, V).
    """

    def __init__(self, label_smoothing=0.0, name="loss", reduction="mean_with_sample_weight", **kwargs):
        super().__init__(name=name, reduction=reduction, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must lie in [0, 1); it is {label_smoothing}.")
        self.label_smoothing = label_smoothing

    def call(self, labels, logits):
        return token_cross_entropy(labels, logits, self.label_smoothing)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@register
def token_accuracy(labels, logits):
    """1 where the label's logit is the highest, else 0: (B, T)."""
    label_logits = ops.sum(logits * ops.one_hot(labels, logits.shape[-1], dtype=logits.dtype), axis=-1)
    return ops.cast(label_logits >= ops.max(logits, axis=-1), "float32")


@register
def token_cross_entropy(labels, logits, label_smoothing=0.0):
    """-log of the probability of each label (B, T) under the logits (B, T, V), in nats: (B, T)."""
    logits, size = ops.cast(logits, "float32"), logits.shape[-1]
    labels = ops.cast(labels, "int32")

    @ops.custom_gradient
    def cross_entropy(logits):
        highest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - highest)  # all that is kept of the logits' size
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
