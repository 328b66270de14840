"""Spectrally normalised convolutions: the greatest singular value is 1 after some steps, against NumPy's."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.layers import SpectralConvolution, SpectralDense
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case("on maps", lambda: SpectralConvolution(6, 3, 2), {"x": floats(5, 6, 4)}, convolves=True),
    Case("on videos", lambda: SpectralConvolution(6, (1, 3, 2)), {"x": floats(3, 5, 6, 2)}, convolves=True),
    Case("dense", lambda: SpectralDense(6, "gelu", keeps_norm=True), {"x": floats("T", 4)}),
)


def test_the_greatest_singular_value_becomes_1():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 6, 4)).astype("float32")
    layer = SpectralConvolution(5, 3, use_bias=False)
    layer.build(x.shape)
    kernel = rng.normal(size=(3, 3, 4, 5)).astype("float32")
    layer.convolution.kernel.assign(kernel)
    before = np.array(layer.vector)
    layer(x)
    np.testing.assert_array_equal(layer.vector, before)  # training alone moves it
    for _ in range(60):
        y = layer(x, training=True)
    value = np.linalg.svd(kernel.reshape(-1, 5))[1][0]
    np.testing.assert_allclose(layer.normalized_kernel(), kernel / value, rtol=1e-4, atol=1e-6)
    plain = tf.nn.conv2d(x, kernel / value, 1, "SAME")
    np.testing.assert_allclose(y, plain, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(layer(x), plain, rtol=1e-3, atol=1e-4)


def test_gradients_do_not_change_the_kernels_size():
    """The output is the same for a kernel twice as large: its gradient is at right angles to the kernel."""
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6, 2)).astype("float32")
    layer = SpectralConvolution(5, (1, 3, 3))
    for _ in range(60):
        layer(x, training=True)
    kernel = layer.convolution.kernel
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x) ** 2)
    gradient = np.asarray(tape.gradient(loss, kernel.value))
    assert np.abs(gradient).max() > 1
    assert abs(np.sum(gradient * kernel)) < 1e-3 * np.abs(gradient * kernel).sum()


def test_the_first_norm_is_kept():
    """Twice the kernel gives the same output, whose greatest singular value is the first kernel's."""
    x = np.random.default_rng(0).normal(size=(2, 5)).astype("float32")
    for layer, shape in ((SpectralDense(7, keeps_norm=True), (2, 5)),
                         (SpectralConvolution(7, 1, keeps_norm=True), (2, 1, 1, 5))):  # fmt: skip
        layer.build((None, *shape[1:]))
        kernel = layer.kernel if isinstance(layer, SpectralDense) else layer.convolution.kernel
        first = np.array(kernel)
        np.testing.assert_allclose(layer.initial_norm, np.linalg.norm(first.reshape(-1, 7), 2), rtol=1e-5)
        for _ in range(80):
            layer(x.reshape(shape), training=True)
        np.testing.assert_allclose(layer.normalized(kernel), first, rtol=1e-3, atol=1e-5)
        kernel.assign(2 * first)
        np.testing.assert_allclose(layer(x.reshape(shape)), (x @ first.reshape(5, 7)).reshape(*shape[:-1], 7),
                                   rtol=1e-3, atol=1e-4)  # fmt: skip


def test_refusals():
    layer = SpectralDense(4)
    layer.build((None, 5))
    with pytest.raises(ValueError, match="stays in floats"):
        layer.quantize("int8")
    with pytest.raises(ValueError, match="`groups` must be 1 in a SpectralConvolution; it is 2"):
        SpectralConvolution(4, groups=2)(np.zeros((1, 5, 5, 4), "float32"))
