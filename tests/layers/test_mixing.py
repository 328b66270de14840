"""Mixing of tokens: by a layer on the transposed sequence, by a Fourier transform; against NumPy."""

import numpy as np
import pytest

from keras_tfm.layers import FeedForward, FourierMixing, TokenMixing
from tests import contract
from tests.contract import Case, floats


def mixed_by_hand(layer, x):
    """Two dense layers and a ReLU on the transposed sequence, in float64."""
    feedforward = layer.layer
    first, second = (
        [np.asarray(weight, "float64") for weight in (dense.kernel, dense.bias)]
        for dense in (feedforward.hidden, feedforward.output_projection)
    )
    hidden = np.maximum(np.swapaxes(x, 1, 2) @ first[0] + first[1], 0)
    return np.swapaxes(hidden @ second[0] + second[1], 1, 2)


test_contract = contract.check(
    Case("TokenMixing", lambda: TokenMixing(FeedForward(6)), {"x": floats(5, 8)}, reference=mixed_by_hand),
    Case(
        "FourierMixing",
        FourierMixing,
        {"x": floats("T", 8)},
        reference=lambda layer, x: np.fft.fft2(x.astype("float64")).real,
        kind="Fourier",
    ),
)


def test_a_single_token_and_feature_is_a_cosine():
    """Of 1 at token 1 and feature 2 of 3 x 4 the transform is cos(2 pi (t / 3 + 2 d / 4))."""
    x = np.zeros((1, 3, 4), "float32")
    x[0, 1, 2] = 1
    tokens, features = np.arange(3)[:, None], np.arange(4)
    expected = np.cos(2 * np.pi * (tokens / 3 + 2 * features / 4))
    np.testing.assert_allclose(FourierMixing()(x)[0], expected, atol=1e-6)


def test_mixing_acts_along_the_tokens_alone():
    layer = TokenMixing(FeedForward(6))
    x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    other = x.copy()
    other[0, 2, 3] += 1
    changed = np.abs(np.asarray(layer(other)) - np.asarray(layer(x))).max((0, 1)) > 1e-6
    np.testing.assert_array_equal(changed, np.arange(8) == 3)


def test_the_length_must_be_known():
    with pytest.raises(ValueError, match=r"\(B, T, D\) with a known T; it is \(None, None, 8\)"):
        TokenMixing(FeedForward(6)).build((None, None, 8))
