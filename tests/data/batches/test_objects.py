"""Batches of images with boxes: padding of targets, what is mirrored and cut out moves with its box."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import Canvas, ObjectBatches
from keras_tfm.data.batches.objects import cut_out, mirror, targets_of

SHAPE = (16, 24, 1)


def bright(images, targets):
    """Of each image whether the target's box is where its bright pixels are, within a pixel."""
    for image, (_, x, y, width, height) in zip(images[..., 0], targets[:, 0], strict=True):
        rows, columns = np.nonzero(image > 0.5)
        yield (
            np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            - 24 * np.array([x - width / 2, 0, x + width / 2, 0])
            - 16 * np.array([0, y - height / 2, 0, y + height / 2])
        )


def draw(count):
    """Images with a bright rectangle each, and its targets; a second target is none."""
    rng = np.random.default_rng(0)
    images = np.zeros((count, *SHAPE), "float32")
    boxes = []
    for image in images:
        top, left = rng.integers(4, 8), rng.integers(6, 10)
        bottom, right = rng.integers(9, 13), rng.integers(12, 18)
        image[top:bottom, left:right] = 1
        boxes.append(np.array([[left / 24, top / 16, right / 24, bottom / 16]], "float32"))
    boxes[0] = np.concatenate([boxes[0], boxes[0]])
    return images, targets_of(boxes, [[3, 4], *[[3]] * (count - 1)])


def test_targets_are_padded():
    images, targets = draw(3)
    assert targets.shape == (3, 2, 5) and targets[:, 1, 0].tolist() == [4, -1, -1]
    assert max(np.abs(x).max() for x in bright(images, targets)) < 1e-4
    assert targets_of([np.zeros((0, 4), "float32")], [[]]).tolist() == [[[-1, 0, 0, 0, 0]]]


@pytest.mark.parametrize("change", ["mirror", "cut out"])
def test_boxes_move_with_their_pixels(change):
    images, targets = draw(64)
    content, key = np.array([[16, 24]] * 64, "int64"), tf.constant([1, 2], tf.int64)
    if change == "mirror":
        changed, moved = (x.numpy() for x in mirror(images, content, targets, key))
        is_same = (changed == images).all((1, 2, 3))
        assert 16 < is_same.sum() < 48
        bound = 1e-4
    else:
        changed, moved = (x.numpy() for x in cut_out(images, content, targets, 0.5, key))
        assert not (changed == images).all((1, 2, 3)).any()
        bound = 1.0  # a pixel, for bilinear edges
    kept = moved[:, 0, 0] >= 0
    assert kept.sum() > 50 and (moved[1:, 1, 0] == -1).all()
    assert max(np.abs(x).max() for x in bright(changed[kept], moved[kept])) <= bound


def test_what_is_padding_stays():
    images, targets = draw(32)
    images[:, :, 18:] = 0
    targets[..., [1, 3]] *= 24 / 18  # parts of the content
    content = np.array([[16, 18]] * 32, "int64")
    changed, moved = (x.numpy() for x in mirror(images, content, targets, tf.constant([1, 2], tf.int64)))
    assert not changed[:, :, 18:].any()
    moved[..., [1, 3]] *= 18 / 24
    assert max(np.abs(x).max() for x in bright(changed, moved)) < 1e-4


def test_an_object_whose_centre_is_cut_off_is_none():
    images = np.zeros((200, *SHAPE), "float32")
    targets = targets_of([np.array([[0, 0, 0.1, 0.1]], "float32")] * 200, [[0]] * 200)
    content = np.array([[16, 24]] * 200, "int64")
    _, moved = cut_out(images, content, targets, 0.3, tf.constant([1, 2], tf.int64))
    moved = moved.numpy()[:, 0]
    kept = moved[:, 0] == 0
    assert 0 < kept.sum() < 200 and (moved[~kept] == [-1, 0, 0, 0, 0]).all()
    assert (moved[kept][:, 1] - moved[kept][:, 3] / 2 > -1e-6).all()


def test_epochs_differ_and_repeat():
    images, targets = draw(6)
    sizes = np.array([[16, 24]] * 6, "int64")
    batches = ObjectBatches(images, sizes, targets, Canvas(), SHAPE, 4, seed=3, flips=True, least_area=0.5)
    (first, boxes), *rest = batches.dataset(0)
    assert not rest and first["images"].shape == (4, *SHAPE) and boxes.shape == (4, 2, 5)
    assert first["pixel_mask"].numpy().all()
    again, other = next(iter(batches.dataset(0)))[1], next(iter(batches.dataset(1)))[1]
    np.testing.assert_array_equal(boxes, again)
    assert (boxes.numpy() != other.numpy()).any()
    plain = list(ObjectBatches(images, sizes, targets, Canvas(), SHAPE, 4).dataset())
    assert [len(x) for _, x in plain] == [4, 2]
    np.testing.assert_array_equal(np.concatenate([x for _, x in plain]), targets)
