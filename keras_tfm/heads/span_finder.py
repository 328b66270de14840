"""Extractive question answering: where an answer starts and ends (Devlin et al. 2019, section 4.2)."""

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead, reading_of
from keras_tfm.heads.tokens import TokenClassificationHead
from keras_tfm.layers.masks import LOWEST
from keras_tfm.registry import register


class SpanFinder(ModelWithHead):
    """A `backbone` and extractive question answering's head: {"start": (B, T), "end": (B, T)} logits.

    `dropout` is the head's. The answer is the span from its first token to its last; the loss of each is
    `SpanCrossEntropy`, and `best_spans` finds the likeliest one.
    """

    def __init__(self, backbone, dropout=0.0, name="span_finder", **kwargs):
        inputs, hidden = reading_of(backbone)
        logits = TokenClassificationHead(2, dropout, name="head")(hidden["sequence_output"])
        outputs = {"start": ops.take(logits, 0, axis=-1), "end": ops.take(logits, 1, axis=-1)}
        super().__init__(backbone, inputs, outputs, name=name, **kwargs)
        self.dropout = dropout


@register
class SpanCrossEntropy(keras.losses.Loss):
    """Cross-entropy of one position with logits (B, T), in nats, averaged over the batch.

    Labels (B, 2) are the position, and how many there are: those beyond, padding, have no part in it, unlike
    in the released code of BERT, so that the loss is that of each example alone.
    """

    def __init__(self, name="loss", reduction="mean_with_sample_weight", **kwargs):
        super().__init__(name=name, reduction=reduction, **kwargs)

    def call(self, labels, logits):
        labels, logits = ops.cast(labels, "int32"), ops.cast(logits, "float32")
        is_token = ops.arange(ops.shape(logits)[1]) < labels[:, 1:]  # (B, T)
        logits = ops.where(is_token, logits, LOWEST)
        return ops.sparse_categorical_crossentropy(labels[:, 0], logits, from_logits=True)


def best_spans(start, end, mask, max_length):
    """The likeliest span of each row: its first and last position, and the sum of their logits, (B,) each.

    Of logits `start` and `end` (B, T); both ends lie where `mask` (B, T) is True, and a span has at most
    `max_length` positions. Of equal ones it is the earliest, the shortest. A row without a True position has
    the sum of twice `LOWEST`.
    """
    start, end = (ops.where(mask, ops.cast(x, "float32"), LOWEST) for x in (start, end))
    end = ops.pad(end, ((0, 0), (0, max_length - 1)), constant_values=LOWEST)
    spans = ops.arange(ops.shape(start)[1])[:, None] + ops.arange(max_length)  # (T, max_length)
    ends = ops.take(end, spans, axis=1)  # (B, T, max_length)
    scores = start + ops.max(ends, axis=-1)  # (B, T)
    first = ops.argmax(scores, axis=-1)
    further = ops.take_along_axis(ops.argmax(ends, axis=-1), first[:, None], axis=1)[:, 0]  # (B,)
    return first, first + further, ops.max(scores, axis=-1)
