"""Association by hand: continued, new, unseen, reborn and dead tracks, and refused pairs."""

import numpy as np
import pytest

from keras_tfm.serving.tracks import associate, box_iou, generalized_iou, no_tracks


def square(x, y, side=2.0):
    return [x, y, x + side, y + side]


def step(tracks, *boxes, scores=None, **options):
    scores = np.full(len(boxes), 0.9) if scores is None else np.array(scores)
    return associate(tracks, scores, np.reshape(boxes, (-1, 4)), **options)


def test_a_track_goes_on_wherever_its_detection_stands():
    tracks = step(no_tracks(), square(0, 0), square(10, 0))
    assert tracks.ids.tolist() == [1, 2] and tracks.slots.tolist() == [0, 1]
    tracks = step(tracks, square(9, 0), square(1, 0))
    assert dict(zip(tracks.slots.tolist(), tracks.ids.tolist(), strict=True)) == {0: 2, 1: 1}
    assert tracks.is_seen.all() and tracks.last_id == 2


def test_all_pairs_together_cost_the_least():
    """The nearest pair is not taken if the other two then fit badly."""
    tracks = step(no_tracks(), square(0, 0, 4), square(3, 0, 4))
    tracks = step(tracks, square(2, 0, 4), square(5, 0, 4))
    assert tracks.ids.tolist() == [1, 2]


def test_a_lost_track_is_reborn_and_a_dead_one_is_not():
    tracks = step(no_tracks(), square(0, 0), max_age=3)
    for age in (2, 3):
        tracks = step(tracks, max_age=3)
        assert tracks.ages.tolist() == [age] and not tracks.is_seen.any()
        np.testing.assert_array_equal(tracks.boxes, [square(0, 0)])
    reborn = step(tracks, square(0.5, 0), max_age=3)
    assert reborn.ids.tolist() == [1] and reborn.ages.tolist() == [1]
    dead = step(tracks, max_age=3)
    assert len(dead.ids) == 0
    assert step(dead, square(0, 0), max_age=3).ids.tolist() == [2]


def test_a_pair_that_costs_too_much_is_refused():
    tracks = step(no_tracks(), square(0, 0))
    far = step(tracks, square(2, 0), highest_cost=1.0)  # they touch: the GIoU is 0
    assert far.ids.tolist() == [1]
    further = step(tracks, square(3, 0), highest_cost=1.0)
    assert further.ids.tolist() == [2, 1] and further.ages.tolist() == [1, 2]


def test_expected_boxes_are_of_the_slots_before():
    tracks = step(no_tracks(), square(0, 0), square(90, 90), square(20, 0), scores=[0.9, 0.1, 0.9])
    expected = np.array([square(20, 0), square(0, 0), square(0, 0)])  # the two exchange their places
    tracks = step(tracks, square(0, 0), square(20, 0), expected_boxes=expected)
    assert tracks.ids.tolist() == [2, 1]


def test_identities_of_bouncing_boxes():
    """With the true boxes as detections in any order, and as what is expected, no identity changes."""
    rng = np.random.default_rng(0)
    places, speeds = rng.uniform(0, 200, (12, 2)), rng.uniform(-2, 2, (12, 2))
    tracks, held, order = no_tracks(), {}, np.arange(12)
    for _ in range(40):
        speeds = np.where((places + speeds < 0) | (places + speeds > 200), -speeds, speeds)
        places = places + speeds
        corners = np.concatenate([places, places + 12], axis=1)
        expected, order = corners[order], rng.permutation(12)
        tracks = associate(tracks, np.ones(12), corners[order], expected)
        for slot, track in zip(tracks.slots, tracks.ids, strict=True):
            held.setdefault(int(order[slot]), set()).add(int(track))
    assert sorted(held) == list(range(12)) and all(len(ids) == 1 for ids in held.values())


def test_overlaps_of_known_boxes():
    """As keras_tfm.heads.generalized_iou has them, around centres."""
    box = np.array([1, 1, 3, 3])
    others = np.array([[1, 1, 3, 3], [2, 1, 4, 3], [4, 1, 6, 3], [1.5, 1.5, 2.5, 2.5], [0, 0, 0, 0]])
    np.testing.assert_allclose(generalized_iou(box, others), [1, 1 / 3, -0.2, 0.25, -5 / 9])
    np.testing.assert_allclose(box_iou(box, others), [1, 1 / 3, 0, 0.25, 0])


def test_refusals():
    with pytest.raises(ValueError, match=r"`boxes` must have the shape \(2, 4\); it is \(1, 4\)"):
        associate(no_tracks(), np.ones(2), np.ones((1, 4)))
