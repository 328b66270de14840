"""The Shuffle Transformer: its published sizes, who attends to what, its norms."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import ShuffleTransformer, ShuffleTransformerConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.shuffle_transformer import read

SMALL = ShuffleTransformerConfig(
    image_size=(24, 48),
    num_channels=1,
    stem_dim=3,
    depths=(2, 1),
    num_heads=(1, 2),
    head_dim=4,
    window=3,
    mlp_ratio=2.0,
)
IMAGES = {"images": floats(24, 48, 1)}

test_contract = contract.check_family(
    Case("ShuffleTransformer", lambda: ShuffleTransformer(SMALL), IMAGES, attends=True, convolves=True)
)


# Huang et al. 2021, table 2: 29 M, 50 M and 88 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"), [("T", 28_532_482), ("S", 50_076_178), ("B", 88_398_560)]
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(ShuffleTransformer.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = ShuffleTransformer(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 24, 48, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 18, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_0_block_1", "stage_1_block_0"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(6, 12, 4)] * 3 + [(3, 6, 8)]
    assert [x.shape[1:] for x in model.maps] == [(6, 12, 4), (3, 6, 8)]


def test_a_stage_of_the_same_width_follows_without_a_merging():
    model = ShuffleTransformer(dataclasses.replace(SMALL, num_heads=(1, 1)))
    assert [x.shape[1:] for x in model.maps] == [(6, 12, 4)] * 2


def test_blocks_attend_in_windows_and_to_cells_that_lie_apart():
    model = ShuffleTransformer(SMALL)
    randomise(model, 1)
    x = np.random.default_rng(0).normal(size=(1, 6, 12, 4)).astype("float32")
    other = x.copy()
    other[0, 0, 0, 0] += 1
    near, apart = np.zeros((2, 6, 12), "bool")
    near[:3, :3] = True
    apart[::2, ::4] = True
    for block, expected in zip(model.blocks["encoder"][:2], (near, apart), strict=True):
        attention, neighbours = block.attention, block.neighbours
        changed = np.abs(np.asarray(attention(other)) - np.asarray(attention(x)))[0].max(-1) > 1e-6
        np.testing.assert_array_equal(changed, expected)
        changed = np.abs(np.asarray(neighbours(other)) - np.asarray(neighbours(x)))[0].max(-1) > 1e-6
        assert changed.sum() == 4  # the part of 3 x 3 cells that lies on the map


def test_norms_of_residuals_learn_their_statistics_in_training():
    part = ShuffleTransformer(SMALL).blocks["encoder"][0].attention
    x = np.random.default_rng(0).normal(5, 2, size=(2, 6, 12, 4)).astype("float32")
    part(x, training=False)
    np.testing.assert_array_equal(part.norm.moving_mean, np.zeros(4))
    part(x, training=True)
    np.testing.assert_allclose(part.norm.moving_mean, 0.1 * x.mean((0, 1, 2)), rtol=1e-4)


def test_refusals():
    with pytest.raises(ValueError, match="no size 'L'; it has T, S, B"):
        ShuffleTransformer.from_size("L")
    with pytest.raises(
        ValueError, match="`window` must be odd, because a convolution has its size too; it is 4"
    ):
        ShuffleTransformerConfig(window=4)
    with pytest.raises(ValueError, match="`depths` and `num_heads` must have a number for each stage"):
        ShuffleTransformerConfig(depths=(2, 2))
    with pytest.raises(CheckpointError, match="embed_dim: expected 96, as `num_heads` say, got 64"):
        read({"embed_dim": 64}, {})
    with pytest.raises(CheckpointError, match="shuffle: expected True, got False"):
        read({"shuffle": False}, {})
