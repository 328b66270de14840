"""The Vision Transformer: its published sizes, its outputs, its copies for other images."""

import dataclasses
import json
import math

import numpy as np
import pytest
from keras import ops

from keras_tfm.heads import Classifier
from keras_tfm.models import ViT, ViTConfig
from tests import contract
from tests.contract import Case, floats

SMALL = ViTConfig((4, 6), patch_size=2, num_channels=1, num_layers=2, dim=8, num_heads=2, intermediate_dim=12)
ONE_BLOCK = dataclasses.replace(SMALL, num_layers=1)  # enough under a head
MEAN = dataclasses.replace(ONE_BLOCK, class_token=False)
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check(
    Case("ViT", lambda: ViT(SMALL), IMAGES, attends=True, kind="images"),
    Case("ViT without class token", lambda: ViT(MEAN), IMAGES, attends=True),
    Case("Classifier", lambda: Classifier(ViT(ONE_BLOCK), 3, hidden_dim=5), IMAGES, attends=True),
)


def count(model):
    return sum(math.prod(weight.shape) for weight in model.weights)


# Dosovitskiy et al. 2021, table 1: 86 M, 307 M and 632 M, classes included.
@pytest.mark.parametrize(
    ("size", "backbone", "with_1000_classes"),
    [
        ("B/32", 87_455_232, 88_224_232),
        ("B/16", 85_798_656, 86_567_656),
        ("L/32", 305_510_400, 306_535_400),
        ("L/16", 303_301_632, 304_326_632),
        ("H/14", 630_764_800, 632_045_800),
    ],
)
def test_parameters_of_the_published_sizes(size, backbone, with_1000_classes, no_allocation):
    vit = ViT.from_size(size)
    assert count(vit) == backbone
    assert count(Classifier(vit, 1000)) == with_1000_classes


def test_outputs():
    images = np.random.default_rng(0).random((3, 4, 6, 1), "float32")
    outputs = ViT(SMALL)({"images": images})
    assert outputs.keys() == {"sequence_output", "pooled_output"}
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    outputs = ViT(MEAN)({"images": images})
    assert outputs["sequence_output"].shape == (3, 6, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)


def test_without_layers_above_it_is_pre_normalised():
    """A block whose sub-layers give zero leaves x as it is, and the last norm alone acts."""
    vit = ViT(SMALL)
    for block in vit.blocks["encoder"]:
        for layer in (block.attention.branch.output_projection, block.feedforward.branch.output_projection):
            layer.set_weights([np.zeros_like(weight) for weight in layer.get_weights()])
    images = np.random.default_rng(0).random((1, 4, 6, 1), "float32")
    tokens = ops.convert_to_numpy(vit.get_layer("patch_encoder")(images))
    normed = (tokens - tokens.mean(-1, keepdims=True)) / np.sqrt(tokens.var(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(vit({"images": images})["sequence_output"], normed, atol=1e-5)


def test_the_activation_is_the_exact_gelu():
    activation = ViT(SMALL).blocks["encoder"][0].feedforward.branch.hidden.activation
    expected = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in (-2.0, 0.5, 3.0)]
    np.testing.assert_allclose(activation(ops.convert_to_tensor([-2.0, 0.5, 3.0])), expected, rtol=1e-6)


def test_configurations_survive_json():
    config = ViTConfig(**json.loads(json.dumps(dataclasses.asdict(SMALL))))
    assert config == SMALL and hash(config) == hash(SMALL)
    assert ViT.from_config(ViT(SMALL).get_config()).config == SMALL


def test_another_image_size_keeps_the_weights_and_stretches_the_positions():
    vit = ViT(SMALL)
    images = np.random.default_rng(0).random((2, 4, 6, 1), "float32")
    same, larger = vit.with_image_size((4, 6)), vit.with_image_size((8, 12))
    np.testing.assert_allclose(
        same({"images": images})["pooled_output"], vit({"images": images})["pooled_output"], atol=1e-6
    )
    assert larger({"images": np.zeros((1, 8, 12, 1), "float32")})["sequence_output"].shape == (1, 25, 8)
    for old, new in zip(vit.weights, larger.weights, strict=True):
        assert old.path == new.path
        if "position" not in old.path:
            np.testing.assert_array_equal(old, new)
    assert vit.config == SMALL and larger.config.image_size == (8, 12)


def test_a_new_head_keeps_the_backbone():
    vit = ViT(SMALL)
    before = vit.get_weights()
    first, second = Classifier(vit, 3), Classifier(vit, 5)
    assert first.backbone is second.backbone
    assert second({"images": np.zeros((1, 4, 6, 1), "float32")}).shape == (1, 5)
    for a, b in zip(before, vit.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_refusals():
    with pytest.raises(ValueError, match=r"no size 'B/8'; it has tiny, B/32, B/16, L/32, L/16, H/14"):
        ViT.from_size("B/8")
    with pytest.raises(ValueError, match="225 x 225 are not divisible into patches of 16 x 16"):
        ViT.from_size("B/16", image_size=225)
    with pytest.raises(ValueError, match="`image_size` must be at least 1, or a list of 2; it is 0"):
        ViT(dataclasses.replace(SMALL, image_size=0))
    with pytest.raises(ValueError, match="it was given pixels"):
        ViT(SMALL)({"pixels": np.zeros((1, 4, 6, 1), "float32")})
