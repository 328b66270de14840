"""BoTNet: its published sizes, its offsets by hand, what attends, timm's arguments."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import botnet
from keras_tfm.heads import Classifier
from keras_tfm.models import BoTNet, BoTNetConfig
from keras_tfm.models.vision.botnet import OffsetEmbedding
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats
from tests.parity.references.botnet import class_config_of

SMALL = BoTNetConfig(
    (24, 32),
    num_channels=1,
    stem_dim=8,
    dims=(8, 12),
    depths=(1, 1),
    inner_dims=(4, 4),
    strides=(1, 2),
    attending=(0, 1),
    num_heads=2,
    inner_stem_dims=(3, 4),
)
IMAGES = {"images": floats(24, 32, 1)}

test_contract = contract.check_family(
    Case("Classifier", lambda: Classifier(BoTNet(SMALL), 3), IMAGES, attends=True, convolves=True)
)


# Srinivas et al. 2021, section 4.8: 20.8 M with classes; timm's 12.5 M.
@pytest.mark.parametrize(
    ("size", "image_size", "with_1000_classes"), [("50", 224, 20_852_008), ("26T", 256, 12_488_672)]
)
def test_parameters_of_the_published_sizes(size, image_size, with_1000_classes, no_allocation):
    model = Classifier(BoTNet.from_size(size, image_size=image_size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_maps():
    model = BoTNet(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 24, 32, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 12, 12) and outputs["pooled_output"].shape == (3, 12)
    assert [x.shape[1:] for x in model.maps] == [(6, 8, 8), (3, 4, 12)]
    assert [block.name for block in model.blocks["encoder"]] == ["stage_0_block_0", "stage_1_block_0"]
    assert [BoTNetConfig().grid(3, index) for index in range(3)] == [(14, 14), (7, 7), (7, 7)]
    assert [[config.attends(2, i) for i in range(2)] for config in (BoTNet.sizes["26T"],)] == [[False, True]]


@pytest.mark.parametrize("scaled", [False, True])
def test_offsets_by_hand(scaled):
    """A query's product with the vectors of both offsets, from it to the key."""
    height, width, dim = 2, 3, 4
    rng = np.random.default_rng(0)
    query = rng.normal(size=(1, 2, height * width, dim)).astype("float32")
    position = OffsetEmbedding((height, width), scaled)
    position.build((2, dim, dim))
    tables = [np.asarray(table) for table in (position.vertical, position.horizontal)]
    assert [table.shape for table in tables] == [(3, 4), (5, 4)]
    scores = np.asarray(position.scores(query, query, None, None, 0.5))
    for head, t, s in np.ndindex(2, height * width, height * width):
        down, right = s // width - t // width, s % width - t % width
        vector = tables[0][down + height - 1] + tables[1][right + width - 1]
        expected = query[0, head, t] @ vector * (0.5 if scaled else 1)
        np.testing.assert_allclose(scores[0, head, t, s], expected, atol=1e-6)


def test_every_cell_sees_all():
    """A change of one cell reaches the whole map in an attending block, and its neighbours in the other."""
    config = dataclasses.replace(SMALL, strides=(1, 1))
    blocks = BoTNet(config).blocks["encoder"]
    x = np.random.default_rng(0).normal(size=(1, 6, 8, 8)).astype("float32")
    other = x.copy()
    other[0, 0, 0] += 3
    reached = [
        (np.abs(np.asarray(block.branch(other)) - np.asarray(block.branch(x))).max(-1) > 0).mean()
        for block in blocks
    ]
    assert reached[0] <= 4 / 48 and reached[1] > 0.9


def test_arguments_of_timm():
    assert class_config_of({}) == botnet.TIMM.size_of("botnet26t_256") == BoTNet.sizes["26T"]
    with pytest.raises(CheckpointError, match="bottlenecks, then some that attend"):
        parts = [{"type": kind, "d": 1, "c": 8, "s": 1, "br": 0.5} for kind in ("self_attn", "bottle")]
        class_config_of({"blocks": [parts]})
    with pytest.raises(CheckpointError, match="stem_type"):
        class_config_of({"stem_type": "deep"})


def test_refusals():
    with pytest.raises(ValueError, match=r"`attending` must not exceed `depths`, \(1, 1\); it is \(0, 2\)"):
        dataclasses.replace(SMALL, attending=(0, 2))
    with pytest.raises(ValueError, match="`strides` and `attending` must have a number for each stage"):
        BoTNetConfig(strides=(1, 1))
    with pytest.raises(
        ValueError, match="`branch` and `shortcut` must give the same shape"
    ):  # an odd map that is averaged
        BoTNet(dataclasses.replace(SMALL, image_size=(20, 32)))
    with pytest.raises(ValueError, match="for 6 tokens; it is called with 5"):
        x = np.zeros((1, 2, 5, 4), "float32")
        position = OffsetEmbedding((2, 3))
        position.build((2, 4, 4))
        position.scores(x, x, None, None, 1.0)
