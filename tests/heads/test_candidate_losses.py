"""TSP's losses: which place may be which object, who is matched, what is learnt; by hand."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm import heads
from keras_tfm.heads.candidate_detectors import DroppedQueries, LiftedScores

LEFT, RIGHT = [0.3, 0.5, 0.2, 0.2], [0.7, 0.5, 0.2, 0.2]
TARGETS = np.array([[[0, *LEFT], [1, *RIGHT], [-1, 0, 0, 0, 0]]], "float32")
ENDS = [0.0, 0.0, 1.0, 1.0]  # a level for objects of all sizes
HALF = 0.25 * np.log(2)  # (1/2)^2 log 2: a focal loss of the logit 0, less its balance
NOWHERE = [0.05, 0.05, 0.02, 0.02]


def cells(rows, dense=()):
    """Predictions for `CellSetPredictionLoss`, of (two logits, centre, whether it stays, box), whose
    centredness has the logit 0, and of (two logits, centre).
    """
    numbers = [
        number for logits, centre, stays, box in rows for number in (*logits, *centre, *ENDS, 0, stays, *box)
    ]
    numbers += [number for logits, centre in dense for number in (*logits, *centre, *ENDS)]
    return np.array([numbers], "float32")


def matched(loss, predictions, targets=TARGETS):
    queries, _ = loss.parts_of(predictions)
    return np.asarray(loss.matched(targets, queries, 1)).tolist()


def test_cells_of_an_object_by_hand():
    """A box of 0.4 x 0.2 around (0.5, 0.5) and cells at and beside its centre, with ranges of two levels."""
    box = np.array([[[0.5, 0.5, 0.4, 0.2]]], "float32")
    near, far = [0.0, 0.0, 0.25, 0.25], [0.25, 0.25, 1e6, 1e6]
    for centre, of_near, of_far in (
        ((0.5, 0.5), True, False),  # the farthest sides are 0.2 away
        ((0.6, 0.5), False, True),  # 0.3
        ((0.71, 0.5), False, False),  # outside
        ((0.5, 0.61), False, False),
    ):
        rows = np.array([[[*centre, *near], [*centre, *far]]], "float32")
        assert np.asarray(heads.cells_fit(rows, box))[0, :, 0].tolist() == [of_near, of_far], centre
    # The image is twice as wide as high: the range is half as many parts of its width.
    wide = np.array([[[0.6, 0.5, 0.0, 0.0, 0.25, 0.5]]], "float32")
    assert not np.asarray(heads.cells_fit(wide, box)).any()


@given(st.integers(0, 2**32 - 1))
def test_a_place_in_an_object_fits_it_at_one_level(seed):
    rng = np.random.default_rng(seed)
    box, centre = rng.uniform(0.1, 1.0, (1, 1, 4)), rng.uniform(0, 1, 2)
    bounds = [0.0, 0.2, 0.4, 1e6]
    levels = np.array([[[*centre, a, a, b, b] for a, b in itertools.pairwise(bounds)]])
    corners = np.asarray(heads.corners_of(box))[0, 0]
    is_inside = (corners[:2] < centre).all() and (centre < corners[2:]).all()
    assert np.asarray(heads.cells_fit(levels, box)).sum() == is_inside


def test_a_proposal_fits_what_it_covers_by_more_than_half():
    proposals = np.array([[[0.5, 0.5, 0.4, 0.4]]], "float32")
    boxes = np.array([[[0.5, 0.5, 0.4, 0.24], [0.5, 0.5, 0.4, 0.16]]], "float32")
    assert np.asarray(heads.proposals_fit(proposals, boxes)).tolist() == [[[True, False]]]


def test_the_best_query_that_does_not_fit_is_not_matched():
    """The first query has the right class and box, but its cell lies elsewhere; the second fits alone."""
    loss = heads.CellSetPredictionLoss(2, 3)
    first = ((5.0, -5.0), (0.9, 0.9), 1, LEFT)
    second = ((-1.0, -1.0), (0.3, 0.45), 1, [0.35, 0.5, 0.2, 0.2])
    third = ((-5.0, 5.0), (0.7, 0.5), 1, RIGHT)
    assert matched(loss, cells([first, second, third])) == [[-1, 0, 1]]
    assert matched(loss, cells([first, (*second[:2], 0, second[3]), third])) == [[-1, -1, 1]]  # dropped
    assert matched(loss, cells([first, first, first])) == [[-1, -1, -1]]


def test_costs_of_cells_by_hand_and_ties():
    """Two objects of two classes, one inside the other, and two cells in both with equal boxes."""
    box = [0.5, 0.5, 0.2, 0.2]
    targets = np.array([[[0, *box], [1, *box]]], "float32")
    rows = [((0.0, 2.0), (0.5, 0.5), 1, box), ((2.0, 0.0), (0.5, 0.5), 1, box)]
    loss = heads.CellSetPredictionLoss(2, 2)
    queries, _ = loss.parts_of(cells(rows))
    # p = 0.880797, 0.5: 0.25 (1 - p)^2 (-log p) - 0.75 p^2 (-log (1 - p)); 2 GIoU is 2, and no distance.
    sure, unsure = -1.237108, -0.086643
    np.testing.assert_allclose(
        loss.pair_costs(targets, queries), [[[unsure - 2, sure - 2], [sure - 2, unsure - 2]]], rtol=1e-5
    )
    assert matched(loss, cells(rows), targets) == [[1, 0]]
    equal = [((0.0, 0.0), (0.5, 0.5), 1, box)] * 2
    assert sorted(matched(loss, cells(equal), targets)[0]) == [0, 1]  # a tie: either, but both


def test_the_loss_of_cells_by_hand():
    """One query on its object, one without, one dropped; of three cells two in an object, one of them in a
    smaller one too.
    """
    loss = heads.CellSetPredictionLoss(2, 3)
    targets = TARGETS.copy()
    targets[0, 1] = [1, 0.3, 0.5, 0.1, 0.1]
    rows = [
        ((0.0, 0.0), (0.3, 0.58), 1, LEFT),
        ((0.0, 0.0), (0.9, 0.9), 1, NOWHERE),
        ((0.0, 0.0), (0.9, 0.9), 0, NOWHERE),
    ]
    dense = [((0.0, -50.0), (0.3, 0.58)), ((-50.0, 0.0), (0.3, 0.5)), ((-50.0, -50.0), (0.9, 0.9))]
    (classes, count), (boxes, num_targets), (of_cells, num_cells) = loss.means(targets, cells(rows, dense))
    # One of four logits is right: 0.25 HALF; three are not: 0.75 HALF.
    np.testing.assert_allclose([classes, count], [(0.25 + 3 * 0.75) * HALF, 2], rtol=1e-5)
    np.testing.assert_allclose([boxes, num_targets], [np.log(2), 2], atol=1e-5)  # of the centredness alone
    np.testing.assert_allclose([of_cells, num_cells], [2 * 0.25 * HALF, 2], rtol=1e-5)
    clone = keras.losses.deserialize(keras.losses.serialize(loss))
    assert clone.get_config() == loss.get_config()


def test_a_centredness_is_learnt():
    """A quarter from the left and half from the top of the box: the root of 1/3 has the least loss."""
    targets = np.array([[[0, 0.5, 0.5, 0.4, 0.2]]], "float32")
    predictions = cells([((9.0, -9.0), (0.4, 0.5), 1, targets[0, 0, 1:])], [((9.0, -9.0), (0.4, 0.5))])
    loss, found = heads.CellSetPredictionLoss(2, 1), []
    for p in (3**-0.5 - 0.05, 3**-0.5, 3**-0.5 + 0.05):
        predictions[0, 8] = np.log(p / (1 - p))
        found.append(float(loss.means(targets, predictions)[1][0]))
    p = 3**-0.5
    assert found[1] == min(found) == pytest.approx(-p * np.log(p) - (1 - p) * np.log(1 - p), rel=1e-4)


def regions(rows, anchors=()):
    """Predictions for `RegionSetPredictionLoss`, of (three logits, proposal, whether it stays, box) and of
    (logit, correction, anchor).
    """
    numbers = [number for logits, place, stays, box in rows for number in (*logits, *place, stays, *box)]
    numbers += [number for logit, correction, anchor in anchors for number in (logit, *correction, *anchor)]
    return np.array([numbers], "float32")


def test_costs_of_regions_by_hand_and_ties():
    box = [0.5, 0.5, 0.2, 0.2]
    targets = np.array([[[0, *box], [1, *box]]], "float32")
    proposal = [0.52, 0.5, 0.2, 0.2]  # 0.1 of its width off: a correction of 10 x -0.1
    rows = [((0.0, 2.0, 0.0), proposal, 1, proposal), ((2.0, 0.0, 0.0), proposal, 1, proposal)]
    loss = heads.RegionSetPredictionLoss(2, 2)
    queries, _ = loss.parts_of(regions(rows))
    own, other, overlap = 0.786986, 0.106507, 0.18 / 0.22
    far = 1.0 - 2 * overlap
    expected = [[far - other, far - own], [far - own, far - other]]
    np.testing.assert_allclose(loss.pair_costs(targets, queries), [expected], rtol=1e-4)
    assert matched(loss, regions(rows), targets) == [[1, 0]]
    equal = [((0.0, 0.0, 0.0), proposal, 1, proposal)] * 2
    assert sorted(matched(loss, regions(equal), targets)[0]) == [0, 1]
    apart = [0.58, 0.5, 0.2, 0.2]  # an overlap of 0.12 / 0.28 of the proposal, whatever the box
    assert matched(loss, regions([rows[0], ((2.0, 0.0, 0.0), apart, 1, box)]), targets) == [[1, -1]]


def test_anchors_by_hand():
    """The object's best anchor, one of 0.8, one of 0.5, one of 0.2, and an object whose best one has 0.05."""
    box, small = [0.5, 0.5, 0.4, 0.4], [0.1, 0.1, 0.1, 0.02]
    targets = np.array([[[0, *box], [0, *small]]], "float32")
    loss, still = heads.RegionSetPredictionLoss(1, 1), (0, 0, 0, 0)
    rows = [
        (0.0, still, [0.5, 0.5, 0.4, 0.36]),
        (0.0, still, [0.5, 0.5, 0.4, 0.32]),
        (0.0, still, [0.5, 0.5, 0.4, 0.2]),
        (0.0, still, [0.5, 0.5, 0.4, 0.08]),
        (0.0, still, [0.1, 0.1, 0.1, 0.4]),
    ]
    predictions = regions([((0.0, 0.0), NOWHERE, 1, NOWHERE)], rows)
    total, count = loss.means(targets, predictions)[-1]
    distances = np.log([0.4 / 0.36, 0.4 / 0.32, 0.4 / 0.02]).sum()
    np.testing.assert_allclose([total, count], [(3 * 0.25 + 0.75) * HALF + distances, 3], rtol=1e-4)
    clone = keras.losses.deserialize(keras.losses.serialize(loss))
    assert clone.get_config() == loss.get_config()


def test_nothing_to_find_is_finite_and_the_dropped_learn_nothing():
    rng = np.random.default_rng(0)
    for loss, width, dense in (
        (heads.CellSetPredictionLoss(2, 3), 14, 8),
        (heads.RegionSetPredictionLoss(2, 3), 12, 9),
    ):
        predictions = rng.uniform(0.1, 0.9, (2, 3 * width + 5 * dense)).astype("float32")
        predictions[:, [i * width + width - 5 for i in range(3)]] = [1, 0, 1]
        variable = tf.Variable(predictions)
        for targets in (np.concatenate([TARGETS] * 2), np.full((2, 1, 5), -1.0, "float32")):
            with tf.GradientTape() as tape:
                value = loss(targets, variable)
            gradient = tape.gradient(value, variable).numpy()
            assert np.isfinite(float(value)) and np.isfinite(gradient).all()
            assert not gradient[:, width : 2 * width].any()
        none = loss(np.zeros((2, 0, 5), "float32"), predictions)  # not even a row
        assert float(none) == pytest.approx(float(value), rel=1e-6)
        with pytest.raises(
            ValueError, match=f"must have {3 * width} numbers for the queries and {dense} for"
        ):
            loss(targets, predictions[:, :-1])


@pytest.mark.slow
def test_xla_compiles_the_losses():
    rng = np.random.default_rng(0)
    for loss, length in (
        (heads.CellSetPredictionLoss(2, 3), 3 * 14 + 5 * 8),
        (heads.RegionSetPredictionLoss(2, 3), 3 * 12 + 5 * 9),
    ):
        predictions = rng.uniform(0.1, 0.9, (2, length)).astype("float32")
        targets = np.concatenate([TARGETS, TARGETS])
        compiled = tf.function(loss, jit_compile=True)(targets, predictions)
        assert float(compiled) == pytest.approx(float(loss(targets, predictions)), rel=1e-5)


def test_scores_are_lifted_and_queries_dropped_in_training_alone():
    scores, is_object = np.array([[2.0, -3.0, -1.0]], "float32"), np.array([[False, True, False]])
    p = (1 / (1 + np.exp(3.0)) + 1) / 2
    np.testing.assert_array_equal(LiftedScores()(scores, is_object), scores)
    lifted = LiftedScores()(scores, is_object, training=True)
    np.testing.assert_allclose(lifted, [[2.0, np.log(p / (1 - p)), -1.0]], rtol=1e-6)
    drop = DroppedQueries(1000, 0.3, seed=0)
    assert np.asarray(drop(scores)).all()
    shares = [1 - np.asarray(drop(np.concatenate([scores] * 4), training=True)).mean(1) for _ in range(12)]
    assert np.max(shares) < 0.36 and np.ptp(np.mean(shares, axis=1)) > 0.1  # another share each time ...
    assert np.max(np.ptp(shares, axis=1)) < 0.08  # ... the same for the whole batch
