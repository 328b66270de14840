"""TuSimple's measures of lanes, by hand."""

import numpy as np
import pytest

from keras_tfm.data import Lanes
from keras_tfm.tasks.images.lane_measures import lane_measures, lane_scores, mean_accuracy, mean_lanes

HEIGHTS = np.arange(10.0) * 10


def straight(*starts, slope=0.0, heights=HEIGHTS):
    """Lanes (M, P) that begin at these x at the height 0."""
    return np.array([[start + slope * y for y in heights] for start in starts]).reshape(-1, len(heights))


def test_points_within_20_pixels_are_right():
    wanted = straight(100, 400)
    assert lane_scores(wanted, wanted[::-1], HEIGHTS) == (1, 0, 0)
    assert lane_scores(wanted, wanted + 19.9, HEIGHTS) == (1, 0, 0)
    assert lane_scores(wanted, wanted + 20, HEIGHTS) == (0, 1, 1)
    assert lane_scores(wanted, wanted[:0], HEIGHTS) == (0, 0, 1)
    bent = wanted.copy()
    bent[0, :2] += 50  # 8 of 10 points are right: no match
    assert lane_scores(wanted, bent, HEIGHTS) == pytest.approx(((0.8 + 1) / 2, 1 / 2, 1 / 2))
    bent[0, 1] = 100  # 9 of 10 points
    assert lane_scores(wanted, bent, HEIGHTS) == pytest.approx(((0.9 + 1) / 2, 0, 0))


def test_a_lane_that_is_not_there_is_right_nowhere_else():
    wanted, found = straight(300), straight(300)
    wanted[0, :3] = found[0, :1] = -2
    assert lane_scores(wanted, found, HEIGHTS)[0] == pytest.approx(0.8)
    found[0, 1:3] = -50  # any negative number
    assert lane_scores(wanted, found, HEIGHTS) == (1, 0, 0)


def test_slanted_lanes_have_more_room_along_a_row():
    """At 45 degrees 20 pixels across the lane are 28.3 along the row."""
    wanted = straight(100, slope=1.0)
    assert lane_scores(wanted, wanted + 28.2, HEIGHTS)[0] == 1
    assert lane_scores(wanted, wanted + 28.4, HEIGHTS)[0] == 0
    assert lane_scores(wanted * 2, wanted * 2 + 44.7, HEIGHTS)[0] == 1  # 20 times the root of 5
    assert lane_scores(wanted * 2, wanted * 2 + 44.8, HEIGHTS)[0] == 0


def test_the_worst_of_five_lanes_may_be_missed():
    wanted = straight(0, 200, 400, 600, 800)
    assert lane_scores(wanted, wanted[:4], HEIGHTS) == (1, 0, 0)
    assert lane_scores(wanted, wanted[:3], HEIGHTS) == (3 / 4, 0, 1 / 4)
    assert lane_scores(wanted[:4], wanted[:3], HEIGHTS) == (3 / 4, 0, 1 / 4)
    # Two more than there are may be found, three may not.
    assert lane_scores(wanted[:1], wanted[:3], HEIGHTS) == pytest.approx((1, 2 / 3, 0))
    assert lane_scores(wanted[:1], wanted[:4], HEIGHTS) == (0, 0, 1)


def examples(*lanes, width=1280):
    heights = np.float32(HEIGHTS / 100)
    sizes = np.array([(100, width)] * len(lanes))
    return Lanes(
        np.zeros((len(lanes), 1, 1, 3)),
        sizes,
        [heights] * len(lanes),
        [x / 1280 for x in map(np.float32, lanes)],
    )


def test_means_over_images_in_percent():
    two, none = straight(100, 400), straight()
    data = examples(two, two, none)
    found = [two / 1280, two[:1] / 1280, none]
    assert lane_measures(data, found) == pytest.approx({"accuracy": 75, "fp": 0, "fn": 25})
    for some in (two, straight(100, 200, 300, 400)):  # where there are none
        found[2] = some / 1280
        assert lane_measures(data, found) == pytest.approx({"accuracy": 75, "fp": 100 / 3, "fn": 25})
    # 20 pixels of 1280 are 2.5 of 160.
    small = examples(two, width=160)
    assert lane_measures(small, [two / 1280 + 2.4 / 160])["accuracy"] == 100
    assert lane_measures(small, [two / 1280 + 2.6 / 160])["accuracy"] == 0


def test_mean_lanes():
    """Images with two lanes: in any order, and where half of them have a point."""
    first, second, third = straight(100, 400), straight(420, 140)[:, ::1], straight(90, 300, 600)
    second[0, :2] = first[1, :2] = -1
    data = examples(first, second, third)
    means = mean_lanes(data, data.heights[0]) * 1280
    np.testing.assert_allclose(means[0], 120, rtol=1e-5)
    np.testing.assert_allclose(means[1, 2:], 410, rtol=1e-5)
    assert (means[1, :2] < 0).all()
    assert mean_accuracy(data, examples(straight(120, 410))) == pytest.approx(100 * (1 + 0.8) / 2)
