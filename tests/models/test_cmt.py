"""CMT: its published sizes, its neighbours, its shared table."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import CMT, CMTConfig
from keras_tfm.models.vision.cmt import PositionTable
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.cmt import read

SMALL = CMTConfig(
    image_size=(16, 24),
    num_channels=1,
    stem_dim=3,
    dims=(4, 6),
    depths=(2, 1),
    num_heads=(1, 2),
    mlp_ratios=(2, 1.5),
    reductions=(2, 1),
    output_dim=7,
)
IMAGES = {"images": floats(16, 24, 1)}

test_contract = contract.check_family(Case("CMT", lambda: CMT(SMALL), IMAGES, attends=True, convolves=True))


# The authors' models for images of 224 x 224. With each size's own images Ti, XS and B have the 9.5 M, 15.2 M
# and 45.7 M of Guo et al. 2022, table 2; S, which has the same images, has 25.1 M there.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [("Ti", 9_705_546), ("XS", 15_379_808), ("S", 26_256_160), ("B", 45_511_676)],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(CMT.from_size(size, image_size=224), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = CMT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 16, 24, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 6, 7)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_0_block_1", "stage_1_block_0"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(4, 6, 4)] * 3 + [(2, 3, 6)]
    assert [x.shape[1:] for x in model.maps] == [(4, 6, 4), (2, 3, 6)]


def test_the_blocks_of_a_stage_share_a_table():
    """A bias that leaves the third of six keys alone makes all cells attend to it, in both blocks."""
    model = CMT(SMALL)
    randomise(model, 1)
    tables = [layer for layer in model.layers if isinstance(layer, PositionTable)]
    assert [tuple(layer.table.shape) for layer in tables] == [(1, 24, 6), (2, 6, 6)]
    bias = np.zeros((1, 1, 24, 6), "float32")
    bias[..., 2] = 1e4
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 4)).astype("float32")
    for block in model.blocks["encoder"][:2]:
        y = np.asarray(block.attention.branch(x, bias=bias))
        np.testing.assert_allclose(y, np.broadcast_to(y[:, :1, :1], y.shape), atol=1e-5)
        assert np.ptp(np.asarray(block.attention.branch(x)), axis=(1, 2)).max() > 1e-3


def test_a_block_looks_at_its_neighbours_first():
    """A kernel with one 1, left of the middle, adds to each cell the one on its left."""
    block = CMT(SMALL).blocks["encoder"][0]
    kernel = np.zeros((3, 3, 4, 1), "float32")
    kernel[1, 0] = 1
    block.position.branch.convolution.kernel.assign(kernel)
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 4)).astype("float32")
    left = np.concatenate([np.zeros_like(x[:, :, :1]), x[:, :, :-1]], axis=2)
    without = block.feedforward(block.attention(x + left))
    np.testing.assert_allclose(block(x), without, atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="no size 'L'; it has Ti, XS, S, B"):
        CMT.from_size("L")
    with pytest.raises(ValueError, match="`reductions` must have a number for each stage"):
        CMTConfig(reductions=(2, 1))
    with pytest.raises(ValueError, match="9 x 12 are not divisible into patches of 2 x 2"):
        CMT(dataclasses.replace(SMALL, image_size=(18, 24)))
    with pytest.raises(ValueError, match="`reduction` must be at least 1; it is 0"):
        PositionTable(1, 0)
    with pytest.raises(CheckpointError, match="qkv_bias: expected True, got False"):
        read({"qkv_bias": False}, {})
