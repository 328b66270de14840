"""Layer normalisation: values and gradients are those of Keras's own layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats
from tests.layers import reference

test_contract = contract.check(
    Case("normalization", lambda: layers.LayerNormalization(), {"x": floats("T", 6)},
         reference=reference.norm),
)  # fmt: skip


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 16), (2, 3, 4, 9)])
def test_values_and_gradients_are_those_of_keras(shape):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(3.0, 2.0, shape), "float32")
    upstream = tf.constant(rng.normal(size=shape), "float32")
    weights = rng.normal(size=(2, shape[-1]))
    results = []
    for layer in (layers.LayerNormalization(1e-3), keras.layers.LayerNormalization(epsilon=1e-3)):
        layer.build(shape)
        layer.set_weights(list(weights))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        results.append([y, *tape.gradient(y, [x, *layer.trainable_variables], upstream)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
