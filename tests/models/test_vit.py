"""The Vision Transformer: its published sizes, its outputs, its copies for other images."""

import dataclasses
import json
import math

import numpy as np
import pytest
from keras import ops

from keras_tfm.convert import save_huggingface
from keras_tfm.heads import Classifier
from keras_tfm.models import ViT, ViTConfig
from tests import contract
from tests.contract import Case, floats
from tests.models.folders import check_both_ways

SMALL = ViTConfig((4, 6), patch_size=2, num_channels=1, num_layers=2, dim=8, num_heads=2, intermediate_dim=12)
ONE_BLOCK = dataclasses.replace(SMALL, num_layers=1)  # enough under a head
MEAN, FLATTEN, ATTENTION = (
    dataclasses.replace(ONE_BLOCK, pooling=name) for name in ("mean", "flatten", "attention")
)
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(
    Case("ViT", lambda: ViT(SMALL), IMAGES, attends=True, kind="images"),
    Case("ViT without class token", lambda: ViT(MEAN), IMAGES, attends=True),
    Case("ViT with attention pooling", lambda: ViT(ATTENTION), IMAGES, attends=True),
    Case("Classifier", lambda: Classifier(ViT(ONE_BLOCK), 3, hidden_dim=5), IMAGES, attends=True),
)


def count(model):
    return contract.num_parameters(model.weights)


# Dosovitskiy et al. 2021, table 1: 86 M, 307 M and 632 M, classes included; Steiner et al. 2022: 5.8 M, 22 M.
@pytest.mark.parametrize(
    ("size", "backbone", "with_1000_classes"),
    [
        ("Ti/16", 5_524_416, 5_717_416),
        ("S/32", 22_493_952, 22_878_952),
        ("S/16", 21_665_664, 22_050_664),
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


# Zhai et al. 2022, table 2: 1.01 B and 1.84 B. timm gives them a class token.
@pytest.mark.slow
@pytest.mark.parametrize(("size", "expected"), [("g/14", 1_012_611_432), ("G/14", 1_844_440_680)])
def test_parameters_of_the_giants(size, expected, no_allocation):
    assert count(Classifier(ViT.from_size(size), 1000)) == expected


def test_outputs():
    images = np.random.default_rng(0).random((3, 4, 6, 1), "float32")
    outputs = ViT(SMALL)({"images": images})
    assert outputs.keys() == {"sequence_output", "pooled_output"}
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    outputs = ViT(MEAN)({"images": images})
    assert outputs["sequence_output"].shape == (3, 6, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    outputs = ViT(FLATTEN)({"images": images})
    np.testing.assert_array_equal(outputs["pooled_output"], np.reshape(outputs["sequence_output"], (3, 48)))
    vit = ViT(ATTENTION)
    outputs = vit({"images": images})
    pooled = vit.get_layer("pooling")(outputs["sequence_output"])
    np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=1e-6)
    vit = ViT(dataclasses.replace(ONE_BLOCK, pooler=True))
    outputs = vit({"images": images})
    kernel, bias = vit.get_layer("pooler").get_weights()
    expected = np.tanh(np.asarray(outputs["sequence_output"])[:, 0] @ kernel + bias)
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-6)


def test_positions_begin_as_they_are_asked_to():
    config = dataclasses.replace(ONE_BLOCK, image_size=(40, 60), dim=16)
    assert ViTConfig().position_stddev == 0.02 and ViT.sizes["tiny"].position_stddev == 0.2
    for stddev in (0.02, 0.2):
        vit = ViT(dataclasses.replace(config, position_stddev=stddev))
        np.testing.assert_allclose(np.std(vit.position.embedding.embeddings), stddev, rtol=0.05)


def test_stochastic_depth_grows_with_the_depth():
    blocks = ViT(dataclasses.replace(SMALL, num_layers=3, stochastic_depth=0.2)).blocks["encoder"]
    rates = [part.stochastic_depth for block in blocks for part in (block.attention, block.feedforward)]
    np.testing.assert_allclose(rates, np.repeat([0, 0.1, 0.2], 2), atol=1e-12)


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
    np.testing.assert_allclose(activation(ops.convert_to_tensor([-2.0, 0.5, 3.0])), expected, rtol=5e-6)


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


def test_a_head_of_zeros_begins_with_equal_logits_and_learns():
    model = Classifier(ViT(ONE_BLOCK), 3, kernel_initializer="zeros")
    images = np.random.default_rng(0).random((2, 4, 6, 1), "float32")
    np.testing.assert_array_equal(model({"images": images}), np.zeros((2, 3)))
    assert Classifier.from_config(model.get_config()).kernel_initializer == "zeros"
    with pytest.raises(ValueError, match="`kernel_initializer` 'zeros' needs `hidden_dim` None; it is 4"):
        Classifier(ViT(ONE_BLOCK), 3, hidden_dim=4, kernel_initializer="zeros")


@pytest.mark.parametrize("kind", ["backbone", "pooler", "classifier", "without biases"])
def test_folders_of_transformers_both_ways(kind, tmp_path):
    options = {"pooler": kind == "pooler", "qkv_bias": kind != "without biases"}
    model = ViT(dataclasses.replace(ONE_BLOCK, **options))
    biases = [w.path.split("/") for w in model.weights if "attention/branch" in w.path and "bias" in w.path]
    assert [path[-2] for path in biases] == ["query_key_value", "output"][kind == "without biases" :]
    model = Classifier(model, 5) if kind == "classifier" else model
    check_both_ways(model, tmp_path / "folder")


def test_models_that_transformers_has_not(tmp_path):
    with pytest.raises(ValueError, match="ViTModel computes only `pooling` 'class'; it is 'mean'"):
        save_huggingface(ViT(MEAN), tmp_path / "folder")
    model = Classifier(ViT(dataclasses.replace(ONE_BLOCK, pooler=True)), 3)
    with pytest.raises(TypeError, match="Classifier around ViT has no counterpart"):
        save_huggingface(model, tmp_path / "folder")


def test_refusals():
    with pytest.raises(ValueError, match=r"no size 'B/8'; it has tiny, Ti/16, S/32, S/16, B/32, B/16"):
        ViT.from_size("B/8")
    with pytest.raises(ValueError, match="225 x 225 are not divisible into patches of 16 x 16"):
        ViT.from_size("B/16", image_size=225)
    with pytest.raises(ValueError, match="`image_size` must be at least 1, or a list of 2; it is 0"):
        ViT(dataclasses.replace(SMALL, image_size=0))
    with pytest.raises(ValueError, match="`pooling` must be one of class, mean, flatten, attention"):
        ViT.from_size("g/14", pooling="map")
    with pytest.raises(ValueError, match="it was given pixels"):
        ViT(SMALL)({"pixels": np.zeros((1, 4, 6, 1), "float32")})
