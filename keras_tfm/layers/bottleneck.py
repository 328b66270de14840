"""Residual blocks of convolutions with shortcuts (He et al. 2016, "Deep Residual Learning").

    x --> norm --+--> branch --> + --> activation -->
                 |_> shortcut _>|

Without a `norm` it is the block of that paper; with one, and without an `activation`, that of He et al. 2016,
"Identity Mappings in Deep Residual Networks", where a block without a `shortcut` adds `x` itself.
"""

from keras_tfm.layers.base import Layer
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.regularization import StochasticDepth


class ShortcutBlock(Layer):
    """activation(shortcut(x) + branch(x)) of maps (B, height, width, C), by layers that change their shape.

    `shortcut` is a layer that gives `x` the shape of the `branch`'s output, None where it has that shape
    already; `norm`, a layer too, acts before both, `activation` on the sum. The branch is left out of whole
    examples with the probability `stochastic_depth`.
    """

    is_block = True

    def __init__(self, branch, shortcut=None, norm=None, activation=None, stochastic_depth=0.0, **kwargs):
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
            made = self.branch.compute_output_shape(x_shape)
            raise ValueError(f"The branch makes {made} of {tuple(x_shape)}, its shortcut {shape}.")
        self.built = True

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
