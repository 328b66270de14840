"""Images changed at random: what may change, what may not, and that a key fixes every draw."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import Augmentation, ImageBatches
from keras_tfm.data.batches.augmentation import OPERATIONS
from keras_tfm.data.batches.views import Views


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def key(number):
    return tf.constant([0, number], tf.int64)


ONE_HOT = np.eye(4, dtype="float32")[np.arange(8) % 4]


@pytest.mark.parametrize("channels", [1, 3])
def test_strong_changes_keep_the_form_and_follow_the_key(channels):
    images, change = (
        noise(8, 12, 10, channels),
        Augmentation("strong", mixup=0.8, cutmix=1.0, label_smoothing=0.1),
    )
    call = tf.function(lambda key: change(tf.constant(images), tf.constant(ONE_HOT), key), autograph=False)
    drawn = [call(key(number)) for number in range(12)]
    for changed, labels in drawn:
        assert changed.shape == images.shape and changed.dtype == tf.float32
        assert np.min(changed) >= 0 and np.max(changed) <= 1
        np.testing.assert_allclose(np.sum(labels, axis=-1), 1, atol=1e-5)
    assert len({changed.numpy().tobytes() for changed, _ in drawn}) == 12
    for number in (3, 0):
        for one, other in zip(call(key(number)), drawn[number], strict=True):
            np.testing.assert_array_equal(one, other)


def test_none_leaves_all_as_it_is():
    images, change = tf.constant(noise(8, 6, 6, 3)), Augmentation()
    assert not change.is_soft
    changed, labels = change(images, ONE_HOT, key(1))
    assert changed.dtype == tf.uint8 and np.array_equal(changed, images) and labels is ONE_HOT
    with pytest.raises(ValueError, match="`kind` must be none, light or strong; it is 'Strong'"):
        Augmentation("Strong")


def test_light_mirrors_and_cuts_out_for_each_image():
    images = np.repeat(noise(1, 9, 9, 1), 64, axis=0)
    change = Augmentation("light", least_area=1.0)  # a whole image is mirrored alone
    whole = tf.constant(np.repeat(np.arange(9, dtype="uint8")[None, None, :, None], 9, 1).repeat(64, 0))
    rising = change(whole, None, key(0))[0].numpy()
    mirrored = (np.diff(rising[:, 4, :, 0]) < 0).all(1)
    assert 16 < mirrored.sum() < 48 and (np.diff(rising[:, 4, :, 0]) > 0).all(1).sum() == 64 - mirrored.sum()
    assert not (np.diff(Augmentation("light", flips=False)(whole, None, key(0))[0][:, 4, :, 0]) < 0).any()
    changed = change(tf.constant(images), None, key(0))[0].numpy()
    expected = np.where(mirrored[:, None, None, None], images[:, :, ::-1], images) / 255
    np.testing.assert_allclose(changed, expected, atol=1e-6)
    cut = Views.drawn(64, (0.25, 1.0), key(0)).cropped(tf.constant(images), (9, 9)).numpy()
    assert len({image.tobytes() for image in cut}) > 60


@pytest.mark.parametrize(("options", "is_whole"), [({"mixup": 1.0}, True), ({"cutmix": 1.0}, False)])
def test_labels_are_mixed_as_the_images_are(options, is_whole):
    """Image i is of one grey, its own: a changed image's mean says of what shares it is."""
    greys = np.linspace(0, 1, 4, dtype="float32")
    images = tf.constant(np.broadcast_to(greys[np.arange(8) % 4][:, None, None, None], (8, 20, 20, 1)))
    changed, labels = Augmentation(**options)(images, tf.constant(ONE_HOT), key(7))
    means, labels = np.mean(changed, axis=(1, 2, 3)), labels.numpy()
    np.testing.assert_allclose(labels @ greys, means, atol=1e-4 if is_whole else 0.06)  # a pixel is whole
    assert np.abs(labels - ONE_HOT).max() > 0.1
    spread = np.std(changed.numpy().reshape(8, -1), axis=1)
    assert (spread < 1e-6).all() if is_whole else (spread > 0.01).any()


def test_label_smoothing_by_hand():
    _, labels = Augmentation(label_smoothing=0.2)(noise(8, 4, 4, 1), tf.constant(ONE_HOT), key(0))
    np.testing.assert_allclose(labels, ONE_HOT * 0.8 + 0.05, atol=1e-6)


def test_batches_of_an_epoch_are_fixed_by_its_number_and_the_seed():
    images, labels = noise(10, 8, 8, 3), np.arange(10) % 3

    def batches(seed=1):
        change = Augmentation("light", mixup=0.5)
        return ImageBatches(images, labels, lambda x: x, 4, seed, 1, change, num_classes=3)

    resumed = list(batches().dataset(1))
    unbroken = list(batches().epochs().skip(2).take(2))
    for one, other in zip(resumed, unbroken, strict=True):
        np.testing.assert_array_equal(one[0]["images"], other[0]["images"])
        np.testing.assert_array_equal(one[1], other[1])
        assert one[1].shape == (4, 3)
    assert np.abs(next(iter(batches(2).dataset(1)))[1] - resumed[0][1]).max() > 0
    plain = ImageBatches(images, labels, lambda x: x, 4, num_classes=3)
    np.testing.assert_array_equal(next(iter(plain.dataset()))[1], np.eye(3)[[0, 1, 2, 0]])


def test_operations_stay_between_black_and_white():
    images = tf.constant(noise(4, 8, 8, 3) / 255, tf.float32)
    assert len(OPERATIONS) == 11
    for make, options in OPERATIONS:
        changed = make(dtype="float32", **options)(images, training=True)
        assert changed.shape == images.shape and np.min(changed) >= -1e-5 and np.max(changed) <= 1 + 1e-5, (
            make
        )
