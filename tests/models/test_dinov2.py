"""DINOv2: its published sizes, its registers, gains and gates, its folders."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_tfm.convert import save_huggingface
from keras_tfm.heads import PatchClassifier
from keras_tfm.models import DINOv2, DINOv2Config, ViT
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways, check_refusal

SMALL = DINOv2Config(
    (4, 6), 2, num_channels=1, num_layers=1, dim=8, num_heads=2, intermediate_dim=16, num_registers=2
)
GATED = dataclasses.replace(SMALL, num_registers=0, gated=True, intermediate_dim=24)
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(
    Case("DINOv2", lambda: DINOv2(SMALL), IMAGES, attends=True),
    Case("PatchClassifier", lambda: PatchClassifier(DINOv2(GATED), 3), IMAGES, attends=True),
)


# Oquab et al. 2023, table 17: 21 M, 86 M, 300 M and 1.1 B. transformers' count, less the mask token.
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("S/14", 22_056_192),
        ("B/14", 86_579_712),
        ("L/14", 304_367_616),
        ("g/14", 1_136_479_232),
        ("B/14-registers", 86_582_784),
    ],
)
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    assert contract.num_parameters(DINOv2.from_size(size).weights) == expected


def test_outputs():
    model = DINOv2(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 4, 6, 1), "float32")})
    sequence = np.asarray(outputs["sequence_output"])
    assert sequence.shape == (3, 9, 8)  # the class token, two registers, six patches
    np.testing.assert_array_equal(outputs["pooled_output"], sequence[:, 0])
    np.testing.assert_array_equal(outputs["patch_output"], sequence[:, 3:])
    assert [x.shape[1] for x in model.hidden_states["encoder"]] == [9, 9]


def test_registers_stand_between_and_have_no_position():
    model = DINOv2(SMALL)
    randomise(model, 1)
    images = np.random.default_rng(0).random((2, 4, 6, 1), "float32")
    tokens = np.asarray(model.get_layer("patch_encoder")(images))
    registers = np.asarray(model.get_layer("register_tokens").embedding)
    first = np.asarray(keras.Model(model.input, model.hidden_states["encoder"][0])({"images": images}))
    np.testing.assert_array_equal(first[:, 1:3], np.broadcast_to(registers, (2, 2, 8)))
    np.testing.assert_array_equal(np.delete(first, (1, 2), axis=1), tokens)


def test_gains_of_zero_leave_the_tokens_as_they_are():
    model = DINOv2(dataclasses.replace(GATED, layer_scale=0.0))
    (block,) = model.blocks["encoder"]
    x = np.random.default_rng(0).normal(size=(2, 7, 8)).astype("float32")
    np.testing.assert_array_equal(block(x), x)


def test_the_gate_is_a_silu():
    """SwiGLU: (silu(x A) * x B) C."""
    (block,) = DINOv2(GATED).blocks["encoder"]
    branch = block.feedforward.branch
    x = np.random.default_rng(0).normal(size=(1, 2, 8)).astype("float32")
    gate, value, output = (
        layer.get_weights()[0] for layer in (branch.gate, branch.value, branch.output_projection)
    )
    a = x @ gate
    np.testing.assert_allclose(branch(x), (a / (1 + np.exp(-a)) * (x @ value)) @ output, atol=1e-6)


def test_another_image_size_keeps_the_weights_and_stretches_the_positions():
    model = DINOv2(SMALL)
    larger = model.with_image_size((8, 12))
    assert larger({"images": np.zeros((1, 8, 12, 1), "float32")})["sequence_output"].shape == (1, 27, 8)
    for old, new in zip(model.weights, larger.weights, strict=True):
        assert old.path == new.path
        if "position" not in old.path:
            np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("config", [SMALL, GATED, dataclasses.replace(SMALL, qkv_bias=False)])
@pytest.mark.parametrize("head", [None, 3])
def test_folders_of_transformers_both_ways(config, head, tmp_path):
    model = DINOv2(config) if head is None else PatchClassifier(DINOv2(config), head)
    check_both_ways(model, tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert entries["model_type"] == ("dinov2_with_registers" if config.num_registers else "dinov2")


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="must have a `patch_output`; it has sequence_output, pooled_output"):
        PatchClassifier(ViT.from_size("tiny", num_layers=1), 3)
    with pytest.raises(ValueError, match="no whole `mlp_ratio` for `intermediate_dim` 12 and `dim` 8"):
        save_huggingface(DINOv2(dataclasses.replace(SMALL, intermediate_dim=12)), tmp_path / "folder")
    save_huggingface(DINOv2(GATED), tmp_path / "folder")
    for changes, message in (
        ({"mlp_ratio": 4000}, "`intermediate_dim` is 21,336, and no weight"),
        ({"use_swiglu_ffn": False}, "`intermediate_dim` is 32, and no weight"),
        ({"mlp_ratio": "4"}, "mlp_ratio"),
        ({"hidden_size": 16}, "patch_embeddings"),
    ):
        check_refusal(tmp_path / "folder", changes, message)
