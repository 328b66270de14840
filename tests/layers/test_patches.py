"""Patches: their order, the exact inverse, the projection as a convolution, positions over another grid."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers import PatchEncoder, combine_patches, extract_patches
from keras_tfm.layers.patches import interpolate_positions
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case("class token", lambda: PatchEncoder(4, 6), {"images": floats(8, 12, 3)}, kind="images"),
    Case("patches alone", lambda: PatchEncoder((2, 3), 6, class_token=False), {"images": floats(4, 6, 1)}),
)


def test_patches_run_row_by_row_and_by_row_column_channel_within():
    images = np.arange(2 * 4 * 4 * 2).reshape(2, 4, 4, 2)
    patches = ops.convert_to_numpy(extract_patches(images, 2))
    assert patches.shape == (2, 4, 8)
    np.testing.assert_array_equal(patches[1, 2], images[1, 2:4, 0:2].ravel())
    np.testing.assert_array_equal(patches[0, 1], [4, 5, 6, 7, 12, 13, 14, 15])


@pytest.mark.parametrize("patch_size", [3, (4, 6), (12, 2), 1])
def test_patches_are_those_of_keras_and_the_inverse_is_exact(patch_size):
    images = np.random.default_rng(0).normal(size=(3, 12, 18, 5)).astype("float32")
    patches = extract_patches(images, patch_size)
    theirs = ops.image.extract_patches(images, patch_size)  # (B, rows, columns, P P C)
    np.testing.assert_array_equal(patches, np.reshape(theirs, patches.shape))
    np.testing.assert_array_equal(combine_patches(patches, patch_size, (12, 18)), images)


def test_counts_of_the_literature():
    def shape(height, width, patch_size):
        return extract_patches(np.zeros((1, height, width, 3), "uint8"), patch_size).shape[1:]

    assert shape(72, 72, 6) == (144, 108)
    assert shape(1080, 1920, (135, 240)) == (64, 97_200)
    tokens = [PatchEncoder(size, 8).compute_output_shape((None, 224, 224, 3))[1] for size in (32, 16, 14)]
    assert tokens == [50, 197, 257]


def test_the_projection_is_a_strided_convolution():
    images = np.random.default_rng(0).normal(size=(2, 12, 8, 3)).astype("float32")
    encoder = PatchEncoder((3, 2), 5, class_token=False)
    convolution = keras.layers.Conv2D(5, (3, 2), strides=(3, 2))
    convolution.build(images.shape)
    encoder.build(images.shape)
    kernel, bias = convolution.get_weights()
    encoder.projection.set_weights([kernel.reshape(-1, 5), bias + 1])
    encoder.position.set_weights([np.full((16, 5), -1.0)])
    np.testing.assert_allclose(encoder(images), np.reshape(convolution(images), (2, 16, 5)), atol=1e-6)


def test_the_class_token_stands_first_and_positions_are_added():
    encoder = PatchEncoder(2, 3, name="encoder")
    tokens = encoder(np.zeros((2, 4, 4, 1), "float32"))
    positions = encoder.position.embedding.embeddings
    assert [weight.path for weight in encoder.weights] == [
        "encoder/projection/kernel",
        "encoder/projection/bias",
        "encoder/class_token/embedding",
        "encoder/position/embedding/embeddings",
    ]
    np.testing.assert_array_equal(tokens, np.broadcast_to(positions, (2, 5, 3)))
    encoder.token.embedding.assign(np.ones((1, 1, 3)))
    np.testing.assert_array_equal(
        encoder(np.zeros((1, 4, 4, 1), "float32"))[0] - positions, [[1] * 3] + [[0] * 3] * 4
    )


def test_positions_over_another_grid():
    table = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")  # a class token and 2 x 3 patches
    np.testing.assert_allclose(interpolate_positions(table, (2, 3), (2, 3)), table, atol=1e-7)
    larger = ops.convert_to_numpy(interpolate_positions(table, (2, 3), (4, 9)))
    assert larger.shape == (37, 4)
    np.testing.assert_array_equal(larger[0], table[0])
    constant = interpolate_positions(np.ones((6, 2), "float32"), (2, 3), (5, 5))
    np.testing.assert_allclose(constant, np.ones((25, 2)), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "patch_size", "message"),
    [
        ((1, 30, 32, 3), 16, "30 x 32 are not divisible into patches of 16 x 16"),
        ((1, 8, 8, 3), (4, 16), "8 x 8 are not divisible into patches of 4 x 16"),
        ((1, 0, 8, 3), 4, "0 x 8 are not divisible"),
        ((8, 8, 3), 4, r"shape \(B, H, W, C\); it is \(8, 8, 3\)"),
        ((1, 8, 8, 3), 0, "`patch_size` must be a positive integer, or a .* pair; it is 0"),
        ((1, 8, 8, 3), (2, 2, 2), r"it is \(2, 2, 2\)"),
        ((1, 8, 8, 3), 2.0, r"it is 2\.0"),
    ],
)
def test_images_that_do_not_split_are_refused(shape, patch_size, message):
    with pytest.raises(ValueError, match=message):
        extract_patches(np.zeros(shape, "float32"), patch_size)
    with pytest.raises(ValueError, match=message):
        PatchEncoder(patch_size, 4)(np.zeros(shape, "float32"))


def test_other_refusals():
    with pytest.raises(ValueError, match="height and width must be known; they are None and 8"):
        extract_patches(keras.Input((None, 8, 3)), 2)
    with pytest.raises(ValueError, match=r"`patches` must have the shape \(B, 4, 4 C\).*it is \(1, 5, 4\)"):
        combine_patches(np.zeros((1, 5, 4)), 2, 4)
    with pytest.raises(ValueError, match=r"it is \(1, 4, 6\)"):
        combine_patches(np.zeros((1, 4, 6)), 2, 4)
    with pytest.raises(ValueError, match="`dim` must be at least 1; it is 0"):
        PatchEncoder(2, 0)
    encoder = PatchEncoder(2, 4)
    with pytest.raises(ValueError, match=r"`images` must be floating-point.*uint8"):
        encoder(np.zeros((1, 4, 4, 1), "uint8"))
    with pytest.raises(ValueError, match=r"built for images of the shape \('B', 4, 4, 1\).*\(1, 2, 8, 1\)"):
        encoder(np.zeros((1, 2, 8, 1), "float32"))
