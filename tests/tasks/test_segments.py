"""Panoptic segments and their quality, by hand."""

import numpy as np
import pytest

from keras_tfm.tasks.segments import panoptic_quality, panoptic_segments


def logits_of(*classes):
    return 20.0 * np.eye(3, dtype="float32")[list(classes)]


def test_segments_by_hand():
    """Two of class 0, one of class 1 that the first covers, and a query of no class."""
    masks = np.full((4, 2, 4), -9.0, "float32")
    masks[0, :, :2] = masks[1, :, 2:] = 9
    masks[2, :, :2], masks[3] = 2, 20
    numbers, segments = panoptic_segments(logits_of(0, 0, 1, 2), masks)
    np.testing.assert_array_equal(numbers, [[1, 1, 2, 2]] * 2)
    assert [(x["id"], x["class"]) for x in segments] == [(1, 0), (2, 0)]
    numbers, segments = panoptic_segments(logits_of(0, 0, 1, 2), masks, fused=(0,))
    assert (numbers == 1).all() and len(segments) == 1
    numbers, segments = panoptic_segments(logits_of(2, 2, 2, 2), masks, size=(5, 6))
    assert numbers.shape == (5, 6) and not numbers.any() and segments == []


def test_quality_by_hand():
    truth = np.array([[1, 1, 1, 2, 2, 0]])
    found = np.array([[1, 1, 2, 2, 2, 3]])
    classes = {1: 0, 2: 1}
    # Of class 0 two of three pixels; of class 1 two of three; the last lies where nothing is true.
    result = panoptic_quality([((truth, classes), (found, {**classes, 3: 1}))])
    assert result == pytest.approx({"pq": 200 / 3, "sq": 200 / 3, "rq": 100})
    wrong = panoptic_quality([((truth, classes), (found, {1: 0, 2: 0, 3: 1}))])
    # Class 0: a match of 2/3 and a false one; class 1: one is missed.
    assert wrong["pq"] == pytest.approx(100 * (2 / 3 / 1.5 + 0) / 2)
    assert panoptic_quality([((truth, classes), (truth, classes))])["pq"] == pytest.approx(100)
    assert panoptic_quality([]) == {"pq": 0, "sq": 0, "rq": 0}
