"""Pairs of frames to learn to follow from: objects row by row, windows, changes that both frames share."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import (
    Canvas,
    FramePairs,
    Preprocessing,
    TargetPairs,
    TrackedVideos,
    VideoFiles,
    checked_tracks,
)
from keras_tfm.data.batches import frame_pairs
from keras_tfm.data.batches.search_windows import SEARCH, TEMPLATE, side_of, window
from tests.parity.references.target import Target, search_side, template_side
from tests.parity.references.target import window as exact_window

PLAIN = {"mean": (0.0,), "std": (1.0,)}


def examples(rows, length=3, sides=(16, 16), seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (len(rows), length, *sides, 3), "uint8")
    videos = VideoFiles(list(pixels), (1, *sides, 3), Canvas(**PLAIN))
    return TrackedVideos(videos, checked_tracks(videos, rows)), pixels


def test_rows_hold_one_object_in_both_frames():
    rows = [[1, 5, 0, 0, 8, 8], [1, 3, 8, 8, 8, 8], [2, 3, 4, 8, 8, 8], [2, 9, 0, 0, 4, 4]]
    data, pixels = examples([rows])
    batches = FramePairs(data, Canvas(**PLAIN), (16, 16, 3), 4)
    ((inputs, targets),) = list(batches.dataset())
    assert targets.shape == (2, 4, 10)
    found = {tuple(row) for row in targets[0].numpy().tolist() if row[0] >= 0 or row[5] >= 0}
    none = (-1, 0, 0, 0, 0)
    assert found == {
        (0, 0.25, 0.25, 0.5, 0.5, *none),  # 5 is gone
        (0, 0.75, 0.75, 0.5, 0.5, 0, 0.5, 0.75, 0.5, 0.5),
        (*none, 0, 0.125, 0.125, 0.25, 0.25),  # 9 is new
    }
    np.testing.assert_allclose(inputs["previous_images"], pixels[0, :2] / 255, atol=1e-6)
    np.testing.assert_allclose(inputs["images"], pixels[0, 1:] / 255, atol=1e-6)
    assert inputs["pixel_mask"].numpy().all() and batches.num_batches == 1


def test_frames_that_are_not_held_are_decoded_alike(monkeypatch):
    data, _ = examples([[[1, 1, 0, 0, 8, 8]]] * 2)
    held = FramePairs(data, Canvas(**PLAIN), (16, 16, 3), 2, seed=1, max_gap=2, flips=True)
    monkeypatch.setattr(VideoFiles, "fits_memory", False)
    later = FramePairs(data, Canvas(**PLAIN), (16, 16, 3), 2, seed=1, max_gap=2, flips=True)
    for (one, target), (other, same) in zip(held.dataset(3), later.dataset(3), strict=True):
        np.testing.assert_array_equal(target, same)
        for name, x in one.items():
            np.testing.assert_array_equal(x, other[name])


def test_both_frames_are_mirrored_and_cropped_alike():
    """A frame that does not move gives equal pictures and equal boxes."""
    pixels = np.random.default_rng(0).integers(0, 256, (16, 1, 16, 16, 3), "uint8").repeat(2, axis=1)
    videos = VideoFiles(list(pixels), (1, 16, 16, 3), Canvas(**PLAIN))
    rows = [[frame, 1, 2, 4, 6, 8] for frame in (1, 2)]
    data = TrackedVideos(videos, checked_tracks(videos, [rows] * 16))
    for areas in ((1.0, 1.0), (0.3, 1.0)):
        batches = FramePairs(data, Canvas(**PLAIN), (16, 16, 3), 16, seed=0, flips=True, areas=areas)
        inputs, targets = next(iter(batches.dataset()))
        np.testing.assert_array_equal(inputs["images"], inputs["previous_images"])
        np.testing.assert_array_equal(targets[..., :5], targets[..., 5:])
        assert len(np.unique(targets[:, 0, 1])) > 1


def test_matched_leaves_out_who_fills_up():
    ids = tf.constant([[4, frame_pairs.NOBODY], [frame_pairs.NOBODY, 4]], tf.int64)
    boxes = tf.constant(np.arange(16).reshape(2, 2, 4), tf.float32) * tf.cast(ids >= 0, tf.float32)[..., None]
    first, second = frame_pairs.matched(ids, boxes).numpy()
    assert first[:, 0].tolist() == second[:, 0].tolist() == [0, -1, -1, -1]
    assert first[0, 1:].tolist() == [0, 1, 2, 3] and second[0, 1:].tolist() == [12, 13, 14, 15]


def test_sides_are_the_published_ones():
    target = Target((0, 0), (13.0, 21.0))
    sizes = tf.constant([target.size])
    assert side_of(sizes, TEMPLATE).numpy().tolist() == [template_side(target)]
    assert side_of(sizes, SEARCH).numpy().tolist() == [search_side(target)]


@pytest.mark.parametrize(("centre", "side"), [((8, 7), 6), ((8.5, 7.5), 7), ((1, 14), 8)])
def test_a_window_of_whole_pixels_is_the_published_one(centre, side):
    """A window of odd side lies around the middle of a pixel, of even side around its corner; outside is the
    mean. The published window is a pixel up and to the left.
    """
    image = np.random.default_rng(0).random((16, 18, 3)).astype("float32")
    fill = image.mean((0, 1))
    expected = exact_window(image, [x - 0.5 + 1 for x in centre], side, fill)
    place = tf.constant(centre, tf.float32), tf.constant(float(side))
    found = window(tf.constant(image), *place, (side, side))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_object_is_where_its_box_says_in_the_window():
    """A white object is the only one in a window: the pixels above a half have its box."""
    pixels = np.zeros((4, 2, 40, 48, 3), "uint8")
    pixels[:, :, 10:22, 20:36] = 255
    videos = VideoFiles(list(pixels), (1, 40, 48, 3))
    rows = [[frame, 1, 20, 10, 16, 12] for frame in (1, 2)]
    data = TrackedVideos(videos, checked_tracks(videos, [rows] * 4))
    options = {"seed": 0, "flips": True, "batch_size": 4}
    batches = TargetPairs(data, Preprocessing(**PLAIN), (16, 16, 3), (64, 64, 3), **options)
    assert batches.num_batches == 1
    inputs, boxes = next(iter(batches.dataset()))
    assert inputs["template_images"].shape == (4, 16, 16, 3) and inputs["images"].shape == (4, 64, 64, 3)
    for image, (x, y, width, height) in zip(inputs["images"].numpy(), boxes.numpy(), strict=True):
        rows, columns = np.nonzero(image[..., 0] > 0.5)
        assert abs(x - (columns.min() + columns.max() + 1) / 128) < 0.03
        assert abs(y - (rows.min() + rows.max() + 1) / 128) < 0.03
        assert abs(width - (np.ptp(columns) + 1) / 64) < 0.04 and abs(height - (np.ptp(rows) + 1) / 64) < 0.04
    assert np.ptp(boxes.numpy()[:, 2]) > 0.01  # windows are scaled
    still = TargetPairs(data, Preprocessing(**PLAIN), (16, 16, 3), (64, 64, 3), 4)
    ((_, boxes),) = list(still.dataset())
    np.testing.assert_allclose(boxes[:, :2], 0.5, atol=1e-6)


def test_template_and_search_are_of_one_object_near_in_time():
    """The brightness of a frame is its number, and the object is seen in three of its frames."""
    pixels = np.broadcast_to(np.arange(0, 200, 20, "uint8")[:, None, None, None], (10, 8, 8, 3))
    videos = VideoFiles([pixels], (1, 8, 8, 3))
    data = TrackedVideos(videos, checked_tracks(videos, [[[f, 1, 2, 2, 4, 4] for f in (1, 3, 9)]]))
    batches = TargetPairs(data, Preprocessing(**PLAIN), (4, 4, 3), (8, 8, 3), 1, seed=0, max_gap=2)
    names, pairs = ("template_images", "images"), set()
    for epoch in range(15):
        inputs, _ = next(iter(batches.dataset(epoch)))
        pairs.add(tuple(round(float(inputs[name][0, 2, 2, 0]) * 255 / 20) for name in names))
    assert pairs == {(0, 0), (0, 2), (2, 0), (2, 2), (8, 8)}
