"""Layers one after the other, as one layer: a residual's branch that is made of several."""

from keras_tfm.layers.base import Layer, has_automatic_name


class Chain(Layer):
    """The `layers`, each called on what the one before it gave.

    One that was made without a name is called by its place, `layer_0` for example.
    """

    def __init__(self, layers, **kwargs):
        super().__init__(**kwargs)
        if not layers:
            raise ValueError("`layers` must hold at least one layer.")
        for i, layer in enumerate(layers):
            if not layer.built and has_automatic_name(layer):
                layer.name = f"layer_{i}"
        self.layers = list(layers)

    def build(self, x_shape):
        for layer in self.layers:
            if not layer.built:
                layer.build(x_shape)
            x_shape = layer.compute_output_shape(x_shape)
        self.built = True

    def call(self, x, training=None):
        """What the last layer gives."""
        for layer in self.layers:
            x = layer(x, training=training)
        return x

    def compute_output_shape(self, x_shape):
        for layer in self.layers:
            x_shape = layer.compute_output_shape(x_shape)
        return tuple(x_shape)


class ChainBlock(Chain):
    """One block of a model: residuals, one after the other, where `Block`'s parts do not fit."""

    is_block = True  # for `rematerialize` and for what goes by depth
