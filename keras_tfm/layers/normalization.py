"""Normalisation of layers, of groups, by the root of the mean square, and modulated by a vector."""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import SameShape, copy_of, require_sizes
from keras_tfm.layers.compiler.normalization import (
    group_normalization,
    layer_normalization,
    rms_normalization,
)
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.signatures import Initializer


class LayerNormalization(SameShape):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis, in float32 or float64.

    Ba et al. 2016. It equals `keras.layers.LayerNormalization` with the same `epsilon`, there by default
    1e-3; its gradient is faster. Under a mixed policy gamma and beta are rounded to 16 bits.

    >>> keras_tfm.layers.LayerNormalization()(np.array([[1.0, 3.0]])).numpy().round(3).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape):
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(x_shape[-1],), initializer="zeros")

    def call(self, x):
        """Any shape in, the same out."""
        return layer_normalization(x, self.gamma, self.beta, epsilon=self.epsilon)


class GroupNormalization(SameShape):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, where mean and variance are of one of the
    `groups` of channels at all places of a map, in float32 or float64: (B, ..., C) -> (B, ..., C).

    Wu and He 2018. It equals `keras.layers.GroupNormalization` with the same `epsilon`, there by default
    1e-3; its gradient is faster. Raises ValueError for channels that are no multiple of the groups.

    >>> keras_tfm.layers.GroupNormalization(2)(np.array([[[1.0, 3.0, 5.0, 5.0]]])).numpy().round(3).tolist()
    [[[-1.0, 1.0, 0.0, 0.0]]]
    """

    def __init__(self, groups: int = 32, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(groups=groups)
        self.groups = groups
        self.epsilon = epsilon

    def build(self, x_shape):
        if x_shape[-1] % self.groups:
            raise ValueError(
                f"{self.name!r} has {self.groups} groups; channels must be a multiple, got {x_shape[-1]}."
            )
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer="ones", autocast=False)
        self.beta = self.add_weight(name="beta", shape=(x_shape[-1],), initializer="zeros", autocast=False)

    def call(self, x):
        """Any shape of at least two axes in, the same out."""
        return group_normalization(x, self.gamma, self.beta, groups=self.groups, epsilon=self.epsilon)


class RMSNormalization(SameShape):
    """x / sqrt(mean(x²) + epsilon) * gamma over the last axis, in float32 or float64.

    Zhang and Sennrich 2019; T5 uses it. Unlike layer normalisation it does not subtract the mean, and has no
    bias. With an `offset`, which is added to gamma, gamma starts at 1 - `offset`: in Gemma's models at 0.

    >>> keras_tfm.layers.RMSNormalization()(np.array([[2.0, 2.0]])).numpy().round(3).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, epsilon: float = 1e-6, offset: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.offset = offset

    def build(self, x_shape):
        initial = keras.initializers.Constant(1 - self.offset)
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer=initial)

    def call(self, x):
        """Any shape in, the same out."""
        gamma = in_float32(self.gamma) + self.offset if self.offset else self.gamma
        return rms_normalization(x, gamma, epsilon=self.epsilon)


class ModulatedNormalization(SameShape):
    """gamma(w) (x - mean) / sqrt(variance + epsilon) + beta(w), over the last axis, in float32 or float64.

    gamma and beta, dense layers that begin near 1 and 0, are functions of a second input w: "self-modulation"
    where the w of a generator is made of its own noise (Chen et al. 2019, "On Self Modulation for Generative
    Adversarial Networks"; Lee et al. 2022, "ViTGAN", section 3.3). With the `kernel_initializer`
    "zeros" they begin at 1 and 0.

    >>> keras_tfm.layers.ModulatedNormalization()(np.ones((1, 5, 8)), np.ones((1, 3))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self, epsilon: float = 1e-6, kernel_initializer: Initializer = "glorot_uniform", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer

    def build(self, x_shape, w_shape):
        def dense(bias, name):
            initializers = {"kernel_initializer": copy_of(self.kernel_initializer), "bias_initializer": bias}
            return keras.layers.Dense(x_shape[-1], name=name, **initializers)

        self.gamma, self.beta = dense("ones", "gamma"), dense("zeros", "beta")
        for layer in (self.gamma, self.beta):
            layer.build(w_shape)

    def call(self, x, w):
        """`x` (B, T, D) and `w` (B, W), or (B, T, W) for a modulation of each token: (B, T, D)."""
        dtype, x = x.dtype, in_float32(x)
        mean, variance = ops.moments(x, axes=-1, keepdims=True)
        x = (x - mean) * ops.rsqrt(variance + self.epsilon)
        w = w if len(w.shape) == len(x.shape) else w[:, None]
        gamma, beta = (ops.cast(layer(w), x.dtype) for layer in (self.gamma, self.beta))
        return ops.cast(gamma * x + beta, dtype)


def unit(x, axis=-1):
    """The vectors along `axis` divided by their lengths, in float32 or float64; zeros stay zeros."""
    x = in_float32(x)
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=axis, keepdims=True), 1e-24))
