"""Residual blocks of convolutions: the contract, the formula by hand, what a condition changes."""

import keras
import numpy as np
import pytest

from keras_tfm.layers import MapAttention, MultiHeadAttention, ResidualConvolution, RMSNormalization
from tests import contract
from tests.contract import Case, floats, randomise

MAP = {"x": floats(3, 4, 6)}


def norm():
    return keras.layers.GroupNormalization(2, epsilon=1e-6)


test_contract = contract.check(
    Case("wider", lambda: ResidualConvolution(4, norm(), dropout=0.1), MAP, convolves=True),
    Case(
        "scaled and shifted",
        lambda: ResidualConvolution(6, RMSNormalization(), modulates=True),
        MAP | {"condition": floats(5)},
        convolves=True,
    ),
)


def test_kernels_of_one_cell_see_no_other_cell():
    x, layer = draw(1, 3, 4, 6), ResidualConvolution(4, RMSNormalization(), kernel_size=1)
    changed = x.copy()
    changed[:, 1, 2] += 1
    differs = np.asarray(abs(layer(x) - layer(changed)) > 0).any((0, -1))
    assert differs.sum() == 1 and differs[1, 2]
    with pytest.raises(ValueError, match="`kernel_size` must be at least 1; it is 0"):
        ResidualConvolution(4, kernel_size=0)


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def swish(x):
    return x / (1 + np.exp(-np.asarray(x, "float64")))


def grouped(x, layer):
    """Group normalisation of (B, height, width, C): each group of channels has mean 0 and variance 1."""
    x = np.asarray(x, "float64")
    groups = x.reshape(*x.shape[:3], 2, -1)  # (B, height, width, 2, C / 2)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    x = ((groups - mean) / np.sqrt(variance + 1e-6)).reshape(x.shape)
    return x * np.asarray(layer.gamma) + np.asarray(layer.beta)


@pytest.mark.parametrize("modulates", [False, True])
def test_the_formula(modulates):
    layer = ResidualConvolution(4, norm(), modulates=modulates)
    x, condition = draw(2, 3, 4, 6), draw(2, 5)
    layer(x, condition)
    randomise(layer, 1)
    y = layer.convolution_1(swish(grouped(x, layer.norm_1)).astype("float32"))
    numbers = np.asarray(layer.projection(swish(condition).astype("float32")))[:, None, None]
    if modulates:
        y = grouped(y, layer.norm_2) * (1 + numbers[..., :4]) + numbers[..., 4:]
    else:
        y = grouped(y + numbers, layer.norm_2)
    expected = layer.convolution_2(swish(y).astype("float32")) + layer.shortcut(x)
    np.testing.assert_allclose(layer(x, condition), expected, atol=1e-5)


def test_context_and_gate_stand_after_their_convolutions():
    attention = MapAttention(MultiHeadAttention(2))
    gate = keras.layers.Rescaling(0.5)
    layer, plain = ResidualConvolution(6, norm(), gate=gate), ResidualConvolution(6, norm())
    x = draw(2, 3, 4, 6)
    layer(x), plain(x)
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(x) - x, 0.5 * (plain(x) - x), atol=1e-6)
    with pytest.raises(ValueError, match="attends to a context: call it with a `context`"):
        ResidualConvolution(6, norm(), context_attention=attention)(x)


def test_refusals():
    layer = ResidualConvolution(6, norm())
    layer(draw(1, 3, 4, 6), draw(1, 5))
    with pytest.raises(ValueError, match="was built with a `condition`: call it so again"):
        layer(draw(1, 3, 4, 6))
    with pytest.raises(ValueError, match="has no `context_attention`: call it without a `context`"):
        layer(draw(1, 3, 4, 6), draw(1, 5), draw(1, 2, 7))
    with pytest.raises(ValueError, match=r"`dropout` must lie in \[0, 1\); it is 1"):
        ResidualConvolution(6, dropout=1)
    with pytest.raises(ValueError, match="`filters` must be at least 1; it is 0"):
        ResidualConvolution(0)
