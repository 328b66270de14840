"""Images: scaled, checked, shifted and batched."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import ImageBatches, Preprocessing
from keras_tfm.data.batches.images import check_images, shift_images


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def test_scaling():
    images = noise(2, 4, 4, 3)
    mean, std = (0.5, 0.4, 0.3), (0.5, 0.25, 1.0)
    preprocessing = Preprocessing(mean=mean, std=std)
    scaled = preprocessing.prepared(tf.constant(images), 4, 4)
    np.testing.assert_allclose(scaled, (images / 255 - mean) / std, rtol=1e-5, atol=1e-6)
    of_floats = preprocessing.prepared(tf.constant(images / 255, tf.float32), 4, 4)
    np.testing.assert_allclose(scaled, of_floats, rtol=1e-5, atol=1e-6)
    assert preprocessing.prepared(tf.constant(images), 2, 8).shape == (2, 2, 8, 3)


@pytest.mark.parametrize(
    ("images", "channels", "message"),
    [
        (noise(4, 4), 1, r"shape \(B, H, W\) or \(B, H, W, 1\); it is \(4, 4\)"),
        (noise(2, 4, 4), 3, r"shape \(B, H, W, 3\); it is \(2, 4, 4\)"),
        (noise(2, 4, 4, 1), 3, r"it is \(2, 4, 4, 1\)"),
        (noise(2, 0, 4, 1), 1, r"it is \(2, 0, 4, 1\)"),
        (noise(2, 4, 4).astype("int64"), 1, "uint8, 0 to 255, or floats, 0 to 1; they are int64"),
        (noise(2, 4, 4) * 1.0, 1, r"must lie in 0 \.\. 1; they span"),
        (np.full((1, 2, 2), np.nan), 1, "they span nan to nan"),
    ],
)
def test_arrays_that_are_no_images_are_refused(images, channels, message):
    with pytest.raises(ValueError, match=message):
        check_images(images, channels)


def batches_of(size=10, **options):
    """Images that hold their number, so that labels can be compared with them."""
    images = np.broadcast_to(np.arange(size, dtype="uint8")[:, None, None, None], (size, 2, 2, 1))
    return ImageBatches(images, np.arange(size), lambda x: x, batch_size=4, **options)


def labels_of(dataset):
    epoch = []
    for inputs, labels in dataset:
        np.testing.assert_array_equal(inputs["images"][:, 0, 0, 0], labels)
        epoch.append(labels.numpy().tolist())
    return epoch


def test_without_a_seed_all_come_in_order():
    batches = batches_of()
    assert labels_of(batches.dataset()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches.num_batches == len(batches.dataset()) == 3


def test_with_a_seed_epochs_differ_and_are_the_seed_s():
    batches = batches_of(42, seed=3)
    assert batches.num_batches == len(batches.dataset()) == 10  # two are left out, not a batch of their own
    drawn = labels_of(batches.epochs().take(30))
    epochs = [drawn[:10], drawn[10:20], drawn[20:]]
    assert [len(batch) for batch in drawn] == [4] * 30
    assert len({label for batch in epochs[0] for label in batch}) == 40
    assert epochs[0] != epochs[1] != epochs[2]
    assert labels_of(batches_of(42, seed=3).dataset(2)) == epochs[2]
    assert labels_of(batches_of(42, seed=4).dataset()) != epochs[0]
    assert labels_of(batches_of(2, seed=0).dataset())[0] in ([0, 1], [1, 0])


def test_shifts_move_black_in_and_follow_the_seed():
    images = noise(200, 4, 5, 2) | 1  # nothing in them is black
    shifted = shift_images(images, 1, seed=(0, 1)).numpy()
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = set()
    for image, frame in zip(shifted, padded, strict=True):
        places = [(y, x) for y in range(3) for x in range(3) if (image == frame[y : y + 4, x : x + 5]).all()]
        assert len(places) == 1
        found |= set(places)
    assert len(found) == 9
    np.testing.assert_array_equal(shift_images(images, 1, seed=(0, 1)), shifted)
    assert (shift_images(images, 1, seed=(0, 2)).numpy() != shifted).any()


def test_shifts_are_part_of_training_batches_alone():
    images = noise(8, 6, 6, 1)
    given = next(iter(ImageBatches(images, np.arange(8), lambda x: x, 8, max_shift=2).dataset()))[0]["images"]
    np.testing.assert_array_equal(given, images)
    inputs, labels = next(
        iter(ImageBatches(images, np.arange(8), lambda x: x, 8, seed=0, max_shift=2).dataset())
    )
    assert (inputs["images"].numpy() != images[labels]).any()
