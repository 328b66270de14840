"""TNT: its published sizes, its two streams, which pixels see which, timm's arguments."""

import dataclasses

import numpy as np
import pytest

import keras_tfm
from keras_tfm.convert import keymap, tnt
from keras_tfm.heads import Classifier
from keras_tfm.models import TNT, TNTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.timm import read_tnt

SMALL = TNTConfig(
    (16, 24),
    patch_size=8,
    num_channels=1,
    num_layers=2,
    dim=8,
    num_heads=2,
    inner_dim=4,
    inner_heads=2,
    mlp_ratio=1.5,
)
LEGACY = dataclasses.replace(SMALL, num_layers=1, legacy=True)
IMAGES = {"images": floats(16, 24, 1)}

test_contract = contract.check_family(
    Case("TNT", lambda: TNT(dataclasses.replace(SMALL, num_layers=1)), IMAGES, attends=True, convolves=True),
)


# Han et al. 2021, table 1: 23.8 M and 65.6 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"), [("S", 23_768_584), ("S-legacy", 23_755_336), ("B", 65_428_680)]
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(TNT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_both_streams():
    model = TNT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 16, 24, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    names = {stack: [block.name for block in blocks] for stack, blocks in model.blocks.items()}
    assert names == {"pixels": ["pixel_block_0", "pixel_block_1"], "encoder": ["block_0", "block_1"]}
    assert [x.shape for x in model.hidden_states["pixels"]] == [(None, 4, 4)] * 3
    assert [x.shape for x in model.hidden_states["encoder"]] == [(None, 7, 8)] * 3


@pytest.mark.parametrize(("config", "reached"), [(SMALL, {0}), (LEGACY, {0, 1})])
def test_pixels_are_of_one_patch_but_for_the_first_version(config, reached):
    """A change at the right border of the first patch: the second one's convolution sees it in the first
    version alone; whatever blocks follow, pixels attend within their patch.
    """
    model = TNT(config)
    randomise(model, 0)
    pixels = keras_tfm.Model(model.input, model.hidden_states["pixels"][-1])
    images = np.random.default_rng(0).random((1, 16, 24, 1), "float32")
    other = images.copy()
    other[0, 3, 7] += 1
    changed = np.abs(np.asarray(pixels({"images": other})) - np.asarray(pixels({"images": images})))
    assert {int(i) for i in np.flatnonzero(changed.max((1, 2)) > 1e-6)} == reached


def test_the_class_token_is_given_no_pixels():
    block = TNT(SMALL).blocks["encoder"][0]
    rng = np.random.default_rng(0)
    x, pixels = (rng.normal(size=shape).astype("float32") for shape in ((1, 7, 8), (6, 4, 4)))
    added = np.pad(np.asarray(block.summary(pixels)), ((0, 0), (1, 0), (0, 0)))
    expected = block.feedforward(block.attention(x + added))
    np.testing.assert_allclose(block(x, pixels), expected, atol=1e-5)


@pytest.mark.parametrize("config", [SMALL, LEGACY])
def test_names_of_timm(config):
    model = Classifier(TNT(config), 3)
    randomise(model, 1)
    weights = keymap.save(model, tnt.rows(config))
    assert weights["blocks.0.attn_in.qk.weight"].shape == (8, 4)
    assert weights["pixel_pos"].shape == (1, 4, 2, 2)
    arguments = tnt.TIMM.write_config(config)
    again, _ = read_tnt(arguments | {"num_classes": 3}, weights)
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_arguments_of_timm():
    arguments = {"patch_size": 16, "embed_dim": 384, "inner_dim": 24, "num_heads_outer": 6}
    size = tnt.TIMM.size_of("tnt_s_patch16_224")
    assert tnt.TIMM.read_config(arguments | {"drop_path_rate": 0.1}) == size
    with pytest.raises(CheckpointError, match="qkv_bias"):
        tnt.TIMM.read_config({"qkv_bias": True})


def test_refusals():
    with pytest.raises(ValueError, match="`pixel_size` must divide `patch_size`, 8; it is 3"):
        dataclasses.replace(SMALL, pixel_size=3)
    with pytest.raises(ValueError, match="`inner_heads` must divide `inner_dim`, 4; it is 3"):
        dataclasses.replace(SMALL, inner_heads=3)
    with pytest.raises(ValueError, match="20 x 24 are not divisible into patches of 8 x 8"):
        TNT(dataclasses.replace(SMALL, image_size=(20, 24)))
