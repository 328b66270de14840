"""Matching against SciPy's, boxes and losses by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from keras_tfm import heads

ONE_GRAPH = tf.function(
    heads.match,
    input_signature=[tf.TensorSpec((None, None, None)), tf.TensorSpec((None, None), "bool")],
)


def check(costs, mask, of_query, tolerance=1e-5):
    """Each example's pairs: as many as can be, of targets that count, each once, at the least cost."""
    for cost, wanted, target in zip(costs, mask, np.asarray(of_query), strict=True):
        queries = np.flatnonzero(target >= 0)
        taken = target[queries]
        assert len({*taken}) == len(taken) == min(len(cost), wanted.sum())
        assert wanted[taken].all()
        least = cost[:, wanted][linear_sum_assignment(cost[:, wanted])]
        assert abs(cost[queries, taken].sum() - least.sum()) <= tolerance * max(1, np.abs(least).sum())


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_the_total_cost_is_scipys(seed, num_queries, num_targets, has_ties):
    rng = np.random.default_rng(seed)
    size = (3, num_queries, num_targets)
    costs = (rng.integers(-3, 3, size) if has_ties else rng.normal(size=size)).astype("float32")
    mask = rng.random((3, num_targets)) < 0.7
    check(costs, mask, ONE_GRAPH(costs, mask), 0 if has_ties else 1e-5)


def test_matching_is_compiled_by_xla():
    rng = np.random.default_rng(0)
    costs, mask = rng.normal(size=(5, 7, 6)).astype("float32"), rng.random((5, 6)) < 0.7
    check(costs, mask, tf.function(heads.match, jit_compile=True)(costs, mask))


def test_costs_that_are_not_finite_come_last():
    nan, inf = np.nan, np.inf
    costs = np.array([[[nan, 1.0], [2.0, 50.0], [inf, -inf]]], "float32")
    np.testing.assert_array_equal(heads.match(costs, [[True, True]]), [[1, 0, -1]])
    np.testing.assert_array_equal(heads.match(costs[:, 2:], [[True, False]]), [[0]])


def test_nothing_to_match():
    np.testing.assert_array_equal(
        heads.match(np.zeros((2, 3, 0), "float32"), np.zeros((2, 0), bool)), [[-1] * 3] * 2
    )
    np.testing.assert_array_equal(heads.match(np.zeros((1, 2, 2), "float32"), [[False, False]]), [[-1, -1]])
    assert ONE_GRAPH(np.zeros((0, 2, 2), "float32"), np.zeros((0, 2), bool)).shape == (0, 2)


def test_generalized_iou_of_known_boxes():
    box = np.array([2.0, 2.0, 2.0, 2.0])
    others = np.array([[2, 2, 2, 2], [3, 2, 2, 2], [5, 2, 2, 2], [2, 2, 1, 1]], "float32")
    # The same; half of each in common; one side apart, in a hull of 2 x 5; a quarter within.
    np.testing.assert_allclose(heads.generalized_iou(box, others), [1, 1 / 3, -0.2, 0.25], rtol=1e-6)
    np.testing.assert_allclose(heads.corners_of(box), [1, 1, 3, 3])
    np.testing.assert_allclose(heads.generalized_iou(others[:2, None] * 0, others[:1] * 0), [[0], [0]])


@pytest.mark.parametrize(
    ("other", "common", "union", "hull"),
    [
        ([3, 2, 4, 2], 8, 8, 8),  # the same
        ([5, 4, 4, 4], 2, 22, 30),  # beyond it, to the right and below
        ([1.5, 2.5, 3, 5], 4, 19, 25),  # narrower and higher, from the left
        ([7, 8, 2, 2], 0, 12, 56),  # apart
    ],
)
def test_overlaps_of_boxes_that_are_no_squares(other, common, union, hull):
    """The box from (1, 1) to (5, 3) and others, in either order."""
    for pair in (([3, 2, 4, 2], other), (other, [3, 2, 4, 2])):
        first, second = np.array(pair, "float32")
        assert float(heads.box_iou(first, second)) == pytest.approx(common / union)
        expected = common / union - (hull - union) / hull
        assert float(heads.generalized_iou(first, second)) == pytest.approx(expected)


def test_a_perfect_prediction_and_a_shifted_one():
    targets = np.array([[[1, 0.5, 0.5, 0.2, 0.2], [-1, 0, 0, 0, 0]]], "float32")
    query = np.array([-50, 50, -50, 0.5, 0.5, 0.2, 0.2], "float32")
    other = np.array([-50, -50, 50, 0.1, 0.1, 0.1, 0.1], "float32")
    predictions = np.stack([other, query])[None, None]  # (1, 1, 2, 7)
    loss = heads.SetPredictionLoss()
    assert float(loss(targets, predictions)) == pytest.approx(0, abs=1e-6)
    predictions[..., 1, 3] += 0.1  # half of the width: GIoU 1/3
    assert float(loss(targets, predictions)) == pytest.approx(5 * 0.1 + 2 * 2 / 3, rel=1e-5)
    clone = keras.losses.deserialize(keras.losses.serialize(loss))
    assert clone.get_config() == loss.get_config()


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(
    ("loss", "class_costs"),
    [
        # The share of e^2, of 1 and of 1 in e^2 + 1 + 1; the last logit stands for "no object".
        (heads.SetPredictionLoss(), ([2.0, 0.0, 0.0], [-0.786986, -0.106507])),
        # p = 0.880797, 0.5: 0.25 (1 - p)^2 (-log p) - 0.75 p^2 (-log (1 - p)).
        (heads.FocalSetPredictionLoss(), ([2.0, 0.0], [-1.237108, -0.086643])),
        (heads.VarifocalSetPredictionLoss(), ([2.0, 0.0], [-1.237108, -0.086643])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_where_boxes_tie_the_classes_decide(loss, class_costs, blocks):
    """Two objects in one place, a query for each: the costs by hand, and who is matched with whom."""
    logits, (of_own, of_other) = class_costs
    box = [0.5, 0.5, 0.2, 0.2]
    targets = np.array([[[0, *box], [1, *box]]], "float32")
    first, second = [*logits, *box], [logits[1], logits[0], *logits[2:], *box]
    predictions = np.array([[[second, first]] * blocks], "float32")
    costs = loss.pair_costs(targets, predictions[:, 0])
    of_class, _, of_overlap = loss.costs  # the boxes are equal: no distance, and a GIoU of 1
    by_hand = of_class * np.array([[of_other, of_own], [of_own, of_other]]) - of_overlap
    np.testing.assert_allclose(costs, [by_hand], rtol=1e-5)
    _, of_query = loss.means_and_pairs(targets, predictions)
    np.testing.assert_array_equal(of_query, [[[1, 0]] * blocks])


@pytest.mark.parametrize(
    ("loss", "numbers"),
    [
        (heads.SetPredictionLoss, {"weights": (1, 5, 2), "costs": (1, 5, 2), "no_object": 0.1}),
        (heads.FocalSetPredictionLoss, {"weights": (2, 5, 2), "costs": (2, 5, 2), "alpha": 0.25}),
        (
            heads.VarifocalSetPredictionLoss,
            {"weights": (1, 5, 2), "costs": (2, 5, 2), "alpha": 0.75, "cost_alpha": 0.25},
        ),
    ],
)
def test_the_weights_of_the_papers(loss, numbers):
    assert {name: loss().get_config()[name] for name in numbers} == numbers
    assert loss(weights=(1, 2, 3), costs=(4, 5, 6)).costs == (4, 5, 6)


def draw_predictions(rng, num_blocks=2, num_classes=3):
    """Targets of two images, of two objects and of one, and predictions of `num_classes` logits and boxes."""
    targets = np.concatenate(
        [rng.integers(0, num_classes, (2, 2, 1)), rng.uniform(0.1, 0.4, (2, 2, 4))], axis=-1
    ).astype("float32")
    targets[1, 1] = [-1, 0, 0, 0, 0]
    boxes = rng.uniform(0.1, 0.4, (2, num_blocks, 4, 4))
    logits = rng.normal(size=(2, num_blocks, 4, num_classes))
    return targets, np.concatenate([logits, boxes], axis=-1).astype("float32")


@pytest.mark.parametrize(
    "loss",
    [heads.SetPredictionLoss(), heads.FocalSetPredictionLoss(), heads.VarifocalSetPredictionLoss()],
    ids=lambda loss: type(loss).__name__,
)
def test_the_loss_is_the_sum_over_the_blocks(loss):
    targets, predictions = draw_predictions(np.random.default_rng(0), num_blocks=3)
    of_blocks = [float(loss(targets, predictions[:, [block]])) for block in range(3)]
    assert float(loss(targets, predictions)) == pytest.approx(sum(of_blocks), rel=1e-5)


def test_a_query_of_the_first_class_weighs_ten_of_no_object_by_hand():
    box = [0.5, 0.5, 0.2, 0.2]
    targets = np.array([[[0, *box]]], "float32")
    predictions = np.array([[[[1, 0, *box], [0, 0, 0.1, 0.1, 0.1, 0.1]]]], "float32")
    # -log(e / (e + 1)) = 0.313262 of weight 1, and log 2 of weight 0.1.
    expected = (0.313262 + 0.1 * np.log(2)) / 1.1
    assert float(heads.SetPredictionLoss()(targets, predictions)) == pytest.approx(expected, rel=1e-5)


def test_the_focal_loss_of_one_matched_query_by_hand():
    """One query on its target: no distance, no overlap missing; the rest is the focal loss of two logits."""
    box = [0.5, 0.5, 0.2, 0.2]
    targets = np.array([[[1.0, *box]]], "float32")
    predictions = np.array([[[[0.0, 0.0, *box]]]], "float32")
    loss = heads.FocalSetPredictionLoss()(targets, predictions)
    # p = 1/2: 0.25 (1/2)^2 log 2 for the right class, 0.75 (1/2)^2 log 2 for the other; the weight is 2.
    assert float(loss) == pytest.approx(2 * 0.25 * np.log(2), rel=1e-5)


def test_the_varifocal_loss_by_hand():
    """One query, half as wide as its target, and one without: IoU 1/2, and p = 1/2 everywhere."""
    target, box = [0.5, 0.5, 0.4, 0.2], [0.5, 0.5, 0.2, 0.2]
    targets = np.array([[[1.0, *target]]], "float32")
    predictions = np.array([[[[0.0, 0.0, *box], [0.0, 0.0, 0.1, 0.1, 0.1, 0.1]]]], "float32")
    variable = tf.Variable(predictions)
    with tf.GradientTape() as tape:
        loss = heads.VarifocalSetPredictionLoss()(targets, variable)
    # Three logits of others weigh 0.75 (1/2)^2, the one of the class 1/2, and each entropy is log 2. The
    # distance is 0.2, GIoU is 1/2.
    expected = (3 * 0.75 / 4 + 0.5) * np.log(2) + 5 * 0.2 + 2 * 0.5
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    gradient = tape.gradient(loss, variable).numpy()[0, 0, :, :2]
    other = 0.75 / 4 * 0.5  # weight times p - target; no gradient passes through the weights
    np.testing.assert_allclose(gradient, [[other, 0.5 * (0.5 - 0.5)], [other, other]], atol=1e-6)
    restored = type(heads.VarifocalSetPredictionLoss()).from_config(
        heads.VarifocalSetPredictionLoss(alpha=0.5).get_config()
    )
    assert restored.alpha == 0.5 and restored.costs == (2.0, 5.0, 2.0)


def test_the_intersection_over_the_union_of_known_boxes():
    box = np.array([2.0, 2.0, 2.0, 2.0])
    others = np.array([[2, 2, 2, 2], [3, 2, 2, 2], [5, 2, 2, 2], [2, 2, 1, 1], [2, 2, 0, 0]], "float32")
    np.testing.assert_allclose(heads.box_iou(box, others), [1, 1 / 3, 0, 0.25, 0], rtol=1e-6)
    np.testing.assert_array_equal(heads.box_iou(others[4], others[4]), 0)


def test_proposals_are_of_any_class():
    rng = np.random.default_rng(0)
    targets, predictions = draw_predictions(rng)
    predictions[:, 0, :, 1:3] = -100.0  # what a proposal is not asked
    loss = heads.FocalSetPredictionLoss(proposes=True)
    whole = float(loss(targets, predictions))
    alone = heads.FocalSetPredictionLoss()
    any_class = targets.copy()
    any_class[..., 0] = np.minimum(targets[..., 0], 0)
    first = float(alone(any_class, np.delete(predictions[:, :1], [1, 2], axis=-1)))
    assert whole == pytest.approx(first + float(alone(targets, predictions[:, 1:])), rel=1e-5)
    restored = type(loss).from_config(loss.get_config())
    assert float(restored(targets, predictions)) == pytest.approx(whole)


def test_a_batch_without_objects_is_finite():
    _, predictions = draw_predictions(np.random.default_rng(0))
    for loss in (heads.FocalSetPredictionLoss(), heads.VarifocalSetPredictionLoss()):
        assert float(loss(np.full((2, 1, 5), -1.0, "float32"), predictions)) == 0.0


def test_the_loss_of_denoising_queries_by_hand():
    """The last two of three blocks have them: two pairs of parts for two places, near ones, then far ones."""
    target, box, none = [0.5, 0.5, 0.4, 0.2], [0.5, 0.5, 0.2, 0.2], [0.1, 0.1, 0.1, 0.1]
    targets = np.array([[[0, *target], [1, *target]]] + 2 * [[[1, *target], [-1, 0, 0, 0, 0]]], "float32")
    near, far = [[0.0, 0.0, *box]] * 2, [[np.log(3.0), -50.0, *none]] * 2  # p = 1/2 twice; 3/4 and 0
    predictions = np.array([[[0.0] * 6] * 3 + [*near, *far] * 4] * 3, "float32")
    loss = heads.DenoisingSetPredictionLoss(num_blocks=3, num_queries=1, weights=(3.0, 5.0, 2.0))
    *_, (of_class, count), (of_boxes, same) = loss.means(targets, predictions)
    # In each of 2 x 2 pairs of parts four queries have an object, whose logit weighs the IoU 1/2 and learns
    # it, and eight logits learn 0 at p = 1/2; six far queries learn 0 at p = 3/4, and at p = 0 for nothing.
    of_pair = (4 / 2 + 8 * 0.75 / 4) * np.log(2) + 6 * 0.75 * (3 / 4) ** 2 * np.log(4)
    assert float(of_class) == pytest.approx(3 * 4 * of_pair, rel=1e-5)
    assert float(of_boxes) == pytest.approx(4 * 4 * (5 * 0.2 + 2 * 0.5), rel=1e-5)
    assert float(count) == float(same) == 2 * 4
    assert type(loss).from_config(loss.get_config()).get_config() == loss.get_config()
