"""Batches of identities: as many of each, each as often as any other, and in a row for validation."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import IdentityBatches

COUNTS = [7, 2, 5, 9, 4, 1, 6]  # images of each identity
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(7), COUNTS))
IMAGES = np.arange(len(LABELS), dtype="uint8")[:, None, None, None] * np.ones((1, 2, 2, 3), "uint8")


def rows_of(inputs):
    return inputs["images"][:, 0, 0, 0].numpy().tolist()


@pytest.mark.parametrize("seed", [0, 5])
def test_a_batch_has_as_many_images_of_each_identity(seed):
    batches = IdentityBatches(IMAGES, LABELS, tf.identity, 3, 4, seed, cameras=np.arange(len(LABELS)) % 5)
    assert batches.num_batches == len(LABELS) // 12
    seen, shown = np.zeros(7, int), set()
    for inputs, labels in batches.epochs().take(28):
        counts = np.bincount(labels, minlength=7)
        assert sorted(counts.tolist()) == [0, 0, 0, 0, 4, 4, 4]
        rows = rows_of(inputs)
        np.testing.assert_array_equal(LABELS[rows], labels)
        np.testing.assert_array_equal(inputs["camera"], np.array(rows) % 5)
        for identity in np.flatnonzero(counts):  # as many different images as there are
            own = [row for row in rows if LABELS[row] == identity]
            assert len(set(own)) == min(4, COUNTS[identity])
        seen += counts // 4
        shown |= set(rows)
    assert shown == set(range(len(LABELS))) and seen.sum() == 84 and seen.min() > 5


def test_epochs_depend_on_their_number_and_the_seed():
    batches = IdentityBatches(IMAGES, LABELS, tf.identity, 3, 4, seed=1)
    first, again, second = (
        [
            rows_of(inputs)
            for inputs, _ in IdentityBatches(IMAGES, LABELS, tf.identity, 3, 4, seed=1).dataset(i)
        ]
        for i in (0, 0, 1)
    )
    assert first == again != second
    assert [rows_of(inputs) for inputs, _ in batches.epochs().take(4)] == first + second


def test_validation_shows_all_images_identity_by_identity():
    batches = IdentityBatches(IMAGES, LABELS, tf.identity, 3, 4)
    found = [(rows_of(inputs), labels.numpy().tolist()) for inputs, labels in batches.dataset()]
    assert sorted(row for rows, _ in found for row in rows) == list(range(len(LABELS)))
    assert [label for _, labels in found for label in labels] == sorted(LABELS.tolist())
    with pytest.raises(
        ValueError, match="`identities_in_batch` must be at most 7, as many as there are; it is 8"
    ):
        IdentityBatches(IMAGES, LABELS, tf.identity, 8, 4, seed=0)
