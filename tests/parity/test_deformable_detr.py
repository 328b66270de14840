"""Live: Deformable DETR against transformers', plain and with boxes that blocks correct, both ways."""

import os

import numpy as np
import pytest
import torch
import torch.nn.functional
import transformers
from transformers.models.deformable_detr.modeling_deformable_detr import DeformableDetrFrozenBatchNorm2d

from keras_tfm import convert, heads
from keras_tfm.layers import sample_bilinear
from tests.parity.images import assert_same_weights, draw_images
from tests.parity.test_detr import assert_detectors_agree, draw_model

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.DeformableDetrModel, transformers.DeformableDetrForObjectDetection)


def draw_config(rng, refines):
    """One of their configurations, with a small ResNet."""
    num_heads, decoder_heads = (int(x) for x in rng.choice([1, 2, 4], 2))
    widths = [4 * int(x) for x in rng.integers(1, 9, int(rng.integers(2, 5)))]
    channels, num_maps = int(rng.integers(1, 4)), int(rng.integers(1, min(4, len(widths) + 1)))
    stages = range(len(widths) + 1 - num_maps, len(widths) + 1)
    backbone = transformers.ResNetConfig(
        num_channels=channels,
        embedding_size=int(rng.integers(1, 9)),
        hidden_sizes=widths,
        depths=[int(x) for x in rng.integers(1, 3, len(widths))],
        layer_type=str(rng.choice(["basic", "bottleneck"])),
        out_features=[f"stage{stage}" for stage in stages],
    )
    return transformers.DeformableDetrConfig(
        backbone_config=backbone,
        image_size=[int(side) for side in rng.integers(40, 100, 2)],
        num_channels=channels,
        num_queries=int(rng.integers(1, 9)),
        d_model=32 * int(rng.integers(1, 3)),
        encoder_layers=int(rng.integers(1, 4)),
        encoder_attention_heads=num_heads,
        encoder_ffn_dim=int(rng.integers(1, 40)),
        decoder_layers=int(rng.integers(2, 4)),  # theirs refuses heads that tie one block to itself
        decoder_attention_heads=decoder_heads,
        decoder_ffn_dim=int(rng.integers(1, 40)),
        activation_function=str(rng.choice(["relu", "gelu"])),
        num_feature_levels=num_maps + int(rng.integers(0, 3)),
        encoder_n_points=int(rng.integers(1, 5)),
        decoder_n_points=int(rng.integers(1, 5)),
        with_box_refine=refines,
        num_labels=int(rng.integers(1, 6)),
    )


def is_shown(model, mask):
    """The cells of all levels that are no padding, (B, N)."""
    from keras_tfm.layers.resizing import resize_nearest

    backbone = getattr(model, "backbone", model)
    grids = backbone.blocks["encoder"][0].attention.branch.grids
    return np.concatenate(
        [np.asarray(resize_nearest(mask, grid)).reshape(len(mask), -1) for grid in grids], axis=1
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.alike("kind")
@pytest.mark.parametrize(("kind", "refines"), [(KINDS[0], False), (KINDS[1], False), (KINDS[1], True)])
def test_both_directions(kind, refines, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = draw_model(rng, kind, draw_config(rng, refines), DeformableDetrFrozenBatchNorm2d)
    back = assert_detectors_agree(theirs, draw_images(rng, theirs.config), rng, tmp_path, is_shown)
    assert_same_weights(theirs, back)
    for name in ("num_queries", "num_feature_levels", "decoder_n_points", "with_box_refine"):
        assert getattr(back.config, name) == getattr(theirs.config, name)


def test_heads_of_classes_that_differ(tmp_path):
    """The published checkpoints have one for each block where boxes are corrected."""
    rng = np.random.default_rng(0)
    config = draw_config(rng, True)
    config.decoder_layers = 3
    theirs = draw_model(rng, KINDS[1], config, DeformableDetrFrozenBatchNorm2d)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    assert isinstance(ours, heads.ReferencedDetector)
    for i in range(3):
        ours.get_layer(f"class_head_{i}").bias.assign(rng.normal(size=config.num_labels))
    images = draw_images(rng, config)
    convert.save_huggingface(ours, tmp_path / "ours")
    back = KINDS[1].from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        expected = back(pixel_values=torch.from_numpy(images).permute(0, 3, 1, 2)).logits.numpy()
    np.testing.assert_allclose(ours({"images": images})["logits"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(back.class_embed[2].bias.detach(), ours.get_layer("class_head_2").bias)


@pytest.mark.parametrize("seed", range(3))
def test_sampling(seed):
    rng = np.random.default_rng(seed)
    maps = rng.normal(size=(2, *rng.integers(1, 7, 2), 3)).astype("float32")
    points = rng.uniform(-0.5, 1.5, size=(2, 50, 7, 2)).astype("float32")
    expected = torch.nn.functional.grid_sample(
        torch.from_numpy(maps).permute(0, 3, 1, 2),
        torch.from_numpy(2 * points - 1),
        mode="bilinear",
        padding_mode="zeros",
        align_corners=False,
    )
    np.testing.assert_allclose(sample_bilinear(maps, points), expected.permute(0, 2, 3, 1), atol=1e-5)
