"""The published rules to follow one object: windows by hand, and a target that a perfect network keeps."""

import numpy as np
import pytest

from tests.parity.references.target import Target, moved, penalised, search_side, template_side, window


def test_windows_by_hand():
    target = Target.of_box((10, 20, 30, 10))
    assert target == ((25, 25), (30, 10)) and target.box == (10, 20, 30, 10)
    assert template_side(target) == np.ceil(np.sqrt(50 * 30)) and search_side(target) == np.ceil(
        np.sqrt(90 * 70)
    )


@pytest.mark.parametrize("centre", [(2, 2), (0, 4), (-30, 2), (2.4, 3.6)])
def test_a_window_is_a_part_of_the_padded_image(centre):
    image = np.random.default_rng(0).integers(0, 255, (5, 6, 3))
    found = window(image, centre, 3)
    padded = np.full((105, 106, 3), np.floor(image.mean((0, 1))))
    padded[50:55, 50:56] = image
    left, top = (
        int(np.floor(x - 1.5)) + 50 for x in centre
    )  # of a side of 3: the middle pixel and one beside
    np.testing.assert_array_equal(found, padded[top : top + 3, left : left + 3])
    assert found.dtype == "float32"


def test_the_middle_is_preferred():
    scores = penalised(np.ones(9), (3, 3), 0.4)
    np.testing.assert_allclose(scores, [0.6] * 4 + [1.0] + [0.6] * 4)
    target = Target.of_box((40, 40, 20, 20))
    boxes = np.array([[0.5, 0.5, 0.25, 0.25]] * 4 + [[0.75, 0.5, 0.25, 0.25]] + [[0.1, 0.1, 0.1, 0.1]] * 4)
    after, score = moved(target, np.full(9, 0.7), boxes, (3, 3), (100, 100))
    np.testing.assert_allclose(after.centre, (70, 50))  # a quarter of a window of 80 to the right
    assert after.size == (20, 20) and score == pytest.approx(0.7)


def test_the_target_stays_in_the_image():
    target = Target.of_box((0, 0, 30, 30))
    after, _ = moved(target, np.ones(1), np.array([[-1.0, 0.5, 2.0, 0.01]]), (1, 1), (50, 60))
    assert after == ((0, 15), (60, 10))


def test_a_perfect_network_keeps_the_object():
    rng = np.random.default_rng(0)
    place, size = np.array([80.0, 90.0]), np.array([24.0, 16.0])
    target = Target.of_box((*(place - size / 2), *size))
    for _ in range(20):
        place = place + rng.uniform(-6, 6, 2)
        size = np.clip(size * rng.uniform(0.9, 1.1, 2), 12, 60)
        side = search_side(target)
        box = np.concatenate([(place - target.centre) / side + 0.5, size / side])
        scores = np.zeros(64)
        scores[27] = 1
        target, _ = moved(target, scores, np.tile(box, (64, 1)), (8, 8), (200, 200))
        np.testing.assert_allclose([*target.centre, *target.size], [*place, *size])
