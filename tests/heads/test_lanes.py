"""Lanes: curves by hand, exact curves cost nothing, short lanes, padding, the pole."""

import keras
import numpy as np
import pytest

from keras_tfm.heads import LaneDetector, LaneLoss, lane_points, lane_positions
from keras_tfm.heads.lanes import pair_distances
from keras_tfm.models import LSTR

HEIGHTS = np.linspace(0.4, 1, 5).astype("float32")


def curves(count=3, seed=0):
    """Random curves (count, 8) with f above all heights."""
    numbers = np.random.default_rng(seed).uniform(0.0, 0.1, (count, 8)).astype("float32")
    numbers[:, 0], numbers[:, 1], numbers[:, 3] = 0.4, 1.0, 0.1
    numbers[:, 5], numbers[:, 6] = 0.3, np.linspace(0, 0.5, count)
    return numbers


def lanes(numbers, size=None):
    """Targets (1, M, 3 + 2 P) that are these curves, padded to `size` lanes."""
    found = [[1, *lane[:2], *HEIGHTS, *np.asarray(lane_positions(lane, HEIGHTS))] for lane in numbers]
    padding = [[0.0] * len(found[0])] * ((size or len(found)) - len(found))
    return np.array([found + padding], "float32")


def certain(numbers, is_lane):
    """Predictions (1, 1, Q, 10) of these curves, as sure as can be."""
    logits = np.where(np.array(is_lane)[:, None], [-30.0, 30.0], [30.0, -30.0])
    return np.concatenate([logits, numbers], axis=-1).astype("float32")[None, None]


def test_a_curve_by_hand():
    k, f, m, n, b, shift = 0.02, 0.1, 0.03, 0.2, 0.5, 0.1
    numbers = np.array([0.4, 1, k, f, m, n, b, shift], "float32")
    expected = k / (HEIGHTS - f) ** 2 + m / (HEIGHTS - f) + n + b * HEIGHTS - shift
    np.testing.assert_allclose(lane_positions(numbers, HEIGHTS), expected, rtol=1e-5)
    assert np.isfinite(lane_positions(numbers, np.array([f], "float32"))).all()


def test_exact_curves_in_any_order_cost_nothing():
    numbers, loss = curves(), LaneLoss()
    predictions = certain(np.concatenate([curves(seed=5)[:1], numbers[[2, 0, 1]]]), [False, True, True, True])
    assert float(loss(lanes(numbers, size=5), predictions)) == pytest.approx(0, abs=1e-5)
    assert float(loss(lanes(numbers[:2]), predictions)) > 1  # a lane too many
    moved = predictions.copy()
    moved[..., -1] += 0.1
    assert float(loss(lanes(numbers), moved)) == pytest.approx(5 * 0.1, rel=1e-3)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(again(lanes(numbers), moved)) == float(loss(lanes(numbers), moved))


def test_lanes_of_fewer_points_weigh_more():
    """A lane with 5 points has the weight 1 / sqrt(5), if the other lane has one point."""
    numbers = curves(2)
    targets = lanes(numbers, size=3)
    targets[0, 1, -4:] = -1  # not there at four heights
    shifted = numbers + np.float32([0] * 7 + [0.2])
    distances = np.asarray(pair_distances(targets, shifted[None]))[0]
    np.testing.assert_allclose(distances[[0, 1], [0, 1], 0], [0.2 / 5**0.5, 0.2], rtol=1e-4)
    np.testing.assert_allclose(distances[:, 2, 0], 0)  # padding has no points


def test_each_block_is_matched_and_nothing_is_nan_without_lanes():
    numbers, loss = curves(), LaneLoss()
    predictions = certain(numbers, [True, True, True])
    both = np.concatenate([predictions, predictions[:, :, ::-1]], axis=1)
    assert float(loss(lanes(numbers), both)) == pytest.approx(0, abs=1e-5)
    empty = np.zeros((1, 2, 13), "float32")
    assert float(loss(empty, certain(numbers, [False] * 3))) == pytest.approx(0, abs=1e-5)


def test_kinds_of_lanes():
    numbers, loss = curves(), LaneLoss()
    targets = lanes(numbers)
    targets[..., 0] = [2, 1, 2]
    logits = 60 * np.eye(3)[[2, 1, 2]]
    predictions = np.concatenate([logits, numbers], axis=-1).astype("float32")[None, None]
    assert float(loss(targets, predictions)) == pytest.approx(0, abs=1e-5)
    targets[..., 0] = 1  # two are taken for the other kind
    assert float(loss(targets, predictions)) == pytest.approx(3 * (60 + 0 + 60) / 3, rel=1e-4)


def test_points_between_the_ends_and_in_the_image():
    curves = np.float32([[0.5, 0.8, 0, 0.1, 0, 1.5, -1, 0], [0.5, 0.8, 0, 0.1, 0, 1.7, -1, 0]])  # x = n - y
    heights = np.float32([[0.4, 0.6, 0.75, 0.9]])
    expected = [[[-1, 0.9, 0.75, -1], [-1, -1, 0.95, -1]]]
    np.testing.assert_allclose(lane_points(curves[None], heights), expected, atol=1e-6)


def test_training_begins_where_a_lane_may_be():
    """Above the lanes, but not so far that nothing moves the pole."""
    detector = LaneDetector(LSTR.from_size("tiny", image_size=(30, 48), num_layers=1))
    found = np.asarray(detector({"images": np.ones((1, 30, 48, 3))})["curves"])
    np.testing.assert_allclose(found[0, 0], [0.4, 1, 0, 0.2, 0, 0.5, 0, 0], atol=0.1)
