"""The hybrid ViT: the published sizes, its residual network by hand, other images, timm's folders."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.convert import from_timm, save_timm
from keras_tfm.heads import Classifier
from keras_tfm.models import HybridViT, HybridViTConfig
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = HybridViTConfig(
    image_size=(16, 24),
    num_channels=1,
    num_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=8,
    stem_dim=8,
    stage_dims=(16, 32),
    stage_depths=(2, 1),
    num_groups=2,
)

test_contract = contract.check_family(
    Case("HybridViT", lambda: HybridViT(SMALL), {"images": floats(16, 24, 1)}, attends=True, convolves=True)
)


# timm's counts, with 1000 classes.
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("R+Ti/16", 6_337_704),
        ("R26+S/32", 36_431_912),
        ("R50+B/16", 98_659_112),
        ("R50+L/32", 328_994_856),
    ],
)
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = Classifier(HybridViT.from_size(size), 1000)
    assert contract.num_parameters(model.weights) == expected


def test_the_last_block_by_hand():
    """Convolve with standardised kernels, normalise by groups, add the shortcut, and a ReLU."""
    model = HybridViT(SMALL)
    randomise(model, 1)
    images = np.random.default_rng(0).normal(size=(2, 16, 24, 1)).astype("float32")
    parts = [model.get_layer(f"stage_{name}") for name in ("0_block_1", "1_block_0")]
    before, after = map(
        np.asarray, keras.Model(model.input, [part.output for part in parts])({"images": images})
    )
    assert before.shape == (2, 4, 6, 16) and after.shape == (2, 2, 3, 32)

    def normalized(x, convolution, norm, stride=1):
        kernel = np.asarray(convolution.kernel)
        kernel = (kernel - kernel.mean((0, 1, 2))) / kernel.std((0, 1, 2))
        x = np.asarray(keras.ops.conv(x, kernel.astype("float32"), stride, "same"))
        groups = x.reshape(*x.shape[:3], 2, -1)
        deviation = np.sqrt(groups.var((1, 2, 4), keepdims=True) + 1e-5)
        groups = (groups - groups.mean((1, 2, 4), keepdims=True)) / deviation
        return groups.reshape(x.shape) * np.asarray(norm.gamma) + np.asarray(norm.beta)

    branch, (short, short_norm) = parts[1].branch.layers, parts[1].shortcut.layers
    x = np.maximum(normalized(before, *branch[:2]), 0)
    x = np.maximum(normalized(x, *branch[3:5], 2), 0)
    x = normalized(x, *branch[6:8])
    np.testing.assert_allclose(after, np.maximum(x + normalized(before, short, short_norm, 2), 0), atol=1e-4)


def test_images_of_another_size():
    model = HybridViT(SMALL)
    assert model.grid_of(SMALL) == (2, 3) and model.output["sequence_output"].shape == (None, 7, 8)
    larger = model.with_image_size((32, 24))
    assert larger.output["sequence_output"].shape == (None, 13, 8)
    images = {"images": np.random.default_rng(0).normal(size=(2, 32, 24, 1)).astype("float32")}
    read = model.reading((32, 24))(images)
    np.testing.assert_allclose(read["pooled_output"], larger(images)["pooled_output"], atol=1e-5)
    assert {block.name for block in model.blocks["encoder"]} == {"block_0"}


def test_folders_of_timm_both_ways(tmp_path):
    config = dataclasses.replace(
        HybridViT.sizes["R+Ti/16"],
        image_size=32,
        patch_size=4,
        num_layers=1,
        dim=8,
        num_heads=2,
        intermediate_dim=16,
    )
    model = Classifier(HybridViT(config), 3)
    randomise(model, 1)
    save_timm(model, tmp_path / "folder")
    again = from_timm(tmp_path / "folder")
    assert again.backbone.config == config
    for a, b in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match=r"timm's function computes only `stem_dim` 64"):
        save_timm(Classifier(HybridViT(SMALL), 3), tmp_path / "other")


def test_refusals():
    with pytest.raises(ValueError, match="must have a number for each stage"):
        HybridViTConfig(stage_depths=(1,))
    with pytest.raises(ValueError, match="`num_groups` must divide `stem_dim` and a quarter"):
        HybridViTConfig(num_groups=48)
