"""Parts of the metrics of several tasks."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches
from keras_tfm.heads import TokenMean, token_accuracy, token_cross_entropy
from keras_tfm.jit import jit_compile
from keras_tfm.log import Bar
from keras_tfm.tasks.judgements import losses_of


def token_metrics() -> list[TokenMean]:
    """The metrics of a training that predicts tokens: their mean cross-entropy, in nats, and accuracy."""
    return [TokenMean(token_cross_entropy), TokenMean(token_accuracy)]


def sums_over(batches: Batches, count: Callable[..., dict[str, tf.Tensor]]) -> dict[str, np.ndarray]:
    """The sums over all batches, in float64, of the values that `count(inputs, labels, weights)` returns by
    name.
    """
    compiled = tf.function(count, autograph=False, jit_compile=jit_compile())
    sums: dict[str, np.ndarray] = {}
    for batch in Bar(batches.dataset(), "measuring", batches.num_batches, unit="batch"):
        for name, value in compiled(*batch).items():
            sums[name] = sums.get(name, 0) + value.numpy().astype("float64")
    return sums


def cross_entropy(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The mean cross-entropy, in nats, of the labels (N,) under probabilities (N, labels)."""
    return float(np.mean(losses_of(probabilities, labels)))
