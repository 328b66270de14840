"""Several layers as one: in a row, for example the branch of a residual, or side by side."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

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
        self.layers = _named(layers, "layer")

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


class Parallel(Layer):
    """The outputs of several `branches` on the same input, concatenated on the last axis.

    A branch that was made without a name is named by its place: `branch_0`, `branch_1`, ...

    >>> branches = [keras_tfm.layers.Convolution(dim) for dim in (4, 6)]
    >>> keras_tfm.layers.Parallel(branches)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 8, 8, 10])
    """

    def __init__(self, branches: Sequence[keras.layers.Layer], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not branches:
            raise ValueError("`branches` must hold at least one layer; it is empty.")
        self.branches = _named(branches, "branch")

    def build(self, x_shape, context_shape=None):
        for branch in self.branches:
            if not branch.built:
                branch.build(x_shape, *(() if context_shape is None else (context_shape,)))

    def call(self, x, context=None, training=None):
        """Calls each branch on `x`, and on `context` if given."""
        inputs = (x,) if context is None else (x, context)
        return ops.concatenate([branch(*inputs, training=training) for branch in self.branches], axis=-1)

    def compute_output_shape(self, x_shape, context_shape=None):
        shapes = [branch.compute_output_shape(x_shape) for branch in self.branches]
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))


class ParallelBlock(Parallel):
    """One block of a model, made of layers side by side.

    >>> keras_tfm.layers.ParallelBlock([keras_tfm.layers.FeedForward(16)])(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    is_block = True  # read by `rematerialize`, and where learning rates or freezing depend on depth


def _named(layers, kind):
    """The `layers` as a list; those made without a name are named by their place."""
    for i, layer in enumerate(layers):
        if not layer.built and has_automatic_name(layer):
            layer.name = f"{kind}_{i}"
    return list(layers)
