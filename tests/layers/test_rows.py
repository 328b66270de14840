"""Rows by their numbers: values and gradients as Keras's `take_along_axis` has them, compiled and not."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm.layers.compiler.rows import rows_at

RNG = np.random.default_rng(0)
X, UPSTREAM = RNG.normal(size=(3, 5, 4)).astype("float32"), RNG.normal(size=(3, 6, 4)).astype("float32")
PLACES = RNG.integers(0, 5, (3, 6))  # some repeat, some rows are never taken


def with_gradient(take, x):
    """(The rows, the gradient)."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        rows = take(x)
    return rows, tape.gradient(rows, x, UPSTREAM)


@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_rows_and_their_gradient(jit_compile):
    def run(x):
        return with_gradient(lambda x: rows_at(x, PLACES), x)

    if jit_compile is not None:
        shape = [3, 5 if jit_compile else None, 4]
        run = tf.function(run, [tf.TensorSpec(shape)], jit_compile=jit_compile)
    expected = with_gradient(lambda x: ops.take_along_axis(x, PLACES[..., None], axis=1), tf.constant(X))
    for found, known in zip(run(tf.constant(X)), expected, strict=True):
        np.testing.assert_allclose(found, known, atol=1e-6)
    np.testing.assert_array_equal(run(tf.constant(X))[0], np.take_along_axis(X, PLACES[..., None], axis=1))


def test_half_precision_stays():
    assert rows_at(tf.constant(X, tf.bfloat16), PLACES).dtype == tf.bfloat16
