"""The losses of trackers of one object: cells inside, heat, and terms by hand."""

import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.heads.target_losses import cells_inside, gaussian_heat

GRID = (2, 3)
BOX = np.array([[0.5, 0.25, 0.6, 0.4]])  # from (0.2, 0.05) to (0.8, 0.45)


def test_cells_inside_by_hand():
    """In cells the box is (0.6, 0.1) to (2.4, 0.9): columns 1 and 2, and row 1 alone, the least of all."""
    boxes = np.array([BOX[0], [0.5, 0.5, 1, 1], [0.99, 0.99, 0.01, 0.01], [0.5, 0.5, 0, 0]], "float32")
    expected = [[[0, 0, 0], [0, 1, 1]], np.ones(GRID), [[0, 0, 0], [0, 0, 1]], np.zeros(GRID)]
    np.testing.assert_array_equal(np.asarray(cells_inside(boxes, GRID)).reshape(-1, *GRID), expected)


def test_the_targets_loss_by_hand():
    rng = np.random.default_rng(0)
    predictions = np.concatenate([rng.normal(size=(1, 6, 2)), rng.uniform(size=(1, 6, 4))], -1)
    (total, weight), (distance, count), (badness, other) = heads.TargetLoss(GRID).means(BOX, predictions)
    inside = [4, 5]
    logits = predictions[0, :, :2]
    entropies = np.log(np.exp(logits).sum(-1)) - logits[:, 1]
    entropies[inside] += logits[inside, 1] - logits[inside, 0]
    weights = np.full(6, 0.0625)
    weights[inside] = 1
    np.testing.assert_allclose(total, 8.334 * (weights * entropies).sum(), rtol=1e-5)
    np.testing.assert_allclose(weight, weights.sum())
    np.testing.assert_allclose(distance, 5 * np.abs(predictions[0, inside, 2:] - BOX).sum(), rtol=1e-5)
    expected = 1 - np.asarray(heads.generalized_iou(predictions[0, inside, 2:], BOX))
    np.testing.assert_allclose(badness, 2 * expected.sum(), rtol=1e-5)
    assert float(count) == float(other) == 2


def test_an_image_without_the_object():
    nothing = np.zeros((1, 4))
    predictions = np.zeros((1, 6, 6))
    assert float(heads.TargetLoss(GRID)(nothing, predictions)) == pytest.approx(8.334 * np.log(2))
    heat = heads.HeatmapLoss(GRID)
    assert float(heat(nothing, np.full((1, 6, 5), -9.0))) == pytest.approx(0, abs=1e-5)
    assert float(heat(nothing, np.full((1, 6, 5), 9.0))) > 10


def test_the_heat_map_by_hand():
    """The centre (1.5, 0.5) in cells is in cell (1, 0); the deviations are 0.3 and 0.4 / 3 of a cell."""
    heat = np.asarray(gaussian_heat(np.array([[1.0, 0.0]], "float32"), np.array([[2.0, 0.1]]), GRID))
    np.testing.assert_allclose(heat[0, 0], np.exp(-1 / 8), rtol=1e-6)
    np.testing.assert_allclose(heat[0, 4], np.exp(-4.5), rtol=1e-6)  # a third of a cell at least
    assert heat[0, 1] == 1
    predictions = np.random.default_rng(0).normal(size=(1, 6, 5))
    predictions[..., 1:] = 1 / (1 + np.exp(-predictions[..., 1:]))
    (total, count), (place, _), (size, _) = heads.HeatmapLoss(GRID).means(BOX, predictions)
    p = 1 / (1 + np.exp(-predictions[0, :, 0]))
    columns, rows = np.array([[0, 1, 2] * 2, [0] * 3 + [1] * 3])
    near = np.exp(-((columns - 1) ** 2 + rows**2) / 2 * 9)
    expected = -((1 - near) ** 4) * p**2 * np.log(1 - p)
    expected[1] = -((1 - p[1]) ** 2) * np.log(p[1])
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-5)
    np.testing.assert_allclose(place, np.abs(predictions[0, 1, 1:3] - [0.5, 0.5]).sum(), rtol=1e-5)
    np.testing.assert_allclose(size, np.abs(predictions[0, 1, 3:] - BOX[0, 2:]).sum(), rtol=1e-5)
    assert float(count) == 1
