"""Extractive question answering: where an answer starts and ends in a text (Devlin et al. 2019, section
4.2).
"""

from typing import Any

from keras import ops

from keras_tfm.heads.base import ModelWithHead, reading_of
from keras_tfm.heads.loss import Loss
from keras_tfm.heads.tokens import TokenClassificationHead
from keras_tfm.layers.masks import LOWEST
from keras_tfm.layers.signatures import Backbone, Tensor


class SpanFinder(ModelWithHead):
    """A `backbone` with a head for extractive question answering: {"start": (B, T), "end": (B, T)} logits.

    The answer is the span from its first token to its last. The loss of each output is `SpanCrossEntropy`;
    `best_spans` finds the likeliest span. `dropout` is the head's rate.

    >>> model = keras_tfm.heads.SpanFinder(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> model({"token_ids": np.array([[1, 2, 3]])})["start"].shape
    TensorShape([1, 3])
    """

    def __init__(
        self, backbone: Backbone, dropout: float = 0.0, name: str = "span_finder", **kwargs: Any
    ) -> None:
        inputs, hidden = reading_of(backbone)
        logits = TokenClassificationHead(2, dropout, name="head")(hidden["sequence_output"])
        outputs = {"start": ops.take(logits, 0, axis=-1), "end": ops.take(logits, 1, axis=-1)}
        super().__init__(backbone, inputs, outputs, name=name, **kwargs)
        self.dropout = dropout


class SpanCrossEntropy(Loss):
    """The cross-entropy of one position with logits (B, T), in nats, averaged over the batch.

    Labels (B, 2) are the position and the number of positions that are not padding. Deviates from BERT's
    released code, which counts padding too: here the loss of an example does not depend on how far its batch
    is padded.

    >>> loss = keras_tfm.heads.SpanCrossEntropy()
    >>> round(float(loss(np.array([[1, 2]]), np.zeros((1, 5)))), 4)  # log 2
    0.6931
    """

    def __init__(self, reduction: str | None = "mean_with_sample_weight", **kwargs: Any) -> None:
        super().__init__(reduction=reduction, **kwargs)

    def call(self, labels, logits):
        labels, logits = ops.cast(labels, "int32"), ops.cast(logits, "float32")
        is_token = ops.arange(ops.shape(logits)[1]) < labels[:, 1:]  # (B, T)
        logits = ops.where(is_token, logits, LOWEST)
        return ops.sparse_categorical_crossentropy(labels[:, 0], logits, from_logits=True)


def best_spans(start: Tensor, end: Tensor, mask: Tensor, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest span of each row: its first and last position, and the sum of their logits, (B,) each.

    `start` and `end` (B, T) are logits. Both ends lie where `mask` (B, T) is True, and a span has at most
    `max_length` positions. Among equal spans it takes the earliest and shortest. A row whose mask is all
    False gets the sum 2 `LOWEST`.

    >>> start, end = np.array([[0.0, 2.0, 1.0]]), np.array([[9.0, 0.0, 3.0]])
    >>> [int(x[0]) for x in keras_tfm.heads.best_spans(start, end, np.ones((1, 3), "bool"), max_length=2)]
    [0, 0, 9]
    """
    start, end = (ops.where(mask, ops.cast(x, "float32"), LOWEST) for x in (start, end))
    end = ops.pad(end, ((0, 0), (0, max_length - 1)), constant_values=LOWEST)
    spans = ops.arange(ops.shape(start)[1])[:, None] + ops.arange(max_length)  # (T, max_length)
    ends = ops.take(end, spans, axis=1)  # (B, T, max_length)
    scores = start + ops.max(ends, axis=-1)  # (B, T)
    first = ops.argmax(scores, axis=-1)
    further = ops.take_along_axis(ops.argmax(ends, axis=-1), first[:, None], axis=1)[:, 0]  # (B,)
    return first, first + further, ops.max(scores, axis=-1)
