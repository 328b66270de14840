"""Losses of a set of masks at points: values by hand, the draws, sums over parts of a batch."""

import keras
import numpy as np
import pytest

from keras_tfm.heads import PointMaskSetLoss

CENTRES = np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]], "float32")  # of 2 x 2 cells


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


def test_the_least_certain_points_by_hand(monkeypatch):
    """Four candidates at the centres of cells, of which one is taken, and a further point."""
    loss = PointMaskSetLoss((2, 2), num_points=2, oversampling=2.0, importance=0.5)
    learning = np.concatenate([CENTRES, CENTRES[:1]])[None]
    monkeypatch.setattr(loss, "draw", lambda _, count: {2: CENTRES[None, :2], 5: learning}[count])
    targets = np.array([[[0, 255], [255, 0]]])
    logits, masks = [2.0, 1.0], [3.0, -1.0, 2.0, -4.0]
    predictions = np.array([[[[*logits, *masks]]]])
    (of_class, weight), (of_masks, count) = loss.means(targets, predictions)
    x, t = np.array([-1.0, 3.0]), np.array([0.0, 1.0])  # the second cell, and the first one again
    entropy = np.mean(np.log1p(np.exp(x)) - t * x)
    dice = 1 - (2 * (sigmoid(x) * t).sum() + 1) / (sigmoid(x).sum() + t.sum() + 1)
    assert float(of_masks) == pytest.approx(5 * entropy + 5 * dice, rel=1e-5) and float(count) == 1
    assert float(of_class) == pytest.approx(2 * np.log1p(np.exp(-1)), rel=1e-5) and float(weight) == 1


def test_pairs_are_matched_by_their_points(monkeypatch):
    """Queries in another order have the same loss; with the masks exchanged between classes it is larger."""
    loss = PointMaskSetLoss((2, 2), num_points=4, importance=0.0)
    points = {4: CENTRES[None], 16: np.tile(CENTRES, (4, 1))[None]}
    monkeypatch.setattr(loss, "draw", lambda _, count: points[count])
    targets = np.array([[[0, 0], [1, 255]]])
    masks = 20.0 * np.array([[1, 1, -1, -1], [-1, -1, 1, -1], [-1, -1, -1, -1]])
    joined = np.concatenate([20.0 * np.eye(3), masks], axis=1)[None, None]
    assert float(loss(targets, joined)) == pytest.approx(0, abs=1e-5)
    assert float(loss(targets, joined[:, :, ::-1])) == pytest.approx(0, abs=1e-5)
    wrong = np.concatenate([20.0 * np.eye(3)[[1, 0, 2]], masks], axis=1)[None, None]
    assert float(loss(targets, wrong)) > 1
    (_, weight), (total, count) = loss.means(np.full_like(targets, 255), joined)
    assert (float(total), float(count), float(weight)) == (0, 0, pytest.approx(0.3))


def test_means_are_sums_over_the_parts_of_a_batch(monkeypatch):
    """Each image has its own points; with these fixed, both totals and both counts are sums."""
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 4, (3, 5, 6))
    predictions = rng.normal(size=(3, 2, 3, 4 + 4 * 5)).astype("float32")
    points = {n: rng.random((3, 2, n, 2), "float32") for n in (6, 20)}
    loss = PointMaskSetLoss((4, 5), num_points=6)

    def means(rows):
        drawn = {n: x[rows].reshape(-1, n, 2) for n, x in points.items()}
        monkeypatch.setattr(loss, "draw", lambda _, count: drawn[count])
        return np.array(loss.means(targets[rows], predictions[rows]))

    whole = means(slice(0, 3))
    np.testing.assert_allclose(means(slice(0, 1)) + means(slice(1, 3)), whole, rtol=1e-5)


def test_a_set_of_masks_is_learnt_as_classes_of_pixels_are():
    """One mask of each class has the same loss, at the same points, in either form of the targets."""
    rng = np.random.default_rng(0)
    classes, numbers = rng.integers(0, 4, (2, 5, 6)), np.array([2, 0, 1])[:, None, None]  # 3 is no class
    masks = np.where(classes[:, None] == numbers, 1 + numbers, 0)
    predictions = rng.normal(size=(2, 2, 5, 4 + 4 * 5)).astype("float32")  # five queries, four sets of them
    first, second = (
        PointMaskSetLoss((4, 5), num_points=6, seed=3)(targets, predictions) for targets in (classes, masks)
    )
    assert float(first) == pytest.approx(float(second))


def test_the_draws():
    """From the same seed they are the same, and from call to call they differ."""
    first, other = (PointMaskSetLoss((2, 2), num_points=50, seed=seed).draw(3, 50) for seed in (1, 2))
    assert first.shape == (3, 50, 2) and not np.array_equal(first, other)
    loss = PointMaskSetLoss((2, 2), num_points=50, seed=1)
    np.testing.assert_array_equal(loss.draw(3, 50), first)
    again = np.asarray(loss.draw(3, 50))
    assert not np.array_equal(again, first) and 0 <= again.min() < 0.1 and 0.9 < again.max() < 1
    generator = keras.random.SeedGenerator(1)
    given = PointMaskSetLoss((2, 2), seed=generator)
    assert given.seed_generator is generator and given.get_config()["seed"] is None
    clone = keras.losses.deserialize(keras.losses.serialize(loss))
    assert clone.get_config() == loss.get_config()


@pytest.mark.parametrize("fields", [{"num_points": 0}, {"oversampling": 0.5}, {"importance": 1.5}])
def test_refusals(fields):
    with pytest.raises(ValueError, match="`num_points` and `oversampling` must be at least 1"):
        PointMaskSetLoss((2, 2), **fields)
