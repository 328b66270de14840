"""The dense layer equals Keras's, whichever way it multiplies."""

import keras
import numpy as np
import pytest

from keras_tfm.layers.compiler import products
from keras_tfm.layers.compiler.products import multiply, multiply_transposed
from keras_tfm.layers.dense import Dense


@pytest.mark.parametrize("shape", [(1, 1, 512), (2, 3, 512), (32, 512), (33, 512), (0, 512)])
@pytest.mark.parametrize("width", [512, 127])
def test_few_rows_times_a_large_kernel(shape, width, monkeypatch):
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=shape).astype("f"), rng.normal(size=(512, width)).astype("f")
    monkeypatch.setattr(products, "LARGE", 1 << 16)
    y = multiply(keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(kernel))
    np.testing.assert_allclose(y, x @ kernel, atol=1e-3)


@pytest.mark.parametrize("rows", [(1,), (1, 1), (2, 3), (129,), (0, 1)])
def test_few_rows_times_a_transposed_table(rows, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(products, "LARGE", 1 << 8)
    x, table = rng.normal(size=(*rows, 16)).astype("f"), rng.normal(size=(50, 16)).astype("f")
    np.testing.assert_allclose(
        multiply_transposed(x, keras.ops.convert_to_tensor(table)), x @ table.T, atol=1e-4
    )


def test_the_layer_is_keras_s():
    x = np.random.default_rng(0).normal(size=(1, 1, 512)).astype("f")
    ours, theirs = (kind(600, "relu") for kind in (Dense, keras.layers.Dense))
    for layer in (ours, theirs):
        layer.build((None, None, 512))
    theirs.set_weights([ours.kernel, np.random.default_rng(1).normal(size=600)])
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(ours(x), theirs(x), atol=1e-4)
    expected = ours(x)
    ours.quantize("int8")
    np.testing.assert_allclose(ours(x), expected, atol=0.03 * np.abs(expected).max())
