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


@fused
def group_normalization(x, gamma, beta, *, groups, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta of x (B, ..., C), where mean and variance are of a
    group of channels at all places; computed and returned likewise.
    """
    dtype = x.dtype
    x = in_float32(x)
    gamma, beta = tf.cast(tf.convert_to_tensor(gamma), x.dtype), tf.cast(tf.convert_to_tensor(beta), x.dtype)
    return ops.cast(_group_normalization(groups, epsilon)(x, gamma, beta), dtype)


@functools.cache
def _group_normalization(groups, epsilon):
    def mean_of_group(x):
        """The mean over the channels of a group in the place of each: (B, C) -> (B, C)."""
        channels = x.shape[-1]
        parts = ops.reshape(x, (-1, groups, channels // groups))  # (B, G, C / G)
        means = ops.mean(parts, axis=-1, keepdims=True) + tf.zeros_like(parts)
        return ops.reshape(means, (-1, channels))  # (B, C)

    @custom_gradient
    def normalize(x, gamma, beta):
        places = tuple(range(1, len(x.shape) - 1))

        def everywhere(x):
            """(B, C) -> (B, ..., C)."""
            return ops.expand_dims(x, places)

        centered = x - everywhere(mean_of_group(tf.reduce_mean(x, places)))
        variance = mean_of_group(tf.reduce_mean(ops.square(centered), places))  # (B, C)
        scale = ops.rsqrt(variance + epsilon)

        def gradient(upstream):
            # All sums are of a channel first: the products that remain are of (B, C) alone.
            count = tf.cast(tf.reduce_prod(tf.shape(x)[1:-1]), x.dtype)
            total = tf.reduce_sum(upstream, places)
            slope = scale * tf.reduce_sum(upstream * centered, places)
            mean, mean_slope = (mean_of_group(gamma * y / count) for y in (total, slope))
            x_gradient = upstream * everywhere(scale * gamma) - centered * everywhere(mean_slope * scale**2)
            return x_gradient - everywhere(scale * mean), ops.sum(slope, 0), ops.sum(total, 0)

        return centered * everywhere(scale * gamma) + beta, gradient

    return normalize
