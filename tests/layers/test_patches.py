"""Patches: their order, the exact inverse, the projection as a convolution, positions over another grid."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers import (
    LayerNormalization,
    MultiHeadAttention,
    PatchEmbedding,
    PatchEncoder,
    PatchMerging,
    PixelShuffle,
    PrependedTokens,
    combine_patches,
    extract_patches,
    flatten_map,
)
from keras_tfm.layers.image_positions import interpolate_positions
from keras_tfm.layers.masks import key_mask_of
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case("class token", lambda: PatchEncoder(6, 4), {"images": floats(8, 12, 3)}),
    Case("patches alone", lambda: PatchEncoder(6, (2, 3), class_token=False), {"images": floats(4, 6, 1)}),
    Case("embedding", lambda: PatchEmbedding(6, (2, 3)), {"images": floats(4, 6, 2)}),
    Case(
        "overlapping patches",
        lambda: PatchEmbedding(6, (3, 4), stride=(2, 3), padding=1, use_bias=False),
        {"images": floats(6, 7, 2)},
    ),
    Case("shuffle", lambda: PixelShuffle(2), {"x": floats(3, 4, 12)}),
    Case("merging", lambda: PatchMerging(6, LayerNormalization(1e-5)), {"x": floats(3, 4, 5)}),
    Case(
        "merging, then a norm",
        lambda: PatchMerging(6, LayerNormalization(), "output"),
        {"x": floats(2, 2, 5)},
    ),
    Case("prepended tokens", lambda: PrependedTokens(2), {"x": floats("T", 5)}),
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
    tokens = [PatchEncoder(8, size).compute_output_shape((None, 224, 224, 3))[1] for size in (32, 16, 14)]
    assert tokens == [50, 197, 257]


def test_the_projection_is_a_strided_convolution():
    images = np.random.default_rng(0).normal(size=(2, 12, 8, 3)).astype("float32")
    encoder = PatchEncoder(5, (3, 2), class_token=False)
    convolution = keras.layers.Conv2D(5, (3, 2), strides=(3, 2))
    convolution.build(images.shape)
    encoder.build(images.shape)
    kernel, bias = convolution.get_weights()
    encoder.patches.projection.set_weights([kernel.reshape(-1, 5), bias + 1])
    encoder.position.set_weights([np.full((16, 5), -1.0)])
    np.testing.assert_allclose(encoder(images), np.reshape(convolution(images), (2, 16, 5)), atol=1e-6)


def test_the_class_token_stands_first_and_positions_are_added():
    encoder = PatchEncoder(3, 2, name="encoder")
    tokens = encoder(np.zeros((2, 4, 4, 1), "float32"))
    positions = encoder.position.embedding.embeddings
    assert [weight.path for weight in encoder.weights] == [
        "encoder/patches/projection/kernel",
        "encoder/patches/projection/bias",
        "encoder/class_token/embedding",
        "encoder/position/embedding/embeddings",
    ]
    np.testing.assert_array_equal(tokens, np.broadcast_to(positions, (2, 5, 3)))
    encoder.tokens.embedding.assign(np.ones((1, 1, 3)))
    np.testing.assert_array_equal(
        encoder(np.zeros((1, 4, 4, 1), "float32"))[0] - positions, [[1] * 3] + [[0] * 3] * 4
    )


@pytest.mark.parametrize(
    ("patch_size", "stride", "padding"),
    [(3, 1, 0), (3, 2, 1), ((4, 2), (3, 5), (2, 0)), (2, 3, 0), (4, None, 2), (3, 3, 0), ((5, 3), 2, (0, 3))],
)
def test_patches_of_another_stride_are_a_convolution(patch_size, stride, padding):
    images = np.random.default_rng(0).normal(size=(2, 11, 8, 3)).astype("float32")
    layer = PatchEmbedding(5, patch_size, stride, padding)
    convolution = keras.layers.Conv2D(5, patch_size, strides=stride or patch_size)
    vertical, horizontal = padding if isinstance(padding, tuple) else (padding, padding)
    padded = np.pad(images, ((0, 0), (vertical,) * 2, (horizontal,) * 2, (0, 0)))
    expected = convolution(padded)
    layer.build(images.shape)
    kernel, bias = convolution.get_weights()
    layer.projection.set_weights([kernel.reshape(-1, 5), bias])
    np.testing.assert_allclose(layer(images), expected, atol=1e-5)
    assert layer.compute_output_shape(images.shape) == expected.shape


def test_merging_by_hand():
    layer = PatchMerging(8)
    x = np.arange(1, 9, dtype="float32").reshape(1, 2, 2, 2)  # (1 2) (3 4) above (5 6) (7 8)
    layer.build(x.shape)
    layer.projection.set_weights([np.eye(8)])
    np.testing.assert_array_equal(layer(x)[0, 0, 0], [1, 2, 5, 6, 3, 4, 7, 8])
    odd = np.ones((1, 3, 5, 2), "float32")
    merged = ops.convert_to_numpy(layer(odd))
    assert merged.shape == layer.compute_output_shape(odd.shape) == (1, 2, 3, 8)
    np.testing.assert_array_equal(merged[0, 1, 2], [1, 1, 0, 0, 0, 0, 0, 0])
    layer = PatchMerging(8, LayerNormalization(0.0))
    layer.build(x.shape)
    layer.projection.set_weights([np.eye(8)])
    merged = ops.convert_to_numpy(layer(x))
    np.testing.assert_allclose([merged.mean(), merged.var()], [0, 1], atol=1e-6)


def test_shuffled_pixels_are_a_patch_of_each_cell():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 18)).astype("float32")
    y = np.asarray(PixelShuffle(3)(x))
    assert y.shape == (2, 9, 12, 2)
    np.testing.assert_array_equal(y[1, 3:6, 9:12], x[1, 1, 3].reshape(3, 3, 2))
    with pytest.raises(ValueError, match=r"must have the shape \(B, height, width, 4 C\)"):
        PixelShuffle(2)(x)


def test_a_map_is_flattened_row_by_row():
    x = np.arange(2 * 2 * 3 * 4).reshape(2, 2, 3, 4)
    np.testing.assert_array_equal(flatten_map(x), x.reshape(2, 6, 4))


def test_prepended_tokens_stand_first():
    layer = PrependedTokens(2)
    x = np.ones((3, 4, 5), "float32")
    np.testing.assert_array_equal(layer(x), np.concatenate([np.zeros((3, 2, 5)), x], axis=1))
    layer.embedding.assign(np.arange(10).reshape(1, 2, 5))
    np.testing.assert_array_equal(layer(x)[2, :2], np.arange(10).reshape(2, 5))


def test_a_carried_mask_shows_prepended_tokens():
    x = PrependedTokens(2)(keras.layers.Embedding(7, 8, mask_zero=True)(np.array([[3, 1, 0]])))
    np.testing.assert_array_equal(key_mask_of(x), [[True, True, True, True, False]])
    layer = MultiHeadAttention(2)
    np.testing.assert_allclose(layer(x)[:, :4], layer(np.array(x)[:, :4]), atol=1e-6)


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
        PatchEncoder(4, patch_size)(np.zeros(shape, "float32"))


def test_images_of_another_size_get_interpolated_positions():
    encoder = PatchEncoder(4, 2, position_initializer="normal")
    images = np.random.default_rng(0).normal(size=(2, 4, 8, 1)).astype("float32")
    encoder(images[:, :, :4])
    table = encoder.position.embedding.embeddings
    stretched = interpolate_positions(table, (2, 2), (2, 4))
    patches = encoder.patches(images)
    assert patches.shape == (2, 2, 4, 4)
    expected = ops.reshape(patches, (2, 8, 4)) + stretched[1:]
    np.testing.assert_allclose(encoder(images)[:, 1:], expected, atol=1e-6)
    first = np.broadcast_to(np.asarray(table[0]), (2, 4))  # the class token begins as zeros
    np.testing.assert_allclose(encoder(images)[:, 0], first, atol=1e-6)


def test_other_refusals():
    with pytest.raises(ValueError, match="height and width must be known; they are None and 8"):
        extract_patches(keras.Input((None, 8, 3)), 2)
    with pytest.raises(ValueError, match=r"`patches` must have the shape \(B, 4, 4 C\).*it is \(1, 5, 4\)"):
        combine_patches(np.zeros((1, 5, 4)), 2, 4)
    with pytest.raises(ValueError, match=r"it is \(1, 4, 6\)"):
        combine_patches(np.zeros((1, 4, 6)), 2, 4)
    with pytest.raises(ValueError, match="`dim` must be at least 1; it is 0"):
        PatchEncoder(0, 2)
    encoder = PatchEncoder(4, 2)
    with pytest.raises(ValueError, match=r"`images` must be floating-point.*uint8"):
        encoder(np.zeros((1, 4, 4, 1), "uint8"))
    with pytest.raises(ValueError, match=r"built for images of 1 channels; their shape is \(1, 4, 4, 3\)"):
        encoder(np.zeros((1, 4, 4, 3), "float32"))
    with pytest.raises(ValueError, match="A map of 2 x 9 is smaller than a window of 3 x 3"):
        PatchEmbedding(4, 3, stride=2)(np.zeros((1, 2, 9, 1), "float32"))
    with pytest.raises(ValueError, match="`stride` must be a positive integer"):
        PatchEmbedding(4, 3, stride=0)
    with pytest.raises(ValueError, match="`normalize` must be 'input' or 'output'; it is 'sum'"):
        PatchMerging(4, normalize="sum")
    with pytest.raises(ValueError, match=r"`x` must have the shape \(B, height, width, D\)"):
        PatchMerging(4)(keras.Input((None, 4, 2)))
    with pytest.raises(ValueError, match="`count` must be at least 1; it is 0"):
        PrependedTokens(0)
