"""CPVT: its sizes, and how it knows where a patch stands."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import CPVT, CPVTConfig
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = CPVTConfig(
    (4, 6),
    patch_size=2,
    num_channels=1,
    num_layers=2,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    pooling="class",
)
MEAN = dataclasses.replace(SMALL, pooling="mean")
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(Case("CPVT", lambda: CPVT(SMALL), IMAGES, attends=True, convolves=True))


# DeiT's (5,717,416 of Ti) without 197 positions, but with 9 weights and a bias for each feature; GAP sizes
# have no class token. Chu et al. 2021 say 6 M and 23 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [("Ti", 5_717_416 - 196 * 192 + 9 * 192), ("Ti-GAP", 5_681_320), ("S-GAP", 21_978_472)],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(CPVT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    images = np.random.default_rng(0).random((3, 4, 6, 1), "float32")
    model = CPVT(SMALL)
    outputs = model({"images": images})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert [block.name for block in model.blocks["encoder"]] == ["block_0", "block_1"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(7, 8)] * 3
    outputs = CPVT(MEAN)({"images": images})
    assert outputs["sequence_output"].shape == (3, 6, 8)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)


def test_the_edge_of_the_image_tells_the_places():
    """In an image of one colour only patches that touch different edges differ, behind block 0."""
    model = CPVT(dataclasses.replace(MEAN, image_size=(8, 10)))
    randomise(model, 1)
    block = model.blocks["encoder"][0]
    x = np.tile(np.random.default_rng(0).normal(size=8), (1, 20, 1)).astype("float32")
    attended = block.feedforward(block.attention(x))
    np.testing.assert_allclose(attended, np.broadcast_to(attended[:, :1], (1, 20, 8)), atol=1e-5)
    cells = np.reshape(block(x), (4, 5, 8))
    np.testing.assert_allclose(cells[1:3, 1:4], np.broadcast_to(cells[1, 1], (2, 3, 8)), atol=1e-5)
    kinds = [cells[row, column] for row in (0, 1, 3) for column in (0, 1, 4)]
    for i, one in enumerate(kinds):
        assert all(np.abs(one - other).max() > 1e-2 for other in kinds[:i])


def test_the_class_token_has_no_place():
    model = CPVT(SMALL)
    randomise(model, 1)
    block = model.blocks["encoder"][0]
    x = np.random.default_rng(0).normal(size=(2, 7, 8)).astype("float32")
    y = block.feedforward(block.attention(x))
    np.testing.assert_array_equal(block.position(y)[:, 0], y[:, 0])


def test_images_of_another_size_take_the_same_weights():
    model = CPVT(MEAN)
    larger = model.with_image_size((8, 12))
    for a, b in zip(larger.weights, model.weights, strict=True):
        assert a.path == b.path
        np.testing.assert_array_equal(a, b)
    assert larger({"images": np.zeros((1, 8, 12, 1), "float32")})["sequence_output"].shape == (1, 24, 8)


def test_refusals():
    with pytest.raises(ValueError, match="no size 'L'; it has Ti, S, B, Ti-GAP"):
        CPVT.from_size("L")
    with pytest.raises(ValueError, match="5 x 6 are not divisible into patches of 2 x 2"):
        CPVT(dataclasses.replace(SMALL, image_size=(5, 6)))
