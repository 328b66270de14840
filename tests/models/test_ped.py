"""PED: the published configuration, who sees whom, where it looks, what trains it."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm import heads
from keras_tfm.layers.boxes import nearest_boxes
from keras_tfm.models import PED, PEDConfig
from keras_tfm.models.detection.ped import RectifiedAttention
from keras_tfm.models.detection.refinement import decoder_block
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models import test_detr

SMALL = PEDConfig(
    (20, 24),
    1,
    backbone_config=test_detr.RESNET,
    num_queries=6,
    num_neighbours=2,
    dim=32,
    num_layers=1,
    num_decoder_layers=2,
    num_heads=2,
    intermediate_dim=8,
    num_maps=1,
    num_levels=2,
    num_points=1,
    num_decoder_points=2,
)
NORMS = tuple(f"encoder_projection_{i}/convolution/bias" for i in range(2))  # of groups of one feature
ATTENTION = {"query": floats("T", 8), "context": floats(8, 8), "references": floats("T", 2, 4)}

test_contract = contract.check_family(
    Case(
        "PED",
        lambda: PED(SMALL),
        test_detr.INPUTS,
        convolves=True,
        chooses=True,  # whom a query sees
        without_effect=NORMS,
        mixes_padding=True,  # the backbone's convolutions do
        deviation=0.2,
    ),
    Case("RectifiedAttention", lambda: RectifiedAttention(2, ((2, 3), (1, 2)), 2), ATTENTION),
)


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 20, 24, 1)).astype("float32")


def boxes_of(rng, *shape):
    return np.concatenate([rng.uniform(0, 1, (*shape, 2)), rng.uniform(0.05, 0.4, (*shape, 2))], axis=-1)


def test_the_published_configuration():
    config = PED.config_of_size("50")
    assert (config.num_queries, config.num_neighbours, config.num_levels) == (1000, 100, 4)
    assert (config.dim, config.intermediate_dim, config.decoder_sizes) == (256, 1024, (6, 8, 1024))


def test_the_nearest_boxes_by_hand_and_ties():
    """Equal boxes at 0.1 twice, 0.3 and 0.9: a box is nearest to itself, then to its equal."""
    boxes = np.array([[[x, 0.5, 0.1, 0.1] for x in (0.1, 0.1, 0.3, 0.9)]], "float32")
    found = np.asarray(nearest_boxes(boxes, 2))[0].astype(int).tolist()
    assert found == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]]  # the third: a tie of two
    assert np.asarray(nearest_boxes(boxes, 4)).all()


@given(st.integers(0, 2**32 - 1))
def test_a_far_query_changes_nothing_of_a_near_one(seed):
    """What a query that none of the others sees says, and where its own box is, as long as it is far."""
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(1, 6, 8)).astype("float32")
    boxes = boxes_of(rng, 1, 6).astype("float32") * [0.3, 0.3, 0.2, 0.2]  # in a corner
    boxes[:, 5] = [0.9, 0.9, 0.1, 0.1]
    tensors = {"context": rng.normal(size=(1, 8, 8)).astype("float32")}
    tensors["references"] = np.repeat(boxes[:, :, None], 2, axis=2).astype("float32")

    def run(queries):
        attention = {"position": None, "mask": nearest_boxes(boxes, 3)}
        return np.asarray(BLOCK(queries, attention=attention, context_attention=tensors))

    assert not np.asarray(nearest_boxes(boxes, 3))[0, :5, 5].any()
    before = run(queries)
    queries[:, 5] += 5
    after = run(queries)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.abs(before[:, 5] - after[:, 5]).max() > 1e-3


def test_points_lie_in_strips_of_the_box():
    """Two heads and two points in a box of half the image: the upper and the lower strip, two columns."""
    layer = RectifiedAttention(2, ((4, 4),), 2)
    references = np.array([[[[0.5, 0.25, 0.4, 0.2]]]], "float32")  # x 0.3 to 0.7, y 0.15 to 0.35
    offsets = np.zeros((1, 1, 2, 1, 2, 2), "float32")
    found = np.asarray(layer._points(offsets, references[:, :, None, :, None]))[0, 0, :, 0]
    np.testing.assert_allclose(found, [[[0.4, 0.2], [0.6, 0.2]], [[0.4, 0.3], [0.6, 0.3]]], rtol=1e-5)
    moved = np.asarray(layer._points(offsets + 1, references[:, :, None, :, None]))[0, 0, :, 0]
    np.testing.assert_allclose(moved - found, np.broadcast_to([0.2, 0.1], (2, 2, 2)), rtol=1e-4)
    with pytest.raises(ValueError, match=r"needs `references` \(B, T, L, 4\), boxes; they are 2 wide"):
        layer(np.ones((1, 1, 8)), np.ones((1, 16, 8)), references[..., :2])


def test_weights_of_points_do_not_see_positions():
    """Offsets that depend on nothing, and weights: positions change neither."""
    layer, rng = RectifiedAttention(2, ((2, 3), (1, 2)), 2), np.random.default_rng(0)
    query, context = (rng.normal(size=(1, n, 8)).astype("float32") for n in (4, 8))
    references = np.broadcast_to(boxes_of(rng, 1, 4)[:, :, None], (1, 4, 2, 4)).astype("float32")
    position = rng.normal(size=(1, 4, 8)).astype("float32")
    layer(query, context, references)
    randomise(layer, 1)
    layer.offsets.kernel.assign(0 * layer.offsets.kernel)
    plain, placed = (layer(query, context, references, position=p) for p in (None, position))
    np.testing.assert_allclose(plain, placed, atol=1e-6)
    randomise(layer, 1)
    assert np.abs(layer(query, context, references, position=position) - plain).max() > 1e-3


def test_first_boxes_are_those_of_people_and_blocks_correct_them():
    detector = heads.detector_around(PED(SMALL), 1)
    assert isinstance(detector, heads.CrowdDetector) and detector.predictions.shape == (None, 2, 6, 5)
    model = detector.backbone
    dense = model.get_layer("decoder_references")
    np.testing.assert_allclose(dense.bias, [0, 0, -2, -1.5])
    randomise(model, 1)
    boxes = np.asarray(model({"images": draw()})["decoder_boxes"])
    assert boxes.shape == (2, 2, 6, 4) and np.abs(boxes[:, 1] - boxes[:, 0]).max() > 1e-3


def test_refusals():
    with pytest.raises(ValueError, match="`num_neighbours` must be at most `num_queries`, 6; it is 7"):
        dataclasses.replace(SMALL, num_neighbours=7)
    with pytest.raises(ValueError, match="`num_levels` must be at least `num_maps`, 3; it is 2"):
        dataclasses.replace(SMALL, num_maps=3)
    with pytest.raises(ValueError, match="`num_maps` must be at most 2; it is 3"):
        PED(dataclasses.replace(SMALL, num_maps=3, num_levels=3))


class Sizes:
    """What a block asks of a configuration."""

    decoder_sizes, num_decoder_points, dropout = (1, 2, 8), 2, 0.0
    attention_dropout, activation_dropout, activation = 0.0, 0.0, "relu"


BLOCK = decoder_block(Sizes, ((2, 3), (1, 2)), 0, attention=RectifiedAttention)
