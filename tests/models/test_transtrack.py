"""TransTrack: its two frames, its state, its second decoder."""

import dataclasses

import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.models import TransTrack, TransTrackConfig
from tests import contract
from tests.contract import Case, floats, mask, randomise

SMALL = TransTrackConfig(
    (20, 24),
    1,
    backbone_config={"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic"},
    num_queries=3,
    dim=8,
    num_layers=1,
    num_decoder_layers=2,
    num_heads=2,
    intermediate_dim=8,
    num_maps=2,
    num_levels=2,
    num_groups=2,
    num_points=1,
    num_decoder_points=1,
)
INPUTS = {
    "images": floats(20, 24, 1),
    "previous_images": floats(20, 24, 1),
    "pixel_mask": mask(20, 24),
    "track_states": floats(3, 8),
    "track_boxes": floats(3, 4),
}


def tracker():
    return heads.TrackDetector(TransTrack(SMALL), 2).tracking()


@pytest.fixture(scope="module")
def model():
    drawn = tracker()
    randomise(drawn, 1)
    return drawn


test_contract = contract.check_family(
    Case(
        "TransTrack",
        lambda: TransTrack(SMALL),
        INPUTS,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        chooses=True,  # boxes, of which the state is made, are in float32 as in DeformableDETR
    )
)


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "images": rng.normal(size=(2, 20, 24, 1)).astype("float32"),
        "previous_images": rng.normal(size=(2, 20, 24, 1)).astype("float32"),
        "track_states": rng.normal(size=(2, 3, 8)).astype("float32"),
        "track_boxes": rng.uniform(0.2, 0.8, (2, 3, 4)).astype("float32"),
    }


def test_outputs_and_the_state_of_the_next_frame(model):
    outputs = model(draw())
    assert {name: x.shape for name, x in outputs.items()} == {
        "logits": (2, 3, 2),
        "boxes": (2, 3, 4),
        "track_logits": (2, 3, 2),
        "expected_boxes": (2, 3, 4),
        "states": (2, 3, 8),
    }
    following = {"track_states": outputs["states"], "track_boxes": outputs["boxes"]}
    again = model(draw(1) | following)
    assert np.isfinite(np.asarray(again["expected_boxes"])).all()


def test_the_state_reaches_the_second_decoder_alone(model):
    inputs = draw()
    one, other = (model(inputs | {"track_states": inputs["track_states"] + x}) for x in (0, 1))
    for name in ("logits", "boxes", "states"):
        np.testing.assert_array_equal(one[name], other[name])
    for name in ("track_logits", "expected_boxes"):
        assert np.abs(np.asarray(one[name]) - np.asarray(other[name])).max() > 1e-4


def test_both_frames_are_joined_in_their_order(model):
    inputs = draw()
    exchanged = {"images": inputs["previous_images"], "previous_images": inputs["images"]}
    one, other = np.asarray(model(inputs)["logits"]), np.asarray(model(inputs | exchanged)["logits"])
    assert np.abs(one - other).max() > 1e-3


def test_objects_found_again_keep_their_slots(model):
    """A permuted state gives permuted answers: identities go by the slots."""
    inputs, order = draw(), [2, 0, 1]
    state = {name: inputs[name][:, order] for name in ("track_states", "track_boxes")}
    one, other = model(inputs), model(inputs | state)
    for name in ("track_logits", "expected_boxes"):
        np.testing.assert_allclose(np.asarray(one[name])[:, order], other[name], atol=1e-5)


def test_expected_boxes_begin_where_they_were():
    """A fresh head corrects nothing."""
    inputs = draw()
    outputs = TransTrack(SMALL)(inputs)
    np.testing.assert_allclose(outputs["expected_boxes"], inputs["track_boxes"], atol=1e-5)


def test_sizes_and_refusals():
    assert TransTrack.sizes["50"].num_queries == 500 and TransTrack.sizes["50"].intermediate_dim == 1024
    with pytest.raises(ValueError, match="`refines` must be True, and `proposes` False"):
        TransTrackConfig(refines=False)
    with pytest.raises(ValueError, match="`num_maps` must be at most 2; it is 3"):
        TransTrack(dataclasses.replace(SMALL, num_maps=3, num_levels=3))
