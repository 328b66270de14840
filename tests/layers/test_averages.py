"""Averages by a softmax, and products of large weights, whose gradients are written out."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.layers import MultiHeadAttention
from keras_tfm.layers.compiler.averages import softmax_average
from keras_tfm.layers.compiler.products import product, transposed_product
from keras_tfm.layers.masks import masked_softmax
from keras_tfm.visualize import record_attention

RNG = np.random.default_rng(0)
LARGE = (128, 160)  # a head's weights, whose products are oriented otherwise than those of SMALL
SMALL = (3, 5)


def normal(*shape):
    return tf.constant(RNG.normal(size=shape).astype("float32"))


def gradients(function, *tensors):
    """[The output, the gradient of each tensor]."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    return [y, *tape.gradient(y, tensors, tf.cos(3 * y))]


def compiled(function, jit_compile, tensors):
    """`gradients` of the function in a graph that does not know the size of the batch."""
    specs = [tf.TensorSpec([None if not jit_compile else x.shape[0], *x.shape[1:]], x.dtype) for x in tensors]
    run = tf.function(lambda *x: gradients(function, *x), specs, jit_compile=jit_compile, autograph=False)
    return run(*tensors)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_averages_and_gradients(sizes, jit_compile):
    length, width = sizes
    scores, value = normal(2, 3, length, width), normal(2, 3, width, 4)
    mask = RNG.random((2, 1, length, width)) > 0.3
    mask[0, 0, 1] = False  # a query without keys
    for hidden in (None, tf.constant(mask)):
        expected = gradients(lambda s, v, m=hidden: tf.matmul(masked_softmax(s, m), v), scores, value)
        found = compiled(lambda s, v, m=hidden: softmax_average(s, v, m), jit_compile, (scores, value))
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-6)
    assert np.all(found[0][0, :, 1] == 0) and np.all(found[1][0, :, 1] == 0)


def test_large_scores_do_not_overflow():
    y, of_scores, _ = gradients(softmax_average, 1e4 * normal(1, 1, 4, 6), normal(1, 1, 6, 2))
    assert np.isfinite(y).all() and np.isfinite(of_scores).all()


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_of_large_products(transpose, jit_compile):
    x, y = normal(2, 3, 128, 8) if transpose else normal(2, 3, *LARGE) / 8, normal(2, 3, 160, 8) / 8
    expected = gradients(lambda x, y: tf.matmul(x, y, transpose_b=transpose), x, y)
    found = compiled(lambda x, y: product(x, y, transpose), jit_compile, (x, y))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-4)


def test_a_product_of_a_transpose():
    for shape in ((2, 3, *LARGE), (2, 3, *SMALL), LARGE):
        x, y = normal(*shape), normal(*shape[:-1], 7)
        np.testing.assert_allclose(
            transposed_product(x, y), tf.matmul(x, y, transpose_a=True), rtol=1e-4, atol=1e-4
        )


def test_attention_learns_as_its_recorded_weights_do():
    """With the tap the weights are computed one by one, without it the averages at once."""
    layer, x = MultiHeadAttention(num_heads=2), normal(2, 130, 8)
    layer(x)
    mask = np.ones((2, 130), bool)
    mask[1, 100:] = False

    def run(x):
        return layer(x, mask=mask, causal=True, training=True)

    at_once = gradients(run, x)
    with record_attention(layer) as recorded:
        one_by_one = gradients(run, x)
    assert recorded
    for one, other in zip(at_once, one_by_one, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(at_once[0], layer(x, mask=mask, causal=True), atol=1e-6)
