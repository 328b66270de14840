"""MLP-Mixer: its published sizes, what mixes what, timm's arguments."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import mlp_mixer
from keras_tfm.heads import Classifier
from keras_tfm.models import MLPMixer, MLPMixerConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats

SMALL = MLPMixerConfig(
    (8, 12), patch_size=4, num_channels=1, num_layers=2, dim=8, tokens_dim=5, channels_dim=12
)
IMAGES = {"images": floats(8, 12, 1)}

# What is added to all features of a patch alike, the next norm takes off again.
WITHOUT_EFFECT = ("attention/branch/layer/output/bias",)

test_contract = contract.check_family(
    Case("MLPMixer", lambda: MLPMixer(SMALL), IMAGES, without_effect=WITHOUT_EFFECT)
)


# Tolstikhin et al. 2021, table 1: 19 M, 18 M, 60 M, 59 M, 206 M and 207 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [
        ("S/32", 19_104_624),
        ("S/16", 18_528_264),
        ("B/32", 60_293_428),
        ("B/16", 59_880_472),
        ("L/32", 206_939_264),
        ("L/16", 208_196_168),
    ],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(MLPMixer.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = MLPMixer(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 8, 12, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 6, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    assert [block.name for block in model.blocks["encoder"]] == ["block_0", "block_1"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(6, 8)] * 3


def test_the_parts_of_a_block_mix_tokens_then_features():
    """A change of one number reaches its feature in all patches, then all features of its patch."""
    block = MLPMixer(SMALL).blocks["encoder"][0]
    x = np.random.default_rng(0).normal(size=(1, 6, 8)).astype("float32")
    other = x.copy()
    other[0, 2, 3] += 1
    tokens, features = (
        np.abs(np.asarray(part(other)) - np.asarray(part(x)))[0] > 1e-6
        for part in (block.attention.branch, block.feedforward.branch)
    )
    np.testing.assert_array_equal(tokens.any(0), np.arange(8) == 3)
    np.testing.assert_array_equal(features.any(1), np.arange(6) == 2)


def test_stochastic_depth_grows_with_the_depth():
    config = dataclasses.replace(SMALL, num_layers=3, stochastic_depth=0.2)
    rates = [block.attention.stochastic_depth for block in MLPMixer(config).blocks["encoder"]]
    np.testing.assert_allclose(rates, [0, 0.1, 0.2])


def test_arguments_of_timm():
    assert mlp_mixer.TIMM.architectures["mixer_b16_224"] == "B/16"
    arguments = {"patch_size": 16, "num_blocks": 12, "embed_dim": 768}
    assert mlp_mixer.TIMM.read_config(arguments) == MLPMixer.sizes["B/16"]
    with pytest.raises(CheckpointError, match="block_layer: expected an argument out of"):
        mlp_mixer.TIMM.read_config({"block_layer": "ResBlock"})


def test_refusals():
    with pytest.raises(ValueError, match=r"no size 'H/16' .did you mean S/16..; it has S/32, S/16"):
        MLPMixer.from_size("H/16")
    with pytest.raises(ValueError, match="10 x 12 are not divisible into patches of 4 x 4"):
        MLPMixer(dataclasses.replace(SMALL, image_size=(10, 12)))
