"""Layer normalisation, and its form without a mean."""

from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.compiler.normalization import layer_normalization, rms_normalization


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
