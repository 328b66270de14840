"""Drawn hands: lengths that stay, a camera, points on bones, seeds."""

import numpy as np

from keras_tfm.data.worlds.hands import DISTANCE, LENGTHS, PARENTS, drawn_hands


def test_bones_keep_their_lengths():
    hands = drawn_hands(20, seed=1)
    bones = hands.joints[:, 1:] - hands.joints[:, list(PARENTS[1:])]
    lengths = np.linalg.norm(bones, axis=-1)  # (20, 20)
    np.testing.assert_allclose(lengths, np.broadcast_to(lengths[:1], lengths.shape), rtol=1e-4)
    np.testing.assert_allclose(lengths[0].reshape(5, 4)[:, 1:], LENGTHS, rtol=1e-4)
    np.testing.assert_allclose(hands.joints[:, 0], 0, atol=1e-6)
    assert hands.joints[:, 1:].std(axis=0).min() > 0.01


def test_places_are_a_perspective():
    hands = drawn_hands(20, seed=1, has_box=True)
    moved = hands.joints + np.float32([0, 0, DISTANCE])
    expected = DISTANCE * moved[..., :2] / moved[..., 2:]
    assert np.abs(hands.places - expected).max() < 0.02 and np.abs(hands.places - expected).std() > 1e-3


def test_corners_are_a_box():
    corners = drawn_hands(5, has_box=True).joints[:, 21:].reshape(5, 2, 2, 2, 3)
    for axis in (1, 2, 3):
        edges = np.diff(corners, axis=axis).reshape(5, 4, 3)
        np.testing.assert_allclose(edges, edges[:, :1] + np.zeros((1, 4, 1)), atol=1e-5)


def test_points_lie_near_bones():
    hands = drawn_hands(3, seed=2, num_points=50)
    starts, ends = hands.joints[:, list(PARENTS[1:])], hands.joints[:, 1:]
    bones = ends - starts
    offsets = hands.points[:, :, None] - starts[:, None]  # (3, 50, 20, 3)
    shares = (offsets * bones[:, None]).sum(-1) / (bones**2).sum(-1)[:, None]
    nearest = offsets - np.clip(shares, 0, 1)[..., None] * bones[:, None]
    distances = np.linalg.norm(nearest, axis=-1).min(axis=-1)
    assert distances.max() < 0.12 and distances.mean() > 0.005


def test_seeds():
    first, again, other = (drawn_hands(2, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.joints, again.joints)
    assert np.abs(first.joints - other.joints).max() > 0.1
