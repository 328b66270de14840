"""DeepViT: its published sizes, which blocks mix their heads, and its scales."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm.convert import keymap
from keras_tfm.heads import Classifier
from keras_tfm.models import DeepViT, DeepViTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references import deepvit

SMALL = DeepViTConfig(
    (8, 12),
    patch_size=4,
    num_channels=1,
    num_layers=2,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    num_mixing_layers=1,
    scale_weights=True,
    branch_scale=0.5,
    convolutional_stem=True,
)
IMAGES = {"images": floats(8, 12, 1)}

test_contract = contract.check_family(Case("DeepViT", lambda: DeepViT(SMALL), IMAGES, convolves=True))


@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [
        ("16B", 24_426_664),
        ("24B", 36_261_448),
        ("32B", 48_096_232),
        ("S", 27_312_632),
        ("L", 58_883_708),
    ],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(DeepViT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = DeepViT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 8, 12, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert model.get_layer("stem").output.shape == (None, 4, 6, 64)
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(7, 8)] * 3


def test_the_last_blocks_mix_their_heads():
    model = DeepViT(dataclasses.replace(SMALL, num_layers=3, num_mixing_layers=2))
    attentions = [block.attention.branch.layers[0] for block in model.blocks["encoder"]]
    assert [attention.on_weights is not None for attention in attentions] == [False, True, True]


def test_a_block_scales_what_it_reads_and_divides_what_it_adds():
    """By hand, of a block whose attention is mixed, normalised and divided by the root of a head's width."""
    model = DeepViT(SMALL)
    randomise(model, 1)
    block = model.blocks["encoder"][1]
    x = np.random.default_rng(0).normal(size=(2, 7, 8)).astype("float32") / 1000  # where epsilon matters
    for part, scale in ((block.attention, 0.5), (block.feedforward, 0.5)):
        branch, norm = part.branch.layers[0], part.norm
        scaled = scale * x.astype("float64")
        normed = (scaled - scaled.mean(-1, keepdims=True)) / np.sqrt(scaled.var(-1, keepdims=True) + 1e-6)
        normed = (normed * norm.gamma.numpy() + norm.beta.numpy()).astype("float32")
        expected = x + ops.convert_to_numpy(branch(normed)) / scale
        np.testing.assert_allclose(part(x), expected, atol=1e-5)
    attention = block.attention.branch.layers[0]
    query, key, value = attention.projections.project(ops.convert_to_tensor(x))
    weights = ops.softmax(ops.einsum("bhtk,bhsk->bhts", query, key) / 2)
    mixing, _ = attention.on_weights.layers
    heads = ops.einsum("bhts,bhsk->bhtk", mixing(weights) / 2, value)
    np.testing.assert_allclose(attention(x), attention.merge(heads), atol=1e-5)


def test_weights_of_the_authors_with_a_convolutional_stem():
    stem = {f"conv{i}.weight": np.zeros((64, 1, 3, 3)) for i in (1, 2)} | {
        "proj.weight": np.zeros((8, 64, 2, 2))
    }
    stem |= {f"bn{i}.running_mean": np.zeros(64) for i in (1, 2)}
    stem = {f"patch_embed.{key}": x for key, x in stem.items()}
    model = Classifier(DeepViT(SMALL), 3)
    randomise(model, 1)
    weights = keymap.save(model, deepvit.rows(SMALL, stem))
    assert weights["patch_embed.conv1.weight"].shape == (64, 1, 7, 7)
    height, width = SMALL.patch_size if isinstance(SMALL.patch_size, tuple) else (SMALL.patch_size,) * 2
    assert weights["patch_embed.proj.weight"].shape == (8, 64, height // 2, width // 2)
    arguments = {"img_size": SMALL.image_size, "patch_size": SMALL.patch_size, "in_chans": 1, "embed_dim": 8}
    arguments |= {"depth": [False] * 2, "num_heads": SMALL.num_heads, "apply_transform": [False, True]}
    arguments |= {"mlp_ratio": SMALL.intermediate_dim / 8, "use_cnn_stem": True, "num_classes": 3}
    arguments |= {"transform_scale": True, "scale_adjustment": 0.5}
    again, _ = deepvit.read(arguments, weights)
    assert again.backbone.config == SMALL
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    del weights["patch_embed.conv2.weight"]
    with pytest.raises(CheckpointError, match="three convolutions and two norms"):
        deepvit.read(arguments, weights)


def test_refusals():
    with pytest.raises(ValueError, match="`num_mixing_layers` must be at most `num_layers`, 2; it is 3"):
        dataclasses.replace(SMALL, num_mixing_layers=3)
    with pytest.raises(ValueError, match="`patch_size` must be even with `convolutional_stem`; it is 3"):
        dataclasses.replace(SMALL, patch_size=3)
    with pytest.raises(ValueError, match="no size '8B'; it has 16B, 24B, 32B, S, L"):
        DeepViT.from_size("8B")
