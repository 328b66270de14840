"""The masked autoencoder: its sizes, what it hides and learns, its encoder as a ViT, its folders."""

import dataclasses
import math

import keras
import numpy as np
import pytest

from keras_tfm.heads import MaskedAutoencoder, patch_loss
from keras_tfm.layers import extract_patches
from keras_tfm.models import ViTMAE, ViTMAEConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways

SMALL = ViTMAEConfig(
    (4, 6), 2, num_channels=1, num_layers=1, dim=8, num_heads=2, intermediate_dim=12, mask_ratio=0.5
)
DECODER = {"num_layers": 1, "dim": 12, "num_heads": 3, "intermediate_dim": 10}
INPUTS = {"images": floats(4, 6, 1), "noise": floats(6)}

test_contract = contract.check_family(
    Case("ViTMAE", lambda: ViTMAE(SMALL), INPUTS, attends=True),
    Case("MaskedAutoencoder", lambda: MaskedAutoencoder(ViTMAE(SMALL), **DECODER), INPUTS, attends=True),
)


def draw():
    rng = np.random.default_rng(0)
    return rng.random((3, 4, 6, 1), "float32"), rng.random((3, 6), "float32")


# transformers' counts, the fixed positions included: the encoder, and with the decoder.
@pytest.mark.parametrize(
    ("size", "encoder", "whole"),
    [
        ("B/16", 85_798_656, 111_907_840),
        ("L/16", 303_301_632, 329_541_888),
        ("H/14", 630_764_800, 657_074_508),
    ],
)
def test_parameters_of_the_published_sizes(size, encoder, whole, no_allocation):
    def count(model):
        return sum(math.prod(weight.shape) for weight in model.weights if "float" in weight.dtype)

    model = ViTMAE.from_size(size)
    assert count(model) == encoder
    assert count(MaskedAutoencoder(model)) == whole


def test_hidden_patches_do_not_matter_and_visible_ones_do():
    model = MaskedAutoencoder(ViTMAE(SMALL), **DECODER)
    randomise(model, 1)
    images, noise = draw()
    inputs, targets, weights = model.examples(images, noise)
    assert weights.shape == (3, 6) and np.all(np.sum(weights, axis=1) == 3)
    expected = model(inputs)
    assert expected.shape == targets.shape == (3, 6, 4)
    patch = int(np.argmax(noise[0]))  # is hidden
    row, column = divmod(patch, 3)
    images[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 9
    np.testing.assert_array_equal(model({"images": images, "noise": noise}), expected)
    row, column = divmod(int(np.argmin(noise[0])), 3)
    images[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 9
    assert np.abs(model({"images": images, "noise": noise}) - expected)[0].min() > 0


def test_the_loss_is_that_of_hidden_patches():
    images, noise = draw()
    for normalize_pixels in (False, True):
        model = MaskedAutoencoder(ViTMAE(SMALL), **DECODER, normalize_pixels=normalize_pixels)
        inputs, targets, weights = model.examples(images, noise)
        y = np.asarray(model(inputs))
        patches = np.asarray(extract_patches(images, 2))
        if normalize_pixels:
            deviation = np.sqrt(patches.var(-1, ddof=1, keepdims=True) + 1e-6)
            patches = (patches - patches.mean(-1, keepdims=True)) / deviation
        hidden = np.argsort(np.argsort(noise)) >= 3
        expected = np.square(y - patches).mean(-1)[hidden].mean()
        np.testing.assert_allclose(patch_loss()(targets, y, weights), expected, rtol=1e-5)


def test_noise_that_is_left_out_is_drawn():
    model = MaskedAutoencoder(ViTMAE(SMALL), **DECODER)
    images, _ = draw()
    assert np.abs(np.subtract(model({"images": images}), model({"images": images}))).max() > 0
    (first, _, _), (second, _, _) = model.examples(images), model.examples(images)
    assert np.abs(np.subtract(first["noise"], second["noise"])).min() > 0


@pytest.mark.slow
def test_it_learns():
    images, _ = draw()
    model = MaskedAutoencoder(ViTMAE(SMALL), **DECODER, normalize_pixels=False)
    model.compile(keras.optimizers.Adam(0.01), patch_loss())
    inputs, targets, weights = model.examples(images)
    position = np.array(model.backbone.get_layer("patch_encoder").position.embedding.embeddings)
    losses = model.fit(inputs, targets, sample_weight=weights, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    learnt = model.backbone.get_layer("patch_encoder").position.embedding.embeddings
    np.testing.assert_array_equal(learnt, position)  # the sines stay


def test_positions_are_sines_of_the_column_then_of_the_row():
    table = np.asarray(ViTMAE(SMALL).get_layer("patch_encoder").position.embedding.embeddings)
    np.testing.assert_array_equal(table[0], np.zeros(8))
    row, column = 1, 2
    expected = [f(x * w) for x in (column, row) for f in (np.sin, np.cos) for w in (1, 0.01)]
    np.testing.assert_allclose(table[1 + 3 * row + column], expected, atol=1e-6)


def test_the_encoder_becomes_a_vit_that_sees_all_patches():
    model = ViTMAE(dataclasses.replace(SMALL, mask_ratio=0.0))
    randomise(model, 1)
    images, noise = draw()
    vit, mean = model.encoder(), model.encoder(pooling="mean")
    noise = np.broadcast_to(np.arange(6, dtype="float32"), (3, 6))  # the patches stay in their order
    expected = model({"images": images, "noise": noise})["sequence_output"]
    np.testing.assert_allclose(vit({"images": images})["sequence_output"], expected, atol=1e-5)
    assert mean({"images": images})["pooled_output"].shape == (3, 8)
    positions = model.get_layer("patch_encoder").position.embedding.embeddings
    np.testing.assert_array_equal(mean.position.embedding.embeddings, positions[1:])
    assert vit.position.trainable


@pytest.mark.parametrize("head", [None, True])
def test_folders_of_transformers_both_ways(head, tmp_path):
    model = ViTMAE(SMALL) if head is None else MaskedAutoencoder(ViTMAE(SMALL), **DECODER)
    check_both_ways(model, tmp_path / "folder")


def test_refusals():
    with pytest.raises(ValueError, match=r"`mask_ratio` must leave one of 6 patches visible; it is 0\.9"):
        ViTMAE(dataclasses.replace(SMALL, mask_ratio=0.9))
    with pytest.raises(ValueError, match="multiple of four; it is 6"):
        ViTMAE(dataclasses.replace(SMALL, dim=6))
    with pytest.raises(ValueError, match="needs 'images'"):
        ViTMAE(SMALL)({"noise": np.zeros((1, 6), "float32")})
