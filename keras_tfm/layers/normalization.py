"""Layer normalisation, and its form without a mean, with their gradients in closed form."""

from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.masks import in_float32


class LayerNormalization(Layer):
    """Layer normalisation of the last axis (Ba et al. 2016), in float32 at least.

    Equals `keras.layers.LayerNormalization`; the gradient reads the activations fewer times.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape):
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(x_shape[-1],), initializer="zeros")
        self.built = True

    def call(self, x):
        """Any shape in, the same out."""
        return ops.cast(layer_normalization(x, self.gamma, self.beta, self.epsilon), x.dtype)

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)


def layer_normalization(x, gamma, beta, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis, in float32 at least."""

    @ops.custom_gradient
    def normalize(x, gamma, beta):
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
        normalized = centered * scale

        def gradient(upstream):
            rows = tuple(range(len(x.shape) - 1))
            weights = gamma[:, None] / gamma.shape[0]
            # Less `upstream`: XLA's CPU compiler vectorises the sums of a difference, not of a product.
            excess = upstream * normalized - upstream
            mean = ops.matmul(upstream, weights)
            slope = ops.matmul(excess, weights) + mean
            beta_gradient = ops.sum(upstream, axis=rows)
            return (
                scale * (upstream * gamma - mean - normalized * slope),
                ops.sum(excess, axis=rows) + beta_gradient,
                beta_gradient,
            )

        return normalized * gamma + beta, gradient

    return normalize(in_float32(x), in_float32(gamma), in_float32(beta))


class RMSNormalization(Layer):
    """Layer normalisation that leaves the mean and has no bias (Zhang and Sennrich 2019; T5), in float32."""

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape):
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer="ones")
        self.built = True

    def call(self, x):
        """Any shape in, the same out."""
        return ops.cast(rms_normalization(x, self.gamma, self.epsilon), x.dtype)

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)


def rms_normalization(x, gamma, epsilon):
    """x / sqrt(mean(x^2) + epsilon) * gamma over the last axis, in float32 at least."""

    @ops.custom_gradient
    def normalize(x, gamma):
        scale = ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + epsilon)
        normalized = x * scale

        def gradient(upstream):
            rows = tuple(range(len(x.shape) - 1))
            # Less `upstream`, as in `layer_normalization`.
            excess = upstream * normalized - upstream
            slope = ops.matmul(excess + upstream, gamma[:, None] / gamma.shape[0])
            gamma_gradient = ops.sum(excess, axis=rows) + ops.sum(upstream, axis=rows)
            return scale * (upstream * gamma - normalized * slope), gamma_gradient

        return normalized * gamma, gradient

    return normalize(in_float32(x), in_float32(gamma))
