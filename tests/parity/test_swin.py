"""Live: Swin against transformers': outputs, maps, gradients, folders both ways."""

import copy
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert import keymap, swin
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, assert_close, draw_images, draw_weights, gradients_in_files

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "3")))
KINDS = (transformers.SwinModel, transformers.SwinForImageClassification)


def draw_config(rng, num_labels=2):
    """Maps of any shape, of which the last is no smaller than a window: theirs cannot compute others."""
    num_stages, window, patch_size = (int(rng.integers(1, n)) for n in (4, 5, 5))
    least = 2 ** (num_stages - 1) * (window - 1) + 1  # ceil(least / 2 ... / 2) is `window`
    grid = rng.integers(least, least + 9, 2)
    heads = [int(x) for x in rng.choice([1, 2, 4], num_stages)]
    return transformers.SwinConfig(
        image_size=[int(patch_size * side) for side in grid],
        patch_size=patch_size,
        num_channels=int(rng.integers(1, 4)),
        embed_dim=4 * int(rng.integers(1, 5)),
        depths=[int(x) for x in rng.integers(1, 4, num_stages)],
        num_heads=heads,
        window_size=window,
        mlp_ratio=float(rng.choice([1.0, 2.5, 4.0])),
        hidden_dropout_prob=0.1,
        drop_path_rate=0.2,
        hidden_act=str(rng.choice(ACTIVATIONS)),
        layer_norm_eps=float(rng.choice([1e-5, 1e-3])),
        num_labels=num_labels,
    )


def draw(rng, kind, num_labels=2):
    """A model of theirs with every weight at random, and images for it."""
    model = kind(draw_config(rng, num_labels)).eval()
    draw_weights(rng, model)
    return model, draw_images(rng, model.config)


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw(rng, kind, int(rng.integers(1, 6)))
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=["5GB", "2KB"][rng.integers(2)])
    ours = convert.from_huggingface(tmp_path / "theirs")
    outputs, expected = ours({"images": images}), answer(theirs, images)
    if kind is KINDS[0]:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
        assert_close(outputs["pooled_output"], expected.pooler_output)
    else:
        assert_close(outputs, expected.logits)
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    for (name, a), (_, b) in zip(theirs.named_parameters(), back.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    for name in swin.FAMILY.write_config(getattr(ours, "backbone", ours).config):
        value = getattr(theirs.config, name)
        assert getattr(back.config, name) in (
            [value, "gelu_new"] if value == "gelu_pytorch_tanh" else [value]
        )


@pytest.mark.parametrize("seed", CONFIGS)
def test_the_maps_of_every_stage(seed, tmp_path):
    theirs, images = draw(np.random.default_rng(seed), KINDS[0])
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    expected = []
    for layer in theirs.encoder.layers:
        layer.blocks[-1].register_forward_hook(lambda *call: expected.append(call[-1][0]))
    answer(theirs, images)
    maps = keras.tree.flatten(keras.Model(ours.input, ours.maps)({"images": images}))
    for x, state in zip(maps, expected, strict=True):
        state = state.detach().numpy().reshape(x.shape)
        assert np.abs(x - state).max() <= 1e-5 * max(1, np.abs(state).max())


@pytest.mark.parametrize("seed", CONFIGS)
def test_gradients_of_classification(seed, tmp_path):
    """Beside theirs in float64, as for the encoders."""
    rng = np.random.default_rng(seed)
    theirs, images = draw(rng, KINDS[1], 3)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    labels = rng.integers(0, 3, len(images))
    exact = copy.deepcopy(theirs).double()
    for model in (exact, theirs):
        loss = answer(model, images, labels=torch.from_numpy(labels)).loss
        loss.backward()
    with tf.GradientTape() as tape:
        logits = ours({"images": images})
        total = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
    np.testing.assert_allclose(total, loss.detach(), rtol=1e-5, atol=1e-5)
    gradients = tape.gradient(total, [weight.value for weight in ours.trainable_weights])
    for weight, gradient in zip(ours.trainable_weights, gradients, strict=True):
        weight.assign(tf.convert_to_tensor(gradient))  # so that the table names and turns them
    table = swin.FAMILY.of(ours.backbone.config)
    actual = keymap.save(ours, table.rows_with(table.heads["SwinForImageClassification"], table.prefix))
    in_float32 = gradients_in_files(theirs, tmp_path / "float32")
    for name, gradient in gradients_in_files(exact, tmp_path / "float64").items():
        error, rounding = (np.abs(x[name] - gradient).max() for x in (actual, in_float32))
        assert error <= 1e-4 * np.abs(gradient).max() + 1e-6 + 2 * rounding, name
