"""CAT: its published sizes, who attends to what."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import CAT, CATConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.cat import read

SMALL = CATConfig(
    image_size=(12, 24), patch_size=2, num_channels=1, depths=(1, 1), dim=4, num_heads=(1, 2), window=3
)
IMAGES = {"images": floats(12, 24, 1)}

# It adds the same number to all features of a cell, which the norms behind it take away.
IDLE = "stage_1_block_1/attention/branch/attention/output/bias"

test_contract = contract.check_family(
    Case("CAT", lambda: CAT(SMALL), IMAGES, attends=True, without_effect=(IDLE,))
)


# The authors' models: 17 M, 37 M and 52 M in Lin et al. 2021, table 4.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"), [("T", 16_670_292), ("S", 36_993_202), ("B", 51_230_866)]
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(CAT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = CAT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 12, 24, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 18, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    names = [f"stage_{stage}_block_{i}" for stage in range(2) for i in range(3)]
    assert [block.name for block in model.blocks["encoder"]] == names
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(6, 12, 4)] * 4 + [(3, 6, 8)] * 3
    assert [x.shape[1:] for x in model.maps] == [(6, 12, 4), (3, 6, 8)]


def test_attention_in_windows_and_among_them():
    """A changed number reaches its window; then its channel alone, in all windows."""
    model = CAT(SMALL)
    randomise(model, 1)
    inner, outer = (block.attention.branch for block in model.blocks["encoder"][:2])
    x = np.random.default_rng(0).normal(size=(1, 6, 12, 4)).astype("float32")
    other = x.copy()
    other[0, 0, 0, 1] += 1
    is_changed = [np.abs(np.asarray(f(other)) - np.asarray(f(x)))[0] > 1e-6 for f in (inner, outer)]
    expected = np.zeros((6, 12), "bool")
    expected[:3, :3] = True
    np.testing.assert_array_equal(is_changed[0].any(-1), expected)
    np.testing.assert_array_equal(is_changed[1], np.broadcast_to([False, True, False, False], (6, 12, 4)))


def test_tokens_among_windows_are_a_channels_cells():
    """Where all weights are equal, a cell becomes the mean of those at its place in all windows."""
    layer = CAT(SMALL).blocks["encoder"][1].attention.branch
    kernel, _ = layer.attention.projections.query_key_value.get_weights()
    identity = np.concatenate([np.zeros((9, 18)), np.eye(9)], axis=1).astype("float32")  # no scores
    assert kernel.shape == identity.shape
    layer.attention.projections.query_key_value.set_weights([identity, np.zeros(27, "float32")])
    layer.attention.output_projection.set_weights([np.eye(9, dtype="float32"), np.zeros(9, "float32")])
    x = np.random.default_rng(0).normal(size=(2, 6, 12, 4)).astype("float32")
    mean = x.reshape(2, 2, 3, 4, 3, 4).mean((1, 3), keepdims=True)
    expected = np.broadcast_to(mean, (2, 2, 3, 4, 3, 4)).reshape(x.shape)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="no size 'L'; it has T, S, B"):
        CAT.from_size("L")
    with pytest.raises(ValueError, match="`depths` and `num_heads` must have a number for each stage"):
        CATConfig(depths=(2, 2))
    with pytest.raises(ValueError, match="8 x 12 are not divisible into patches of 3 x 3"):
        CAT(dataclasses.replace(SMALL, image_size=(16, 24)))
    with pytest.raises(CheckpointError, match="ape: expected False, got True"):
        read({"ape": True}, {})
