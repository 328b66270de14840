"""Tubelets: a strided convolution over frames, rows and columns."""

import keras
import numpy as np
import pytest

from keras_tfm.layers import PatchEmbedding, TubeletEmbedding
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case("tubelets", lambda: TubeletEmbedding(5, (2, 3, 2)), {"videos": floats(4, 6, 4, 2)}),
)


def test_the_projection_is_a_strided_convolution():
    videos = np.random.default_rng(0).normal(size=(3, 4, 6, 4, 2)).astype("float32")
    layer, convolution = TubeletEmbedding(5, (2, 3, 2)), keras.layers.Conv3D(5, (2, 3, 2), strides=(2, 3, 2))
    expected = convolution(videos)
    assert layer.compute_output_shape(videos.shape) == expected.shape == (3, 2, 2, 2, 5)
    layer.build(videos.shape)
    kernel, bias = convolution.get_weights()
    layer.set_weights([kernel.reshape(-1, 5), bias + 1])
    np.testing.assert_allclose(layer(videos), expected + 1, atol=1e-5)


def test_tubelets_of_one_frame_are_its_patches():
    videos = np.random.default_rng(0).normal(size=(2, 3, 4, 4, 1)).astype("float32")
    layer, patches = TubeletEmbedding(5, (1, 2, 2)), PatchEmbedding(5, 2)
    y = layer(videos)
    for i in range(3):
        frame = patches(videos[:, i])
        patches.set_weights(layer.get_weights())
        np.testing.assert_allclose(y[:, i], patches(videos[:, i]), atol=1e-6)
        assert frame.shape == (2, 2, 2, 5)


def test_refusals():
    with pytest.raises(ValueError, match=r"`tubelet_size` must be \(frames, height, width\); it is \(2, 2\)"):
        TubeletEmbedding(4, (2, 2))
    with pytest.raises(ValueError, match="Videos of 3 frames are not divisible into tubelets of 2"):
        TubeletEmbedding(4, (2, 2, 2))(np.zeros((1, 3, 4, 4, 1), "float32"))
    with pytest.raises(ValueError, match="4 x 5 are not divisible into patches of 2 x 2"):
        TubeletEmbedding(4, (2, 2, 2))(np.zeros((1, 2, 4, 5, 1), "float32"))
    with pytest.raises(ValueError, match=r"`videos` must be floating-point, .* they are uint8"):
        TubeletEmbedding(4, (2, 2, 2))(np.zeros((1, 4, 4, 4, 1), "uint8"))
    with pytest.raises(ValueError, match=r"`videos` must have the shape \(B, F, H, W, C\)"):
        TubeletEmbedding(4, (2, 2, 2))(np.zeros((1, 4, 4, 1), "float32"))
