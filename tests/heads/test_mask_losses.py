"""Losses of masks, and which masks they compare: by hand, and all pairs by one pair after the other."""

import numpy as np
import pytest

from keras_tfm.heads import MaskSetLoss, dice_loss, focal_loss
from keras_tfm.heads.mask_losses import (
    binary_cross_entropy,
    matched_masks,
    pairwise_cross_entropy,
    pairwise_dice,
    pairwise_focal,
    whole_mask_loss,
)
from keras_tfm.layers.boxes import corners_of_masks

LOG_2 = np.log(2)


def test_the_losses_of_masks_by_hand():
    targets, logits = np.array([[1.0, 0.0]]), np.zeros((1, 2), "float32")
    focal = (0.25 + 0.75) * 0.25 * LOG_2 / 2
    np.testing.assert_allclose(focal_loss(targets, logits), [focal], rtol=1e-6)
    np.testing.assert_allclose(dice_loss(targets, logits), [1 - 2 / 3], rtol=1e-6)
    assert float(focal_loss([[1.0]], [[-200.0]])[0]) == pytest.approx(0.25 * 200)
    # p = 3/4 for the target 1/4, and p = 1/2.
    entropy = (-0.25 * np.log(0.75) - 0.75 * np.log(0.25) + LOG_2) / 2
    np.testing.assert_allclose(
        binary_cross_entropy([[0.25, 1.0]], [[np.log(3.0), 0.0]]), [entropy], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("pairwise", "single", "options"),
    [
        (pairwise_focal, focal_loss, {}),
        (pairwise_focal, focal_loss, {"alpha": 0.4, "gamma": 1.5}),
        (pairwise_dice, dice_loss, {}),
        (pairwise_cross_entropy, binary_cross_entropy, {}),
    ],
)
def test_all_pairs_cost_what_each_costs(pairwise, single, options):
    rng = np.random.default_rng(0)
    targets = (rng.random((2, 3, 5)) < 0.5).astype("float32")
    logits = 2 * rng.normal(size=(2, 4, 5)).astype("float32")
    expected = single(targets[:, None], logits[:, :, None], **options)  # (B, Q, M)
    np.testing.assert_allclose(pairwise(targets, logits, **options), expected, rtol=1e-5)


def test_masks_of_the_queries_of_segments():
    masks = np.arange(6.0).reshape(1, 3, 2)
    of_segments, is_matched = matched_masks(masks, np.array([[2, -1, 0]]), 4)
    np.testing.assert_array_equal(is_matched, [[1, 0, 1, 0]])
    np.testing.assert_array_equal(np.asarray(of_segments)[0, [0, 2]], [[4, 5], [0, 1]])


def test_whole_masks_are_compared_at_the_size_of_segments():
    """One cell of the logit 0 is two pixels of it, the first of which belongs to the segment."""
    loss = whole_mask_loss(np.array([[[[1.0, 0.0]]]]), np.zeros((1, 1, 1)), (1, 1), 20.0, 3.0)
    np.testing.assert_allclose(loss, [[20 * LOG_2 / 8 + 3 / 3]], rtol=1e-6)


def test_a_set_of_masks_by_hand():
    """Two queries, the second of which is the segment's: its class costs less, all masks cost the same."""
    loss = MaskSetLoss((1, 2), weights=(3.0, 20.0, 5.0), no_object=0.5)
    targets = np.array([[[1, 255]]])  # the first of two pixels is of class 1
    other, own = [0.0, 0.0, 2.0], [0.0, 2.0, 0.0]
    predictions = np.array([[[[*other, 0.0, 0.0], [*own, 0.0, 0.0]]]])
    (of_classes, weight), (of_masks, count) = loss.means(targets, predictions)
    entropy = np.log(np.exp(2) + 2) - 2  # both queries are right: the first is of no object
    assert float(of_classes) == pytest.approx(3 * 1.5 * entropy, rel=1e-5)
    assert float(of_masks) == pytest.approx(20 * LOG_2 / 8 + 5 / 3, rel=1e-5)
    assert (float(weight), float(count)) == (1.5, 1)


def test_corners_around_masks():
    masks = np.zeros((2, 3, 4))
    masks[0, 1, 1:3] = 1
    np.testing.assert_array_equal(corners_of_masks(masks), [[1, 1, 3, 2], [0, 0, 4, 3]])
