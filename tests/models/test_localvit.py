"""LocalViT: its published sizes, its feed-forward layers on the grid."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.convert import keymap
from keras_tfm.heads import Classifier
from keras_tfm.models import LocalViT, LocalViTConfig
from keras_tfm.models.vision.localvit import SqueezeExcitation
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.localvit import config_of, rows

SMALL = LocalViTConfig(
    (4, 6),
    patch_size=2,
    num_channels=1,
    num_layers=2,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    reduction=3,
)
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(
    Case("LocalViT", lambda: LocalViT(SMALL), IMAGES, attends=True, convolves=True)
)


# Li et al. 2021: 5.9 M, 9.4 M and 22.4 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"), [("T", 5_908_696), ("T-SE4", 9_376_168), ("S", 22_433_176)]
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(LocalViT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = LocalViT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 4, 6, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert [block.name for block in model.blocks["encoder"]] == ["block_0", "block_1"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(7, 8)] * 3


def test_neighbours_interact_in_the_feedforward_layer_and_the_class_token_passes_it_by():
    """Without the excitation, which takes the mean of all, a change reaches the 3 x 3 patches around it."""
    model = LocalViT(dataclasses.replace(SMALL, image_size=(6, 8), reduction=None))
    randomise(model, 1)
    feedforward = model.blocks["encoder"][0].feedforward
    x = np.random.default_rng(0).normal(size=(1, 13, 8)).astype("float32")
    other = x.copy()
    other[:, 1] += 1  # the first patch of 3 x 4
    y = np.asarray(feedforward(x))
    np.testing.assert_array_equal(y[:, 0], x[:, 0])
    changed = np.abs(np.asarray(feedforward(other)) - y).max((0, 2))[1:].reshape(3, 4) > 1e-6
    np.testing.assert_array_equal(changed, [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]])


def test_squeeze_and_excitation_by_hand():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 6)).astype("float32")
    layer = SqueezeExcitation(3)
    layer.build(x.shape)
    randomise(layer, 1)
    (first, bias), (second, offset) = layer.hidden.get_weights(), layer.gate.get_weights()
    hidden = np.maximum(x.mean((1, 2)) @ first + bias, 0)
    gate = np.clip((hidden @ second + offset + 3) / 6, 0, 1)
    np.testing.assert_allclose(layer(x), x * gate[:, None, None], atol=1e-6)


def test_theirs_without_excitation():
    arguments = {
        "img_size": (4, 6),
        "patch_size": 2,
        "in_chans": 1,
        "embed_dim": 8,
        "depth": 2,
        "num_heads": 2,
        "mlp_ratio": 1.5,
        "act": 1,
        "reduction": 3,
    }
    config = config_of(arguments)
    assert (config.activation, config.reduction) == ("relu6", None)
    weights = keymap.save(Classifier(LocalViT(config), 3), rows(config))
    assert weights["blocks.1.conv.conv.6.weight"].shape == (8, 12, 1, 1)
    relu6 = LocalViT(config).blocks["encoder"][0].feedforward.layer.branch.layers[0].function
    np.testing.assert_array_equal(relu6(ops.convert_to_tensor([-1.0, 2.0, 9.0])), [0, 2, 6])
    assert config_of(arguments | {"act": 3}).reduction == 3
    with pytest.raises(CheckpointError, match="expected one of 1, 2, 3"):
        config_of(arguments | {"act": 4})


def test_refusals():
    with pytest.raises(
        ValueError, match="`reduction` must be at most `intermediate_dim`, 12, or None; it is 13"
    ):
        dataclasses.replace(SMALL, reduction=13)
    with pytest.raises(ValueError, match="`reduction` must be at least 1; it is 0"):
        SqueezeExcitation(0)
    with pytest.raises(ValueError, match="`reduction` must be at most the 6 channels; it is 7"):
        SqueezeExcitation(7)(keras.KerasTensor((None, 3, 4, 6)))
    with pytest.raises(ValueError, match="no size 'B'; it has T, T-SE4, S"):
        LocalViT.from_size("B")
