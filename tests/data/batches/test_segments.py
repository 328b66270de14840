"""Targets of segments by hand, and batches in which masks move with their images."""

import numpy as np
import tensorflow as tf

from keras_tfm.data import Canvas, SegmentBatches, SegmentSets
from keras_tfm.data.batches import segments
from keras_tfm.data.batches.masks import NONE
from keras_tfm.data.batches.segments import segment_targets

SHAPE = (8, 8, 1)
NAMES = ["a", "b"]


def sets():
    """Of three images: two segments that overlap, one, none."""
    whole, left = np.ones((4, 4), bool), np.zeros((4, 4), bool)
    left[:, :2] = True
    masks = [np.stack([whole, left]), left[None], np.zeros((0, 4, 4), bool)]
    return SegmentSets.of(masks, [["a", "b"], ["b"], []])


def test_targets_by_hand():
    targets = segment_targets(sets(), NAMES, Canvas(keep_aspect=True), (4, 6, 1))
    assert targets.shape == (3, 2, 4, 6) and (targets[..., 4:] == NONE).all()
    assert (targets[0, 0, :, :4] == 1).all()
    for mask in (targets[0, 1], targets[1, 0]):
        assert (mask[:, :2] == 2).all() and not mask[:, 2:4].any()
    assert not targets[1, 1, :, :4].any() and not targets[2, :, :, :4].any()


def test_packed_targets_are_the_same(monkeypatch):
    canvas = Canvas(keep_aspect=True)
    whole = segment_targets(sets(), NAMES, canvas, SHAPE)
    monkeypatch.setattr(segments, "MAX_BYTES", 1)
    small = segment_targets(sets(), NAMES, canvas, SHAPE)
    assert all(isinstance(file, bytes) for file in small)
    images, sizes = np.zeros((3, *SHAPE), "uint8"), [(4, 4)] * 3
    both = [SegmentBatches(images, sizes, targets, 2, canvas, SHAPE, 3) for targets in (whole, small)]
    first, second = (next(iter(batches.dataset()))[1] for batches in both)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, whole)


def test_masks_move_with_their_images():
    """Images that are bright in the one segment's pixels, and nowhere else."""
    rng = np.random.default_rng(0)
    masks = np.zeros((32, 1, *SHAPE[:2]), "uint8")
    for mask in masks[:, 0]:
        top, left = rng.integers(0, 4, 2)
        mask[top : top + 4, left : left + 4] = 2
    images = (masks[:, 0, ..., None] > 0).astype("float32")
    canvas, sizes = Canvas(mean=(0.0,), std=(1.0,)), [SHAPE[:2]] * 32
    options = {"seed": 1, "flips": True, "areas": (0.5, 2.0), "has_pixel_mask": True}
    batches = SegmentBatches(images, sizes, masks, 1, canvas, SHAPE, 32, **options)
    (inputs, targets), (again, same) = (next(iter(batches.dataset())) for _ in range(2))
    np.testing.assert_array_equal(targets, same)
    np.testing.assert_array_equal(inputs["images"], again["images"])
    moved, targets = inputs["images"].numpy()[..., 0], targets.numpy()[:, 0]
    is_image = inputs["pixel_mask"].numpy()
    np.testing.assert_array_equal(is_image, targets != NONE)
    assert 0 < (~is_image).mean() < 0.7 and not moved[~is_image].any()
    for place, expected in ((moved > 0.99, 2), ((moved < 0.01) & is_image, 0)):
        assert place.mean() > 0.05 and np.mean(targets[place] == expected) > 0.99
    assert set(np.unique(targets)) == {0, 2, NONE}
    assert np.mean([not np.array_equal(a, b) for a, b in zip(targets, masks[:, 0], strict=True)]) > 0.9
    (plain, unchanged), *_ = SegmentBatches(images, sizes, masks, 1, canvas, SHAPE, 32).dataset()
    np.testing.assert_array_equal(unchanged, masks)
    assert plain.keys() == {"images"} and tf.reduce_max(plain["images"]) == 1
