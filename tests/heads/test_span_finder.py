"""Spans of answers: the likeliest by hand and by trying all, and the loss of one position."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.heads import SpanCrossEntropy, best_spans
from keras_tfm.layers.masks import LOWEST


def test_the_best_span_by_hand():
    start, end = np.array([[5.0, 1, 0, 2]]), np.array([[0.0, 3, 1, 2]])
    everywhere = np.ones((1, 4), bool)
    assert [int(x[0]) for x in best_spans(start, end, everywhere, 2)] == [0, 1, 8]
    assert [int(x[0]) for x in best_spans(start, end, everywhere, 1)] == [0, 0, 5]
    assert [int(x[0]) for x in best_spans(start, end, everywhere & [[False, False, True, True]], 9)] == [
        3,
        3,
        4,
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_all_spans(seed):
    rng = np.random.default_rng(seed)
    batch, length, longest = rng.integers(1, 5), rng.integers(1, 9), int(rng.integers(1, 11))
    start, end = rng.integers(-3, 4, (2, batch, length)).astype("float32")  # with equal ones
    mask = rng.random((batch, length)) < 0.7
    found = tf.function(best_spans, jit_compile=True)(start, end, mask, longest)
    for row, (first, last, score) in enumerate(zip(*(x.numpy() for x in found), strict=True)):
        spans = [
            (-start[row, i] - end[row, j], i, j)
            for i, j in itertools.product(range(length), repeat=2)
            if i <= j < i + longest and mask[row, i] and mask[row, j]
        ]
        if spans:
            assert (-score, first, last) == min(spans)
        else:
            assert score == 2 * np.float32(LOWEST) and np.isfinite(score)


def test_the_loss_is_over_the_tokens_alone():
    logits = np.log([[0.5, 0.25, 0.25, 9.0], [0.2, 0.8, 7.0, 7.0]]).astype("float32")
    loss = SpanCrossEntropy()(np.array([[0, 3], [1, 2]]), logits)
    np.testing.assert_allclose(loss, -(np.log(0.5) + np.log(0.8)) / 2, rtol=1e-6)
    nothing = SpanCrossEntropy()(np.array([[0, 0], [1, 2]]), logits, np.array([0.0, 1.0]))
    np.testing.assert_allclose(nothing, -np.log(0.8), rtol=1e-6)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(SpanCrossEntropy()))
    assert isinstance(again, SpanCrossEntropy)
