"""Targets of masks by hand, and batches in which masks move with their images."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import Canvas, CanvasBatches, SegmentSets
from keras_tfm.data.batches import targets as targets_of_masks
from keras_tfm.data.batches.targets import NONE, on_canvas, segment_targets

SHAPE = (8, 8, 1)
NAMES = ["a", "b"]


def sets():
    """Three images: with two segments that overlap, with one, with none."""
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
    monkeypatch.setattr(targets_of_masks, "MAX_BYTES", 1)
    small = segment_targets(sets(), NAMES, canvas, SHAPE)
    assert all(isinstance(file, bytes) for file in small)
    images, sizes = np.zeros((3, *SHAPE), "uint8"), [(4, 4)] * 3
    both = [CanvasBatches(images, sizes, targets, canvas, SHAPE, 3, most=2) for targets in (whole, small)]
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
    options = {"seed": 1, "flips": True, "areas": (0.5, 2.0), "most": 1}
    batches = CanvasBatches(images, sizes, masks, canvas, SHAPE, 32, **options)
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
    (plain, unchanged), *_ = CanvasBatches(
        images, sizes, masks, canvas, SHAPE, 32, most=1, inputs=("images",)
    ).dataset()
    np.testing.assert_array_equal(unchanged, masks)
    assert plain.keys() == {"images"} and tf.reduce_max(plain["images"]) == 1


@pytest.mark.parametrize("areas", [(0.3, 0.9), (1.0, 3.0), (1.0, 1.0)])
@pytest.mark.parametrize("keep_aspect", [False, True])
def test_classes_move_with_their_images(areas, keep_aspect):
    """Images whose grey is the mask's value: so they stay, wherever nothing lies between two pixels."""
    masks = np.kron(np.arange(16).reshape(4, 4), np.ones((4, 4))).astype("uint8")[None].repeat(64, 0)
    shape, size = (16, 24, 1) if keep_aspect else (16, 16, 1), [(16, 16)] * 64
    canvas = Canvas(mean=(0.0,), std=(1 / 255,), keep_aspect=keep_aspect)
    labels = on_canvas((mask[None] for mask in masks), 64, 1, canvas, shape)[:, 0]
    images = np.where(labels == NONE, labels[:, :, 15:16], labels)[..., None].astype("uint8")
    batches = CanvasBatches(images, size, labels, canvas, shape, 64, seed=1, flips=True, areas=areas)
    (inputs, moved), *_ = batches.dataset()
    pixels, moved = inputs["images"].numpy()[..., 0], moved.numpy()
    counts = moved != NONE
    np.testing.assert_array_equal(counts, inputs["pixel_mask"])
    assert not pixels[~counts].any() and not counts[:, :, 16:].any()
    assert counts[:, :, :16].all() == (areas[1] <= 1)
    is_whole = counts & (np.abs(pixels - np.round(pixels)) < 1e-3)
    assert np.mean(np.round(pixels)[is_whole] == moved[is_whole]) > 0.995  # a mixture may be whole
    assert (
        is_whole.mean() > 0.2 and np.abs(pixels - moved)[counts].max() <= 13
    )  # of what is between two cells
    if areas == (1.0, 1.0):
        is_same = (moved[:, :, :16] == masks).all(axis=(1, 2))
        assert 0.2 < is_same.mean() < 0.8
        np.testing.assert_array_equal(moved[~is_same, :, :16], masks[~is_same][:, :, ::-1])
