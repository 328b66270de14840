"""Blocks with shortcuts: the contract, what is added to what; kernels that are standardised."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm.layers import BatchNormalization, Convolution, LayerNormalization, StandardizedConvolution
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.convolution import StandardizedConv2D
from tests import contract
from tests.contract import Case, floats

MAP = {"x": floats(5, 6, 4)}


def after_the_sum():
    branch = Convolution(8, 3, 2, norm=BatchNormalization())
    return ShortcutBlock(branch, Convolution(8, 1, 2), activation="leaky_relu")  # which dies nowhere


def before_the_branch():
    return ShortcutBlock(StandardizedConvolution(4, 3), norm=LayerNormalization(), stochastic_depth=0.1)


def standardised_by_hand(layer, x):
    """A 1 x 1 convolution in float64: each filter's weights less their mean, over their deviation."""
    kernel = np.asarray(layer.convolution.kernel, "float64")[0, 0]
    return x @ ((kernel - kernel.mean(0)) / np.sqrt(kernel.var(0) + layer.epsilon))


test_contract = contract.check(
    Case("after the sum", after_the_sum, MAP, convolves=True),
    Case("before the branch", before_the_branch, MAP, convolves=True),
    Case(
        "StandardizedConvolution",
        lambda: StandardizedConvolution(6, 1),
        MAP,
        convolves=True,
        reference=standardised_by_hand,
    ),
)


def test_what_is_added_to_what():
    x = np.random.default_rng(0).normal(size=(1, 5, 6, 4)).astype("float32")
    block = before_the_branch()
    np.testing.assert_allclose(block(x), x + block.branch(block.norm(x)), atol=1e-6)
    norm, shortcut = keras.layers.Activation("relu"), Convolution(6, 1)
    block = ShortcutBlock(Convolution(6, 3), shortcut, norm, "relu")  # called on what is normalised
    y = np.maximum(x, 0)
    np.testing.assert_allclose(block(x), np.maximum(shortcut(y) + block.branch(y), 0), atol=1e-6)


def test_a_kernel_and_its_multiple_are_the_same():
    layer = StandardizedConvolution(6, (3, 2), 2, padding=(1, 0), activation="relu")
    x = np.random.default_rng(0).normal(size=(1, 5, 6, 4)).astype("float32")
    before = np.asarray(layer(x))
    assert before.shape == (1, 3, 3, 6)
    layer.convolution.kernel.assign(3 * layer.convolution.kernel + 1)
    np.testing.assert_allclose(layer(x), before, atol=1e-5)


def test_a_standardised_kernel_of_one_cell_takes_every_nth_before_it():
    """Its gradient by a stride corrupts memory in TensorFlow 2.21, on CPUs, where cells are left over."""
    x = np.random.default_rng(0).normal(size=(2, 6, 5, 4)).astype("float32")
    layer = StandardizedConv2D(3, 1, strides=2, padding="same", use_bias=False)
    y = layer(x)
    assert y.shape == layer.compute_output_shape(x.shape) == (2, 3, 3, 3)
    kernel = layer.kernel - ops.mean(layer.kernel, axis=(0, 1, 2))
    kernel /= ops.sqrt(ops.mean(ops.square(kernel), axis=(0, 1, 2)) + layer.epsilon)
    np.testing.assert_allclose(y, x[:, ::2, ::2] @ np.asarray(kernel)[0, 0], atol=1e-5)
    traced = tf.function(layer).get_concrete_function(tf.TensorSpec(x.shape)).graph
    assert {tuple(op.get_attr("strides")) for op in traced.get_operations() if op.type == "Conv2D"} == {
        (1, 1, 1, 1)
    }


def test_refusals():
    with pytest.raises(TypeError, match="'groups'"):
        StandardizedConvolution(16, groups=4)
    with pytest.raises(ValueError, match=r"of \(None, 5, 6, 4\) they make \(None, 5, 6, 8\) and"):
        ShortcutBlock(Convolution(8)).build((None, 5, 6, 4))
    with pytest.raises(ValueError, match=r"`stochastic_depth` must lie in \[0, 1\); it is 1"):
        ShortcutBlock(Convolution(4), stochastic_depth=1)
