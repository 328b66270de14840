"""Swin: its published sizes, its outputs, where it shifts, its checkpoints both ways."""

import dataclasses
import json
import math

import numpy as np
import pytest

from keras_tfm.convert import keymap, save_huggingface
from keras_tfm.convert.swin import timm_rows
from keras_tfm.heads import Classifier
from keras_tfm.models import Swin, SwinConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import assert_same, check_both_ways, check_refusal
from tests.parity.references.timm import read_swin

SMALL = SwinConfig(
    image_size=(12, 16),
    patch_size=2,
    num_channels=1,
    depths=(2, 1),
    dim=4,
    num_heads=(1, 2),
    window=3,
    dropout=0.1,
    attention_dropout=0.1,
)
IMAGES = {"images": floats(12, 16, 1)}

test_contract = contract.check_family(
    Case("Swin", lambda: Swin(SMALL), IMAGES, attends=True),
    Case("Classifier", lambda: Classifier(Swin(SMALL), 3), IMAGES, attends=True),
)


# Liu et al. 2021, section 3.3: 29 M, 50 M, 88 M and 197 M, classes included.
@pytest.mark.parametrize(
    ("size", "backbone", "with_1000_classes"),
    [
        ("T", 27_519_354, 28_288_354),
        ("S", 48_837_258, 49_606_258),
        ("B", 86_743_224, 87_768_224),
        ("L", 194_995_476, 196_532_476),
    ],
)
def test_parameters_of_the_published_sizes(size, backbone, with_1000_classes, no_allocation):
    def count(model):
        return sum(math.prod(weight.shape) for weight in model.weights if "float" in weight.dtype)

    swin = Swin.from_size(size)
    assert count(swin) == backbone
    assert count(Classifier(swin, 1000)) == with_1000_classes


def test_outputs():
    swin = Swin(SMALL)
    outputs = swin({"images": np.random.default_rng(0).random((3, 12, 16, 1), "float32")})
    assert outputs.keys() == {"sequence_output", "pooled_output"}
    assert outputs["sequence_output"].shape == (3, 12, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    assert [state.shape[1:] for state in swin.hidden_states["encoder"]] == [(6, 8, 4)] * 3 + [(3, 4, 8)]
    assert [x.shape[1:] for x in swin.maps] == [(6, 8, 4), (3, 4, 8)]
    assert [block.name for block in swin.blocks["encoder"]] == [
        "stage_0_block_0",
        "stage_0_block_1",
        "stage_1_block_0",
    ]


def test_every_second_block_is_shifted_unless_a_window_is_the_map():
    config = dataclasses.replace(SMALL, image_size=28, depths=(4, 3, 2), num_heads=(1, 1, 1), window=7)
    windows = [block.attention.branch for block in Swin(config).blocks["encoder"]]
    assert [(layer.window, layer.shift) for layer in windows] == [
        *[(7, 0), (7, 3), (7, 0), (7, 3)],
        *[(7, 0), (7, 0), (7, 0)],
        *[(4, 0), (4, 0)],
    ]
    assert config.grids == ((14, 14), (7, 7), (4, 4)) and config.widths == (4, 8, 16)


def test_stochastic_depth_grows_with_the_depth():
    config = dataclasses.replace(SMALL, depths=(2, 2), stochastic_depth=0.3)
    blocks = Swin(config).blocks["encoder"]
    rates = [part.stochastic_depth for block in blocks for part in (block.attention, block.feedforward)]
    np.testing.assert_allclose(rates, np.repeat([0, 0.1, 0.2, 0.3], 2), atol=1e-12)


def test_configurations_survive_json():
    config = SwinConfig(**json.loads(json.dumps(dataclasses.asdict(SMALL))))
    assert config == SMALL and hash(config) == hash(SMALL)
    assert Swin.from_config(Swin(SMALL).get_config()).config == SMALL


@pytest.mark.parametrize("head", [None, 5])
def test_folders_of_transformers_both_ways(head, tmp_path):
    model = Swin(SMALL) if head is None else Classifier(Swin(SMALL), head)
    check_both_ways(model, tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert (entries["depths"], entries["image_size"], entries["window_size"]) == ([2, 1], [12, 16], 3)
    assert_same(Swin.from_huggingface(tmp_path / "folder"), getattr(model, "backbone", model))


def test_names_of_timm():
    model = Classifier(
        Swin(dataclasses.replace(SMALL, image_size=(12, 24), dropout=0.0, attention_dropout=0.0)), 5
    )
    randomise(model, 1)
    weights = keymap.save(model, timm_rows(model.backbone.config))
    assert weights["layers.1.downsample.reduction.weight"].shape == (8, 16)
    assert weights["patch_embed.proj.weight"].shape == (4, 1, 2, 2)
    arguments = {
        "img_size": [12, 24],
        "patch_size": 2,
        "in_chans": 1,
        "embed_dim": 4,
        "depths": [2, 1],
        "num_heads": [1, 2],
        "window_size": 3,
        "num_classes": 5,
    }
    again, outputs = read_swin(arguments, weights)
    assert_same(again, model)
    assert outputs["features/stage_1"].shape == (None, 3, 6, 8)
    with pytest.raises(CheckpointError, match=r"head\.extra: expected no such weight"):
        read_swin(arguments, weights | {"head.extra": np.zeros(3)})
    with pytest.raises(CheckpointError, match="ape"):
        read_swin(arguments | {"ape": True}, weights)


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match=r"`depths` and `num_heads` must have a number for each stage"):
        SwinConfig(depths=(2, 2), num_heads=(1,))
    with pytest.raises(ValueError, match="225 x 225 are not divisible into patches of 4 x 4"):
        Swin.from_size("T", image_size=225)
    with pytest.raises(ValueError, match="`num_heads` must divide"):
        Swin(dataclasses.replace(SMALL, num_heads=(1, 3)))
    with pytest.raises(ValueError, match=r"maps of at least `window` 4; the last is \(3, 4\)"):
        save_huggingface(Swin(dataclasses.replace(SMALL, window=4)), tmp_path / "folder")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("depths", [2, 500], "502 layers"),
        ("depths", 2, "depths"),
        ("depths", [2, 1, 1], "num_heads"),
        ("window_size", 4000, "relative_position_bias_table"),
        ("mlp_ratio", 60.0, "intermediate.dense.bias"),
        ("embed_dim", 8, "patch_embeddings"),
        ("num_heads", [2, 2], "relative_position_bias_table"),
        ("use_absolute_embeddings", True, "use_absolute_embeddings"),
    ],
)
def test_configurations_that_the_weights_do_not_bear_out(name, value, message, tmp_path):
    save_huggingface(Swin(SMALL), tmp_path / "folder")
    check_refusal(tmp_path / "folder", {name: value}, message)
