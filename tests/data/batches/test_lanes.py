"""Targets of lanes: padding, ends, mirrored and cropped with their images."""

import numpy as np
import tensorflow as tf

from keras_tfm.data import Canvas, LaneBatches
from keras_tfm.data.batches.lanes import lane_targets, lanes_in
from keras_tfm.data.batches.views import Views

HEIGHTS = np.float32([0.25, 0.5, 0.75, 1.0])
LANES = np.float32([[-1, 0.25, 0.5, 0.75], [0.5, 0.5, -1, -1]])


def test_targets_have_padding_and_ends_half_a_step_beyond_their_points():
    short = np.float32([[0.1, 0.2]])
    found = lane_targets([HEIGHTS, HEIGHTS[1:3], np.empty(0)], [LANES, short, np.empty((0, 0))])
    assert found.shape == (3, 2, 3 + 2 * 4)
    np.testing.assert_allclose(found[0, :, :3], [[1, 0.375, 1.125], [1, 0.125, 0.625]])
    np.testing.assert_allclose(found[1], [[1, 0.375, 0.875, 0.5, 0.75, 0, 0, 0.1, 0.2, -1, -1], found[1, 1]])
    np.testing.assert_allclose(found[[1, 2, 2], [1, 0, 1], :3], 0)
    assert (found[2, :, 7:] == -1).all()


def test_lanes_of_views():
    """The lower half of an image, and a mirrored one."""
    targets = tf.constant(lane_targets([HEIGHTS] * 2, [LANES] * 2))
    views = Views(
        start=tf.constant([[0.5, 0.0], [0.0, 0.0]]),
        sides=tf.constant([[0.5, 0.7], [1.0, 1.0]]),
        is_mirrored=tf.constant([False, True]),
    )
    lower, mirrored = lanes_in(views, targets).numpy()
    np.testing.assert_allclose(
        lower[0], [1, -0.25, 0.75, -0.5, 0, 0.5, 1, -1, 0.25 / 0.7, 0.5 / 0.7, -1], atol=1e-6
    )
    assert lower[1, 0] == 0  # a single point is left
    np.testing.assert_allclose(mirrored[:, 7:], np.where(LANES < 0, -1, 1 - LANES))
    np.testing.assert_allclose(mirrored[:, :3], targets[1, :, :3])


def test_lanes_move_with_their_images():
    """A bright column stays below its lane in crops, scaled and mirrored."""
    images = np.zeros((16, 32, 32, 3), "uint8")
    images[:, :, 10:12] = 255
    heights = (np.arange(32, dtype="float32") + 0.5) / 32
    targets = lane_targets([heights] * 16, [np.full((1, 32), 11 / 32)] * 16)
    options = {"seed": 3, "flips": True, "areas": (0.5, 1.0)}
    batches = LaneBatches(images, [(32, 32)] * 16, targets, Canvas(), (32, 32, 3), 16, **options)
    inputs, found = next(iter(batches.dataset()))
    brightest = inputs["images"].numpy()[..., 0].mean(axis=1).argmax(axis=1)
    places = set()
    for column, target in zip(brightest, found.numpy()[:, 0], strict=True):
        x = target[3 + 32 :]
        if target[0]:
            assert abs(x[x >= 0] * 32 - 0.5 - column).max() <= 1.5
            places.add(round(float(x.max()), 2))
    assert len(places) > 4
