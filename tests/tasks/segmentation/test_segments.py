"""Panoptic segments, instances, and their measures, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import SegmentSets
from keras_tfm.data.sources.run_lengths import packed
from keras_tfm.tasks.images.average_precision import mask_precision
from keras_tfm.tasks.segmentation.segments import (
    areas_and_boxes,
    instance_masks,
    panoptic_quality,
    panoptic_segments,
)


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
    # Two of three pixels are right for class 0, two of three for class 1; the last lies where nothing is
    # true.
    result = panoptic_quality([((truth, classes), (found, {**classes, 3: 1}))])
    assert result == pytest.approx({"pq": 200 / 3, "sq": 200 / 3, "rq": 100})
    wrong = panoptic_quality([((truth, classes), (found, {1: 0, 2: 0, 3: 1}))])
    # Class 0: a match of 2/3 and a false one; class 1: one is missed.
    assert wrong["pq"] == pytest.approx(100 * (2 / 3 / 1.5 + 0) / 2)
    assert panoptic_quality([((truth, classes), (truth, classes))])["pq"] == pytest.approx(100)
    assert panoptic_quality([]) == {"pq": 0, "sq": 0, "rq": 0}


def test_instances_by_hand():
    """Two queries: the first's mask has the probability 0.9 in two pixels, the other's has no pixels."""
    logits = np.log([[0.6, 0.3, 0.1], [0.45, 0.05, 0.5]]).astype("float32")
    inside = np.log(9.0)
    masks = np.array([[[inside, inside], [-9, -9]], [[-1, -1], [-1, -1]]], "float32")
    found = instance_masks(tf.constant(logits), tf.constant(masks), tf.constant([2, 2]), 0.0)
    assert found["classes"].numpy().tolist() == [0]  # of the two likeliest pairs the second has no pixels
    np.testing.assert_allclose(found["scores"], [0.54], atol=1e-6)
    assert found["masks"].numpy().tolist() == [[[True, True], [False, False]]]
    none = instance_masks(tf.constant(logits), tf.constant(masks), tf.constant([4, 4]), 0.6)
    assert none["masks"].shape == (0, 4, 4)
    boxes = areas_and_boxes(found["masks"])
    assert boxes["areas"].numpy().tolist() == [2] and boxes["boxes"].numpy().tolist() == [[0, 0, 2, 1]]


def test_average_precision_by_hand():
    left, right = np.zeros((2, 4, 8), bool)
    left[:, :4] = right[:, 4:] = True
    sets = SegmentSets.of([np.stack([left, right])], [["a", "b"]])

    def answer(*rows):
        masks, labels, scores = zip(*rows, strict=True)
        return [{"masks": np.stack(masks), "labels": labels, "scores": scores}]

    perfect = answer((left, "a", 0.9), (right, "b", 0.8), (right, "unknown", 1.0))
    assert mask_precision(sets, perfect) == pytest.approx({"ap": 100, "ap50": 100, "ap75": 100})
    part = left.copy()
    part[:, 3] = False  # three of four columns: overlaps of 0.5 to 0.75
    half = mask_precision(sets, answer((part, "a", 0.9), (left, "b", 0.8)))
    assert half == pytest.approx({"ap": 100 * 6 / 10 / 2, "ap50": 50, "ap75": 50})
    assert mask_precision(sets, []) == {"ap": 0, "ap50": 0, "ap75": 0}


def test_masks_in_a_crowd_are_neither_right_nor_wrong():
    """Whatever is found there; of the crowd's class, and at least half of it inside for "ap50"."""
    left, crowd = np.zeros((2, 4, 8), bool)
    left[:, :2], crowd[:, 4:] = True, True
    inside, across, outside = np.zeros((3, 4, 8), bool)
    inside[:2, 5:7], across[:, 3:5], outside[:, 2:4] = True, True, True
    plain = SegmentSets.of([left[None]], [["a"]], ["a", "b"])

    def sets(name):
        return SegmentSets(
            plain.sizes, plain.segments, plain.names, crowds=[[(name, packed(crowd)), ("b", packed(crowd))]]
        )

    def answer(*masks):
        scores = np.linspace(0.9, 0.8, len(masks) + 1)
        return [{"masks": np.stack([*masks, left]), "labels": ["a"] * len(scores), "scores": scores}]

    right = mask_precision(plain, answer())
    assert right["ap50"] == pytest.approx(100) and right == mask_precision(sets("a"), answer())
    assert mask_precision(sets("a"), answer(inside, inside)) == right
    assert mask_precision(sets("a"), answer(across))["ap50"] == right["ap50"]
    wrong = mask_precision(plain, answer(inside))
    assert wrong["ap50"] == pytest.approx(50)
    assert mask_precision(sets("a"), answer(outside)) == mask_precision(sets("b"), answer(inside)) == wrong
    assert mask_precision(sets("a")[[0]], answer(inside)) == right


def test_quality_of_groups_by_hand():
    truth, found = np.array([[1, 1, 1, 2, 2, 2]]), np.array([[1, 1, 1, 2, 2, 0]])
    pair = (truth, {1: 0, 2: 1}), (found, {1: 0, 2: 1})
    parts = panoptic_quality([pair], {"things": {0}, "stuff": {1, 2}, "others": {3}})
    assert parts == pytest.approx(
        {"pq": 500 / 6, "sq": 500 / 6, "rq": 100, "pq_things": 100, "sq_things": 100, "rq_things": 100}
        | {"pq_stuff": 200 / 3, "sq_stuff": 200 / 3, "rq_stuff": 100}
        | {"pq_others": 0, "sq_others": 0, "rq_others": 0}
    )
