"""The loss of crowds: visible boxes first, whole ones at last, and regions in which nothing is denied."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import heads

WHOLE, VISIBLE = [[0.4, 0.5, 0.2, 0.4], [0.5, 0.5, 0.2, 0.4]], [[0.35, 0.5, 0.1, 0.4], [0.5, 0.5, 0.2, 0.4]]
REGION = [0.8, 0.8, 0.2, 0.2]
HALF = np.log(2) / 4  # a focal loss of the logit 0, less its balance


def targets(visible=True, region=False):
    """Two objects of one class, the second over half of the first."""
    rows = [[0, *whole, *seen] for whole, seen in zip(WHOLE, VISIBLE, strict=True)]
    rows += [[-2, *REGION, 0, 0, 0, 0]] * region + [[-1] + [0] * 8]
    return np.array([rows], "float32")[..., : 9 if visible else 5]


def predictions(blocks):
    """`blocks` hold for each query its box, if it is sure of an object, or (box, logit)."""
    rows = [[[box[1], *box[0]] if len(box) == 2 else [9.0, *box] for box in block] for block in blocks]
    return np.array([rows], "float32")


def test_early_blocks_learn_what_is_visible():
    loss = heads.CrowdSetPredictionLoss()
    right = predictions([VISIBLE, WHOLE, WHOLE])
    assert float(loss(targets(), right)) == pytest.approx(0, abs=1e-4)
    wrong = predictions([WHOLE, WHOLE, WHOLE])
    # The first object of the first block: 0.05 and 0.1 apart, half of the union: 5 x 0.15 + 2 x 0.5 over 2.
    assert float(loss(targets(), wrong)) == pytest.approx((5 * 0.15 + 2 * 0.5) / 2, rel=1e-3)
    assert float(loss(targets(visible=False), wrong)) == pytest.approx(0, abs=1e-4)
    clone = keras.losses.deserialize(keras.losses.serialize(heads.CrowdSetPredictionLoss(num_whole=1)))
    assert clone.num_whole == 1


def test_costs_of_two_objects_by_hand_and_ties():
    """By visible boxes the first query is the first object; by whole ones, equally far from both, either."""
    loss, box = heads.CrowdSetPredictionLoss(num_whole=1), [0.45, 0.5, 0.2, 0.4]
    given = predictions([[VISIBLE[0], box], [box, box]])
    rows = loss.of_blocks(targets(), 2)[:, :2]
    costs = np.asarray(loss.pair_costs(rows, given[0]))
    own = costs[0, 0, 0]
    np.testing.assert_allclose(costs[1] - costs[1, 0, 0], 0, atol=1e-5)  # 0.05 away, 3/5 common, both
    np.testing.assert_allclose(costs[1, 0, 0] - own, 5 * 0.05 + 2 * (1 - 0.6), atol=1e-4)
    _, of_query = loss.means_and_pairs(targets(), given)
    assert of_query.numpy()[0, 0].tolist() == [0, 1] and sorted(of_query.numpy()[0, 1]) == [0, 1]


def test_in_a_region_nothing_is_denied():
    """Unmatched queries in the region, half in it, a third in it; and one in it that is an object."""
    loss = heads.CrowdSetPredictionLoss(num_whole=1)
    inside, half, third = REGION, [0.7, 0.8, 0.2, 0.2], [0.6667, 0.8, 0.2, 0.2]
    half[0] += 1e-4
    given = predictions([[*WHOLE, (inside, 0.0), (half, 0.0), (third, 0.0)]])
    (with_region, _), _ = loss.means(targets(region=True), given)
    (without, _), _ = loss.means(targets(), given)
    np.testing.assert_allclose(without, 2 * 3 * 0.75 * HALF, rtol=1e-3)
    np.testing.assert_allclose(with_region, 2 * 0.75 * HALF, rtol=1e-3)
    objects = targets(region=True)
    objects[0, 0, 1:] = REGION * 2
    (matched, _), _ = loss.means(objects, predictions([[WHOLE[1], (REGION, 0.0)]]))
    np.testing.assert_allclose(matched, 2 * 0.25 * HALF, rtol=1e-3)  # it learns its object


def test_nothing_at_all_is_finite():
    given = tf.Variable(np.random.default_rng(0).uniform(0.1, 0.9, (1, 3, 4, 5)).astype("float32"))
    for nothing in (targets()[:, 2:], targets(region=True)[:, 2:]):
        with tf.GradientTape() as tape:
            value = heads.CrowdSetPredictionLoss()(nothing, given)
        assert np.isfinite(float(value)) and np.isfinite(tape.gradient(value, given)).all()
