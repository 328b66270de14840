"""How both decoders of a tracker learn: three parts of the loss, and the learner of two frames."""

import numpy as np

from keras_tfm import heads
from keras_tfm.models import TransTrack
from tests.contract import randomise
from tests.models.test_transtrack import SMALL, draw

NONE = [-1, 0, 0, 0, 0]
BOX, OTHER = [0.25, 0.25, 0.2, 0.2], [0.7, 0.7, 0.2, 0.2]


def query(logit, box):
    return [logit, *box]


def predictions(track):
    """One block of two queries for each frame, which find what the targets below are, and the `track`."""
    before = [query(9.0, BOX), query(-9.0, OTHER)]
    now = [query(-9.0, BOX), query(9.0, OTHER)]
    return np.array([[before, now, track]], "float32")


TARGETS = np.array([[[0, *BOX, 0, *OTHER], [*NONE, *NONE]]], "float32")  # an object moves from BOX to OTHER


def test_a_query_learns_where_its_own_object_is_now():
    loss = heads.TrackLoss()
    right = predictions([query(9.0, OTHER), query(-9.0, BOX)])
    assert float(loss(TARGETS, right)) < 0.01
    # Another query finds it: right for a set, wrong for a track.
    wrong = predictions([query(-9.0, BOX), query(9.0, OTHER)])
    assert float(loss(TARGETS, wrong)) > 5
    means, pairs = loss.means_and_pairs(TARGETS, wrong)
    assert np.asarray(pairs).tolist() == [[[0, -1], [-1, 0], [0, -1]]]
    assert [float(count) for _, count in means] == [1, 1, 1, 1, 1]


def test_the_parts_are_those_of_the_detector():
    loss, plain = heads.TrackLoss(), heads.FocalSetPredictionLoss()
    drawn = np.random.default_rng(0).normal(size=(2, 5, 3, 6)).astype("float32")
    drawn[..., 2:] = 1 / (1 + np.exp(-drawn[..., 2:]))
    targets = np.array([[[0, *BOX, 1, *OTHER], [1, *OTHER, *NONE]]] * 2, "float32")
    means, _ = loss.means_and_pairs(targets, drawn)
    parts = plain.means(targets[..., :5], drawn[:, :2]) + plain.means(targets[..., 5:], drawn[:, 2:4])
    for one, other in zip(means[:4], parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_an_object_that_is_gone_is_none():
    """Its query learns "no object", and adds no box."""
    gone = np.array([[[0, *BOX, *NONE]]], "float32")
    means, _ = heads.TrackLoss().means_and_pairs(gone, predictions([query(-9.0, BOX), query(-9.0, OTHER)]))
    total, count = means[-1]
    assert float(count) == 0 and float(total) < 1e-3
    assert np.isfinite(float(heads.TrackLoss()(gone, predictions([query(9.0, BOX), query(9.0, OTHER)]))))


def test_the_learner_sees_the_frame_before_as_a_first_one():
    model = heads.TrackDetector(TransTrack(SMALL), 2)
    randomise(model, 1)
    drawn = draw()
    frames = {name: drawn[name] for name in ("images", "previous_images")}
    found = np.asarray(model.learner()(frames))
    assert found.shape == (2, 5, 3, 6)
    first = {"images": drawn["previous_images"], "previous_images": drawn["previous_images"]}
    before = model.tracking()(drawn | first)
    np.testing.assert_allclose(found[:, 1, :, 2:], before["boxes"], atol=1e-5)
    state = {"track_states": before["states"], "track_boxes": before["boxes"]}
    now = model.tracking()(frames | state)
    np.testing.assert_allclose(found[:, 3, :, :2], now["logits"], atol=1e-4)
    np.testing.assert_allclose(found[:, 4, :, :2], now["track_logits"], atol=1e-4)
    np.testing.assert_allclose(found[:, 4, :, 2:], now["expected_boxes"], atol=1e-5)
