"""Re-identification: triplets by hand, the loss's halves, a batch of one identity."""

import keras
import numpy as np
import pytest

from keras_tfm.heads import ReidentificationLoss, Reidentifier
from keras_tfm.heads.reidentification import hardest_triplets
from keras_tfm.models import TransReID
from tests.models.test_transreid import INPUTS, SMALL


def test_hardest_triplets_by_hand():
    vectors = np.array([[0.0, 0], [3, 0], [0, 4], [0, 5]], "float32")
    labels = np.array([7, 7, 2, 2])
    y = hardest_triplets(labels, vectors, labels, vectors).numpy()
    expected = np.log1p(np.exp([3 - 4, 3 - 5, 1 - 4, 1 - 5]))
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    part = hardest_triplets(labels[1:3], vectors[1:3], labels, vectors)  # of one replica
    np.testing.assert_allclose(part, expected[1:3], rtol=1e-5)
    labels = np.array([7, 7, 7, 7])
    alone = hardest_triplets(labels, vectors, labels, vectors)
    np.testing.assert_array_equal(alone, np.zeros(4))  # none of another identity


def test_half_of_the_loss_is_the_whole_vectors():
    rng = np.random.default_rng(0)
    labels, predictions = np.array([0, 0, 1, 1]), rng.normal(size=(4, 3, 2 + 5)).astype("float32")
    loss, parts = ReidentificationLoss(2), []
    for i in range(3):
        parts.append(float(loss(labels, predictions[:, i : i + 1])))
        log = predictions[:, i, :2] - np.log(np.exp(predictions[:, i, :2]).sum(-1, keepdims=True))
        vectors = predictions[:, i, 2:]
        triplets = hardest_triplets(labels, vectors, labels, vectors).numpy().mean()
        assert parts[-1] == pytest.approx(triplets - log[np.arange(4), labels].mean(), rel=1e-5)
    assert float(loss(labels, predictions)) == pytest.approx(
        parts[0] / 2 + (parts[1] + parts[2]) / 4, rel=1e-5
    )
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(again(labels, predictions)) == float(loss(labels, predictions))


def test_a_step_of_training_changes_every_weight():
    model = Reidentifier(TransReID(SMALL), 3)
    learner = model.learner()
    learner.compile(keras.optimizers.SGD(0.1), model.loss_of_training())
    rng = np.random.default_rng(0)
    images = rng.normal(size=(4, *INPUTS["images"].shape)).astype("float32")
    before = [np.array(weight) for weight in model.trainable_weights]
    inputs = {"images": images, "camera": np.array([0, 1, 2, 0])}
    learner.fit(inputs, np.array([0, 0, 1, 1]), batch_size=4, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.isfinite(weight).all()
        assert weight.path.endswith("bias") or (np.asarray(weight) != old).any(), weight.path
    with pytest.raises(ValueError, match="`num_classes` must be at least 1; it is 0"):
        Reidentifier(model.backbone, 0)
