"""Bicubic resizing: values of PyTorch by hand, constants that stay, Keras's and Pillow's smoothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from PIL import Image

from keras_tfm.layers.resizing import resize_bicubic


def test_twice_the_size_has_the_weights_of_pytorch():
    """A cubic with a = -3/4 a quarter of a cell beside the centres."""
    x = np.zeros((1, 6, 1, 1), "float32")
    x[0, 2] = 1
    y = np.ravel(resize_bicubic(x, (12, 1)))
    expected = [0, -0.03515625, -0.10546875, 0.26171875, 0.87890625]
    np.testing.assert_allclose(y, [*expected, *expected[::-1], 0, 0], atol=1e-7)
    x = np.zeros((1, 6, 1, 1), "float32")
    x[0, 0] = 1  # it stands for the cells before it, too
    y = np.ravel(resize_bicubic(x, (12, 1)))
    np.testing.assert_allclose(
        y[:2], [-0.03515625 + 0.26171875 + 0.87890625, 0.87890625 - 0.10546875], atol=1e-7
    )


@pytest.mark.parametrize("smooths", [False, True])
def test_constants_stay(smooths):
    x = np.full((2, 5, 7, 3), 2.5, "float32")
    np.testing.assert_allclose(resize_bicubic(x, (3, 11), smooths), np.full((2, 3, 11, 3), 2.5), rtol=1e-6)


@pytest.mark.parametrize("size", [(4, 6), (20, 24)])
def test_smoothing_is_that_of_pillow(size):
    x = np.random.default_rng(0).random((12, 16), "float32")
    expected = np.asarray(Image.fromarray(x).resize(size[::-1], Image.Resampling.BICUBIC))
    y = np.asarray(resize_bicubic(x[None, :, :, None], size, smooths=True))
    np.testing.assert_allclose(y[0, :, :, 0], expected, atol=1e-5)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_smoothing_is_that_of_keras(rows, columns, new_rows, new_columns):
    x = np.random.default_rng(0).normal(size=(2, rows, columns, 3)).astype("float32")
    grid = (new_rows, new_columns)
    expected = ops.image.resize(x, grid, interpolation="bicubic", antialias=True)
    np.testing.assert_allclose(resize_bicubic(x, grid, smooths=True), expected, atol=1e-5)
