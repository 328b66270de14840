"""Swin V2: its published sizes, its cosines, its continuous bias, its checkpoints both ways."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest

from keras_tfm.convert import keymap, save_huggingface
from keras_tfm.convert.swin_v2 import TIMM, timm_rows
from keras_tfm.heads import Classifier
from keras_tfm.models import SwinV2, SwinV2Config
from keras_tfm.models.vision.swin_v2 import ContinuousPositionBias, CosineAttention
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import assert_same, check_both_ways, check_refusal
from tests.parity.references.timm import read_swin_v2

SMALL = SwinV2Config(
    image_size=(16, 24),
    patch_size=2,
    num_channels=1,
    depths=(2, 1),
    dim=4,
    num_heads=(1, 2),
    window=3,
    pretrained_windows=(4, 0),
)
IMAGES = {"images": floats(16, 24, 1)}

test_contract = contract.check_family(Case("SwinV2", lambda: SwinV2(SMALL), IMAGES, attends=True))


# Liu et al. 2022, table 3: 28 M.
def test_parameters_of_the_published_sizes(no_allocation):
    model = Classifier(SwinV2.from_size("T/8"), 1000)
    assert contract.num_parameters(model.trainable_weights) == 28_347_154


def test_sizes():
    assert {*TIMM.architectures.values()} == {*SwinV2.sizes}
    config = TIMM.size_of("swinv2_large_window12to24_192to384")
    assert (config.dim, config.image_size, config.window) == (192, 384, 24)
    assert config.pretrained_windows == (12, 12, 12, 6)


def test_outputs_and_states():
    model = SwinV2(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 16, 24, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 24, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(8, 12, 4)] * 3 + [(4, 6, 8)]
    assert [x.shape[1:] for x in model.maps] == [(8, 12, 4), (4, 6, 8)]


def test_scores_are_cosines_times_a_bounded_factor():
    layer = CosineAttention(1)
    layer.build((None, 2, 2))
    query, key = np.float32([[[[3, 4], [0, 2]]]]), np.float32([[[[10, 0], [0.6, 0.8]]]])
    cosines = np.float32([[[[0.6, 1], [0, 0.8]]]])
    np.testing.assert_allclose(layer.score(query, key), 10 * cosines, rtol=1e-5)
    layer.temperature.assign(np.full((1, 1, 1), 7.0, "float32"))
    np.testing.assert_allclose(layer.score(query, key), 100 * cosines, rtol=1e-5)


def test_positions_of_any_window():
    """An offset of half the pretrained window is 5 / 8 of a third of the way: log2(1 + 4) / 3."""
    position = ContinuousPositionBias((2, 3), pretrained_grid=3)
    position.build_for(1, None, None)
    step, full = math.log2(5) / 3, math.log2(9) / 3
    expected = [[y, x] for y in (-step, 0, step) for x in (-full, -step, 0, step, full)]
    np.testing.assert_allclose(position.offsets, expected, rtol=1e-6)
    np.testing.assert_allclose(ContinuousPositionBias((1, 2)).rows(), [[1, 0], [2, 1]])
    randomise(position, 1)
    hidden, output = position.hidden.get_weights(), position.projection.get_weights()
    values = np.maximum(np.float32(expected) @ hidden[0] + hidden[1], 0) @ output[0]
    bias = np.asarray(position.scores(np.zeros((1, 1, 6, 2)), np.zeros((1, 1, 6, 2)), None, None, None))
    np.testing.assert_allclose(bias[0, 0, 5], 16 / (1 + np.exp(-values[0])), rtol=1e-5)


def test_outputs_of_branches_are_normalised():
    model = SwinV2(SMALL)
    randomise(model, 1)
    part = model.blocks["encoder"][0].attention
    x = np.random.default_rng(0).normal(size=(2, 8, 12, 4)).astype("float32")
    added = (np.asarray(part(x)) - x - part.norm.beta) / part.norm.gamma
    np.testing.assert_allclose(added.mean(-1), 0, atol=1e-4)
    np.testing.assert_allclose(added.std(-1), 1, atol=2e-2)
    assert model.get_layer("stage_1_merging").norm.gamma.shape == (8,)


def test_folders_of_transformers_both_ways(tmp_path):
    model = Classifier(SwinV2(SMALL), 3)
    check_both_ways(model, tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert (entries["window_size"], entries["pretrained_window_sizes"]) == (3, [4, 0])
    changes = {"image_size": [16, 6]}  # theirs would shift on both axes
    check_refusal(tmp_path / "folder", changes, r"window_size: expected windows that both axes")
    with pytest.raises(CheckpointError, match=r"got 3 for \(8, 3\)"):
        save_huggingface(SwinV2(dataclasses.replace(SMALL, image_size=(16, 6))), tmp_path / "other")


def test_names_of_timm():
    config = dataclasses.replace(SMALL, window=2)
    model = Classifier(SwinV2(config), 5)
    randomise(model, 1)
    weights = keymap.save(model, timm_rows(config))
    assert weights["layers.1.downsample.norm.weight"].shape == (8,)
    arguments = {
        "img_size": [16, 24],
        "patch_size": 2,
        "in_chans": 1,
        "embed_dim": 4,
        "depths": [2, 1],
        "num_heads": [1, 2],
        "window_size": 2,
        "pretrained_window_sizes": [4, 0],
        "num_classes": 5,
    }
    arguments["drop_path_rate"] = SMALL.stochastic_depth
    assert_same(read_swin_v2(arguments, weights)[0], model)
    with pytest.raises(CheckpointError, match="qkv_bias: expected True, got False"):
        read_swin_v2(arguments | {"qkv_bias": False}, weights)


def test_refusals():
    with pytest.raises(
        ValueError, match="`depths` and `pretrained_windows` must have a number for each stage"
    ):
        SwinV2Config(pretrained_windows=(12, 12))
    assert isinstance(SwinV2.from_config(SwinV2(SMALL).get_config()), keras.Model)
