"""How pictures are made worse: what is drawn, what stays, and that a key decides."""

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data.batches.degradations import (
    CELL,
    LEAST_HOLE,
    MOST_HOLE,
    RESTORATIONS,
    filled,
    holed,
    holes_in,
)
from keras_tfm.data.batches.degraded_images import DegradedBatches
from keras_tfm.data.sources.whole_images import WholeImages, encoded

KEY = tf.constant([1, 2], tf.int64)
SMOOTH = np.linspace(0.2, 0.8, 66 * 48 * 3).reshape(1, 66, 48, 3).astype("float32")


@pytest.mark.parametrize("name", RESTORATIONS)
def test_sizes_levels_and_keys(name):
    scale, degrade, _ = RESTORATIONS[name]
    images = tf.constant(SMOOTH[:, :60])
    bad = degrade(images, KEY)
    assert bad.images.shape == (1, 60 // scale, 48 // scale, 3) and bad.damage.shape == (1, 60, 48, 1)
    levels = bad.images.numpy() * 255
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-3)
    np.testing.assert_array_equal(bad.images, degrade(images, KEY).images)
    if scale == 1:
        other = degrade(images, KEY + 1)
        assert np.abs(other.images - bad.images).max() > 0.02
        assert np.abs(bad.images - images)[np.broadcast_to(bad.damage > 0, images.shape)].max() > 0


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_smaller_ones_are_pillows(scale):
    pixels = np.random.default_rng(0).integers(0, 256, (24, 36, 3)).astype("uint8")
    bad = RESTORATIONS[f"x{scale}"].degrade(tf.constant(pixels[None] / 255, tf.float32), KEY)
    size = 36 // scale, 24 // scale
    theirs = np.asarray(PIL.Image.fromarray(pixels).resize(size, PIL.Image.Resampling.BICUBIC))
    assert np.abs(bad.images[0].numpy() * 255 - theirs).max() < 1.5  # Pillow rounds between both axes


def test_noise_has_its_deviation():
    grey = tf.fill((1, 64, 64, 3), 0.5)
    for deviation in (30, 50):
        noise = (RESTORATIONS[f"denoise{deviation}"].degrade(grey, KEY).images - grey).numpy() * 255
        assert noise.std() == pytest.approx(deviation, rel=0.05) and abs(noise.mean()) < 1.5


def test_rain_brightens_some_pixels_of_a_dark_picture():
    rain = RESTORATIONS["derain"].degrade(tf.zeros((2, 96, 96, 3)), KEY).images.numpy()
    assert 0.01 < (rain > 0.1).mean() < 0.5 and rain.max() <= 0.7 + 1 / 255
    np.testing.assert_array_equal(rain[..., 0], rain[..., 2])
    white = RESTORATIONS["derain"].degrade(tf.ones((1, 40, 40, 1)), KEY).images
    np.testing.assert_array_equal(white, 1)


def test_holes_are_rectangles_within_squares():
    holes = holes_in(tf.zeros((4, 3 * CELL, 5 * CELL + 7, 3)), KEY).numpy()[..., 0]
    assert holes.shape == (4, 3 * CELL, 5 * CELL + 7)
    cells = (
        holes[:, :, : 5 * CELL].reshape(4, 3, CELL, 5, CELL).transpose(0, 1, 3, 2, 4).reshape(60, CELL, CELL)
    )
    sides = []
    for cell in cells:
        rows, columns = cell.any(1), cell.any(0)
        assert cell.sum() == rows.sum() * columns.sum()
        sides += [rows.sum(), columns.sum()] if cell.any() else []
    assert LEAST_HOLE <= min(sides) < max(sides) <= MOST_HOLE and 30 <= len(sides) <= 90


def test_holes_are_filled_from_around():
    picture = np.zeros((1, 20, 30, 2), "float32")
    picture[..., 15:, 0], picture[..., 1] = 1.0, 0.2
    holes = np.zeros((1, 20, 30, 1), "float32")
    holes[:, 5:12, 3:9] = holes[:, 5:12, 20:29] = 1
    mended = filled(tf.constant(picture * (1 - holes)), tf.constant(holes)).numpy()
    np.testing.assert_allclose(mended[..., 1], 0.2, atol=1e-6)
    np.testing.assert_allclose(mended[:, 5:12, 3:9, 0], 0, atol=0.1)
    np.testing.assert_allclose(mended[:, 5:12, 20:29, 0], 1, atol=0.1)
    np.testing.assert_array_equal(np.where(holes > 0, 0, mended - np.round(picture * 255) / 255), 0)
    assert np.isfinite(filled(tf.constant(picture), tf.ones_like(holes))).all()
    bad = holed(tf.constant(picture), KEY)
    np.testing.assert_allclose(np.where(bad.damage > 0, 0, bad.images - picture), 0, atol=1e-6)


def pictures(*sizes):
    """Pictures (H, W, 3) whose red is the row, whose green is the column, whose blue their number."""
    images = [
        np.dstack(
            [*np.broadcast_arrays(np.arange(height)[:, None], np.arange(width)), np.full((height, width), i)]
        )
        for i, (height, width) in enumerate(sizes)
    ]
    return WholeImages([encoded(image.astype("uint8")) for image in images], channels=3)


def test_batches_of_crops(monkeypatch):
    images = pictures((40, 60), (33, 32), (50, 41))

    def drawn(epoch, **options):
        batches = DegradedBatches(images, ["x2", "denoise30"], crop=16, crops=4, batch_size=5, **options)
        assert batches.side == 32
        columns = list(batches.dataset(epoch))
        assert len(columns) == batches.num_batches
        return [
            {name: np.concatenate([column[part][name] for column in columns]) for name in ("x2", "denoise30")}
            for part in (0, 1)
        ]

    inputs, targets = drawn(0)
    assert inputs["x2"].shape == inputs["denoise30"].shape == (12, 16, 16, 3)
    assert targets["x2"].shape == (12, 32, 32, 4) and targets["denoise30"].shape == (12, 16, 16, 4)
    crops = np.round(targets["x2"][..., :3] * 255)
    assert crops[:, 0, 0, 2].tolist() == [0, 1, 2] * 4  # pictures alternate
    np.testing.assert_array_equal(crops - crops[:, :1, :1], np.broadcast_to(pixel_grid(32), crops.shape))
    np.testing.assert_array_equal(targets["x2"][:, :16, :16], targets["denoise30"])
    np.testing.assert_array_equal(targets["x2"][..., 3], 1)
    assert len({tuple(crop[0, 0]) for crop in crops}) > 6
    again, shuffled, other = drawn(0), drawn(0, seed=1), drawn(1, seed=1)
    np.testing.assert_array_equal(again[0]["denoise30"], inputs["denoise30"])
    assert len(shuffled[0]["x2"]) == 10
    assert np.abs(shuffled[1]["x2"] - other[1]["x2"]).max() > 0.02
    steps = np.sign(np.diff(np.round(shuffled[1]["x2"] * 255)[..., :2], axis=1)[:, 0, 0])
    assert len({tuple(step) for step in steps}) > 1  # mirrored or turned
    monkeypatch.setattr("keras_tfm.data.sources.whole_images.MAX_BYTES", 0)
    np.testing.assert_array_equal(drawn(0)[0]["denoise30"], inputs["denoise30"])


def pixel_grid(side):
    """What `pictures` adds to the first pixel of a crop."""
    rows, columns = np.mgrid[:side, :side]
    return np.dstack([rows, columns, 0 * rows])
