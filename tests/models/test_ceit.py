"""CeiT: its published sizes, the class tokens of its blocks."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.heads import Classifier
from keras_tfm.models import CeiT, CeiTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references import ceit

SMALL = CeiTConfig(
    (16, 24),
    patch_size=2,
    num_channels=1,
    num_layers=2,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    stem_dim=3,
)
IMAGES = {"images": floats(16, 24, 1)}

test_contract = contract.check_family(Case("CeiT", lambda: CeiT(SMALL), IMAGES, attends=True, convolves=True))


# Yuan et al. 2021, table 2: 6.4 M and 24.2 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"), [("T", 6_356_904), ("S", 24_204_840), ("B", 94_405_416)]
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(CeiT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = CeiT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 16, 24, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert model.get_layer("stem").output.shape == (None, 4, 6, 3)
    names = {stack: [block.name for block in blocks] for stack, blocks in model.blocks.items()}
    assert names == {"encoder": ["block_0", "block_1"], "class": ["class_block_0"]}
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(7, 8)] * 3
    assert [x.shape[1:] for x in model.hidden_states["class"]] == [(2, 8)] * 2


def test_a_feedforward_layer_adds_to_the_class_token_its_norm():
    model = CeiT(SMALL)
    randomise(model, 1)
    part = model.blocks["encoder"][0].feedforward
    x = np.random.default_rng(0).normal(size=(2, 7, 8)).astype("float32")
    np.testing.assert_allclose(part(x)[:, 0], x[:, 0] + np.asarray(part.norm(x))[:, 0], atol=1e-6)


def test_the_last_class_token_attends_to_those_of_all_blocks():
    """By hand from what comes out of each block, and the learned vector of its place."""
    model = CeiT(SMALL)
    randomise(model, 1)
    images = np.random.default_rng(0).normal(size=(2, 16, 24, 1)).astype("float32")
    answers = keras.Model(model.input, model.hidden_states)({"images": images})
    first, last = (np.asarray(state)[:, 0] for state in answers["encoder"][1:])
    places = model.get_layer("layer_position").embedding.embeddings.numpy()
    tokens = np.stack([first, last], axis=1) + places
    part = model.blocks["class"][0].attention
    normed = part.norm(tokens)
    token = tokens[:, 1:] + np.asarray(part.branch(normed[:, 1:], normed))
    expected = model.blocks["class"][0].feedforward(token)
    np.testing.assert_allclose(answers["class"][-1][:, :1], expected, atol=1e-5)


def test_kernels_of_the_authors_code():
    """Weights of other kernels, by the authors' names, and a depthwise convolution by hand."""
    config = dataclasses.replace(SMALL, image_size=16, stem_kernel=5, kernel_size=5, intermediate_dim=16)
    model = Classifier(CeiT(config), 3)
    randomise(model, 1)
    weights = keymap.save(model, ceit.rows(config))
    assert weights["blocks.0.leff.conv2.weight"].shape == (16, 1, 5, 5)
    assert weights["i2t.backbone.conv.weight"].shape == (3, 1, 5, 5)
    arguments = {"img_size": 16, "patch_size": 2, "in_chans": 1, "depth": 2, "embed_dim": 8, "num_heads": 2}
    arguments |= {"mlp_ratio": 2, "num_classes": 3, "leff_local_size": 5}
    arguments["hybrid_backbone_args"] = {"out_chans": 3, "kernel_size": 5}
    again, _ = ceit.read(arguments, weights)
    assert again.backbone.config == config
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    layer = model.backbone.blocks["encoder"][0].feedforward.branch.layer.layers[1].convolution
    x = np.random.default_rng(0).normal(size=(1, 2, 2, 16)).astype("float32")
    kernel, bias = (np.asarray(weight) for weight in layer.get_weights())
    cell = sum(x[0, i, j] * kernel[2 + i, 2 + j, :, 0] for i in range(2) for j in range(2)) + bias
    np.testing.assert_allclose(
        np.asarray(layer(np.pad(x, [(0, 0), (2, 2), (2, 2), (0, 0)])))[0, 0, 0], cell, atol=1e-5
    )
    for changes, name in (
        ({"leff_with_bn": False}, "leff_with_bn"),
        ({"hybrid_backbone_args": {"stride": 4}}, "stride"),
    ):
        with pytest.raises(CheckpointError, match=name):
            ceit.config_of(arguments | changes)


def test_refusals():
    with pytest.raises(ValueError, match="`kernel_size` must be odd, to keep the map's size; it is 4"):
        dataclasses.replace(SMALL, kernel_size=4)
    with pytest.raises(ValueError, match="4 x 6 are not divisible into patches of 5 x 5"):
        CeiT(dataclasses.replace(SMALL, patch_size=5))
    with pytest.raises(ValueError, match="no size 'L'; it has T, S, B"):
        CeiT.from_size("L")
