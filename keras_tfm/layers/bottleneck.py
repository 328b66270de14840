"""Residual blocks of convolutions whose shortcut may change the shape (He et al. 2016, "Deep Residual
Learning").

    x --> norm --+--> branch --> + --> activation -->
                 |_> shortcut _>|

Without a `norm` it is the block of that paper. With a `norm` and without an `activation` it is that of He et
al. 2016, "Identity Mappings in Deep Residual Networks", where a block without a `shortcut` adds `x` itself.
"""

from typing import Any

import keras

from keras_tfm.layers.base import Layer
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.regularization import StochasticDepth
from keras_tfm.layers.signatures import Activation


class ShortcutBlock(Layer):
    """activation(branch(norm(x)) + shortcut(norm(x))) for maps (B, height, width, C).

    It is no `Block`: the map may change its shape, and the shortcut is a layer.

    Args:
        branch: a layer that may change the shape of the map.
        shortcut: a layer that gives the map the shape of the branch's output; None adds `x` itself.
        norm: a layer applied before both, or None.
        activation: applied to the sum; a name or None.
        stochastic_depth: the rate at which the branch is dropped in training, example by example.

    >>> branch = keras_tfm.layers.Convolution(16, stride=2)
    >>> shortcut = keras_tfm.layers.Convolution(16, kernel_size=1, stride=2)
    >>> keras_tfm.layers.ShortcutBlock(branch, shortcut)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 4, 4, 16])
    """

    is_block = True

    def __init__(
        self,
        branch: keras.layers.Layer,
        shortcut: keras.layers.Layer | None = None,
        norm: keras.layers.Layer | None = None,
        activation: Activation = None,
        stochastic_depth: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= stochastic_depth < 1:
            raise ValueError(f"`stochastic_depth` must lie in [0, 1); it is {stochastic_depth}.")
        self.branch = branch
        self.shortcut = shortcut
        self.norm = norm
        self.activation = activation
        self.stochastic_depth = stochastic_depth
        self.function = activation_of(activation)
        self.dropout = StochasticDepth(stochastic_depth, name="dropout") if stochastic_depth else None

    def build(self, x_shape):
        if self.norm is not None:
            self.norm.build(x_shape)
        for layer in (self.branch, self.shortcut):
            if layer is not None:
                layer.build(x_shape)
        shape = tuple(x_shape) if self.shortcut is None else self.shortcut.compute_output_shape(x_shape)
        if shape != tuple(self.branch.compute_output_shape(x_shape)):
            branch_shape = self.branch.compute_output_shape(x_shape)
            raise ValueError(
                f"`branch` and `shortcut` must give the same shape; of {tuple(x_shape)} they make "
                f"{branch_shape} and {shape}."
            )

    def call(self, x, training=None):
        """(B, height, width, C) -> (B, height', width', D)."""
        y = x if self.norm is None else self.norm(x, training=training)
        x = x if self.shortcut is None else self.shortcut(y, training=training)
        y = self.branch(y, training=training)
        if training and self.dropout is not None:
            y = self.dropout(y, training=True)
        return self.function(x + y)

    def compute_output_shape(self, x_shape):
        return self.branch.compute_output_shape(x_shape)
