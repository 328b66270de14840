"""The loss of DETR's panoptic head by hand: boxes around masks, perfect predictions, padding."""

import keras
import numpy as np
import pytest

from keras_tfm.heads import PanopticSetLoss, SetPredictionLoss
from keras_tfm.heads.mask_losses import NO_IMAGE, segments_of
from keras_tfm.heads.panoptic_loss import boxes_around

GRID = (4, 4)


def targets_of(*segments):
    """(1, M, 4, 4) of (class, rows, columns) of each segment."""
    targets = np.zeros((1, len(segments), *GRID), "int32")
    for mask, (label, rows, columns) in zip(targets[0], segments, strict=True):
        mask[rows, columns] = 1 + label
    return targets


LEFT, CORNER = (0, np.s_[:], np.s_[:2]), (1, np.s_[2:], np.s_[3:])
BOXES = [[0.25, 0.5, 0.5, 1], [0.875, 0.75, 0.25, 0.5]]


def predictions_of(classes, boxes, masks, num_blocks=1):
    objects = np.concatenate([60.0 * np.eye(3)[classes], boxes], axis=1)
    cells = 60.0 * (2 * np.asarray(masks, float).reshape(len(masks), -1) - 1)
    return np.concatenate([np.tile(objects, (1, num_blocks)), cells], axis=1)[None].astype("float32")


def test_boxes_around_masks():
    targets = targets_of(LEFT, CORNER, (0, np.s_[:0], np.s_[:]))
    classes, masks = segments_of(targets)
    assert np.asarray(classes).tolist() == [[0, 1, -1]]
    np.testing.assert_allclose(boxes_around(masks, targets[:, :1] != NO_IMAGE)[0, :2], BOXES)
    padded = np.full((1, 3, 6, 8), NO_IMAGE)  # the image stands somewhere on a canvas
    padded[:, :, 1:5, 2:6] = targets
    classes, masks = segments_of(padded)
    assert np.asarray(classes).tolist() == [[0, 1, -1]]
    np.testing.assert_allclose(boxes_around(masks, padded[:, :1] != NO_IMAGE)[0, :2], BOXES)


def test_perfect_predictions_and_others():
    """Two blocks, and three queries; one of them is no object."""
    targets = targets_of(LEFT, CORNER)
    masks = [targets[0, 0] > 0, targets[0, 1] > 0, np.zeros(GRID, bool)]
    right = predictions_of([0, 1, 2], [*BOXES, [0.5] * 4], masks, num_blocks=2)
    loss = PanopticSetLoss(GRID, num_classes=2)
    assert float(loss(targets, right)) == pytest.approx(0, abs=1e-5)
    assert float(loss(targets, right[:, [2, 0, 1]])) == pytest.approx(0, abs=1e-5)  # a set
    filled = np.concatenate([targets, np.zeros_like(targets)], axis=1)
    wrong = predictions_of([0, 1, 2], [*BOXES, [0.5] * 4], [masks[0], ~masks[1], masks[2]], num_blocks=2)
    # The second mask is inverted: a focal loss of 60 for each of 14 false cells of 16 at the weight 0.75, and
    # 2 at 0.25; a dice of 1 - 1 / (2 + 14 + 1); both over two segments.
    expected = ((14 * 0.75 + 2 * 0.25) * 60 / 16 + 1 - 1 / 17) / 2
    assert float(loss(filled, wrong)) == pytest.approx(expected, rel=1e-4)
    halved = PanopticSetLoss(GRID, 2, mask_weights=(0.5, 0.0))
    assert float(halved(targets, wrong)) == pytest.approx((14 * 0.75 + 2 * 0.25) * 60 / 16 / 4, rel=1e-4)
    *_, (_, count) = loss.means(filled, wrong)
    assert float(count) == 2
    clone = keras.losses.deserialize(keras.losses.serialize(halved))
    assert clone.get_config() == halved.get_config()


def test_objects_are_learnt_as_without_masks():
    rng = np.random.default_rng(0)
    targets = targets_of(LEFT, CORNER)
    objects = rng.normal(size=(1, 2, 5, 3)), rng.uniform(0.1, 0.9, (1, 2, 5, 4))
    objects = np.concatenate(objects, axis=-1).astype("float32")  # (B, L, Q, 7)
    flat = np.moveaxis(objects, 1, 2).reshape(1, 5, -1)
    predictions = np.concatenate([flat, np.zeros((1, 5, 16), "float32")], axis=-1)
    truth = np.concatenate([np.array([[[0.0], [1.0]]]), [BOXES]], axis=-1)
    whole = PanopticSetLoss(GRID, 2).means(targets, predictions)
    for ours, alone in zip(whole, SetPredictionLoss().means(truth, objects), strict=False):
        np.testing.assert_allclose(ours, alone, rtol=1e-5)
    nothing = PanopticSetLoss(GRID, 2)(np.zeros((1, 1, *GRID)), predictions)
    assert np.isfinite(float(nothing))
