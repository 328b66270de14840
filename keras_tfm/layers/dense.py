"""Keras's dense layer, fast for the few rows of decoding too."""

import keras

from keras_tfm.layers.compiler.products import multiply
from keras_tfm.private.keras import delete_attribute


class Dense(keras.layers.Dense):
    """Keras's, with its product by `multiply`: (..., D) -> (..., units)."""

    def call(self, x, training=None):
        y = multiply(x, self.kernel)
        y = y if self.bias is None else y + self.bias
        return y if self.activation is None else self.activation(y)

    def __delattr__(self, name):
        """Low-rank updates and 8 bits delete a variable or two of every layer."""
        delete_attribute(self, name)

    def quantize(self, mode=None, type_check=True, config=None):
        super().quantize(mode, type_check=False, config=config)  # Keras would refuse a subclass
