"""XCiT: its published sizes, its two kinds of blocks."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import XCiT, XCiTConfig
from tests import contract
from tests.contract import Case, floats

SMALL = XCiTConfig(
    (16, 24),
    patch_size=8,
    num_channels=1,
    num_layers=1,
    num_class_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
)
ONE_TOKEN = dataclasses.replace(SMALL, normalize_patches=False)
IMAGES = {"images": floats(16, 24, 1)}

test_contract = contract.check_family(
    Case("XCiT", lambda: XCiT(SMALL), IMAGES, attends=True, convolves=True),
    Case("one normalised token", lambda: XCiT(ONE_TOKEN), IMAGES, attends=True, convolves=True),
)


# El-Nouby et al. 2021, table 1: 3 M, 7 M, 12 M, 26 M, 48 M, 84 M and 189 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [
        ("N12/16", 3_053_224),
        ("T12/16", 6_716_272),
        ("S12/16", 26_253_304),
        ("M24/16", 84_395_752),
        ("L24/16", 189_096_136),
    ],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(XCiT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = XCiT(SMALL)
    images = np.random.default_rng(0).random((3, 16, 24, 1), "float32")
    outputs = model({"images": images})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    names = {stack: [block.name for block in blocks] for stack, blocks in model.blocks.items()}
    assert names == {"encoder": ["block_0"], "class": ["class_block_0"]}
    assert [x.shape[1] for x in model.hidden_states["encoder"]] == [6, 6]
    assert [x.shape[1] for x in model.hidden_states["class"]] == [7, 7]


def test_class_blocks_double_the_patches():
    x = np.random.default_rng(0).normal(size=(2, 7, 8)).astype("float32")
    (block,) = XCiT(ONE_TOKEN).blocks["class"]
    attended = np.asarray(block.attention(x))
    np.testing.assert_allclose(block(x)[:, 1:], 2 * attended[:, 1:], rtol=1e-6)
    (block,) = XCiT(SMALL).blocks["class"]
    normed = np.asarray(block.norm(block.attention(x)))
    np.testing.assert_allclose(block(x)[:, 1:], 2 * normed[:, 1:], atol=1e-5)


def test_neighbours_interact_on_the_grid():
    """A change of one patch reaches, by two 3 x 3 convolutions, those two rows and columns away."""
    (block,) = XCiT(dataclasses.replace(SMALL, image_size=(8, 48))).blocks["encoder"]
    neighbours = block.neighbours
    x = np.random.default_rng(0).normal(size=(1, 6, 8)).astype("float32")
    other = x.copy()
    other[:, 0, 0] += 1
    changed = np.abs(np.asarray(neighbours(other)) - np.asarray(neighbours(x))).max((0, 2)) > 1e-6
    np.testing.assert_array_equal(changed, [True, True, True, False, False, False])


def test_refusals():
    with pytest.raises(ValueError, match=r"no size 'S12/8' .did you mean S12/16..; it has N12/16, T12/16"):
        XCiT.from_size("S12/8")
    with pytest.raises(ValueError, match="`patch_size` must be one of 8, 16; it is 4"):
        XCiT(dataclasses.replace(SMALL, patch_size=4))
    with pytest.raises(ValueError, match="20 x 24 are not divisible into patches of 8 x 8"):
        XCiT(dataclasses.replace(SMALL, image_size=(20, 24)))
