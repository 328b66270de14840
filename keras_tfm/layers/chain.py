"""Several layers in a row, as one layer: for example the branch of a residual."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_tfm.layers.base import Layer
from keras_tfm.precision import has_automatic_name


class Chain(Layer):
    """The `layers`, each called on the output of the one before.

    A layer that was made without a name is named by its place: `layer_0`, `layer_1`, ...

    >>> feedforward, norm = keras_tfm.layers.FeedForward(16), keras_tfm.layers.LayerNormalization()
    >>> chain = keras_tfm.layers.Chain([feedforward, norm])
    >>> chain(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(self, layers: Sequence[keras.layers.Layer], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not layers:
            raise ValueError("`layers` must hold at least one layer; it is empty.")
        for i, layer in enumerate(layers):
            if not layer.built and has_automatic_name(layer):
                layer.name = f"layer_{i}"
        self.layers = list(layers)

    def build(self, x_shape):
        for layer in self.layers:
            if not layer.built:
                layer.build(x_shape)
            x_shape = layer.compute_output_shape(x_shape)

    def call(self, x, training=None):
        """The output of the last layer."""
        for layer in self.layers:
            x = layer(x, training=training)
        return x

    def compute_output_shape(self, x_shape):
        for layer in self.layers:
            x_shape = layer.compute_output_shape(x_shape)
        return tuple(x_shape)


class ChainBlock(Chain):
    """One block of a model, made of layers in a row. It is no `Block`, whose parts keep the shape.

    >>> part = keras_tfm.layers.Residual(keras_tfm.layers.FeedForward(16))
    >>> keras_tfm.layers.ChainBlock([part])(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    is_block = True  # read by `rematerialize`, and where learning rates or freezing depend on depth
