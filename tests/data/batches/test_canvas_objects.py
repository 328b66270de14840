"""Batches of images with boxes: padding of targets, what is mirrored and cut out moves with its box."""

import numpy as np
import pytest

from keras_tfm.data import Canvas, CanvasBatches
from keras_tfm.data.batches.targets import object_targets

SHAPE = (16, 24, 1)


def bright(images, targets):
    """For each image whether the target's box is where its bright pixels are, within a pixel."""
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
    return images, object_targets(boxes, [[3, 4], *[[3]] * (count - 1)])


def changed(images, targets, sizes=None, keep_aspect=False, **options):
    """The images and targets of a batch, in the order in which they are drawn."""
    sizes = [SHAPE[:2]] * len(images) if sizes is None else sizes
    canvas = Canvas(mean=(0.0,), std=(1.0,), keep_aspect=keep_aspect)
    batches = CanvasBatches(
        images, sizes, targets, canvas, SHAPE, len(images), seed=1, are_objects=True, **options
    )
    inputs, moved = next(iter(batches.dataset()))
    return inputs["images"].numpy(), moved.numpy()


def test_targets_are_padded():
    images, targets = draw(3)
    assert targets.shape == (3, 2, 5) and targets[:, 1, 0].tolist() == [4, -1, -1]
    assert max(np.abs(x).max() for x in bright(images, targets)) < 1e-4
    assert object_targets([np.zeros((0, 4), "float32")], [[]]).tolist() == [[[-1, 0, 0, 0, 0]]]
    boxes, visible = [[[0, 0, 1, 0.5]], [[0, 0, 1, 1]]], [[[0, 0, 0.5, 0.5]], [[0, 0.5, 1, 1]]]
    boxes, visible = ([np.array(box, "float32") for box in each] for each in (boxes, visible))
    targets = object_targets(boxes, [[2], [-2]], visible)
    assert targets[0].tolist() == [[2, 0.5, 0.25, 1, 0.5, 0.25, 0.25, 0.5, 0.5]]
    assert targets[1].tolist() == [[-2, 0.5, 0.5, 1, 1, 0.5, 0.75, 1, 0.5]]


@pytest.mark.parametrize("change", ["mirror", "cut out"])
def test_boxes_move_with_their_pixels(change):
    images, targets = draw(64)
    options = {"flips": True} if change == "mirror" else {"areas": (0.5, 1.0)}
    bound = 1e-4 if change == "mirror" else 1.0  # a pixel, for bilinear edges
    pixels, moved = changed(images, targets, **options)
    is_known = [any(np.array_equal(one, image) for image in images) for one in pixels]
    assert 16 < sum(is_known) < 48 if change == "mirror" else not any(is_known)
    kept = moved[:, 0, 0] >= 0
    assert kept.sum() > 50 and (moved[:, 1, 0] == -1).sum() >= 63
    assert max(np.abs(x).max() for x in bright(pixels[kept], moved[kept])) <= bound


@pytest.mark.parametrize(("options", "bound"), [({"flips": True}, 1e-4), ({"areas": (0.5, 1.0)}, 1.0)])
def test_what_is_padding_stays(options, bound):
    images, targets = draw(32)
    images[:, :, 18:] = 0.3
    targets[..., [1, 3]] *= 24 / 18  # parts of the content
    pixels, moved = changed(images, targets, [(16, 18)] * 32, keep_aspect=True, **options)
    assert not pixels[:, :, 18:].any()
    moved[..., [1, 3]] *= 18 / 24
    kept = moved[:, 0, 0] >= 0
    assert max(np.abs(x).max() for x in bright(pixels[kept], moved[kept])) <= bound


def test_an_object_whose_centre_is_cut_off_is_none():
    images = np.zeros((200, *SHAPE), "float32")
    targets = object_targets([np.array([[0, 0, 0.1, 0.1]], "float32")] * 200, [[0]] * 200)
    moved = changed(images, targets, areas=(0.3, 1.0))[1][:, 0]
    kept = moved[:, 0] == 0
    assert 0 < kept.sum() < 200 and (moved[~kept] == [-1, 0, 0, 0, 0]).all()
    assert (moved[kept][:, 1] - moved[kept][:, 3] / 2 > -1e-6).all()


def test_epochs_differ_and_repeat():
    images, targets = draw(6)
    sizes = np.array([[16, 24]] * 6, "int64")
    options = {"seed": 3, "flips": True, "areas": (0.5, 1.0), "are_objects": True}
    batches = CanvasBatches(images, sizes, targets, Canvas(), SHAPE, 4, **options)
    (first, boxes), *rest = batches.dataset(0)
    assert not rest and first["images"].shape == (4, *SHAPE) and boxes.shape == (4, 2, 5)
    assert first["pixel_mask"].numpy().all()
    again, other = next(iter(batches.dataset(0)))[1], next(iter(batches.dataset(1)))[1]
    np.testing.assert_array_equal(boxes, again)
    assert (boxes.numpy() != other.numpy()).any()
    batches.inputs = ("images", "objects")
    (told, boxes), *_ = batches.dataset(0)
    assert told.keys() == {"images", "objects"} and np.array_equal(told["objects"], boxes)
    plain = list(CanvasBatches(images, sizes, targets, Canvas(), SHAPE, 4, are_objects=True).dataset())
    assert [len(x) for _, x in plain] == [4, 2]
    np.testing.assert_array_equal(np.concatenate([x for _, x in plain]), targets)
