"""Visformer: its published sizes, its stages, what its first blocks see, timm's arguments."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import visformer
from keras_tfm.heads import Classifier
from keras_tfm.models import Visformer, VisformerConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats

SMALL = VisformerConfig(
    (32, 64), num_channels=1, stem_dim=2, dim=4, depths=(1, 1, 1), num_heads=2, groups=2, mlp_ratio=1.5
)
IMAGES = {"images": floats(32, 64, 1)}

test_contract = contract.check_family(
    Case("Visformer", lambda: Visformer(SMALL), IMAGES, attends=True, convolves=True)
)


# Chen et al. 2021, table 2: 10.3 M and 40.2 M.
@pytest.mark.parametrize(("size", "with_1000_classes"), [("Ti", 10_321_368), ("S", 40_219_592)])
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(Visformer.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_maps():
    model = Visformer(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 32, 64, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 2, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    assert [x.shape[1:] for x in model.maps] == [(4, 8, 2), (2, 4, 4), (1, 2, 8)]
    states = [x.shape[1:] for x in model.hidden_states["encoder"]]
    assert states == [(4, 8, 2), (4, 8, 2), (2, 4, 4), (1, 2, 8)]
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_1_block_0", "stage_2_block_0"]


def test_the_first_stage_sees_neighbours_of_its_group_and_the_second_all():
    block, attending, _ = Visformer(SMALL).blocks["encoder"]
    parts = block.feedforward.branch.layers[1], attending.attention.branch
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype("float32")
    other = x.copy()
    other[0, 0, 1, 3] += 1  # a feature of the second group
    changed = [np.abs(np.asarray(part(other)) - np.asarray(part(x)))[0] > 0 for part in parts]
    assert not changed[0][..., :2].any()
    np.testing.assert_array_equal(changed[0].any(-1), [[True, True, True, False]] * 2)
    assert changed[1].any(-1).all()


def test_stochastic_depth_grows_with_the_depth():
    blocks = Visformer(dataclasses.replace(SMALL, stochastic_depth=0.2)).blocks["encoder"]
    rates = [
        blocks[0].feedforward.stochastic_depth,
        *(block.attention.stochastic_depth for block in blocks[1:]),
    ]
    np.testing.assert_allclose(rates, [0, 0.1, 0.2])


def test_arguments_of_timm():
    arguments = {"init_channels": 16, "embed_dim": 192, "num_heads": 3, "norm_layer": "BatchNorm2d"}
    assert visformer.TIMM.read_config(arguments) == visformer.TIMM.size_of("visformer_tiny")
    for name, value in (("attn_stage", "111"), ("norm_layer", "LayerNorm2d"), ("vit_stem", True)):
        with pytest.raises(CheckpointError, match=name):
            visformer.TIMM.read_config({name: value})


def test_refusals():
    with pytest.raises(
        ValueError, match="`dim` must be even, and a multiple of `groups` 8 and of `num_heads` 6"
    ):
        VisformerConfig(dim=100)
    with pytest.raises(ValueError, match="not divisible into patches of 4 x 4"):
        Visformer(dataclasses.replace(SMALL, image_size=(36, 64)))
