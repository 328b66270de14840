"""HVT: its published sizes, and where its tokens become fewer."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import HVT, HVTConfig
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = HVTConfig(
    (8, 12),
    patch_size=2,
    num_channels=1,
    num_layers=3,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    pool_every=2,
)
IMAGES = {"images": floats(8, 12, 1)}

test_contract = contract.check_family(Case("HVT", lambda: HVT(SMALL), IMAGES, attends=True, convolves=True))


# Pan et al. 2021, table 1, has 5.74 M and 22.09 M.
@pytest.mark.parametrize(("size", "with_1000_classes"), [("Ti-1", 5_735_656), ("S-1", 22_087_144)])
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(HVT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_lengths():
    assert HVT.config_of_size("S-1").lengths == [196, *[97] * 12]
    assert HVT.config_of_size("S-4").lengths == [196, *[97] * 3, *[48] * 3, *[23] * 3, *[11] * 3]


def test_outputs_and_states():
    model = HVT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 8, 12, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 5, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(24, 8), (11, 8), (11, 8), (5, 8)]
    assert [block.name for block in model.blocks["encoder"]] == ["block_0", "block_1", "block_2"]


def test_a_block_gives_the_greatest_of_three_tokens_and_their_positions():
    model = HVT(SMALL)
    randomise(model, 1)
    attention, feedforward, _, position = model.blocks["encoder"][0].layers
    x = np.random.default_rng(0).normal(size=(2, 24, 8)).astype("float32")
    tokens = np.asarray(feedforward(attention(x)))
    expected = np.stack([tokens[:, i : i + 3].max(1) for i in range(0, 22, 2)], axis=1)
    expected = expected + position.embedding.embeddings.numpy()
    np.testing.assert_allclose(model.blocks["encoder"][0](x), expected, atol=1e-6)


def test_refusals():
    with pytest.raises(ValueError, match="`pool_size` must be at most the 2 tokens of block 4; it is 3"):
        HVT(dataclasses.replace(SMALL, pool_every=2, num_layers=7, image_size=(8, 6)))
    with pytest.raises(ValueError, match="positions of pooled tokens are on no grid"):
        HVT(SMALL).with_image_size(16)
    with pytest.raises(ValueError, match="no size 'Ti'; it has Ti-1, S-1"):
        HVT.from_size("Ti")
