"""Twins: its published sizes, who attends to what, its positions."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.convert.twins import TIMM, rows
from keras_tfm.heads import Classifier
from keras_tfm.models import Twins, TwinsConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.timm import read_twins

PCPVT = TwinsConfig(
    image_size=(8, 16),
    patch_size=2,
    num_channels=1,
    dims=(4, 6),
    depths=(2, 1),
    num_heads=(1, 2),
    mlp_ratios=(2, 1.5),
    reductions=(2, 1),
)
SVT = dataclasses.replace(PCPVT, windows=(3, 2))
IMAGES = {"images": floats(8, 16, 1)}

test_contract = contract.check_family(
    Case("windows", lambda: Twins(SVT), IMAGES, attends=True, convolves=True),
)


# Chu et al. 2021, tables 1 and 2: 24.1 M, 43.8 M, 60.9 M; 24 M, 56 M, 99.2 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [
        ("PCPVT-S", 24_106_216),
        ("PCPVT-B", 43_828_456),
        ("PCPVT-L", 60_989_672),
        ("SVT-S", 24_060_776),
        ("SVT-B", 56_070_952),
        ("SVT-L", 99_271_400),
    ],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(Twins.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = Twins(PCPVT)
    outputs = model({"images": np.random.default_rng(0).random((3, 8, 16, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 8, 6)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_0_block_1", "stage_1_block_0"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(4, 8, 4)] * 3 + [(2, 4, 6)]
    assert [x.shape[1:] for x in model.maps] == [(4, 8, 4), (2, 4, 6)]


def reached(layer, x):
    """Whether each cell of what `layer` gives depends on the first one of `x`."""
    other = x.copy()
    other[0, 0, 0, 0] += 1  # a norm would undo an addition to all
    return np.abs(np.asarray(layer(other)) - np.asarray(layer(x))).max((0, 3)) > 1e-6


def test_windows_and_all_cells_take_turns():
    model = Twins(SVT)
    randomise(model, 1)
    x = np.random.default_rng(0).normal(size=(1, 4, 8, 4)).astype("float32")
    in_windows, among_all = (block.attention for block in model.blocks["encoder"][:2])
    expected = np.zeros((4, 8), "bool")
    expected[:3, :3] = True
    np.testing.assert_array_equal(reached(in_windows, x), expected)
    assert reached(among_all, x).all()


def test_positions_come_from_the_neighbours():
    """A kernel with one 1, above the middle, adds to each cell the one above it."""
    position = Twins(PCPVT).get_layer("stage_0_position")
    kernel = np.zeros((3, 3, 4, 1), "float32")
    kernel[0, 1] = 1
    position.branch.convolution.kernel.assign(kernel)
    x = np.random.default_rng(0).normal(size=(2, 4, 8, 4)).astype("float32")
    above = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    np.testing.assert_allclose(position(x), x + above, rtol=1e-6)


def test_names_of_timm():
    model = Classifier(Twins(SVT), 5)
    randomise(model, 1)
    weights = keymap.save(model, rows(SVT))
    assert weights["blocks.0.1.attn.kv.weight"].shape == (8, 4)
    arguments = {
        "img_size": [8, 16],
        "patch_size": 2,
        "in_chans": 1,
        "embed_dims": [4, 6],
        "depths": [2, 1],
        "num_heads": [1, 2],
        "mlp_ratios": [2, 1.5],
        "sr_ratios": [2, 1],
        "wss": [3, 2],
        "num_classes": 5,
    }
    again, _ = read_twins(arguments, weights)
    assert again.backbone.config == SVT
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert {*TIMM.architectures.values()} == {*Twins.sizes}
    assert TIMM.size_of("twins_svt_base") == Twins.sizes["SVT-B"]
    with pytest.raises(CheckpointError, match="norm_layer"):
        TIMM.read_config(arguments | {"norm_layer": "x"})


def test_refusals():
    with pytest.raises(ValueError, match="no size 'XS'; it has PCPVT-S"):
        Twins.from_size("XS")
    with pytest.raises(ValueError, match=r"`reductions` and `windows` must have a number for each stage"):
        TwinsConfig(windows=(7, 7))
    with pytest.raises(ValueError, match="12 x 16 are not divisible into patches of 8 x 8"):
        Twins(dataclasses.replace(PCPVT, image_size=(12, 16), patch_size=8))
    with pytest.raises(ValueError, match="A map of 4 x 8 is smaller than a window of 5 x 5"):
        Twins(dataclasses.replace(PCPVT, reductions=(5, 1)))
