"""The average of values, weighed by a softmax, whose gradient is written out.

Automatic differentiation divides all weights by their sum, and sums them again, times their gradients, in the
gradient of the softmax. Here the averages are divided instead, and that sum is one of averages times their
gradients (Dao et al. 2022, "FlashAttention", appendix B.2).
"""

import tensorflow as tf
from keras import ops

from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.layers.compiler.products import transposed_product
from keras_tfm.layers.masks import LOWEST


def softmax_average(scores, value, mask=None):
    """The means (B, H, T, Kv) of `value` (B, H, S, Kv), weighed by `masked_softmax` of float32 `scores` (B,
    H, T, S).

    >>> scores, value = tf.zeros((1, 1, 1, 2)), tf.constant([[[[1.0], [3.0]]]])
    >>> softmax_average(scores, value).numpy().item()
    2.0
    """
    if mask is not None:
        visible = ops.cast(mask, scores.dtype)
        scores = scores + (1 - visible) * LOWEST

    @custom_gradient
    def average(scores, value):
        weights = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
        weights = weights if mask is None else weights * visible
        total = tf.reduce_sum(weights, axis=-1, keepdims=True)
        total = total if mask is None else tf.where(total > 0, total, 1.0)
        means = tf.matmul(weights, value) / total

        def gradient(upstream):
            upstream = upstream / total
            slopes = tf.reduce_sum(upstream * means, axis=-1, keepdims=True)
            of_scores = weights * (tf.matmul(upstream, value, transpose_b=True) - slopes)
            return of_scores, transposed_product(weights, upstream)

        return means, gradient

    return average(scores, value)
