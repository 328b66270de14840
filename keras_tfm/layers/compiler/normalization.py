"""Normalisations whose gradients are written out, so that they read the activations fewer times.

Automatic differentiation goes back through the mean, the variance and the root one by one, and reads all
activations for each. The gradient written out needs only the normalised values and two means.
"""

import functools

import tensorflow as tf
from keras import ops

from keras_tfm.layers.compiler.fused import fused
from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.layers.compiler.products import flat_product
from keras_tfm.layers.masks import in_float32


@fused
def layer_normalization(x, gamma, beta, *, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis, computed in float32 or float64
    and returned in the dtype of `x`.
    """
    dtype = x.dtype
    x = in_float32(x)
    gamma, beta = tf.cast(tf.convert_to_tensor(gamma), x.dtype), tf.cast(tf.convert_to_tensor(beta), x.dtype)
    return ops.cast(_layer_normalization(epsilon)(x, gamma, beta), dtype)


@functools.cache
def _layer_normalization(epsilon):
    @custom_gradient
    def normalize(x, gamma, beta):
        centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        scale = ops.rsqrt(tf.reduce_mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
        normalized = centered * scale

        def gradient(upstream):
            rows = tuple(range(len(x.shape) - 1))
            weights = gamma[:, None] / gamma.shape[0]
            # On CPUs XLA sums a product a b slowly and a difference fast: sum a b - a, and add sum a below.
            excess = upstream * normalized - upstream
            mean = flat_product(upstream, weights)
            slope = flat_product(excess, weights) + mean
            beta_gradient = ops.sum(upstream, axis=rows)
            return (
                scale * (upstream * gamma - mean - normalized * slope),
                ops.sum(excess, axis=rows) + beta_gradient,
                beta_gradient,
            )

        return normalized * gamma + beta, gradient

    return normalize


@fused
def rms_normalization(x, gamma, *, epsilon):
    """x / sqrt(mean(x²) + epsilon) * gamma over the last axis, computed and returned likewise."""
    dtype = x.dtype
    x = in_float32(x)
    gamma = tf.cast(tf.convert_to_tensor(gamma), x.dtype)
    return ops.cast(_rms_normalization(epsilon)(x, gamma), dtype)


@functools.cache
def _rms_normalization(epsilon):
    @custom_gradient
    def normalize(x, gamma):
        scale = ops.rsqrt(tf.reduce_mean(ops.square(x), axis=-1, keepdims=True) + epsilon)
        normalized = x * scale

        def gradient(upstream):
            rows = tuple(range(len(x.shape) - 1))
            # A difference instead of a product, as in `layer_normalization`.
            excess = upstream * normalized - upstream
            slope = flat_product(excess + upstream, gamma[:, None] / gamma.shape[0])
            gamma_gradient = ops.sum(excess, axis=rows) + ops.sum(upstream, axis=rows)
            return scale * (upstream * gamma - normalized * slope), gamma_gradient

        return normalized * gamma, gradient

    return normalize
