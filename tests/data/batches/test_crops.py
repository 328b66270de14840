"""Images to be learnt from without labels: crops of sizes and areas, hidden patches, drawn by the seed."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import Augmentation, CropBatches, Crops, MaskedBatches, PatchBatches

KINDS = {"images": Crops(2, (6, 6), (0.5, 1.0)), "local_images": Crops(3, (4, 4), (0.1, 0.3))}


def places(count, side=20):
    """Images of two channels, whose pixels are their row and their column, from 0 to 1."""
    rows = np.broadcast_to(np.arange(side)[:, None] / (side - 1), (side, side))
    image = np.stack([rows, rows.T], axis=-1).astype("float32")
    return np.broadcast_to(image, (count, side, side, 2))


def first(batches, epoch=0):
    return next(iter(batches.dataset(epoch)))


def test_crops_have_their_sizes_and_areas(monkeypatch):
    batches = CropBatches(places(32), KINDS, lambda x: x, 32, seed=0)
    assert len(batches.layers) == 3  # the colours of two channels are left alone
    batches.layers = []
    (inputs,) = first(batches)
    assert {name: x.shape for name, x in inputs.items()} == {
        "images": (32, 2, 6, 6, 2),
        "local_images": (32, 3, 4, 4, 2),
    }
    for name, kind in KINDS.items():
        crops = np.reshape(inputs[name], (-1, *kind.size, 2))
        heights = crops[:, -1, 0, 0] - crops[:, 0, 0, 0]
        widths = crops[:, 0, -1, 1] - crops[:, 0, 0, 1]
        # From edge to edge: of 20 pixels in the image, and of the crop's.
        areas = heights * np.abs(widths) * (19 / 20 * kind.size[0] / (kind.size[0] - 1)) ** 2
        assert areas.min() > kind.areas[0] - 0.03 and areas.max() < kind.areas[1] + 0.03
        assert 0.3 < np.mean(widths < 0) < 0.7  # mirrored
        assert len({tuple(crop[0, 0]) for crop in crops}) > len(crops) / 2  # each at a place of its own


def test_crops_are_the_seed_s_and_validation_is_always_the_same():
    images = np.random.default_rng(0).integers(0, 256, (8, 20, 20, 3), "uint8")

    def drawn(seed, epoch=0, **options):
        (inputs,) = first(CropBatches(images, KINDS, lambda x: x, 4, seed, **options), epoch)
        return np.asarray(inputs["local_images"])

    crops, later = drawn(3), drawn(3, 1)
    np.testing.assert_array_equal(later, drawn(3, 1))
    assert np.abs(crops - later).max() > 0.1 and np.abs(crops - drawn(4)).max() > 0.1
    np.testing.assert_array_equal(drawn(None), drawn(None))
    assert crops.min() >= 0 and crops.max() <= 1
    assert np.abs(crops[0, 0] - crops[0, 1]).max() > 0.1  # crops of an image differ


@pytest.mark.parametrize("seed", [None, 0])
def test_masked_batches_hide_by_noise(seed):
    images = np.random.default_rng(0).integers(0, 256, (8, 4, 4, 1), "uint8")
    options = {"augmentation": Augmentation("light")} if seed is not None else {}
    batches = MaskedBatches(
        images, lambda x: tf.cast(x, "float32"), 4, lambda *x: x, num_patches=4, seed=seed, **options
    )
    (prepared, noise), (_, other) = list(batches.dataset())
    assert prepared.shape == (4, 4, 4, 1) and noise.shape == (4, 4)
    assert np.min(noise) >= 0 and np.max(noise) < 1 and np.abs(noise - other).min() > 0
    if seed is None:
        np.testing.assert_array_equal(prepared, images[:4])
    else:
        assert np.abs(first(batches, 1)[1] - noise).min() > 0
    np.testing.assert_array_equal(first(batches)[1], noise)


def test_patches_are_where_their_targets_say():
    """Pixels that are their own row and column: a patch's centre is its mean, its sides are its spread."""
    batches = PatchBatches(places(16, side=40), 3, (8, 8), lambda x: x, 16, seed=0, least=0.1)
    batches.layers = []
    inputs, targets = first(batches)
    assert inputs["images"].shape == (16, 40, 40, 2) and inputs["patches"].shape == (16, 3, 8, 8, 2)
    np.testing.assert_array_equal(inputs["images"], places(16, side=40))
    assert targets.shape == (16, 3, 5) and not np.any(targets[..., 0])
    x, y, width, height = np.moveaxis(np.asarray(targets)[..., 1:], -1, 0)
    assert min(width.min(), height.min()) >= 0.1 and max(width.max(), height.max()) <= 0.9
    assert (x - width / 2).min() >= 0 and (y + height / 2).max() <= 1 and width.std() > 0.1
    patches = np.asarray(inputs["patches"]) * 39  # numbers of rows and columns
    inner = np.s_[:, :, 1:-1, 1:-1]  # without the outer half pixel of the image, beyond which nothing is
    np.testing.assert_allclose(patches[inner][..., 0].mean((2, 3)), 40 * y - 0.5, atol=0.2)
    np.testing.assert_allclose(patches[inner][..., 1].mean((2, 3)), 40 * x - 0.5, atol=0.2)
    np.testing.assert_allclose(patches[:, :, 6, 0, 0] - patches[:, :, 1, 0, 0], 40 * height * 5 / 8, atol=0.2)
    np.testing.assert_allclose(patches[:, :, 0, 6, 1] - patches[:, :, 0, 1, 1], 40 * width * 5 / 8, atol=0.2)


def test_patches_are_the_seed_s_and_validation_is_always_the_same():
    images = np.random.default_rng(0).integers(0, 256, (8, 20, 20, 3), "uint8")

    def drawn(seed, epoch=0):
        return first(PatchBatches(images, 2, (6, 6), lambda x: x, 8, seed), epoch)

    (a, places_a), (b, places_b) = drawn(1), drawn(1)
    np.testing.assert_array_equal(a["patches"], b["patches"])
    np.testing.assert_array_equal(places_a, places_b)
    for seed, epoch in ((1, 1), (2, 0)):
        assert np.abs(drawn(seed, epoch)[1] - places_a).max() > 0.01
    np.testing.assert_allclose(drawn(None)[0]["images"], images / np.float32(255), rtol=1e-6)
    np.testing.assert_array_equal(drawn(None)[1], drawn(None)[1])
