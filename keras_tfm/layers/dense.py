"""Keras's dense layer with a matrix product that is fast for one row too, as decoding needs it."""

import keras

from keras_tfm.layers.compiler.products import multiply
from keras_tfm.private.keras import delete_attribute


class Dense(keras.layers.Dense):
    """`keras.layers.Dense`, (..., D) -> (..., units), with the product of `compiler.products.multiply`."""

    def call(self, x, training=None):
        y = multiply(x, self.kernel)
        y = y if self.bias is None else y + self.bias
        return y if self.activation is None else self.activation(y)

    def __delattr__(self, name):
        """Keras deletes variables of a layer when it adds low-rank updates or quantises to 8 bits."""
        delete_attribute(self, name)

    def quantize(self, mode=None, type_check=True, config=None):
        super().quantize(mode, type_check=False, config=config)  # Keras would refuse a subclass
