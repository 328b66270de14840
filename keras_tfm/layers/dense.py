"""Keras's dense layer, computed faster: by one row, in training without XLA, and in bfloat16 on a CPU."""

import functools
import inspect

import keras
from keras import ops

from keras_tfm.inputs import refuse_complex
from keras_tfm.layers.compiler.fused import fused
from keras_tfm.layers.compiler.products import multiply
from keras_tfm.layers.masks import in_float32
from keras_tfm.private.keras import delete_attribute


class Dense(keras.layers.Dense):
    """`keras.layers.Dense`, (..., D) -> (..., units), with the product of `compiler.products.multiply`."""

    def call(self, x, training=None):
        if "complex" in str(x.dtype):  # TensorFlow refuses the product too, but does not name the layer
            refuse_complex(x, f"The input of {self.path!r}")
        y = multiply(x, self.kernel, self.bias)
        is_linear = self.activation is None or self.activation is keras.activations.linear
        return y if is_linear else fused_activation(self.activation)(y)

    def __delattr__(self, name):
        """Keras deletes variables of a layer when it adds low-rank updates or quantises to 8 bits."""
        delete_attribute(self, name)

    def quantize(self, mode=None, type_check=True, config=None):
        super().quantize(mode, type_check=False, config=config)  # Keras would refuse a subclass


@functools.cache
def fused_activation(activation):
    """`activation`, which is computed in float32 where XLA compiles it alone; a layer stays as it is."""
    if not inspect.isfunction(activation):
        return activation

    def in_higher_precision(x):
        return ops.cast(activation(in_float32(x)), x.dtype)

    return fused(in_higher_precision, activation)
