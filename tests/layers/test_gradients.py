"""Functions with a gradient of their own end with what they belong to."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.layers.chain import ChainBlock
from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.layers.compiler.normalization import layer_normalization, rms_normalization
from keras_tfm.layers.feedforward import activation_of, gelu, silu
from keras_tfm.layers.rematerialization import rematerialize

ONES = np.ones(3, "float32")


@custom_gradient
def pair(x, y):
    return (x * y, x + y), lambda product, total: (product * y + total, product * x + total)


def nested(x):
    @custom_gradient
    def outer(x):
        return gelu(x) * 2, lambda upstream: gelu(upstream) * 5

    return outer(x)


@pytest.mark.parametrize(
    "function",
    [
        gelu,
        silu,
        nested,
        lambda x: layer_normalization(x, ONES, ONES, epsilon=1e-6),
        lambda x: rms_normalization(x, ONES, epsilon=1e-6),
        lambda x: sum(pair(x, x)),
    ],
    ids=["gelu", "silu", "nested", "layer norm", "RMS norm", "pair"],
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_dropped_function_frees_its_graph(function, jit_compile):
    """Its weights and its table of gradients too; the gradients are those without a graph."""
    weight = tf.Variable(np.linspace(-1, 2, 6, dtype="float32").reshape(2, 3))
    graphs = []

    def call(factor):
        graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
        return function(weight * factor)

    def gradient(call):
        with tf.GradientTape() as tape:
            y = call(tf.constant(2.0))
        return tape.gradient(y, weight).numpy()

    compiled = tf.function(call, autograph=False, jit_compile=jit_compile)
    np.testing.assert_allclose(gradient(compiled), gradient(call), rtol=1e-5, atol=1e-6)
    assert graphs[0]() is not None
    del compiled
    gc.collect()
    assert graphs[0]() is None


@pytest.mark.parametrize("name", ["silu", "swish"])
def test_silu_is_that_of_tensorflow_to_the_bit(name):
    x = tf.constant(np.random.default_rng(0).normal(0, 5, 500).astype("float32"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        ours, theirs = activation_of(name)(x), tf.nn.silu(x)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(tape.gradient(ours, x), tape.gradient(theirs, x))


@pytest.mark.parametrize("recomputes", [False, True])
def test_a_dropped_model_frees_its_weights(recomputes):
    block = ChainBlock([keras.layers.Dense(3), keras.layers.Activation(gelu)])
    model = keras.Sequential([keras.Input((3,)), rematerialize(block) if recomputes else block])
    kernel = weakref.ref(model.weights[0])
    model(np.zeros((1, 3)))
    model.predict(np.zeros((1, 3)), verbose=0)
    del model, block
    gc.collect()
    assert kernel() is None
